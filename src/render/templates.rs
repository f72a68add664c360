//! Compiles and renders templates. An operator's file replaces the built-in template of that name.
//!
//! Errors are found on loading and name file and line. HTML templates escape their output; others
//! do not. An undefined name is an error, except in `{% if … %}`. The words of a locale are
//! `t("message", name=value)`, filters and globals ([`localized`]). Start with [`Templates::load`].

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use css_inline::CSSInliner;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{
    AutoEscape, Environment, ErrorKind, State, UndefinedBehavior, Value, escape_formatter,
};

use super::built_in_templates::{ExpandedTemplate, Template};
use super::catalogs::Catalogs;
use super::error::Error;
use super::inline;
use super::locale_formatter::{LocaleFormatter, Medium, MessageValue, plain};
use super::safe_text::{clamp, escape_into, wrap};
use super::site::SiteView;
use crate::domain::Site;

/// The most steps of a template. The longest built-in email takes a tenth of them.
const MAX_STEPS: u64 = 500_000;
/// The most bytes that a template may print. Emails are first rendered with all their items, and
/// then with fewer.
const MAX_OUTPUT: usize = 32 << 20;

/// The compiled templates of one renderer.
pub(super) struct Templates {
    env: Environment<'static>,
    /// A copy of `env` for each locale, with its words.
    localized: BTreeMap<String, Environment<'static>>,
    catalogs: Catalogs,
    overrides: Option<PathBuf>,
    /// The sources. Lines of errors refer to them, unless styles are inlined.
    sources: HashMap<&'static str, ExpandedTemplate>,
    /// Templates whose styles are inlined. For the others, each email is inlined.
    pub inlined: BTreeSet<&'static str>,
    /// Inlines styles. Pages have none, because they keep their style sheets.
    inliner: Option<CSSInliner<'static>>,
}

