//! Reads and checks the catalogs of a templates folder.
//!
//! Errors name the file and, if known, the line. A catalog may contain the messages of the English
//! one, messages for event types (`type-…`), and messages for the folder's own templates (`own-…`).
//! Only the latter may use other variables than the built-in templates supply. Start with [`own`].

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use chrono::format::{Item, StrftimeItems};
use fluent_bundle::FluentResource;
use fluent_syntax::ast::{
    CallArguments, Entry, Expression, InlineExpression, Message, Pattern, PatternElement,
};

use super::super::bundle::{BUILT_IN, ENGLISH};
use super::super::error::{Error, Line};
use crate::domain::text::language_tag;

/// The variables of each message and each attribute (`message.attribute`).
pub(in crate::render) type Messages = BTreeMap<String, BTreeSet<String>>;

/// The messages of the English catalog.
pub(super) static KNOWN: LazyLock<Messages> = LazyLock::new(|| {
    let english = BUILT_IN.iter().find(|(tag, _)| *tag == ENGLISH);
    let text = english.map_or("", |(_, text)| text);
    match FluentResource::try_new(text.to_owned()) {
        Ok(resource) | Err((resource, _)) => messages(&resource),
    }
});

/// The messages of an event type, with the variables of each.
const OF_TYPES: [(&str, &[&str]); 6] = [
    ("", &[]),
    (".new", &["count"]),
    (".more", &["count"]),
    (".phrase", &["people"]),
    (".category", &[]),
    (".reason", &[]),
];

/// A catalog of the templates folder.
pub(super) struct Own {
    /// The file name, such as `pt-BR.ftl`.
    pub file: String,
    pub resource: Arc<FluentResource>,
}

/// Reads the catalogs of a templates folder, by locale.
pub(super) fn own(templates: &Path) -> Result<BTreeMap<String, Own>, Error> {
    let folder = templates.join("locales");
    let unreadable = |cause| Error::Folder {
        path: folder.clone(),
        cause,
    };
    let mut own = BTreeMap::new();
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(own),
        entries => entries.map_err(unreadable)?,
    };
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        let stem = name.and_then(|name| name.strip_suffix(".ftl"));
        let Some(stem) = stem.filter(|stem| !stem.starts_with('.')) else {
            continue;
        };
        let Some(tag) = language_tag(stem) else {
            let why = format!("{stem:?} is no locale; a catalog is called such as pt-BR.ftl");
            return Err(wrong(&path, None, why));
        };
        let text = std::fs::read_to_string(&path).map_err(|cause| Error::Unreadable {
            path: path.clone(),
            cause,
        })?;
        let catalog = Own {
            file: format!("{stem}.ftl"),
            resource: Arc::new(read(&path, text)?),
        };
        if own.insert(tag.clone(), catalog).is_some() {
            return Err(wrong(
                &path,
                None,
                format!("another file is the catalog of {tag}"),
            ));
        }
    }
    Ok(own)
}

fn wrong(path: &Path, line: Option<usize>, why: String) -> Error {
    Error::Template {
        file: path.display().to_string(),
        line: Line(line),
        why,
    }
}

/// Parses a catalog and checks that its messages can be formatted.
fn read(path: &Path, text: String) -> Result<FluentResource, Error> {
    let line = |at: usize| {
        Some(
            1 + text.as_bytes()[..at.min(text.len())]
                .iter()
                .filter(|b| **b == b'\n')
                .count(),
        )
    };
    let resource = FluentResource::try_new(text.clone()).map_err(|(_, errors)| {
        let first = errors.first();
        let at = first.and_then(|error| line(error.pos.start));
        let why = first.map_or_else(String::new, |error| error.kind.to_string());
        wrong(path, at, why)
    })?;
    let place = |id: &str| {
        let starts = |line: &str| {
            let rest = line.strip_prefix(id);
            rest.is_some_and(|rest| rest.trim_start().starts_with('='))
        };
        text.lines().position(starts).map(|line| line + 1)
    };
    let terms: BTreeSet<&str> = resource
        .entries()
        .filter_map(|entry| match entry {
            Entry::Term(term) => Some(term.id.name),
            _ => None,
        })
        .collect();
    for entry in resource.entries() {
        let (id, patterns) = match entry {
            Entry::Message(message) => (message.id.name, patterns(message)),
            Entry::Term(term) => (term.id.name, vec![(String::new(), &term.value)]),
            _ => continue,
        };
        let is_term = matches!(entry, Entry::Term(_));
        for (name, pattern) in patterns {
            let at = || {
                place(&if is_term {
                    format!("-{id}")
                } else {
                    id.to_owned()
                })
            };
            let mut uses = Uses::default();
            uses.pattern(pattern);
            if let Some(other) = uses.others.iter().find(|other| !terms.contains(**other)) {
                return Err(wrong(
                    path,
                    at(),
                    format!("{id} uses {other}, which is no term here"),
                ));
            }
            if !is_term {
                allowed(&name, &uses.variables).map_err(|why| wrong(path, at(), why))?;
                dates(&name, pattern).map_err(|why| wrong(path, at(), why))?;
            }
        }
    }
    Ok(resource)
}

