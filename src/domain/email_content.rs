//! The content of one email, a digest or a batch: sections by type, groups by topic, and items.
//!
//! Only events that still apply are included; if none is left, no email is sent (P6). Items that
//! are not shown are counted: the shown ones and [`EmailContent::more`] add up to the total. Events that
//! a batch counted but did not keep appear only in that number. Start with
//! [`super::digest_content::assemble`] for digests and [`gather()`] for batches.

use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::batch::{BatchItem as Kept, BatchKey};
use super::day_stack::Event;
use super::details::Details;
use super::name::{EventType, FollowKey, ObjectId, UserId};
pub use super::object::About;
use super::object::Object;
use super::text_checks::{Mandate, Phrase};
use super::type_policy::Policies;

/// The most items that a group shows.
const GROUP: usize = 5;

/// Limits on the number of items in an email.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Caps {
    /// The most groups per section. In a digest each group has one item.
    pub section: usize,
    /// The most items in the email.
    pub total: usize,
}

impl Default for Caps {
    fn default() -> Self {
        Self { section: 12, total: 40 }
    }
}

/// How the items of a section form groups.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Grouping {
    /// Each item is a group of its own, as in a digest.
    Each,
    /// Items with one topic form a group. It lists the actors if the type has a phrase.
    ByAbout,
}

/// An included event with its object.
#[derive(Debug, Clone, PartialEq)]
pub struct EmailItem {
    /// The object's id as in the event, without the model.
    pub id: ObjectId,
    /// When the event happened: the start of its day if the event has no time. In a batch, the last
    /// of several events of one type and object.
    pub at: DateTime<Utc>,
    /// The object's record. A bare one if the object is unknown and the type emails unknown
    /// objects.
    pub object: Arc<Object>,
    /// The details of the event, if it has any.
    pub details: Option<Arc<Details>>,
}

impl EmailItem {
    /// Returns the name of the event's actor, else of the object's author.
    pub fn by(&self) -> Option<&str> {
        let actor = self.details.as_ref().and_then(|of| of.actor.as_ref());
        let name = actor.and_then(|actor| actor.name.as_deref());
        name.or(self.object.by.as_deref())
    }

    /// Returns that person with the actor's id; `None` if there is no name.
    pub fn person(&self) -> Option<Author> {
        let name = self.by().map(str::trim).filter(|by| !by.is_empty())?;
        let actor = self.details.as_ref().and_then(|of| of.actor.as_ref());
        Some(Author { id: actor.map(|actor| actor.id.clone()), name: name.to_owned() })
    }
}

/// An actor of an event, or the author of its object.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Author {
    /// The id of the event's actor; `None` if the event has none.
    pub id: Option<UserId>,
    /// The name to show.
    pub name: String,
}

impl Author {
    /// Returns whether both are the same person: by id, or by name if one of them has no id.
    pub fn is(&self, other: &Self) -> bool {
        match (&self.id, &other.id) {
            (Some(id), Some(other)) => id == other,
            _ => self.name == other.name,
        }
    }
}

/// The data that an email shows of an event.
#[derive(Debug, Clone)]
pub struct EventData {
    /// The object's record.
    pub object: Arc<Object>,
    /// The details of the event, if it has any.
    pub details: Option<Arc<Details>>,
}

/// The people who caused the events of a group or section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authors {
    /// These people, each once, the most recent first. Empty if the section has no phrase.
    Named(Vec<Author>),
    /// The person behind at least one event is unknown.
    Unknown,
}

/// Items of one type with one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct EmailGroup {
    /// The topic of all items.
    pub about: About,
    /// The people behind all items, including those that are not shown.
    pub people: Authors,
    /// The items to show, newest first; at least one.
    pub items: Vec<EmailItem>,
    /// The number of items, shown or not.
    pub total: u64,
}

/// Items of one type.
#[derive(Debug, Clone, PartialEq)]
pub struct EmailSection {
    /// The event type. No two sections of an email share one.
    pub kind: EventType,
    /// The configured heading, or the name of the type.
    pub heading: String,
    /// The phrase of the type. `None` if the email lists new objects instead of who did what.
    pub phrase: Option<Phrase>,
    /// Why users cannot turn this type off; `None` if they can.
    pub mandate: Option<Mandate>,
    /// The people of all groups.
    pub people: Authors,
    /// The groups, ordered by their newest item, newest first.
    pub groups: Vec<EmailGroup>,
    /// The number of topics, shown or not.
    pub abouts: usize,
    /// The number of events that are known to be of this type, shown or not.
    pub total: u64,
    /// The number of them that the batch counted but did not keep.
    pub omitted: u64,
}

