//! Creates sentences about an email's events, such as "Ada and Ben commented on Budget".
//!
//! A sentence exists only if the type has a phrase in the user's language and all people are known.
//! This module supplies the parts; templates and catalogs supply the wording. Start with
//! [`SentenceView`].

use serde::Serialize;

use super::naming::{SHORT, TITLE, label, short};
use super::text::link;
use super::voice::Voice;
use crate::domain::content::{About, Group, People, Section};

/// The most names in a sentence. Longer lists show one fewer, and a count of the rest.
pub(super) const NAMES: usize = 3;

/// The topic of a group, and its URL.
#[derive(Serialize)]
pub(super) struct AboutView<'a> {
    about: String,
    url: Option<&'a str>,
    /// Whether the topic is the items themselves, so that they have no other title.
    itself: bool,
}

/// The parts of a sentence: people, phrase and topics.
#[derive(Serialize)]
pub(super) struct SentenceView {
    /// The first names. `others` counts the remaining people, `people` all of them.
    names: Vec<String>,
    others: usize,
    people: usize,
    phrase: String,
    /// The first topics. `elsewhere` counts the remaining ones.
    about: Vec<String>,
    elsewhere: usize,
    /// The URL of the topic, if there is only one.
    url: Option<String>,
    /// The number of events that the sentence covers. `rest` counts the other events of the email.
    total: u64,
    rest: u64,
    /// Whether there is only one topic, and the sentence covers all events of the email.
    whole: bool,
}

impl<'a> AboutView<'a> {
    pub(super) fn of(group: &'a Group) -> Self {
        Self {
            about: about(group, TITLE),
            url: group.url().and_then(link),
            itself: is_itself(group),
        }
    }

    pub(super) fn is_itself(&self) -> bool {
        self.itself
    }
}

impl SentenceView {
    /// Returns a sentence for all events if they are of one type, else for the first group that
    /// allows one.
    pub(super) fn of_all(voice: &Voice, sections: &[Section], total: u64) -> Option<Self> {
        let of_one = match sections {
            [section] => Self::of_section(voice, section, total),
            _ => None,
        };
        of_one.or_else(|| {
            let groups = |section: &'_ Section| -> Option<Self> {
                let mut groups = section.groups.iter();
                groups.find_map(|group| Self::of_group(voice, section, group, total))
            };
            sections.iter().find_map(groups)
        })
    }

    /// Returns the URL of the topic, if there is only one.
    pub(super) fn url(&self) -> Option<&str> {
        self.url.as_deref()
    }

    pub(super) fn of_group(
        voice: &Voice,
        section: &Section,
        group: &Group,
        total: u64,
    ) -> Option<Self> {
        let all = section.groups.len() == 1 && section.abouts == 1;
        let url = match group.items.as_slice() {
            [only] if is_itself(group) && group.total == 1 => only.object.url.as_deref(),
            _ => group.url(),
        };
        Some(Self {
            about: vec![about(group, TITLE)],
            url: url.and_then(link).map(str::to_owned),
            whole: all && group.total == total,
            ..Self::of(voice, section, &group.people, group.total, total)?
        })
    }

    fn of_section(voice: &Voice, section: &Section, total: u64) -> Option<Self> {
        if section.abouts == 1 {
            return Self::of_group(voice, section, section.groups.first()?, total);
        }
        let groups = section.groups.iter().take(named(section.abouts));
        let about: Vec<String> = groups.map(|group| about(group, SHORT)).collect();
        let known = section.total - section.not_kept;
        Some(Self {
            elsewhere: section.abouts - about.len(),
            about,
            ..Self::of(voice, section, &section.people, known, total)?
        })
    }

    /// Returns a sentence without topics; `told` is the number of events that it covers.
    fn of(
        voice: &Voice,
        section: &Section,
        people: &People,
        told: u64,
        total: u64,
    ) -> Option<Self> {
        let phrase = section.phrase.as_ref()?;
        let People::Named(people) = people else {
            return None;
        };
        let said = voice.phrase(&section.kind, people.len() as u64);
        // The configured phrase is English, so other languages must not use it.
        let said = said.or_else(|| voice.is_english().then(|| short(phrase.as_str(), SHORT)))?;
        let names = people.iter().take(named(people.len()));
        let names: Vec<String> = names.map(|by| short(&by.name, SHORT)).collect();
        Some(Self {
            others: people.len() - names.len(),
            names,
            people: people.len(),
            phrase: said,
            about: Vec::new(),
            elsewhere: 0,
            url: None,
            total: told,
            rest: total - told,
            whole: false,
        })
    }
}

/// Returns how many names of a list to show.
fn named(all: usize) -> usize {
    if all <= NAMES { all } else { NAMES - 1 }
}

/// Returns the topic of a group in words.
fn about(group: &Group, max: usize) -> String {
    match (&group.about, group.items.first()) {
        (About::Other { title, .. } | About::Page { title, .. }, _) => short(title, max),
        (About::Itself, item) => item.map_or_else(String::new, |item| label(item, max)),
    }
}

fn is_itself(group: &Group) -> bool {
    match group.about {
        About::Page { .. } | About::Itself => true,
        About::Other { .. } => false,
    }
}
