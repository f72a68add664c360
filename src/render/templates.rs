//! Compiles and renders templates. An operator's file replaces the built-in template of that name.
//!
//! Errors are found on loading and name file and line. HTML templates escape their output; others
//! do not. An undefined name is an error, except in `{% if … %}`. The words of a locale are
//! `t("message", name=value)`, filters and globals ([`spoken`]). Start with [`Templates::load`].

use std::borrow::Cow;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use css_inline::CSSInliner;
use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Kwargs, Serde};
use minijinja::{
    AutoEscape, Environment, ErrorKind, State, UndefinedBehavior, Value, escape_formatter,
};

use super::catalogs::Catalogs;
use super::files::{Error, ExpandedTemplate, Line, Template};
use super::inline;
use super::limits::{FUEL, Filled, MAX_OUTPUT, check_printed, limit_filters, within_limits};
use super::site::{Site, SiteView};
use super::text::{clamp, escape, escape_into, wrap};
use super::voice::{self, Medium, Voice, plain};

/// The compiled templates of one renderer.
pub(super) struct Templates {
    env: Environment<'static>,
    /// A copy of `env` for each locale, with its words.
    spoken: BTreeMap<String, Environment<'static>>,
    catalogs: Catalogs,
    overrides: Option<PathBuf>,
    /// The sources, until their styles are inlined.
    written: HashMap<Cow<'static, str>, ExpandedTemplate>,
    /// HTML templates whose styles can be inlined only after rendering.
    each_mail: BTreeSet<Cow<'static, str>>,
    inliner: Option<CSSInliner<'static>>,
}

