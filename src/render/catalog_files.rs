//! The catalogs: the built-in ones, and those of a templates folder, which are checked; and the
//! Fluent bundles that format their messages.
//!
//! Errors name the file and, if known, the line. A folder's catalog may contain the messages of the
//! English one, messages for event types (`type-…`), and messages for the folder's own templates
//! (`own-…`). Only the latter may use other variables than the built-in templates supply.

use std::collections::{BTreeMap, BTreeSet};
use std::io::ErrorKind;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use chrono::format::{Item, StrftimeItems};
use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::types::{FluentNumber, FluentNumberOptions};
use fluent_bundle::{FluentResource, FluentValue};
use fluent_syntax::ast::{Entry, Expression, InlineExpression, Message, Pattern, PatternElement};
use unic_langid::LanguageIdentifier;

use super::error::Error;
use crate::domain::most_similar;
use crate::domain::text_checks::to_language_tag;

pub(super) type Bundle = FluentBundle<Arc<FluentResource>>;

/// The last fallback of every locale.
pub(super) const ENGLISH: &str = "en";

/// The built-in catalogs, by locale.
pub(super) const BUILT_IN: &[(&str, &str)] = &[
    ("ar", include_str!("../../locales/ar.ftl")),
    ("de", include_str!("../../locales/de.ftl")),
    (ENGLISH, include_str!("../../locales/en.ftl")),
    ("es", include_str!("../../locales/es.ftl")),
    ("fr", include_str!("../../locales/fr.ftl")),
    ("ja", include_str!("../../locales/ja.ftl")),
    ("pl", include_str!("../../locales/pl.ftl")),
    ("pt", include_str!("../../locales/pt.ftl")),
    ("ru", include_str!("../../locales/ru.ftl")),
];

/// The built-in regional catalogs. They contain only the differences from their language.
pub(super) const REGIONAL: &[(&str, &str)] = &[("en-US", include_str!("../../locales/en-US.ftl"))];

/// All built-in catalogs, parsed once. A test compares them with the English one.
pub(super) static BUILT_IN_RESOURCES: LazyLock<Vec<(&str, Arc<FluentResource>)>> =
    LazyLock::new(|| {
        let parse = |text: &str| match FluentResource::try_new(text.to_owned()) {
            Ok(resource) | Err((resource, _)) => Arc::new(resource),
        };
        BUILT_IN.iter().chain(REGIONAL).map(|(tag, text)| (*tag, parse(text))).collect()
    });

/// Enclose the digits of a number until they are formatted for the locale. Like the placeholders
/// for text, they are private-use characters, which no message contains.
pub(super) const NUMBER_MARKS: (char, char) = ('\u{e001}', '\u{e002}');

/// Creates a bundle. Messages of later resources replace those of earlier ones.
pub(super) fn bundle<'a>(
    tag: &str,
    resources: impl Iterator<Item = &'a Arc<FluentResource>>,
) -> Bundle {
    let language: LanguageIdentifier = tag.parse().unwrap_or_default();
    let mut bundle = Bundle::new_concurrent(vec![language]);
    // `LocaleFormatter::isolate` isolates values instead: where needed, and with elements in HTML.
    bundle.set_use_isolating(false);
    bundle.set_formatter(Some(|value, _| match value {
        // Counts are whole numbers, and `LocaleFormatter` groups their digits. The number to print
        // can differ from the one that selects the plural, see `plural_number`.
        FluentValue::Number(number) => {
            let shown = number.options.minimum_integer_digits;
            let count = shown.map_or(number.value as u64, |count| count as u64);
            Some(format!("{}{count}{}", NUMBER_MARKS.0, NUMBER_MARKS.1))
        }
        _ => None,
    }));
    for resource in resources {
        bundle.add_resource_overriding(Arc::clone(resource));
    }
    bundle
}

