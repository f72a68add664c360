//! The built-in catalogs, and the Fluent bundles that format messages.

use std::sync::{Arc, LazyLock};

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::types::{FluentNumber, FluentNumberOptions};
use fluent_bundle::{FluentResource, FluentValue};
use unic_langid::LanguageIdentifier;

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
pub(super) static OURS: LazyLock<Vec<(&str, Arc<FluentResource>)>> = LazyLock::new(|| {
    let read = |text: &str| match FluentResource::try_new(text.to_owned()) {
        Ok(resource) | Err((resource, _)) => Arc::new(resource),
    };
    let all = BUILT_IN.iter().chain(REGIONAL);
    all.map(|(tag, text)| (*tag, read(text))).collect()
});

/// Enclose the digits of a number until they are formatted for the locale. Like the placeholders
/// for text, they are private-use characters, which no message contains.
pub(super) const NUMBER: (char, char) = ('\u{e001}', '\u{e002}');
/// Creates a bundle. Messages of later resources replace those of earlier ones.
pub(super) fn bundle<'a>(
    tag: &str,
    resources: impl Iterator<Item = &'a Arc<FluentResource>>,
) -> Bundle {
    let language: LanguageIdentifier = tag.parse().unwrap_or_default();
    let mut bundle = Bundle::new_concurrent(vec![language]);
    // `Voice::isolate` isolates values instead: where needed, and with elements in HTML.
    bundle.set_use_isolating(false);
    bundle.set_formatter(Some(|value, _| match value {
        // Counts are whole numbers, and `Voice` groups their digits. The number to print can differ
        // from the one that selects the plural, see `counted`.
        FluentValue::Number(number) => {
            let counted = number.options.minimum_integer_digits;
            let counted = counted.map_or(number.value as u64, |counted| counted as u64);
            Some(format!("{}{counted}{}", NUMBER.0, NUMBER.1))
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
pub(super) fn counted(bundle: &Bundle, count: u64) -> FluentNumber {
    let language = bundle
        .locales
        .first()
        .map(|locale| locale.language.as_str());
    let last = |teens: std::ops::RangeInclusive<u64>| match count % 100 {
        teen if teens.contains(&teen) => teen,
        other if other % 10 == 0 => 10.min(count),
        other => other % 10,
    };
    let alike = match language {
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
        Some("be") => last(11..=14),
        Some("lt" | "lv" | "prg") => last(11..=19),
        _ => count,
    };
    let options = FluentNumberOptions {
        // Set only if needed: a number with options never matches an exact variant such as `[2]`.
        minimum_integer_digits: usize::try_from(count).ok().filter(|_| alike != count),
        ..FluentNumberOptions::default()
    };
    FluentNumber::new(alike as f64, options)
}

/// Returns the locale, then the locale without its last part, and so on.
pub(super) fn truncated(tag: &str) -> impl Iterator<Item = String> {
    let shorter = |tag: &String| tag.rsplit_once('-').map(|(shorter, _)| shorter.to_owned());
    std::iter::successors(Some(tag.to_owned()), shorter)
}
