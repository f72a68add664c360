//! What can be said of what a mail tells: what it is about, and sentences of who did what to it.
//!
//! The rule: a sentence ("Ada and Ben commented on Budget") exists where the type has a phrase in
//! the reader's language and everybody in it is known. The templates have the words around them.

use serde::Serialize;

use super::naming::{SHORT, TITLE, label, short};
use super::text::link;
use super::voice::Voice;
use crate::domain::content::{About, Group, People, Section};

/// So many names stand in a sentence if that is all of them, else one fewer.
pub(super) const NAMES: usize = 3;

/// What something is about, and where that is.
#[derive(Serialize)]
pub(super) struct AboutView<'a> {
    about: String,
    url: Option<&'a str>,
    /// Whether that is the items themselves, so that they have no other title.
    itself: bool,
}

/// Who did what to what.
#[derive(Serialize)]
pub(super) struct SentenceView {
    /// The first of them, and how many there are besides, and in all.
    names: Vec<String>,
    others: usize,
    people: usize,
    phrase: String,
    /// The first things it is about, and how many there are besides.
    about: Vec<String>,
    elsewhere: usize,
    /// Where the thing is, if it is one.
    url: Option<String>,
    /// How many events it tells of, and how many of the mail's it does not.
    total: u64,
    rest: u64,
    /// Whether it tells of one thing everything the mail knows.
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
    /// Of everything, if one can be said of all that is of one type; else of the first group of
    /// which one can.
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

    /// Where the thing is that it tells of, if it is one.
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

    /// Who did so many of the mail's events, to nothing yet.
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
        // The configured phrase is English, and would be foreign in any other sentence.
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

/// How many of so many are named.
fn named(all: usize) -> usize {
    if all <= NAMES { all } else { NAMES - 1 }
}

/// What a group is about, in words.
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
