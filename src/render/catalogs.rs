//! Loads message catalogs by locale: the built-in ones, and `locales/TAG.ftl` in the templates
//! folder.
//!
//! A message comes from the locale's catalog, else from a fallback (`pt-BR`, `pt`, `en`); the
//! folder's file precedes the built-in one. English has every message. Invalid files are rejected
//! on loading. Start with [`Catalogs::load`] and [`Catalogs::voice`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::built_in_templates::Error;
use super::catalog_files::{Bundle, ENGLISH, KNOWN, OURS, bundle, own, truncated};
use super::voice::{Medium, MessageValue, Voice};
use crate::domain::text_checks::to_language_tag;
use crate::domain::{EventType, Phrase, Policies};

/// All catalogs, with a formatter for each locale.
#[derive(Clone)]
pub struct Catalogs {
    voices: Arc<BTreeMap<String, Arc<Voice>>>,
}

impl Catalogs {
    /// Loads the built-in catalogs and those of the templates folder.
    ///
    /// # Errors
    ///
    /// Fails if a catalog cannot be read or is invalid.
    pub fn load(overrides: Option<&Path>) -> Result<Self, Error> {
        let own = overrides.map(own).transpose()?.unwrap_or_default();
        let tags = OURS.iter().map(|(tag, _)| *tag);
        let tags = tags.chain(own.keys().map(String::as_str));
        let bundles_of = |tag: &str| {
            let ours = OURS.iter().find(|(ours, _)| *ours == tag);
            let ours = ours.map(|(_, resource)| resource);
            // A message replaces its namesake with all attributes. The built-in bundle alone
            // supplies an attribute that the folder's message lacks.
            let with_own = own.get(tag).map(|own| bundle(tag, ours.into_iter().chain([own])));
            let alone = ours.map(|ours| bundle(tag, std::iter::once(ours)));
            with_own.into_iter().chain(alone).map(Arc::new).collect()
        };
        let bundles: BTreeMap<&str, Vec<Arc<Bundle>>> =
            tags.map(|tag| (tag, bundles_of(tag))).collect();
        let voice = |tag: &str| {
            let chain = chain(tag).filter_map(|tag| bundles.get(&*tag).cloned());
            Arc::new(Voice::new(tag.to_owned(), chain.flatten().collect()))
        };
        let voices = bundles.keys().map(|tag| ((*tag).to_owned(), voice(tag)));
        Ok(Self { voices: Arc::new(voices.collect()) })
    }

    /// Returns the tags of all locales that have a catalog.
    pub fn tags(&self) -> impl Iterator<Item = &str> {
        self.voices.keys().map(String::as_str)
    }

    pub(super) fn voices(&self) -> impl Iterator<Item = &Arc<Voice>> {
        self.voices.values()
    }

    /// Returns the formatter for a user's locale: the nearest one, else English.
    pub(super) fn voice(&self, locale: Option<&str>) -> &Arc<Voice> {
        let near = locale.and_then(|locale| self.near(locale));
        near.unwrap_or_else(|| &self.voices[ENGLISH])
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

    /// Returns each locale whose language lacks messages, with these messages.
    pub(crate) fn incomplete(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        // Without `direction`, text runs from left to right. Attributes are part of a message.
        let needed = KNOWN.keys().map(String::as_str);
        let needed = needed.filter(|id| *id != "direction" && !id.contains('.'));
        let voices = self.voices().map(move |voice| {
            let missing = needed.clone().filter(|id| voice.lacks(id));
            (voice.tag(), missing.collect())
        });
        voices.filter(|(_, missing): &(&str, Vec<&str>)| !missing.is_empty())
    }

    /// Returns the heading of a type for feeds, and a sentence with `{who}` and `{what}` in it if
    /// the type has a phrase in the user's language.
    pub fn feed_words(
        &self,
        locale: Option<&str>,
        kind: &EventType,
        policies: &Policies,
    ) -> (String, Option<String>) {
        let voice = self.voice(locale);
        let sentence = |configured: &Phrase| {
            let phrase = voice.phrase_or(kind, 1, configured)?;
            let filled = [
                ("who", MessageValue::Ready("{who}".into())),
                ("phrase", MessageValue::words(&phrase)),
                ("about", MessageValue::Ready("{what}".into())),
            ];
            voice.say("said", &filled, Medium::Text)
        };
        let phrase = policies.policy(kind).phrase.as_ref().and_then(sentence);
        (voice.heading(policies.heading(kind), kind), phrase)
    }

    /// Returns the texts of the widget, by name. `{n}` in them is a place for a number.
    pub fn widget_texts(&self, locale: Option<&str>) -> BTreeMap<&'static str, String> {
        let (voice, number) = (self.voice(locale), MessageValue::Ready("{n}".into()));
        let filled = [("n", number)];
        let text = |id: &'static String| {
            let name = id.strip_prefix("widget-")?;
            Some((name, voice.say(id, &filled, Medium::Text)?))
        };
        KNOWN.keys().filter_map(text).collect()
    }

    fn near(&self, locale: &str) -> Option<&Arc<Voice>> {
        let tag = to_language_tag(locale)?;
        truncated(&tag).find_map(|tag| self.voices.get(&tag))
    }

    /// Returns the first available locale in an `Accept-Language` header. Browsers list languages
    /// in order of preference, so weights other than 0 are ignored.
    pub fn accepted(&self, header: &str) -> Option<String> {
        /// More than any browser sends.
        const MOST: usize = 32;
        let mut entries = header.split(',').take(MOST);
        let nearest = entries.find_map(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let tag = parts.next()?;
            let is_zero = |q: &str| q.trim_matches(['0', '.']).is_empty();
            let is_refused = parts.any(|part| part.strip_prefix("q=").is_some_and(is_zero));
            self.nearest(tag).filter(|_| !is_refused)
        });
        nearest.map(str::to_owned)
    }
}

/// Returns the locale, its fallbacks, and English last.
fn chain(tag: &str) -> impl Iterator<Item = String> {
    let last = (truncated(tag).last().as_deref() != Some(ENGLISH)).then(|| ENGLISH.to_owned());
    truncated(tag).chain(last)
}

#[cfg(test)]
#[path = "catalogs_tests.rs"]
mod tests;
