//! Finds words for parts of an email, in the catalog or the configuration.
//!
//! Words of the configuration are English, so they appear only in English sentences.

use super::naming::{NAME, Named, SHORT, more_things, new_things, words};
use super::voice::{Filled, Medium, Voice};
use crate::domain::Mandate;
use crate::domain::content::{About, Item, Section};

pub(super) fn heading(voice: &Voice, section: &Section) -> String {
    voice.heading(&section.heading, &section.kind)
}

/// Returns the noun for a number of events of one section, or `None` if the section has no noun.
pub(super) fn things(voice: &Voice, section: &Section, total: u64) -> Option<String> {
    let named = || new_things(&heading(voice, section)).filter(|_| voice.is_english());
    voice.news(&section.kind, total).or_else(named)
}

/// Returns the number of further events in words, with their topic; `None` if there are none.
pub(super) fn further(
    voice: &Voice,
    section: &Section,
    count: u64,
    about: Option<String>,
) -> Option<String> {
    if count == 0 {
        return None;
    }
    let heading = heading(voice, section);
    let english = || more_things(&heading, count).filter(|_| voice.is_english());
    let more = voice.further(&section.kind, count).or_else(english);
    let id = match (&more, &about) {
        (Some(_), Some(_)) => "more-named-on",
        (Some(_), None) => "more-named",
        (None, Some(_)) => "more-on",
        (None, None) => "more",
    };
    let mut filled = vec![("count", Filled::Count(count))];
    filled.extend(more.as_deref().map(|more| ("more", Filled::words(more))));
    filled.extend(about.as_deref().map(|name| ("name", Filled::words(name))));
    voice.say(id, &filled, Medium::Text)
}

/// Returns the reason why the user cannot turn an email off, if all its sections are mandatory.
pub(super) fn mandatory(voice: &Voice, sections: &[Section]) -> Option<String> {
    let reason = |section: &Section| {
        let configured = section.mandate.clone()?;
        // The configured reason is English, so other languages must not use it.
        let mandate = if voice.is_english() {
            configured
        } else {
            Mandate::default()
        };
        Some(voice.reason(&section.kind, &mandate))
    };
    let reasons: Vec<String> = sections.iter().map(reason).collect::<Option<_>>()?;
    let reason = reasons.first()?.trim_end_matches(['.', '。']);
    words(reason, NAME + SHORT)
}

/// Returns the phrase for a number of events that share no noun.
pub(super) fn news(voice: &Voice, total: u64) -> String {
    let count = [("count", Filled::Count(total))];
    voice
        .say("things", &count, Medium::Text)
        .unwrap_or_default()
}

/// Returns the person with the quoted text, or with the item's own title if it has another topic.
pub(super) fn says(voice: &Voice, by: &str, about: &About, item: &Item) -> Option<String> {
    let details = item.details.as_deref();
    let text = details.and_then(|details| details.text.as_deref());
    let title = match about {
        About::Other { .. } => item.object.title.as_deref(),
        About::Page { .. } | About::Itself => None,
    };
    let said = words(text.or(title)?, SHORT)?;
    let parts = [("label", Filled::words(by)), ("text", Filled::words(&said))];
    voice.say("label", &parts, Medium::Text)
}

/// Returns the names that can represent a section in a subject, one entry per group.
pub(super) fn named_by(section: &Section) -> Vec<Named<'_>> {
    let groups = section.groups.iter();
    let named = groups.filter_map(|group| {
        let by = group.items.first()?.person();
        let is_by = |item: &&Item| match (item.person(), &by) {
            (Some(other), Some(by)) => other.is(by),
            _ => false,
        };
        Some(Named {
            title: group.title(),
            events: (group.items.iter().filter(is_by).count() as u64, group.total),
            // If the type has a phrase, the topic is more informative than one of many people.
            by: by.filter(|_| section.phrase.is_none()),
        })
    });
    named.collect()
}