impl Templates {
    /// Reads and compiles templates and catalogs.
    ///
    /// An inliner inlines the styles of HTML templates, except those with an operator's file. Later
    /// errors in an inlined template have no line number, because its lines no longer match.
    pub(super) fn load<'a>(
        built_in: impl IntoIterator<Item = &'a Template>,
        overrides: Option<&Path>,
        site: &Site,
        inliner: Option<CSSInliner<'static>>,
    ) -> Result<Self, Error> {
        let (catalogs, site) = (Catalogs::load(overrides)?, SiteView::of(site)?);
        if let Some(folder) = overrides {
            // A missing folder is probably a typo, so it is an error.
            std::fs::read_dir(folder).map_err(|cause| Error::unreadable(folder, cause))?;
        }
        let mut templates = Self {
            env: environment(&site),
            localized: BTreeMap::new(),
            catalogs,
            overrides: overrides.map(Path::to_owned),
            sources: HashMap::new(),
            inlined: BTreeSet::new(),
            inliner,
        };
        for template in built_in {
            let name = template.name;
            let whole = ExpandedTemplate::of(template, |part| templates.source(part))?;
            let is_own = |part: &str| templates.own_file(part).is_some_and(|file| file.exists());
            let text = match &templates.inliner {
                Some(inliner) if name.ends_with(".html") && !whole.parts().any(is_own) => {
                    let html = inline::template(inliner, &whole.text)
                        .map_err(|error| templates.invalid(name, None, error.to_string()))?;
                    templates.inlined.insert(name);
                    html
                }
                _ => whole.text.clone(),
            };
            templates.sources.insert(name, whole);
            let added = templates.env.add_template_owned(name, text);
            added.map_err(|error| templates.error(name, &error))?;
        }
        let environments = templates
            .catalogs
            .formatters()
            .map(|formatter| (formatter.tag().to_owned(), localized(&templates.env, formatter)));
        templates.localized = environments.collect();
        Ok(templates)
    }

    pub(super) fn catalogs(&self) -> &Catalogs {
        &self.catalogs
    }

    /// Renders a template in the locale of `formatter`.
    pub(super) fn render(
        &self,
        name: &str,
        formatter: &LocaleFormatter,
        context: Value,
    ) -> Result<String, Error> {
        let env = self.localized.get(formatter.tag()).unwrap_or(&self.env);
        let compiled = env.get_template(name).map_err(|error| self.error(name, &error))?;
        let mut output = Output::default();
        let captured = compiled.render_captured_to(context, &mut output);
        captured.map_err(|error| self.error(name, &error))?;
        // The engine writes whole texts, so the output is always valid UTF-8.
        let text = String::from_utf8(output.0).unwrap_or_default();
        match &self.inliner {
            Some(inliner) if name.ends_with(".html") && !self.inlined.contains(name) => {
                let html = inline::email(inliner, &text);
                html.map_err(|error| self.invalid(name, None, error.to_string()))
            }
            _ => Ok(text),
        }
    }

    /// Returns whether a template may print a field of the recipient: whether its text mentions it.
    /// `debug()` prints all variables.
    pub(super) fn mention_user(&self) -> bool {
        let mut sources = self.sources.values();
        sources.any(|source| source.text.contains("user") || source.text.contains("debug"))
    }

    /// Returns the path of a template's file, or a description of the built-in template.
    pub(super) fn file(&self, name: &str) -> String {
        match self.own_file(name) {
            Some(path) if path.exists() => path.display().to_string(),
            _ => format!("the built-in template {name}"),
        }
    }

    fn own_file(&self, name: &str) -> Option<PathBuf> {
        self.overrides.as_ref().map(|folder| folder.join(name))
    }

    fn source(&self, template: &Template) -> Result<String, Error> {
        let built_in = || template.built_in.to_owned();
        let Some(path) = self.own_file(template.name) else {
            return Ok(built_in());
        };
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(built_in()),
            read => read.map_err(|cause| Error::unreadable(&path, cause)),
        }
    }

    fn error(&self, name: &str, error: &minijinja::Error) -> Error {
        let why = match (error.kind(), error.detail()) {
            (ErrorKind::OutOfFuel, _) => {
                format!("does not end: it was stopped after {MAX_STEPS} steps")
            }
            (ErrorKind::WriteFailure, _) => format!("makes more than {MAX_OUTPUT} bytes"),
            (kind, Some(detail)) => format!("{kind}: {detail}"),
            (kind, None) => kind.to_string(),
        };
        let source = self.sources.get(name).filter(|_| !self.inlined.contains(name));
        match error.line().zip(source).and_then(|(line, source)| source.origin(line)) {
            Some((file, line)) => self.invalid(file, Some(line), why),
            None => self.invalid(name, None, why),
        }
    }

    fn invalid(&self, name: &str, line: Option<usize>, why: String) -> Error {
        Error::invalid(self.file(name), line, why)
    }
}

/// The output of a template.
#[derive(Default)]
struct Output(Vec<u8>);

impl io::Write for Output {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.0.len() + bytes.len() > MAX_OUTPUT {
            return Err(io::ErrorKind::FileTooLarge.into());
        }
        self.0.extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn environment(site: &SiteView) -> Environment<'static> {
    let mut env = Environment::new();
    env.set_syntax(
        SyntaxConfig::builder()
            .trim_blocks(true)
            .lstrip_blocks(true)
            .build()
            .expect("the usual delimiters are not touched"),
    );
    env.set_undefined_behavior(UndefinedBehavior::SemiStrict);
    env.set_fuel(Some(MAX_STEPS));
    // `None` prints as nothing. Slashes need no escaping in quoted attributes, and links stay
    // readable.
    env.set_formatter(|out, state, value| match value.as_str() {
        _ if value.is_none() => Ok(()),
        Some(text) if *state.auto_escape() == AutoEscape::Html && !value.is_safe() => {
            let mut html = String::new();
            escape_into(&mut html, text);
            out.write_str(&html).map_err(minijinja::Error::from)
        }
        _ => escape_formatter(out, state, value),
    });
    // Replace the engine's own filters, which escape slashes too.
    for name in ["e", "escape"] {
        env.add_filter(name, escaped);
    }
    env.add_filter("clamp", |text: String, max: usize| clamp(&text, max).into_owned());
    env.add_filter("wrap", |text: String, width: usize, indent: Option<usize>| {
        wrap(&text, width, indent.unwrap_or(0))
    });
    env.add_filter("ruled", |text: String, rule: String| {
        format!("{text}\n{}", rule.repeat(text.chars().count().min(78)))
    });
    env.add_global("site", Value::from(Serde(site)));
    env
}