/// Checks that a message exists, and that it may use these variables.
fn allowed(name: &str, variables: &BTreeSet<&str>) -> Result<(), String> {
    let of_type = || {
        let name = name.strip_prefix("type-")?;
        let what = name.find('.').map_or("", |at| &name[at..]);
        let (_, variables) = OF_TYPES.iter().find(|(of, _)| *of == what)?;
        Some(variables.iter().copied().collect::<BTreeSet<&str>>())
    };
    if name.starts_with("own-") {
        return Ok(());
    }
    let known = KNOWN.get(name);
    let known = known.map(|known| known.iter().map(String::as_str).collect());
    let Some(known) = known.or_else(of_type) else {
        let names = KNOWN.keys().map(String::as_str);
        let meant = crate::domain::nearest(name, names);
        let meant = meant.map(|meant| format!("; did you mean {meant}?"));
        return Err(format!(
            "there is no message {name}{}",
            meant
                .as_deref()
                .unwrap_or("; those of your own templates begin with own-")
        ));
    };
    match variables.difference(&known).next() {
        None => Ok(()),
        Some(variable) => Err(format!("{name} has no variable ${variable}")),
    }
}

/// Checks messages that are settings, not words: date formats, the calendar and the text direction.
fn dates(name: &str, pattern: &Pattern<&str>) -> Result<(), String> {
    let text = || match pattern.elements.as_slice() {
        [PatternElement::TextElement { value }] => Ok(value.trim()),
        _ => Err(format!("{name} is no plain text")),
    };
    match name {
        "date" | "date-year" | "date-next" | "time" => {
            let pattern = text()?;
            match StrftimeItems::new(pattern).any(|item| item == Item::Error) {
                true => Err(format!(
                    "{name}: {pattern:?} is no date that strftime can write"
                )),
                false => Ok(()),
            }
        }
        "calendar" => {
            let calendar = text()?;
            let known = calendar.parse::<chrono::Locale>();
            known
                .map(drop)
                .map_err(|_| format!("calendar: {calendar:?} is not known, as de_DE is"))
        }
        "direction" => match text()? {
            "ltr" | "rtl" => Ok(()),
            other => Err(format!("direction: {other:?} is not ltr or rtl")),
        },
        _ => Ok(()),
    }
}

/// Returns the messages of a catalog, with the variables they use.
pub(in crate::render) fn messages(resource: &FluentResource) -> Messages {
    let mut messages = Messages::new();
    for entry in resource.entries() {
        let Entry::Message(message) = entry else {
            continue;
        };
        for (name, pattern) in patterns(message) {
            let mut uses = Uses::default();
            uses.pattern(pattern);
            let variables = uses.variables.into_iter().map(str::to_owned);
            messages.insert(name, variables.collect());
        }
    }
    messages
}

/// Returns the value of a message and its attributes, by name.
fn patterns<'a>(message: &'a Message<&'a str>) -> Vec<(String, &'a Pattern<&'a str>)> {
    let id = message.id.name;
    let value = message.value.iter().map(|value| (id.to_owned(), value));
    let attributes = message.attributes.iter();
    let attributes = attributes.map(|one| (format!("{id}.{}", one.id.name), &one.value));
    value.chain(attributes).collect()
}

/// The names that a pattern refers to.
#[derive(Default)]
struct Uses<'a> {
    variables: BTreeSet<&'a str>,
    /// Terms, messages and functions.
    others: BTreeSet<&'a str>,
}

impl<'a> Uses<'a> {
    fn pattern(&mut self, pattern: &'a Pattern<&'a str>) {
        for element in &pattern.elements {
            if let PatternElement::Placeable { expression } = element {
                self.expression(expression);
            }
        }
    }

    fn expression(&mut self, expression: &'a Expression<&'a str>) {
        match expression {
            Expression::Inline(inline) => self.inline(inline),
            Expression::Select { selector, variants } => {
                self.inline(selector);
                for variant in variants {
                    self.pattern(&variant.value);
                }
            }
        }
    }

    fn inline(&mut self, inline: &'a InlineExpression<&'a str>) {
        match inline {
            InlineExpression::VariableReference { id } => {
                self.variables.insert(id.name);
            }
            InlineExpression::TermReference { id, arguments, .. } => {
                self.others.insert(id.name);
                self.arguments(arguments.as_ref());
            }
            InlineExpression::FunctionReference { id, arguments } => {
                self.others.insert(id.name);
                self.arguments(Some(arguments));
            }
            InlineExpression::MessageReference { id, .. } => {
                self.others.insert(id.name);
            }
            InlineExpression::Placeable { expression } => self.expression(expression),
            InlineExpression::StringLiteral { .. } | InlineExpression::NumberLiteral { .. } => {}
        }
    }

    fn arguments(&mut self, arguments: Option<&'a CallArguments<&'a str>>) {
        let Some(arguments) = arguments else { return };
        for argument in &arguments.positional {
            self.inline(argument);
        }
        for argument in &arguments.named {
            self.inline(&argument.value);
        }
    }
}
