//! What one batch mail tells one person: sections by type, in them groups by what they are about,
//! with exact totals.
//!
//! The rule (P6): only what still applies is told; nothing left of what was kept means no mail.
//! Whatever is not shown is counted: shown and `more` are `total`. Of events that are counted and
//! no longer kept nothing is known, so nothing is said of them but their number. Decision 10 says
//! what an object is about.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::batch::{BatchKey, Item as Kept};
use super::event::Event;
use super::name::{EventType, ObjectId};
use super::object::Object;
use super::policy::{Phrase, Policies};

mod about;

pub use about::{About, Subject};

use about::Kind;

/// How many items a group shows, how many groups a section, how many sections a mail, and how many
/// items in all.
const GROUP: usize = 5;
const SECTION: usize = 12;
const SECTIONS: usize = 20;
const TOTAL: usize = 40;

/// One event with the object it names.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The object's id as the event names it, without the model.
    pub id: ObjectId,
    /// When the event happened, to the second; of several of one type and object, the last.
    pub at: DateTime<Utc>,
    /// The object's record, or a bare one where unknown objects are mailed.
    pub object: Arc<Object>,
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum People {
    /// These, each once, whoever did it last first.
    Named(Vec<String>),
    /// Of one event at least nobody knows.
    Unknown,
}

/// All items of one type that are about the same thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// What all its items are about; groups of a section differ in it.
    pub about: About,
    /// Who did what the group tells of, also of items that are not shown.
    pub people: People,
    /// Newest first.
    pub items: Vec<Item>,
    /// How many there are, shown or not.
    pub total: u64,
}

/// All items of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The type; sections of a bulletin differ in it.
    pub kind: EventType,
    /// As configured; the type's name where no heading is.
    pub heading: String,
    /// What people do in it; `None` where the mail tells what is new instead of who did what.
    pub phrase: Option<Phrase>,
    /// Of all its groups.
    pub people: People,
    /// The one with the newest item first.
    pub groups: Vec<Group>,
    /// How many things it is about, shown or not.
    pub abouts: usize,
    /// How many items it is known to have, shown or not.
    pub total: u64,
    /// How many of them are counted and no longer kept.
    pub not_kept: u64,
}

impl Section {
    /// What it shows.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.groups.iter().flat_map(|group| &group.items)
    }

    /// How many items that is.
    pub fn shown(&self) -> u64 {
        self.items().count() as u64
    }
}

/// What one mail tells one person.
#[derive(Debug, Clone, PartialEq)]
pub struct Bulletin {
    /// In the order of the configuration.
    pub sections: Vec<Section>,
    /// All events it tells of: those that are kept and apply, each once, and those that are no
    /// longer kept.
    pub total: u64,
    /// How many of them are not shown.
    pub more: u64,
    /// How many of them are no longer kept.
    pub not_kept: u64,
    /// When the oldest and the newest happened that are kept.
    pub oldest: DateTime<Utc>,
    /// The other end of that span; the same moment where there is one event.
    pub newest: DateTime<Utc>,
    /// The type of all that is known of it, if it is one.
    pub only: Option<EventType>,
}

impl Bulletin {
    /// How many items it shows.
    pub fn shown(&self) -> u64 {
        self.total - self.more
    }
}

/// Groups what is kept of a batch, in the order of joining, and `not_kept` more that are counted;
/// `None` if nothing that is kept applies.
///
/// `applies` gives the object of an event, or `None` where it no longer applies.
pub fn gather(
    key: &BatchKey,
    kept: &[Kept],
    not_kept: u64,
    policies: &Policies,
    applies: impl Fn(&Event) -> Option<Arc<Object>>,
) -> Option<Bulletin> {
    let mut sections = sections(&newest_first(kept, applies), policies);
    let times = || sections.iter().flat_map(Section::items).map(|item| item.at);
    let (oldest, newest) = (times().min()?, times().max()?);
    let total = times().count() as u64 + not_kept;
    let only = match sections.as_slice() {
        [section] => Some(section.kind.clone()),
        _ => None,
    };
    if let (BatchKey::Type(kind), Some(section)) = (key, sections.first_mut())
        && *kind == section.kind
    {
        section.not_kept = not_kept;
        section.total += not_kept;
    }
    cut(&mut sections);
    let shown: u64 = sections.iter().map(Section::shown).sum();
    Some(Bulletin {
        sections,
        total,
        more: total - shown,
        not_kept,
        oldest,
        newest,
        only,
    })
}