/// A key that the recipient follows, given as a reason for the email.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Followed {
    /// The followed key.
    pub key: FollowKey,
    /// The name to show.
    pub name: String,
    /// The URL of its page.
    pub url: Option<String>,
}

/// The content of one email. Equality compares the numbers first, because they usually differ.
#[derive(Debug, Clone, PartialEq)]
pub struct EmailContent {
    /// The number of events, shown or not.
    pub total: u64,
    /// The number of them that the batch counted but did not keep.
    pub omitted: u64,
    /// The time of the oldest kept event.
    pub oldest: DateTime<Utc>,
    /// The time of the newest kept event.
    pub newest: DateTime<Utc>,
    /// The sections, in the order of the configuration, then by name. Each has at least one event.
    pub sections: Vec<EmailSection>,
    /// The keys through which the recipient follows these events, most events first. The code that
    /// builds the email fills it in.
    pub because: Vec<Followed>,
}

impl EmailContent {
    /// Builds the content from events that are ordered newest first; `None` if there are none.
    pub(super) fn of(
        included: Vec<(&EventType, EmailItem)>,
        policies: &Policies,
        grouping: Grouping,
    ) -> Option<Self> {
        let mut content = Self {
            sections: Vec::new(),
            total: included.len() as u64,
            omitted: 0,
            oldest: included.last()?.1.at,
            newest: included.first()?.1.at,
            because: Vec::new(),
        };
        let sections = &mut content.sections;
        for (kind, item) in included {
            let known = sections.iter().position(|section| section.kind == *kind);
            let index = known.unwrap_or_else(|| {
                sections.push(EmailSection::new(kind, policies, grouping));
                sections.len() - 1
            });
            sections[index].add(item, grouping);
        }
        sections.sort_by(|a, b| policies.rank(&a.kind).cmp(&policies.rank(&b.kind)));
        Some(content)
    }

    /// Cuts the groups and items to the limits. Each section reserves `reserved` items for every
    /// section that follows.
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

    /// Returns the event type if there is only one section.
    pub fn only(&self) -> Option<&EventType> {
        match self.sections.as_slice() {
            [section] => Some(&section.kind),
            _ => None,
        }
    }

    /// Returns the shown items with their types.
    pub fn items(&self) -> impl Iterator<Item = (&EventType, &EmailItem)> {
        let sections = self.sections.iter();
        sections.flat_map(|section| section.items().map(|item| (&section.kind, item)))
    }

    /// Returns the number of shown items.
    pub fn shown(&self) -> u64 {
        self.items().count() as u64
    }

    /// Returns the number of events that are not shown.
    pub fn more(&self) -> u64 {
        self.total - self.shown()
    }

    /// Returns the topic of all events: its URL, its title, or the key of an object that is its own
    /// topic.
    ///
    /// `None` if there are several topics, or if events are counted without being shown in a
    /// section.
    pub fn thread(&self) -> Option<&str> {
        let counted: u64 = self.sections.iter().map(|section| section.total).sum();
        if self.omitted > 0 || counted != self.total {
            return None;
        }
        let mut sections = self.sections.iter();
        let only = |section: &'_ EmailSection| section.abouts == 1;
        let first = sections.next().filter(|section| only(section))?;
        let name = first.groups.first()?.known_as()?;
        let is_same = |section: &EmailSection| {
            let group = section.groups.first().filter(|_| only(section));
            group.and_then(EmailGroup::known_as) == Some(name)
        };
        sections.all(is_same).then_some(name)
    }
}

impl EmailSection {
    fn new(kind: &EventType, policies: &Policies, grouping: Grouping) -> Self {
        Self {
            kind: kind.clone(),
            heading: policies.heading(kind).to_owned(),
            phrase: match grouping {
                Grouping::Each => None,
                Grouping::ByAbout => policies.of(kind).phrase.clone(),
            },
            mandate: policies.of(kind).mandatory.clone(),
            people: Authors::Named(Vec::new()),
            groups: Vec::new(),
            abouts: 0,
            total: 0,
            omitted: 0,
        }
    }