/// Returns a number that selects the right plural form and is printed as `count`.
///
/// In `intl_pluralrules` 7, rules that compare a remainder with a range omit the remainder. In
/// Arabic, 103 should be like 3. A smaller number with the same plural form therefore replaces a
/// larger one, and the larger one is kept for printing. Breton has too many such rules for this
/// workaround.
pub(super) fn plural_number(bundle: &Bundle, count: u64) -> FluentNumber {
    let language = bundle.locales.first().map(|locale| locale.language.as_str());
    let last_digit = |teens: std::ops::RangeInclusive<u64>| match count % 100 {
        teen if teens.contains(&teen) => teen,
        other if other % 10 == 0 => 10.min(count),
        other => other % 10,
    };
    let equivalent = match language {
        Some("ar" | "ars") if count >= 100 => match count % 100 {
            rest @ 3..=99 => rest,
            _ => 100,
        },
        Some("ro" | "mo") if count >= 100 => match count % 100 {
            1..=19 => 2,
            _ => 20,
        },
        Some("mt") if count >= 100 => match count % 100 {
            rest @ 2..=19 => rest,
            _ => 20,
        },
        Some("be") => last_digit(11..=14),
        Some("lt" | "lv" | "prg") => last_digit(11..=19),
        _ => count,
    };
    let options = FluentNumberOptions {
        // Set only if needed: a number with options never matches an exact variant such as `[2]`.
        minimum_integer_digits: usize::try_from(count).ok().filter(|_| equivalent != count),
        ..FluentNumberOptions::default()
    };
    FluentNumber::new(equivalent as f64, options)
}

/// Returns the locale, then the locale without its last part, and so on.
pub(super) fn with_fallbacks(tag: &str) -> impl Iterator<Item = String> {
    let shorter = |tag: &String| tag.rsplit_once('-').map(|(shorter, _)| shorter.to_owned());
    std::iter::successors(Some(tag.to_owned()), shorter)
}

/// The variables of each message and each attribute (`message.attribute`).
pub(super) type Messages = BTreeMap<String, BTreeSet<String>>;

/// The messages of the English catalog.
pub(super) static ENGLISH_MESSAGES: LazyLock<Messages> = LazyLock::new(|| {
    let english = BUILT_IN_RESOURCES.iter().find(|(tag, _)| *tag == ENGLISH);
    english.map_or_else(Messages::new, |(_, english)| messages(english))
});

/// The messages of an event type, with the variables of each.
const TYPE_MESSAGES: [(&str, &[&str]); 6] = [
    ("", &[]),
    (".new", &["count"]),
    (".more", &["count"]),
    (".phrase", &["people"]),
    (".category", &[]),
    (".reason", &[]),
];

/// Reads the catalogs of a templates folder, by locale.
pub(super) fn read_folder(
    templates: &Path,
) -> Result<BTreeMap<String, Arc<FluentResource>>, Error> {
    let folder = templates.join("locales");
    let unreadable = |cause| Error::unreadable(&folder, cause);
    let mut own = BTreeMap::new();
    let entries = match std::fs::read_dir(&folder) {
        Err(error) if error.kind() == ErrorKind::NotFound => return Ok(own),
        entries => entries.map_err(unreadable)?,
    };
    for entry in entries {
        let path = entry.map_err(unreadable)?.path();
        let name = path.file_name().and_then(|name| name.to_str()).unwrap_or_default();
        let Some(stem) = name.strip_suffix(".ftl").filter(|stem| !stem.starts_with('.')) else {
            continue;
        };
        let Some(tag) = to_language_tag(stem) else {
            let why = format!("{stem:?} is no locale; name a catalog like pt-BR.ftl");
            return Err(invalid_catalog(&path, None, why));
        };
        let text =
            std::fs::read_to_string(&path).map_err(|cause| Error::unreadable(&path, cause))?;
        if own.insert(tag.clone(), Arc::new(parse(&path, text)?)).is_some() {
            let why = format!("another file is the catalog of {tag}");
            return Err(invalid_catalog(&path, None, why));
        }
    }
    Ok(own)
}

fn invalid_catalog(path: &Path, line: Option<usize>, why: String) -> Error {
    Error::invalid(path.display(), line, why)
}

/// Parses a catalog and checks that its messages can be formatted.
fn parse(path: &Path, text: String) -> Result<FluentResource, Error> {
    let resource = FluentResource::try_new(text.clone()).map_err(|(_, errors)| {
        let Some(first) = errors.first() else {
            return invalid_catalog(path, None, String::new());
        };
        let before = text.as_bytes().iter().take(first.pos.start);
        let line = 1 + before.filter(|byte| **byte == b'\n').count();
        invalid_catalog(path, Some(line), first.kind.to_string())
    })?;
    let terms: BTreeSet<&str> = resource
        .entries()
        .filter_map(|entry| match entry {
            Entry::Term(term) => Some(term.id.name),
            _ => None,
        })
        .collect();
    for entry in resource.entries() {
        let (id, patterns) = match entry {
            Entry::Message(message) => (message.id.name.to_owned(), patterns(message)),
            Entry::Term(term) => {
                let id = format!("-{}", term.id.name);
                (id.clone(), vec![(id, &term.value)])
            }
            _ => continue,
        };
        for (name, pattern) in patterns {
            check(&name, pattern, &terms).map_err(|why| {
                let is_start = |line: &str| {
                    let rest = line.strip_prefix(&*id);
                    rest.is_some_and(|rest| rest.trim_start().starts_with('='))
                };
                let line = text.lines().position(is_start);
                invalid_catalog(path, line.map(|line| line + 1), why)
            })?;
        }
    }
    Ok(resource)
}

