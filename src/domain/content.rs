//! What one mail tells one person, a digest as well as a batch: sections by type, in them groups by
//! what they are about, in them items, with exact totals.
//!
//! The rule (P6): only what still applies is told; nothing left means no mail. Whatever is not
//! shown is counted: shown and [`Content::more`] are the total. Of events that are counted and no
//! longer kept nothing is known, so nothing is said of them but their number.
//! [`super::digest::assemble`] says what a digest tells, [`gather()`] what a batch does.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::details::{Details, show_newest_names};
use super::name::{EventType, FollowKey, ObjectId, UserId};
use super::object::Object;
use super::policy::{Mandate, Phrase, Policies};

mod gather;
mod thread;

pub use super::about::About;
pub use gather::gather;

/// How many items of a group are shown, whatever else is.
const GROUP: usize = 5;

/// How much one mail shows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// Groups a section; in a digest each has one item.
    pub section: usize,
    /// Items in all.
    pub total: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self {
            section: 12,
            total: 40,
        }
    }
}

/// Which items of a section are told together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grouping {
    /// None: each is a group of its own, as in a digest.
    Each,
    /// Those that are about the same, and who did it is told where the type has a phrase.
    ByAbout,
}

/// One event with the object it names.
#[derive(Debug, Clone, PartialEq)]
pub struct Item {
    /// The object's id as the event names it, without the model.
    pub id: ObjectId,
    /// When the event happened; the day's first moment where the event carries no time, and of
    /// several of one type and object in a batch, the last.
    pub at: DateTime<Utc>,
    /// The object's record, or a bare one where unknown objects are mailed.
    pub object: Arc<Object>,
    /// What is said of the event, if anything.
    pub details: Option<Arc<Details>>,
}

impl Item {
    /// Who did it: the event's actor by name, or else who its object is by.
    pub fn by(&self) -> Option<&str> {
        let actor = self.details.as_ref().and_then(|of| of.actor.as_ref());
        let name = actor.and_then(|actor| actor.name.as_deref());
        name.or(self.object.by.as_deref())
    }

    /// The same with the actor's id; `None` without a name.
    pub fn person(&self) -> Option<Person> {
        let name = self.by().map(str::trim).filter(|by| !by.is_empty())?;
        let actor = self.details.as_ref().and_then(|of| of.actor.as_ref());
        Some(Person {
            id: actor.map(|actor| actor.id.clone()),
            name: name.to_owned(),
        })
    }
}

/// One who did something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Person {
    /// The id of the event's actor; `None` where the event has none.
    pub id: Option<UserId>,
    /// The name to show.
    pub name: String,
}

impl Person {
    /// Whether both are one person: by their ids, or by their names where one has no id.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.id, &other.id) {
            (Some(id), Some(other)) => id == other,
            _ => self.name == other.name,
        }
    }
}

/// What is told of an event: its object, and what is said of it.
#[derive(Debug, Clone)]
pub struct Told {
    /// The object's record.
    pub object: Arc<Object>,
    /// What is said of the event, if anything.
    pub details: Option<Arc<Details>>,
}

impl From<Arc<Object>> for Told {
    fn from(object: Arc<Object>) -> Self {
        let details = None;
        Self { object, details }
    }
}

/// Who did something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum People {
    /// These, each once, whoever did it last first; nobody where the section has no phrase.
    Named(Vec<Person>),
    /// Of one event at least nobody knows.
    Unknown,
}

/// All items of one type that are about the same thing.
#[derive(Debug, Clone, PartialEq)]
pub struct Group {
    /// What all its items are about.
    pub about: About,
    /// Who did what the group tells of, also of items that are not shown.
    pub people: People,
    /// Newest first; at least one.
    pub items: Vec<Item>,
    /// How many there are, shown or not.
    pub total: u64,
}

/// All items of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct Section {
    /// The type; sections of a mail differ in it.
    pub kind: EventType,
    /// As configured; the type's name where no heading is.
    pub heading: String,
    /// What people do in it; `None` where the mail tells what is new instead of who did what.
    pub phrase: Option<Phrase>,
    /// The reason why users cannot turn it off, if they cannot.
    pub mandate: Option<Mandate>,
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

/// What a mail's reader follows, which is why something of it concerns them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// What they follow.
    pub key: FollowKey,
    /// What it is called.
    pub name: String,
    /// Where it can be looked at.
    pub url: Option<String>,
}

/// What one mail tells one person.
#[derive(Debug, Clone, PartialEq)]
pub struct Content {
    /// In the order of the configuration, then by name; each has at least one event.
    pub sections: Vec<Section>,
    /// All events it tells of, shown or counted.
    pub total: u64,
    /// How many of them are no longer kept.
    pub not_kept: u64,
    /// When the oldest and the newest happened that are kept.
    pub oldest: DateTime<Utc>,
    /// The other end of that span; the same moment where there is one event.
    pub newest: DateTime<Utc>,
    /// What of it they follow, most of it first; whoever builds the mail knows it.
    pub because: Vec<Followed>,
}