    fn add(&mut self, item: EmailItem, grouping: Grouping) {
        let about = match grouping {
            Grouping::Each => About::Itself,
            Grouping::ByAbout => About::of(&item.object, self.phrase.as_ref()),
        };
        let mut groups = self.groups.iter();
        let known = groups.position(|group| group.about.is_same(&about));
        let index = known.unwrap_or_else(|| {
            self.abouts += 1;
            self.groups.push(EmailGroup {
                about,
                people: Authors::Named(Vec::new()),
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

    /// Returns the shown items.
    pub fn items(&self) -> impl Iterator<Item = &EmailItem> {
        self.groups.iter().flat_map(|group| &group.items)
    }

    /// Returns the number of shown items.
    pub fn shown(&self) -> usize {
        self.items().count()
    }
}

impl EmailGroup {
    /// Returns the title of the topic; `None` if the topic is an object without a title.
    pub fn title(&self) -> Option<&str> {
        match &self.about {
            About::Other(topic) | About::Page(topic) => Some(&topic.title),
            About::Itself => self.items.first()?.object.title.as_deref(),
        }
    }

    /// Returns the URL of the topic's page.
    pub fn url(&self) -> Option<&str> {
        match &self.about {
            About::Other(topic) | About::Page(topic) => topic.url.as_deref(),
            About::Itself => self.items.first()?.object.url.as_deref(),
        }
    }

    fn known_as(&self) -> Option<&str> {
        let itself = || Some(self.items.first()?.object.key.as_str());
        self.about.name().or_else(itself)
    }
}

impl Authors {
    fn add(&mut self, person: Option<Author>) {
        let Self::Named(known) = self else { return };
        match person {
            Some(person) if known.iter().any(|one| one.is(&person)) => {}
            Some(person) => known.push(person),
            None => *self = Self::Unknown,
        }
    }
}

/// The most sections that an email shows.
const SECTIONS: usize = 20;

/// Groups the kept events of a batch, given in the order of joining. `omitted` more are only
/// counted.
///
/// `applies` returns the data to show for an event, or `None` if its object no longer applies. The
/// result is `None` if no kept event applies.
pub fn gather(
    key: &BatchKey,
    kept: &[Kept],
    omitted: u64,
    policies: &Policies,
    applies: impl Fn(&Event) -> Option<EventData>,
) -> Option<EmailContent> {
    let included = newest_first(kept, applies);
    let mut content = EmailContent::of(included, policies, Grouping::ByAbout)?;
    content.total += omitted;
    content.omitted = omitted;
    if let (Some(kind), Some(section)) = (key.kind(), content.sections.first_mut())
        && *kind == section.kind
    {
        section.omitted = omitted;
        section.total += omitted;
    }
    content.sections.truncate(SECTIONS);
    // Every section shows at least one item before another gets more than its share.
    content.cut(Caps::default(), 1);
    Some(content)
}

/// Returns the events that apply, newest first. Each object of a type appears once, at the time of
/// its last event.
fn newest_first(
    kept: &[Kept],
    applies: impl Fn(&Event) -> Option<EventData>,
) -> Vec<(&EventType, EmailItem)> {
    let mut items: Vec<(usize, &EventType, EmailItem)> = Vec::new();
    for (index, kept) in kept.iter().enumerate() {
        let Some(EventData { object, details }) = applies(&Event::from(kept.clone())) else {
            continue;
        };
        let (id, at) = (kept.o.clone(), kept.i.time());
        let item = EmailItem { id, at, object, details };
        let same = |(_, kind, known): &&mut (usize, &EventType, EmailItem)| {
            **kind == kept.t && known.id == item.id
        };
        match items.iter_mut().find(same) {
            Some(known) if known.2.at <= item.at => (known.0, known.2) = (index, item),
            Some(_) => {}
            None => items.push((index, &kept.t, item)),
        }
    }
    items.sort_by_key(|(index, _, item)| std::cmp::Reverse((item.at, *index)));
    let included = items.into_iter().map(|(_, kind, item)| (kind, item));
    included.collect()
}

#[cfg(test)]
#[path = "email_content_tests.rs"]
mod tests;