/// Returns a value escaped for HTML.
fn escaped(value: Value) -> Value {
    if value.is_safe() || value.is_none() || value.is_undefined() {
        return value;
    }
    let mut html = String::new();
    escape_into(&mut html, &value.to_string());
    Value::from_safe_string(html)
}

/// Returns a copy of the environment with the words of this locale.
/// In HTML templates `t` returns HTML: the message and its values are escaped, except values that
/// are HTML already. A missing message is an error, found when the samples are rendered on loading.
fn localized(env: &Environment<'static>, formatter: &Arc<LocaleFormatter>) -> Environment<'static> {
    let mut env = env.clone();
    let rtl = formatter.is_rtl();
    env.add_global("lang", formatter.tag());
    env.add_global("dir", if rtl { "rtl" } else { "ltr" });
    env.add_global("left", if rtl { "right" } else { "left" });
    env.add_global("right", if rtl { "left" } else { "right" });
    let locale = Arc::clone(formatter);
    env.add_filter("grouped", move |n: u64| locale.grouped(n));
    let locale = Arc::clone(formatter);
    env.add_function("t", move |state: &State, id: &str, values: Kwargs| {
        translate(&locale, state, id, &values)
    });
    let locale = Arc::clone(formatter);
    env.add_filter("commas", move |state: &State, names: Vec<String>| {
        let comma = locale.text_of("comma");
        let mut out = String::new();
        for (n, name) in names.iter().enumerate() {
            if n > 0 {
                out.push_str(&comma);
            }
            locale.isolate(name, medium(state), &mut out);
        }
        to_value(out, medium(state))
    });
    // Formatted values of the locale itself, such as a date, in a context of either direction.
    env.add_filter("told", move |state: &State, words: Value| match medium(state) {
        Medium::Html if rtl => {
            let mut out = String::from("<span dir=\"rtl\">");
            plain(words.as_str().unwrap_or_default(), Medium::Html, &mut out);
            out.push_str("</span>");
            Value::from_safe_string(out)
        }
        _ => words,
    });
    let locale = Arc::clone(formatter);
    env.add_filter("iso", move |state: &State, words: Value| {
        let Some(text) = words.as_str().filter(|_| !words.is_safe()) else {
            return words;
        };
        let mut out = String::new();
        locale.isolate(text, medium(state), &mut out);
        to_value(out, medium(state))
    });
    env
}

fn medium(state: &State) -> Medium {
    match state.auto_escape() {
        AutoEscape::Html => Medium::Html,
        _ => Medium::Text,
    }
}

fn to_value(text: String, medium: Medium) -> Value {
    match medium {
        Medium::Html => Value::from_safe_string(text),
        Medium::Text => Value::from(text),
    }
}

fn translate(
    formatter: &LocaleFormatter,
    state: &State,
    id: &str,
    values: &Kwargs,
) -> Result<Value, minijinja::Error> {
    let medium = medium(state);
    let values: Vec<(&str, MessageValue<'_>)> = values
        .args()
        .map(|name| Ok((name, message_value(values.get(name)?, medium)?)))
        .collect::<Result<_, minijinja::Error>>()?;
    let text = formatter.format(id, &values, medium).ok_or_else(|| {
        let why = format!("there is no message {id}, or these values do not fit it");
        minijinja::Error::new(ErrorKind::InvalidOperation, why)
    })?;
    Ok(to_value(text, medium))
}

fn message_value(value: Value, medium: Medium) -> Result<MessageValue<'static>, minijinja::Error> {
    if value.is_undefined() || value.is_none() {
        let why = "a value of the message is missing";
        return Err(minijinja::Error::new(ErrorKind::UndefinedError, why));
    }
    if value.is_number() {
        return u64::try_from(value).map(MessageValue::Count);
    }
    let is_html = value.is_safe() && medium == Medium::Html;
    let text = value.to_string().into();
    Ok(if is_html { MessageValue::Ready(text) } else { MessageValue::Words(text) })
}