/// Checks a message, an attribute or a term; the name of a term begins with `-`.
fn check(name: &str, pattern: &Pattern<&str>, terms: &BTreeSet<&str>) -> Result<(), String> {
    let mut references = References::default();
    references.pattern(pattern);
    if let Some(other) = references.others.difference(terms).next() {
        return Err(format!("{name} uses {other}, which is no term here"));
    }
    if name.starts_with('-') {
        return Ok(());
    }
    check_names(name, &references.variables)?;
    check_setting(name, pattern)
}

/// Checks that a message exists, and that it may use these variables.
fn check_names(name: &str, variables: &BTreeSet<&str>) -> Result<(), String> {
    if name.starts_with("own-") {
        return Ok(());
    }
    let of_type = || {
        let name = name.strip_prefix("type-")?;
        let attribute = name.find('.').map_or("", |at| &name[at..]);
        TYPE_MESSAGES.iter().find(|(known, _)| *known == attribute)
    };
    let mut variables = variables.iter();
    let unknown = match (ENGLISH_MESSAGES.get(name), of_type()) {
        (Some(known), _) => variables.find(|variable| !known.contains(**variable)),
        (None, Some((_, known))) => variables.find(|variable| !known.contains(variable)),
        (None, None) => {
            let hint = match most_similar(name, ENGLISH_MESSAGES.keys().map(String::as_str)) {
                Some(nearest) => format!("did you mean {nearest}?"),
                None => "names of your own messages start with own-".to_owned(),
            };
            return Err(format!("there is no message {name}; {hint}"));
        }
    };
    unknown.map_or(Ok(()), |variable| Err(format!("{name} has no variable ${variable}")))
}

/// Checks messages that are settings, not words: date formats, the calendar and the text direction.
fn check_setting(name: &str, pattern: &Pattern<&str>) -> Result<(), String> {
    let (is_valid, why): (fn(&str) -> bool, &str) = match name {
        "date" | "date-year" | "date-next" | "time" => (
            |text| StrftimeItems::new(text).all(|item| item != Item::Error),
            "is not a date format of strftime",
        ),
        "calendar" => {
            (|text| text.parse::<chrono::Locale>().is_ok(), "is not a known locale, such as de_DE")
        }
        "direction" => (|text| matches!(text, "ltr" | "rtl"), "is not ltr or rtl"),
        _ => return Ok(()),
    };
    let [PatternElement::TextElement { value }] = pattern.elements.as_slice() else {
        return Err(format!("{name} is not plain text"));
    };
    match value.trim() {
        text if is_valid(text) => Ok(()),
        text => Err(format!("{name}: {text:?} {why}")),
    }
}

/// Returns the messages of a catalog, with the variables they use.
pub(super) fn messages(resource: &FluentResource) -> Messages {
    let mut messages = Messages::new();
    for entry in resource.entries() {
        let Entry::Message(message) = entry else {
            continue;
        };
        for (name, pattern) in patterns(message) {
            let mut references = References::default();
            references.pattern(pattern);
            let variables = references.variables.into_iter().map(str::to_owned);
            messages.insert(name, variables.collect());
        }
    }
    messages
}

/// Returns the value of a message and its attributes, by name.
fn patterns<'a>(message: &'a Message<&'a str>) -> Vec<(String, &'a Pattern<&'a str>)> {
    let id = message.id.name;
    let value = message.value.iter().map(|value| (id.to_owned(), value));
    let attributes = message
        .attributes
        .iter()
        .map(|attribute| (format!("{id}.{}", attribute.id.name), &attribute.value));
    value.chain(attributes).collect()
}

/// The names that a pattern refers to.
#[derive(Default)]
struct References<'a> {
    variables: BTreeSet<&'a str>,
    /// Terms, messages and functions.
    others: BTreeSet<&'a str>,
}

impl<'a> References<'a> {
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
            InlineExpression::TermReference { id, .. }
            | InlineExpression::FunctionReference { id, .. }
            | InlineExpression::MessageReference { id, .. } => {
                self.others.insert(id.name);
            }
            InlineExpression::Placeable { expression } => self.expression(expression),
            InlineExpression::StringLiteral { .. } | InlineExpression::NumberLiteral { .. } => {}
        }
    }
}
