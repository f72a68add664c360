//! Message catalogs: what mails and pages say, by locale. Ours are compiled in; a folder of
//! templates may hold `locales/TAG.ftl` with words of its own.
//!
//! The rule: a message is looked for in the catalog of the locale, then in those it falls back to
//! (`pt-BR`, `pt`, `en`), in each first in the folder's own file. English has every message. What
//! is wrong with a file is found when it is loaded ([`mod@file`]). [`super::voice`] speaks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::{Arc, LazyLock};

use fluent_bundle::concurrent::FluentBundle;
use fluent_bundle::types::{FluentNumber, FluentNumberOptions};
use fluent_bundle::{FluentResource, FluentValue};
use unic_langid::LanguageIdentifier;

use super::templates::Error;
use super::voice::{Medium, NUMBER, Voice};
use crate::domain::EventType;
use crate::domain::locale::tag;

mod file;
mod gaps;

pub use gaps::Gap;

#[cfg(test)]
pub(super) use file::{Messages, messages};

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
static OURS: LazyLock<Vec<(&str, Arc<FluentResource>)>> = LazyLock::new(|| {
    let read = |text: &str| match FluentResource::try_new(text.to_owned()) {
        Ok(resource) | Err((resource, _)) => Arc::new(resource),
    };
    let all = BUILT_IN.iter().chain(REGIONAL);
    all.map(|(tag, text)| (*tag, read(text))).collect()
});

/// All catalogs, and who speaks by them.
#[derive(Clone)]
pub struct Catalogs {
    voices: Arc<BTreeMap<String, Arc<Voice>>>,
    english: Arc<Voice>,
    gaps: Arc<Vec<Gap>>,
}

impl Catalogs {
    /// Ours, and what the folder of templates says otherwise or beside them.
    pub fn load(overrides: Option<&Path>) -> Result<Self, Error> {
        let own = overrides.map(file::own).transpose()?.unwrap_or_default();
        let gaps = Arc::new(gaps::find(&own));
        let mut bundles: BTreeMap<String, Vec<Arc<Bundle>>> = BTreeMap::new();
        let tags = OURS.iter().map(|(tag, _)| (*tag).to_owned());
        for tag in tags.chain(own.keys().cloned()) {
            let ours = OURS.iter().find(|(ours, _)| *ours == tag);
            let ours = ours.map(|(_, resource)| resource);
            let own = own.get(&tag).map(|own| &own.resource);
            // A message goes as a whole, so what the folder's leaves out of one is in ours alone.
            let with_own = own.map(|own| bundle(&tag, ours.into_iter().chain([own])));
            let alone = ours.map(|ours| bundle(&tag, std::iter::once(ours)));
            let both = with_own.into_iter().chain(alone).map(Arc::new);
            bundles.insert(tag, both.collect());
        }
        let voice = |tag: &String| {
            let chain = chain(tag).filter_map(|tag| bundles.get(&tag).cloned());
            Arc::new(Voice::new(tag.clone(), chain.flatten().collect()))
        };
        let voices: BTreeMap<String, Arc<Voice>> = bundles
            .keys()
            .map(|tag| (tag.clone(), voice(tag)))
            .collect();
        Ok(Self {
            english: voices
                .get(ENGLISH)
                .cloned()
                .unwrap_or_else(|| voice(&ENGLISH.to_owned())),
            voices: Arc::new(voices),
            gaps,
        })
    }

    /// What the folder's languages that we have no catalog of leave to English.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// All locales that have a catalog, by their tags.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.voices.keys().map(String::as_str)
    }

    /// The same, with what each language calls itself.
    pub fn languages(&self) -> impl Iterator<Item = (&str, String)> {
        let own = |voice: &Voice| voice.say("language", &[], Medium::Text).unwrap_or_default();
        self.voices().map(move |voice| (voice.tag(), own(voice)))
    }

    pub(super) fn voices(&self) -> impl Iterator<Item = &Arc<Voice>> {
        self.voices.values()
    }

    /// Who speaks to somebody of this locale: the nearest there is, else English.
    pub(super) fn voice(&self, locale: Option<&str>) -> &Arc<Voice> {
        locale
            .and_then(|locale| self.near(locale))
            .unwrap_or(&self.english)
    }

    /// The locale that somebody of this one is spoken to in; `None` if there is none for their
    /// language.
    pub fn nearest(&self, locale: &str) -> Option<&str> {
        self.near(locale).map(|voice| voice.tag())
    }

    /// The same, and English where there is none.
    pub fn spoken(&self, locale: Option<&str>) -> &str {
        self.voice(locale).tag()
    }

    /// The messages of a type that the reader's language lacks: its heading, and its phrase if it
    /// has one.
    pub fn lacking(&self, locale: Option<&str>, kind: &EventType, has_phrase: bool) -> Vec<String> {
        self.voice(locale).lacking(kind, has_phrase)
    }

    fn near(&self, locale: &str) -> Option<&Arc<Voice>> {
        let asked = tag(locale)?;
        truncated(&asked).find_map(|tag| self.voices.get(&tag))
    }

    /// The locale of a header `Accept-Language` that is there and wanted most.
    pub fn accepted(&self, header: &str) -> Option<String> {
        /// More than any browser names.
        const MOST: usize = 32;
        let mut best: Option<(f32, &str)> = None;
        for one in header.split(',').take(MOST) {
            let mut parts = one.split(';').map(str::trim);
            let tag = parts.next().unwrap_or_default();
            let weight = parts.find_map(|part| part.strip_prefix("q="));
            let weight = weight.map_or(1.0, |weight| weight.parse().unwrap_or(0.0));
            let wanted = weight > best.map_or(0.0, |(best, _)| best);
            if let Some(there) = self.nearest(tag).filter(|_| wanted) {
                best = Some((weight, there));
            }
        }
        best.map(|(_, tag)| tag.to_owned())
    }
}

/// Of these, later ones say what earlier ones say too.
fn bundle<'a>(tag: &str, resources: impl Iterator<Item = &'a Arc<FluentResource>>) -> Bundle {
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
fn truncated(tag: &str) -> impl Iterator<Item = String> {
    let shorter = |tag: &String| tag.rsplit_once('-').map(|(shorter, _)| shorter.to_owned());
    std::iter::successors(Some(tag.to_owned()), shorter)
}

/// The locale, what it falls back to, and English at last.
fn chain(tag: &str) -> impl Iterator<Item = String> {
    let last = (truncated(tag).last().as_deref() != Some(ENGLISH)).then(|| ENGLISH.to_owned());
    truncated(tag).chain(last)
}

#[cfg(test)]
#[path = "catalogs_tests.rs"]
mod tests;