/// Those that apply, each object of a type once: the last time it happened.
fn newest_first(
    kept: &[Kept],
    applies: impl Fn(&Event) -> Option<Arc<Object>>,
) -> Vec<(EventType, Item)> {
    let mut items: Vec<(usize, EventType, Item)> = Vec::new();
    for (index, kept) in kept.iter().enumerate() {
        let item = Item {
            id: kept.o.clone(),
            at: kept.i.time(),
            object: match applies(&Event::from(kept.clone())) {
                Some(object) => object,
                None => continue,
            },
        };
        let same = |(_, kind, known): &&mut (usize, EventType, Item)| {
            *kind == kept.t && known.id == item.id
        };
        match items.iter_mut().find(same) {
            Some(known) if known.2.at <= item.at => (known.0, known.2) = (index, item),
            Some(_) => {}
            None => items.push((index, kept.t.clone(), item)),
        }
    }
    items.sort_by_key(|(index, _, item)| std::cmp::Reverse((item.at, *index)));
    items
        .into_iter()
        .map(|(_, kind, item)| (kind, item))
        .collect()
}

fn sections(items: &[(EventType, Item)], policies: &Policies) -> Vec<Section> {
    let mut sections: Vec<Section> = Vec::new();
    for (kind, item) in items {
        let index = sections
            .iter()
            .position(|section| section.kind == *kind)
            .unwrap_or_else(|| {
                sections.push(Section {
                    kind: kind.clone(),
                    heading: policies.heading(kind).to_owned(),
                    phrase: policies.of(kind).phrase.clone(),
                    people: People::Named(Vec::new()),
                    groups: Vec::new(),
                    abouts: 0,
                    total: 0,
                    not_kept: 0,
                });
                sections.len() - 1
            });
        sections[index].add(item.clone());
    }
    sections.sort_by(|a, b| policies.rank(&a.kind).cmp(&policies.rank(&b.kind)));
    sections
}

impl Section {
    fn add(&mut self, item: Item) {
        let kind = match self.phrase {
            Some(_) => Kind::Deed,
            None => Kind::Thing,
        };
        let about = About::of(&item.id, &item.object, kind);
        self.total += 1;
        self.people.add(item.object.by.as_deref());
        let known = self.groups.iter().position(|group| group.about == about);
        let index = known.unwrap_or_else(|| {
            self.abouts += 1;
            self.groups.push(Group {
                about,
                people: People::Named(Vec::new()),
                items: Vec::new(),
                total: 0,
            });
            self.groups.len() - 1
        });
        let group = &mut self.groups[index];
        group.total += 1;
        group.people.add(item.object.by.as_deref());
        group.items.push(item);
    }
}

impl People {
    fn add(&mut self, by: Option<&str>) {
        let Self::Named(names) = self else { return };
        match by.map(str::trim).filter(|by| !by.is_empty()) {
            Some(by) if names.iter().any(|name| name == by) => {}
            Some(by) => names.push(by.to_owned()),
            None => *self = Self::Unknown,
        }
    }
}

/// Leaves as much as a mail shows: every section something, before one has more than its part.
fn cut(sections: &mut Vec<Section>) {
    sections.truncate(SECTIONS);
    let mut room = TOTAL;
    let mut left = sections.len();
    for section in sections {
        left -= 1;
        let mut own = room - left;
        section.groups.truncate(SECTION);
        for group in &mut section.groups {
            group.items.truncate(GROUP.min(own));
            own -= group.items.len();
            room -= group.items.len();
        }
        section.groups.retain(|group| !group.items.is_empty());
    }
}

#[cfg(test)]
#[path = "bulletin/tests.rs"]
mod tests;