impl Content {
    /// All of these, newest first; `None` of nothing.
    pub(super) fn of(
        mut told: Vec<(&EventType, Item)>,
        policies: &Policies,
        grouping: Grouping,
    ) -> Option<Self> {
        let details = told.iter_mut();
        let details = details.filter_map(|(_, item)| item.details.as_mut());
        show_newest_names(&mut details.collect::<Vec<_>>());
        let mut content = Self {
            sections: Vec::new(),
            total: told.len() as u64,
            not_kept: 0,
            oldest: told.last()?.1.at,
            newest: told.first()?.1.at,
            because: Vec::new(),
        };
        let sections = &mut content.sections;
        for (kind, item) in told {
            let known = sections.iter().position(|section| section.kind == *kind);
            let index = known.unwrap_or_else(|| {
                sections.push(Section::new(kind, policies, grouping));
                sections.len() - 1
            });
            sections[index].add(item, grouping);
        }
        sections.sort_by(|a, b| policies.rank(&a.kind).cmp(&policies.rank(&b.kind)));
        Some(content)
    }

    /// Leaves as much as a mail shows; each section may take what there is room for, but for so
    /// many items of each that follows it.
    pub(super) fn cut(&mut self, caps: Caps, reserved: usize) {
        let (mut room, mut left) = (caps.total, self.sections.len());
        for section in &mut self.sections {
            left -= 1;
            let mut own = room.saturating_sub(left * reserved);
            section.groups.truncate(caps.section);
            for group in &mut section.groups {
                group.items.truncate(GROUP.min(own));
                own -= group.items.len();
                room -= group.items.len();
            }
            section.groups.retain(|group| !group.items.is_empty());
        }
    }

    /// The type of all that is known of it, if it is one.
    pub fn only(&self) -> Option<&EventType> {
        match self.sections.as_slice() {
            [section] => Some(&section.kind),
            _ => None,
        }
    }

    /// What it shows, with its type.
    pub fn items(&self) -> impl Iterator<Item = (&EventType, &Item)> {
        let sections = self.sections.iter();
        sections.flat_map(|section| section.items().map(|item| (&section.kind, item)))
    }

    /// How many items that is.
    pub fn shown(&self) -> u64 {
        self.items().count() as u64
    }

    /// How many events it tells of and does not show.
    pub fn more(&self) -> u64 {
        self.total - self.shown()
    }
}

impl Section {
    fn new(kind: &EventType, policies: &Policies, grouping: Grouping) -> Self {
        Self {
            kind: kind.clone(),
            heading: policies.heading(kind).to_owned(),
            phrase: match grouping {
                Grouping::Each => None,
                Grouping::ByAbout => policies.of(kind).phrase.clone(),
            },
            mandate: policies.of(kind).mandatory.clone(),
            people: People::Named(Vec::new()),
            groups: Vec::new(),
            abouts: 0,
            total: 0,
            not_kept: 0,
        }
    }

    fn add(&mut self, item: Item, grouping: Grouping) {
        let about = match grouping {
            Grouping::Each => About::Itself,
            Grouping::ByAbout => About::of(&item.object, self.phrase.as_ref()),
        };
        let mut groups = self.groups.iter();
        let known = groups.position(|group| group.about.is_same(&about));
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
        if self.phrase.is_some() {
            self.people.add(item.person());
            group.people.add(item.person());
        }
        self.total += 1;
        group.total += 1;
        group.items.push(item);
    }

    /// What it shows.
    pub fn items(&self) -> impl Iterator<Item = &Item> {
        self.groups.iter().flat_map(|group| &group.items)
    }

    /// How many items that is.
    pub fn shown(&self) -> usize {
        self.items().count()
    }
}

impl Group {
    /// What it is about is called so; `None` where that is an object without a title.
    pub fn title(&self) -> Option<&str> {
        match &self.about {
            About::Other { title, .. } | About::Page { title, .. } => Some(title),
            About::Itself => self.items.first()?.object.title.as_deref(),
        }
    }

    /// Where what it is about can be looked at.
    pub fn url(&self) -> Option<&str> {
        match &self.about {
            About::Other { url, .. } | About::Page { url, .. } => url.as_deref(),
            About::Itself => self.items.first()?.object.url.as_deref(),
        }
    }
}

impl People {
    fn add(&mut self, person: Option<Person>) {
        let Self::Named(known) = self else { return };
        match person {
            Some(person) if known.iter().any(|one| one.is(&person)) => {}
            Some(person) => known.push(person),
            None => *self = Self::Unknown,
        }
    }
}
