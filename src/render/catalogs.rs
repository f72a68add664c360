//! Loads message catalogs by locale: the built-in ones, and `locales/TAG.ftl` in the templates
//! folder.
//!
//! A message comes from the locale's catalog, else from a fallback (`pt-BR`, `pt`, `en`); the
//! folder's file precedes the built-in one. English has every message. Invalid files are rejected
//! on loading. Start with [`Catalogs::load`] and [`Catalogs::formatter`].

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use super::catalog_files::{
    BUILT_IN_RESOURCES, Bundle, ENGLISH, ENGLISH_MESSAGES, bundle, read_folder, with_fallbacks,
};
use super::error::Error;
use super::locale_formatter::{LocaleFormatter, Medium, MessageValue};
use crate::domain::text_checks::to_language_tag;
use crate::domain::{EventType, Phrase, Policies};

/// All catalogs, with a formatter for each locale.
#[derive(Clone)]
pub struct Catalogs {
    formatters: Arc<BTreeMap<String, Arc<LocaleFormatter>>>,
}

impl Catalogs {
    /// Loads the built-in catalogs and those of the templates folder.
    ///
    /// # Errors
    ///
    /// Fails if a catalog cannot be read or is invalid.
    pub fn load(overrides: Option<&Path>) -> Result<Self, Error> {
        let own = overrides.map(read_folder).transpose()?.unwrap_or_default();
        let built_in_tags = BUILT_IN_RESOURCES.iter().map(|(tag, _)| *tag);
        let tags = built_in_tags.chain(own.keys().map(String::as_str));
        let bundles_of = |tag: &str| {
            let built_in = BUILT_IN_RESOURCES
                .iter()
                .find(|(ours, _)| *ours == tag)
                .map(|(_, resource)| resource);
            // A message replaces its namesake with all attributes. The built-in bundle alone
            // supplies an attribute that the folder's message lacks.
            let with_own = own.get(tag).map(|own| bundle(tag, built_in.into_iter().chain([own])));
            let alone = built_in.map(|resource| bundle(tag, std::iter::once(resource)));
            with_own.into_iter().chain(alone).map(Arc::new).collect()
        };
        let bundles: BTreeMap<&str, Vec<Arc<Bundle>>> =
            tags.map(|tag| (tag, bundles_of(tag))).collect();
        let formatter = |tag: &str| {
            let chain = chain(tag).filter_map(|tag| bundles.get(&*tag).cloned());
            Arc::new(LocaleFormatter::new(tag.to_owned(), chain.flatten().collect()))
        };
        let formatters = bundles.keys().map(|tag| ((*tag).to_owned(), formatter(tag)));
        Ok(Self { formatters: Arc::new(formatters.collect()) })
    }

    /// Returns the tags of all locales that have a catalog.
    pub fn locales(&self) -> impl Iterator<Item = &str> {
        self.formatters.keys().map(String::as_str)
    }

    pub(super) fn formatters(&self) -> impl Iterator<Item = &Arc<LocaleFormatter>> {
        self.formatters.values()
    }

    /// Returns the formatter for a user's locale: the nearest one, else English.
    pub(super) fn formatter(&self, locale: Option<&str>) -> &Arc<LocaleFormatter> {
        let nearest = locale.and_then(|locale| self.nearest_formatter(locale));
        nearest.unwrap_or_else(|| &self.formatters[ENGLISH])
    }

    /// Returns the nearest locale that has a catalog, or `None` if its language has none.
    pub fn nearest_locale(&self, locale: &str) -> Option<&str> {
        self.nearest_formatter(locale).map(|formatter| formatter.tag())
    }

    /// Returns the nearest locale that has a catalog, else English.
    pub fn locale_or_english(&self, locale: Option<&str>) -> &str {
        self.formatter(locale).tag()
    }

    /// Returns the messages that the user's language lacks for a type: the heading, and the phrase
    /// if the type has one.
    pub fn missing_messages(
        &self,
        locale: Option<&str>,
        kind: &EventType,
        has_phrase: bool,
    ) -> Vec<String> {
        self.formatter(locale).missing_messages(kind, has_phrase)
    }

    /// Returns each locale whose language lacks messages, with these messages.
    pub(crate) fn incomplete(&self) -> impl Iterator<Item = (&str, Vec<&str>)> {
        // Without `direction`, text runs from left to right. Attributes are part of a message.
        let ids = ENGLISH_MESSAGES.keys().map(String::as_str);
        let needed = ids.filter(|id| *id != "direction" && !id.contains('.'));
        self.formatters().filter_map(move |formatter| {
            let missing: Vec<&str> = needed.clone().filter(|id| formatter.lacks(id)).collect();
            (!missing.is_empty()).then(|| (formatter.tag(), missing))
        })
    }

    /// Returns the heading of a type for feeds, and a sentence with `{who}` and `{what}` in it if
    /// the type has a phrase in the user's language.
    pub fn feed_texts(
        &self,
        locale: Option<&str>,
        kind: &EventType,
        policies: &Policies,
    ) -> (String, Option<String>) {
        let formatter = self.formatter(locale);
        let sentence = |configured: &Phrase| {
            let phrase = formatter.phrase_or(kind, 1, configured)?;
            let values = [
                ("who", MessageValue::Ready("{who}".into())),
                ("phrase", MessageValue::words(&phrase)),
                ("about", MessageValue::Ready("{what}".into())),
            ];
            formatter.format("said", &values, Medium::Text)
        };
        let phrase_sentence = policies.policy(kind).phrase.as_ref().and_then(sentence);
        (formatter.heading(policies.heading(kind), kind), phrase_sentence)
    }

    /// Returns the texts of the widget, by name. `{n}` in them is a place for a number.
    pub fn widget_texts(&self, locale: Option<&str>) -> BTreeMap<&'static str, String> {
        let formatter = self.formatter(locale);
        let values = [("n", MessageValue::Ready("{n}".into()))];
        let text = |id: &'static String| {
            let name = id.strip_prefix("widget-")?;
            Some((name, formatter.format(id, &values, Medium::Text)?))
        };
        ENGLISH_MESSAGES.keys().filter_map(text).collect()
    }

    fn nearest_formatter(&self, locale: &str) -> Option<&Arc<LocaleFormatter>> {
        let tag = to_language_tag(locale)?;
        with_fallbacks(&tag).find_map(|tag| self.formatters.get(&tag))
    }

    /// Returns the first available locale in an `Accept-Language` header. Browsers list languages
    /// in order of preference, so weights other than 0 are ignored.
    pub fn locale_of_header(&self, header: &str) -> Option<String> {
        /// More than any browser sends.
        const MAX_ENTRIES: usize = 32;
        let mut entries = header.split(',').take(MAX_ENTRIES);
        let nearest = entries.find_map(|entry| {
            let mut parts = entry.split(';').map(str::trim);
            let tag = parts.next()?;
            let is_zero = |q: &str| q.trim_matches(['0', '.']).is_empty();
            let is_refused = parts.any(|part| part.strip_prefix("q=").is_some_and(is_zero));
            self.nearest_locale(tag).filter(|_| !is_refused)
        });
        nearest.map(str::to_owned)
    }
}

/// Returns the locale, its fallbacks, and English last.
fn chain(tag: &str) -> impl Iterator<Item = String> {
    let last = (with_fallbacks(tag).last().as_deref() != Some(ENGLISH)).then(|| ENGLISH.to_owned());
    with_fallbacks(tag).chain(last)
}

#[cfg(test)]
#[path = "catalogs_tests.rs"]
mod tests;
