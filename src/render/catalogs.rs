//! Loads message catalogs by locale: the built-in ones, and `locales/TAG.ftl` in the templates
//! folder.
//!
//! A message comes from the locale's catalog, else from a fallback (`pt-BR`, `pt`, `en`); the
//! folder's file precedes the built-in one. English has every message. Invalid files are rejected
//! on loading. Start with [`Catalogs::load`] and [`Catalogs::voice`].

use std::collections::{BTreeMap, BTreeSet};
use std::path::Path;
use std::sync::Arc;

use super::bundle::{Bundle, ENGLISH, KNOWN, OURS, Own, bundle, messages, own, truncated};
use super::files::Error;
use super::voice::Voice;
use crate::domain::EventType;
use crate::domain::text::language_tag;

/// All catalogs, with a formatter for each locale.
#[derive(Clone)]
pub struct Catalogs {
    voices: Arc<BTreeMap<String, Arc<Voice>>>,
    english: Arc<Voice>,
    gaps: Arc<Vec<Gap>>,
}

impl Catalogs {
    /// Loads the built-in catalogs and those of the templates folder.
    ///
    /// # Errors
    ///
    /// Fails if a catalog cannot be read or is invalid.
    pub fn load(overrides: Option<&Path>) -> Result<Self, Error> {
        let own = overrides.map(own).transpose()?.unwrap_or_default();
        let gaps = Arc::new(find_gaps(&own));
        let mut bundles: BTreeMap<String, Vec<Arc<Bundle>>> = BTreeMap::new();
        let tags = OURS.iter().map(|(tag, _)| (*tag).to_owned());
        for tag in tags.chain(own.keys().cloned()) {
            let ours = OURS.iter().find(|(ours, _)| *ours == tag);
            let ours = ours.map(|(_, resource)| resource);
            let own = own.get(&tag).map(|own| &own.resource);
            // A message replaces its namesake with all attributes. The built-in bundle alone
            // supplies an attribute that the folder's message lacks.
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

    /// Returns the messages that are missing from the folder's catalogs of languages without a
    /// built-in catalog.
    pub fn gaps(&self) -> &[Gap] {
        &self.gaps
    }

    /// Returns the tags of all locales that have a catalog.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.voices.keys().map(String::as_str)
    }

    /// Returns each locale's tag with the language's name for itself.
    pub fn languages(&self) -> impl Iterator<Item = (&str, String)> {
        self.voices()
            .map(|voice| (voice.tag(), voice.text_of("language")))
    }

    pub(super) fn voices(&self) -> impl Iterator<Item = &Arc<Voice>> {
        self.voices.values()
    }

    /// Returns the formatter for a user's locale: the nearest one, else English.
    pub(super) fn voice(&self, locale: Option<&str>) -> &Arc<Voice> {
        locale
            .and_then(|locale| self.near(locale))
            .unwrap_or(&self.english)
    }

    /// Returns the nearest locale that has a catalog, or `None` if its language has none.
    pub fn nearest(&self, locale: &str) -> Option<&str> {
        self.near(locale).map(|voice| voice.tag())
    }

    /// Returns the nearest locale that has a catalog, else English.
    pub fn spoken(&self, locale: Option<&str>) -> &str {
        self.voice(locale).tag()
    }

    /// Returns the messages that the user's language lacks for a type: the heading, and the phrase
    /// if the type has one.
    pub fn lacking(&self, locale: Option<&str>, kind: &EventType, has_phrase: bool) -> Vec<String> {
        self.voice(locale).lacking(kind, has_phrase)
    }

    fn near(&self, locale: &str) -> Option<&Arc<Voice>> {
        let tag = language_tag(locale)?;
        truncated(&tag).find_map(|tag| self.voices.get(&tag))
    }

    /// Returns the available locale with the highest weight in an `Accept-Language` header.
    pub fn accepted(&self, header: &str) -> Option<String> {
        /// More than any browser sends.
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

/// Returns the locale, its fallbacks, and English last.
fn chain(tag: &str) -> impl Iterator<Item = String> {
    let last = (truncated(tag).last().as_deref() != Some(ENGLISH)).then(|| ENGLISH.to_owned());
    truncated(tag).chain(last)
}

/// The missing messages of a catalog whose language has no built-in catalog. They appear in
/// English.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Gap {
    /// The file name in the `locales` folder.
    pub file: String,
    /// The locale of the catalog.
    pub locale: String,
    /// The messages that neither it nor a fallback of its language has.
    pub missing: Vec<String>,
    /// The number of messages in the English catalog.
    pub of: usize,
}

/// A language with a built-in catalog has no gaps, because that catalog supplies the missing
/// messages.
fn find_gaps(own: &BTreeMap<String, Own>) -> Vec<Gap> {
    /// Optional: the default is left to right.
    const DIRECTION: &str = "direction";
    let is_ours = |tag: &String| OURS.iter().any(|(ours, _)| ours == tag);
    let theirs = own
        .iter()
        .filter(|(tag, _)| !truncated(tag).any(|tag| is_ours(&tag)));
    let gap = |(tag, catalog): (&String, &Own)| {
        let said = truncated(tag).filter_map(|tag| own.get(&tag));
        let said: BTreeSet<String> = said
            .flat_map(|said| messages(&said.resource).into_keys())
            .collect();
        let missing = KNOWN.keys().filter(|name| !said.contains(*name));
        Gap {
            file: catalog.file.clone(),
            locale: tag.clone(),
            missing: missing.filter(|name| *name != DIRECTION).cloned().collect(),
            of: KNOWN.len(),
        }
    };
    let gaps = theirs.map(gap);
    gaps.filter(|gap| !gap.missing.is_empty()).collect()
}

#[cfg(test)]
#[path = "catalogs_tests.rs"]
mod tests;
