//! Message catalogs: what mails and pages say, by locale. Ours are compiled in; a folder of
//! templates may hold `locales/TAG.ftl` with words of its own.
//!
//! The rule: a message is looked for in the catalog of the locale, then in those it falls back to
//! (`pt-BR`, `pt`, `en`), in each first in the folder's own file. English has every message. What
//! is wrong with a file is found when it is loaded ([`mod@file`]). [`super::voice`] speaks.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::bundle::{Bundle, ENGLISH, OURS, bundle, truncated};
use super::error::Error;
use super::voice::{Medium, Voice};
use crate::domain::EventType;
use crate::domain::locale::tag;

mod file;
mod gaps;

pub use gaps::Gap;

#[cfg(test)]
pub(super) use file::{Messages, messages};

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

/// The locale, what it falls back to, and English at last.
fn chain(tag: &str) -> impl Iterator<Item = String> {
    let last = (truncated(tag).last().as_deref() != Some(ENGLISH)).then(|| ENGLISH.to_owned());
    truncated(tag).chain(last)
}

#[cfg(test)]
#[path = "catalogs_tests.rs"]
mod tests;
