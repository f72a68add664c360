//! The catalogs that are compiled in, and the bundles that put messages together.

use std::sync::{Arc, LazyLock};

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::types::{FluentNumber, FluentNumberOptions};
use fluent_bundle::{FluentResource, FluentValue};
use unic_langid::LanguageIdentifier;

pub(super) type Bundle = FluentBundle<Arc<FluentResource>>;

/// What all others fall back to.
pub(super) const ENGLISH: &str = "en";

/// Our catalogs, by locale.
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

/// Our regional catalogs, which hold what differs from the language's own.
pub(super) const REGIONAL: &[(&str, &str)] = &[("en-US", include_str!("../../locales/en-US.ftl"))];

/// Ours, read once: a test holds them against the English one.
pub(super) static OURS: LazyLock<Vec<(&str, Arc<FluentResource>)>> = LazyLock::new(|| {
    let read = |text: &str| match FluentResource::try_new(text.to_owned()) {
        Ok(resource) | Err((resource, _)) => Arc::new(resource),
    };
    let all = BUILT_IN.iter().chain(REGIONAL);
    all.map(|(tag, text)| (*tag, read(text))).collect()
});

/// Around the digits of a number, until it is written as the locale does. Of Unicode's private
/// use, as is what stands for words: no text has them.
pub(super) const NUMBER: (char, char) = ('\u{e001}', '\u{e002}');
/// Of these, later ones say what earlier ones say too.
pub(super) fn bundle<'a>(
    tag: &str,
    resources: impl Iterator<Item = &'a Arc<FluentResource>>,
) -> Bundle {
    let language: LanguageIdentifier = tag.parse().unwrap_or_default();
    let mut bundle = Bundle::new_concurrent(vec![language]);
    // Names are isolated where they need it, and in HTML by elements.
    bundle.set_use_isolating(false);
    bundle.set_formatter(Some(|value, _| match value {
        // What is counted is a whole number; its digits are grouped by whoever speaks. What is
        // counted and what chooses the plural can differ, see `counted`.
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

/// A number that chooses its plural in the language of this bundle, and is written as it is.
///
/// In `intl_pluralrules` 7 the rules that rest on the remainder of a number lack the remainder
/// where they name a range, as in Arabic, whose 103 is as 3. So a small number of the same plural
/// stands for a large one, and the large one where only its writing looks. Breton has more rules of
/// that kind than there are numbers to stand for.
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
        // Where it is needed: numbers with options are equal to no `[2]` of a message.
        minimum_integer_digits: usize::try_from(count).ok().filter(|_| alike != count),
        ..FluentNumberOptions::default()
    };
    FluentNumber::new(alike as f64, options)
}

/// The locale, then without its last part, and so on.
pub(super) fn truncated(tag: &str) -> impl Iterator<Item = String> {
    let shorter = |tag: &String| tag.rsplit_once('-').map(|(shorter, _)| shorter.to_owned());
    std::iter::successors(Some(tag.to_owned()), shorter)
}