impl Templates {
    /// Reads and compiles templates, without inlining their styles.
    pub(super) fn load<'a>(
        all: impl IntoIterator<Item = &'a Template>,
        overrides: Option<&Path>,
        site: &Site,
        catalogs: Catalogs,
    ) -> Result<Self, Error> {
        let site = SiteView::of(site)?;
        if let Some(folder) = overrides {
            // A missing folder is probably a typo, so it is an error.
            std::fs::read_dir(folder).map_err(|cause| Error::Folder {
                path: folder.to_owned(),
                cause,
            })?;
        }
        let mut templates = Self {
            env: environment(&site),
            spoken: BTreeMap::new(),
            catalogs,
            overrides: overrides.map(Path::to_owned),
            written: HashMap::new(),
            each_mail: BTreeSet::new(),
            inliner: None,
        };
        for template in all {
            let whole = ExpandedTemplate::of(template, |part| templates.source(part))?;
            let text = whole.text.clone();
            templates.written.insert(template.name.clone(), whole);
            let added = templates
                .env
                .add_template_owned(template.name.clone(), text);
            added.map_err(|error| templates.error(template, &error))?;
        }
        templates.speak();
        Ok(templates)
    }

    /// Rebuilds the environment of each locale from `env`.
    fn speak(&mut self) {
        let voices = self.catalogs.voices();
        let spoken = voices.map(|voice| (voice.tag().to_owned(), spoken(&self.env, voice)));
        self.spoken = spoken.collect();
    }

    pub(super) fn catalogs(&self) -> &Catalogs {
        &self.catalogs
    }

    /// Inlines the styles of these HTML templates. Later errors in an inlined template have no line
    /// number, because its lines no longer match the file.
    pub(super) fn inline_styles<'a>(
        &mut self,
        all: impl IntoIterator<Item = &'a Template>,
    ) -> Result<(), Error> {
        let inliner = inline::inliner();
        for template in all {
            let Some(written) = self.written.remove(&template.name) else {
                continue;
            };
            let inlined = inline::template(&inliner, &written.text)
                .map_err(|error| self.wrong(template, Line(None), error.to_string()))?;
            match inlined {
                Some(inlined) => self
                    .env
                    .add_template_owned(template.name.clone(), inlined)
                    .map_err(|error| self.error(template, &error))?,
                None => {
                    self.each_mail.insert(template.name.clone());
                    self.written.insert(template.name.clone(), written);
                }
            }
        }
        self.inliner = Some(inliner);
        self.speak();
        Ok(())
    }

    /// Returns whether styles are inlined in each email, not once in the template.
    #[cfg(test)]
    pub(super) fn inlines_each_mail(&self) -> bool {
        !self.each_mail.is_empty()
    }

    /// Renders a template in the locale of `voice`.
    pub(super) fn render(
        &self,
        template: &Template,
        voice: &Voice,
        context: Value,
    ) -> Result<String, Error> {
        let env = self.spoken.get(voice.tag()).unwrap_or(&self.env);
        let compiled = env.get_template(&template.name);
        let compiled = compiled.map_err(|error| self.error(template, &error))?;
        let filled = within_limits(self.overrides.is_none(), || {
            let mut filled = Filled::default();
            let captured = compiled.render_captured_to(context.clone(), &mut filled);
            captured.map_err(|error| self.error(template, &error))?;
            Ok::<_, Error>(filled.into_text())
        })?;
        match &self.inliner {
            Some(inliner) if self.each_mail.contains(&template.name) => {
                inline::mail(inliner, &filled)
                    .map_err(|error| self.wrong(template, Line(None), error.to_string()))
            }
            _ => Ok(filled),
        }
    }

    /// Returns the path of a template's file, or a description of the built-in template.
    pub(super) fn file(&self, template: &Template) -> String {
        match self.own_file(template) {
            Some(path) if path.exists() => path.display().to_string(),
            _ => format!("the built-in template {}", template.name),
        }
    }

    fn own_file(&self, template: &Template) -> Option<PathBuf> {
        self.overrides
            .as_ref()
            .map(|folder| folder.join(&*template.name))
    }

    fn source(&self, template: &Template) -> Result<String, Error> {
        let built_in = || template.built_in.to_owned();
        let Some(path) = self.own_file(template) else {
            return Ok(built_in());
        };
        match std::fs::read_to_string(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(built_in()),
            read => read.map_err(|cause| Error::Unreadable { path, cause }),
        }
    }

    fn error(&self, template: &Template, error: &minijinja::Error) -> Error {
        let why = match error.detail() {
            _ if error.kind() == ErrorKind::OutOfFuel => {
                format!("does not end: it was stopped after {FUEL} steps")
            }
            _ if error.kind() == ErrorKind::WriteFailure => {
                format!("makes more than {MAX_OUTPUT} bytes")
            }
            Some(detail) => format!("{}: {detail}", error.kind()),
            None => error.kind().to_string(),
        };
        let written = self.written.get(&template.name);
        match error.line().zip(written) {
            Some((line, written)) => match written.origin(line) {
                Some((file, line)) => self.wrong(file, Line(Some(*line)), why),
                None => self.wrong(template, Line(None), why),
            },
            None => self.wrong(template, Line(None), why),
        }
    }

    fn wrong(&self, template: &Template, line: Line, why: String) -> Error {
        Error::Template {
            file: self.file(template),
            line,
            why,
        }
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
    env.set_fuel(Some(FUEL));
    // `None` prints as nothing. Slashes need no escaping in quoted attributes, and links stay
    // readable.
    env.set_formatter(|out, state, value| {
        if value.is_none() {
            return Ok(());
        }
        check_printed(value)?;
        match (state.auto_escape(), value.as_str()) {
            (AutoEscape::Html, Some(text)) if !value.is_safe() => {
                escape(text, |part| out.write_str(part)).map_err(minijinja::Error::from)
            }
            _ => escape_formatter(out, state, value),
        }
    });
    limit_filters(&mut env);
    // Replace the engine's own filters, which escape slashes too.
    for name in ["e", "escape"] {
        env.add_filter(name, escaped);
    }
    env.add_filter("clamp", |text: String, max: usize| {
        clamp(&text, max).into_owned()
    });
    env.add_filter(
        "wrap",
        |text: String, width: usize, indent: Option<usize>| wrap(&text, width, indent.unwrap_or(0)),
    );
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
fn spoken(env: &Environment<'static>, voice: &Arc<Voice>) -> Environment<'static> {
    let mut env = env.clone();
    let rtl = voice.is_rtl();
    env.add_global("lang", voice.tag());
    env.add_global("dir", if rtl { "rtl" } else { "ltr" });
    env.add_global("left", if rtl { "right" } else { "left" });
    env.add_global("right", if rtl { "left" } else { "right" });
    let grouping = Arc::clone(voice);
    env.add_filter("grouped", move |n: u64| grouping.grouped(n));
    let saying = Arc::clone(voice);
    env.add_function("t", move |state: &State, id: &str, filled: Kwargs| {
        say(&saying, state, id, &filled)
    });
    let joining = Arc::clone(voice);
    env.add_filter("commas", move |state: &State, names: Vec<String>| {
        let comma = joining.text_of("comma");
        let mut out = String::new();
        for (n, name) in names.iter().enumerate() {
            if n > 0 {
                out.push_str(&comma);
            }
            joining.isolate(name, medium(state), &mut out);
        }
        given(out, medium(state))
    });
    // Formatted values of the locale itself, such as a date, in a context of either direction.
    env.add_filter("told", move |state: &State, words: Value| {
        match medium(state) {
            Medium::Html if rtl => {
                let mut out = String::from("<span dir=\"rtl\">");
                plain(words.as_str().unwrap_or_default(), Medium::Html, &mut out);
                out.push_str("</span>");
                Value::from_safe_string(out)
            }
            _ => words,
        }
    });
    let telling = Arc::clone(voice);
    env.add_filter("day", move |at: &str, zone: &str| {
        moment(at, zone).map(|(at, zone)| telling.day_in_full(at, zone))
    });
    let timing = Arc::clone(voice);
    env.add_filter("time", move |at: &str, zone: &str| {
        moment(at, zone).map(|(at, zone)| timing.time(at, zone))
    });
    let isolating = Arc::clone(voice);
    env.add_filter("iso", move |state: &State, words: Value| {
        let Some(text) = words.as_str().filter(|_| !words.is_safe()) else {
            return words;
        };
        let mut out = String::new();
        isolating.isolate(text, medium(state), &mut out);
        given(out, medium(state))
    });
    env
}

/// Parses a time in ISO 8601, and a time zone.
fn moment(at: &str, zone: &str) -> Result<(DateTime<Utc>, Tz), minijinja::Error> {
    let wrong = |what: &str| minijinja::Error::new(ErrorKind::InvalidOperation, what.to_owned());
    let at = at
        .parse()
        .map_err(|_| wrong("this is no moment by ISO 8601"))?;
    let zone = zone.parse().map_err(|_| wrong("this is no time zone"))?;
    Ok((at, zone))
}

fn medium(state: &State) -> Medium {
    match state.auto_escape() {
        AutoEscape::Html => Medium::Html,
        _ => Medium::Text,
    }
}

fn given(said: String, medium: Medium) -> Value {
    match medium {
        Medium::Html => Value::from_safe_string(said),
        Medium::Text => Value::from(said),
    }
}

fn say(voice: &Voice, state: &State, id: &str, filled: &Kwargs) -> Result<Value, minijinja::Error> {
    let values: Vec<(&str, Value)> = filled
        .args()
        .map(|name| Ok((name, filled.get(name)?)))
        .collect::<Result<_, minijinja::Error>>()?;
    let filled: Vec<(&str, voice::Filled<'_>)> = values
        .iter()
        .map(|(name, value)| Ok((*name, of(value, medium(state))?)))
        .collect::<Result<_, minijinja::Error>>()?;
    let said = voice.say(id, &filled, medium(state));
    let said = said.ok_or_else(|| {
        let why = format!("there is no message {id}, or it cannot be said with these values");
        minijinja::Error::new(ErrorKind::InvalidOperation, why)
    })?;
    Ok(given(said, medium(state)))
}

fn of(value: &Value, medium: Medium) -> Result<voice::Filled<'_>, minijinja::Error> {
    if let Some(words) = value.as_str() {
        let ready = value.is_safe() && medium == Medium::Html;
        return Ok(match ready {
            true => voice::Filled::Ready(words.into()),
            false => voice::Filled::Words(words.into()),
        });
    }
    if value.is_number() {
        return u64::try_from(value.clone()).map(voice::Filled::Count);
    }
    match value.is_undefined() || value.is_none() {
        true => Err(minijinja::Error::new(
            ErrorKind::UndefinedError,
            "what is to be filled in is not there",
        )),
        false => Ok(voice::Filled::Words(value.to_string().into())),
    }
}
