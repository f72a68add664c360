//! The content of one email, a digest or a batch: sections by type, groups by topic, and items.
//!
//! Only events that still apply are included; if none is left, no email is sent (P6). Items that
//! are not shown are counted: the shown ones and [`EmailContent::hidden_count`] add up to the
//! total. Events that a batch counted but did not keep appear only in that number. Start with
//! [`build_batch_content()`]; [`super::digest_content`] builds digests.

use std::cmp::Reverse;
use std::collections::HashSet;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use super::batch::{BatchItem, BatchKey};
use super::day_stack::Event;
use super::details::{Actor, Details};
use super::name::{EventType, FollowKey, ObjectId, UserId};
pub use super::object::GroupTopic;
use super::object::Object;
use super::text_checks::{Mandate, Phrase};
use super::type_policy::Policies;

/// The most items that a group shows.
const MAX_ITEMS_PER_GROUP: usize = 5;
/// The most sections that an email of a batch shows.
const MAX_SECTIONS: usize = 20;

/// Limits on the number of items in an email.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ItemLimits {
    /// The most groups per section. In a digest each group has one item.
    pub section: usize,
    /// The most items in the email.
    pub total: usize,
}

impl Default for ItemLimits {
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
    fn actor(&self) -> Option<&Actor> {
        self.details.as_ref()?.actor.as_ref()
    }

    /// Returns the name of the event's actor, else of the object's author.
    pub fn author_name(&self) -> Option<&str> {
        let actor_name = self.actor().and_then(|actor| actor.name.as_deref());
        actor_name.or(self.object.by.as_deref())
    }

    /// Returns the author with the actor's id; `None` if there is no name.
    pub fn author(&self) -> Option<Author> {
        let name = self.author_name().map(str::trim).filter(|name| !name.is_empty())?;
        let id = self.actor().map(|actor| actor.id.clone());
        Some(Author { id, name: name.to_owned() })
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
    /// Compares by id, or by name if one of them has no id.
    pub fn is_same(&self, other: &Self) -> bool {
        match (&self.id, &other.id) {
            (Some(id), Some(other)) => id == other,
            _ => self.name == other.name,
        }
    }
}

/// The data that an email shows of an event.
#[derive(Debug, Clone)]
pub struct DisplayData {
    /// The object's record.
    pub object: Arc<Object>,
    /// The details of the event, if it has any.
    pub details: Option<Arc<Details>>,
}

/// The authors of the events of a group or section.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Authors {
    /// These authors, each once, the most recent first. Empty if the section has no phrase.
    Named(Vec<Author>),
    /// The author of at least one event is unknown.
    Unknown,
}

/// Items of one type with one topic.
#[derive(Debug, Clone, PartialEq)]
pub struct EmailGroup {
    /// The topic of all items.
    pub topic: GroupTopic,
    /// The authors of all items, including those that are not shown.
    pub authors: Authors,
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
    /// The authors of all groups.
    pub authors: Authors,
    /// The groups, ordered by their newest item, newest first.
    pub groups: Vec<EmailGroup>,
    /// The number of topics, shown or not.
    pub topic_count: usize,
    /// The number of events that are known to be of this type, shown or not.
    pub total: u64,
    /// The number of them that the batch counted but did not keep.
    pub omitted: u64,
}

/// A key that the recipient follows, given as a reason for the email.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FollowReason {
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
    pub follow_reasons: Vec<FollowReason>,
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
            follow_reasons: Vec::new(),
        };
        let sections = &mut content.sections;
        for (kind, item) in included {
            let position = sections.iter().position(|section| section.kind == *kind);
            let index = position.unwrap_or_else(|| {
                sections.push(EmailSection::new(kind, policies, grouping));
                sections.len() - 1
            });
            sections[index].add(item, grouping);
        }
        sections
            .sort_by(|a, b| policies.section_order(&a.kind).cmp(&policies.section_order(&b.kind)));
        Some(content)
    }

    /// Cuts the groups and items to the limits. Each section reserves `reserved` items for every
    /// section that follows.
    pub(super) fn cut(&mut self, caps: ItemLimits, reserved: usize) {
        let (mut room, mut sections_left) = (caps.total, self.sections.len());
        for section in &mut self.sections {
            sections_left -= 1;
            let mut section_room = room.saturating_sub(sections_left * reserved);
            section.groups.truncate(caps.section);
            for group in &mut section.groups {
                group.items.truncate(MAX_ITEMS_PER_GROUP.min(section_room));
                section_room -= group.items.len();
                room -= group.items.len();
            }
            section.groups.retain(|group| !group.items.is_empty());
        }
    }

    /// Returns the event type if there is only one section.
    pub fn only_kind(&self) -> Option<&EventType> {
        match self.sections.as_slice() {
            [section] => Some(&section.kind),
            _ => None,
        }
    }

    /// Returns the shown items with their types.
    pub fn items(&self) -> impl Iterator<Item = (&EventType, &EmailItem)> {
        self.sections.iter().flat_map(|section| section.items().map(|item| (&section.kind, item)))
    }

    /// Returns the number of shown items.
    pub fn shown_count(&self) -> u64 {
        self.items().count() as u64
    }

    /// Returns the number of events that are not shown.
    pub fn hidden_count(&self) -> u64 {
        self.total - self.shown_count()
    }

    /// Returns the topic of all events: its URL, its title, or the key of an object that is its own
    /// topic.
    ///
    /// `None` if there are several topics, or if events are counted without being shown in a
    /// section.
    pub fn common_topic(&self) -> Option<&str> {
        let counted: u64 = self.sections.iter().map(|section| section.total).sum();
        if self.omitted > 0 || counted != self.total {
            return None;
        }
        let mut topics = self.sections.iter().map(EmailSection::only_topic);
        let first = topics.next()??;
        topics.all(|topic| topic == Some(first)).then_some(first)
    }
}

impl EmailSection {
    fn new(kind: &EventType, policies: &Policies, grouping: Grouping) -> Self {
        Self {
            kind: kind.clone(),
            heading: policies.heading(kind).to_owned(),
            phrase: match grouping {
                Grouping::Each => None,
                Grouping::ByAbout => policies.policy(kind).phrase.clone(),
            },
            mandate: policies.policy(kind).mandatory.clone(),
            authors: Authors::Named(Vec::new()),
            groups: Vec::new(),
            topic_count: 0,
            total: 0,
            omitted: 0,
        }
    }

    fn add(&mut self, item: EmailItem, grouping: Grouping) {
        let about = match grouping {
            Grouping::Each => GroupTopic::Object,
            Grouping::ByAbout => GroupTopic::of(&item.object, self.phrase.as_ref()),
        };
        let position = self.groups.iter().position(|group| group.topic.is_same(&about));
        let index = position.unwrap_or_else(|| {
            self.topic_count += 1;
            self.groups.push(EmailGroup {
                topic: about,
                authors: Authors::Named(Vec::new()),
                items: Vec::new(),
                total: 0,
            });
            self.groups.len() - 1
        });
        let group = &mut self.groups[index];
        if self.phrase.is_some() {
            self.authors.add(item.author());
            group.authors.add(item.author());
        }
        self.total += 1;
        group.total += 1;
        group.items.push(item);
    }

    /// Returns the topic of all events of the section, if there is only one.
    fn only_topic(&self) -> Option<&str> {
        if self.topic_count == 1 { self.groups.first()?.topic_name() } else { None }
    }

    /// Returns the shown items.
    pub fn items(&self) -> impl Iterator<Item = &EmailItem> {
        self.groups.iter().flat_map(|group| &group.items)
    }

    /// Returns the number of shown items.
    pub fn shown_count(&self) -> usize {
        self.items().count()
    }
}

impl EmailGroup {
    /// Returns the title of the topic; `None` if the topic is an object without a title.
    pub fn title(&self) -> Option<&str> {
        match &self.topic {
            GroupTopic::Stated(topic) | GroupTopic::Page(topic) => Some(&topic.title),
            GroupTopic::Object => self.items.first()?.object.title.as_deref(),
        }
    }

    /// Returns the URL of the topic's page.
    pub fn url(&self) -> Option<&str> {
        match &self.topic {
            GroupTopic::Stated(topic) | GroupTopic::Page(topic) => topic.url.as_deref(),
            GroupTopic::Object => self.items.first()?.object.url.as_deref(),
        }
    }

    /// Returns the URL or title of the topic, or the key of an object that is its own topic.
    fn topic_name(&self) -> Option<&str> {
        let object_key = || Some(self.items.first()?.object.key.as_str());
        self.topic.name().or_else(object_key)
    }
}

impl Authors {
    fn add(&mut self, author: Option<Author>) {
        let Self::Named(authors) = self else { return };
        match author {
            Some(author) if authors.iter().any(|known| known.is_same(&author)) => {}
            Some(author) => authors.push(author),
            None => *self = Self::Unknown,
        }
    }
}

/// Groups the kept events of a batch, given in the order of joining. `omitted` more are only
/// counted.
///
/// `find_data` returns the data to show for an event, or `None` if its object no longer applies.
/// The result is `None` if no kept event applies.
pub fn build_batch_content(
    key: &BatchKey,
    kept: &[BatchItem],
    omitted: u64,
    policies: &Policies,
    find_data: impl Fn(&Event) -> Option<DisplayData>,
) -> Option<EmailContent> {
    let included = newest_first(kept, find_data);
    let mut content = EmailContent::of(included, policies, Grouping::ByAbout)?;
    content.total += omitted;
    content.omitted = omitted;
    if let (Some(kind), Some(section)) = (key.kind(), content.sections.first_mut())
        && *kind == section.kind
    {
        section.omitted = omitted;
        section.total += omitted;
    }
    content.sections.truncate(MAX_SECTIONS);
    // Every section shows at least one item before another gets more than its share.
    content.cut(ItemLimits::default(), 1);
    Some(content)
}

/// Returns the events that apply, newest first. Each object of a type appears once, at the time of
/// its last event.
fn newest_first(
    kept: &[BatchItem],
    find_data: impl Fn(&Event) -> Option<DisplayData>,
) -> Vec<(&EventType, EmailItem)> {
    // The sort is stable, so of two events of one second the last to join comes first.
    let mut newest_first: Vec<&BatchItem> = kept.iter().rev().collect();
    newest_first.sort_by_key(|item| Reverse(item.fanout_id.time()));
    let mut seen: HashSet<(&EventType, &ObjectId)> = HashSet::new();
    let mut included = Vec::new();
    for item in newest_first {
        if seen.contains(&(&item.kind, &item.object)) {
            continue;
        }
        if let Some(DisplayData { object, details }) = find_data(&Event::from(item.clone())) {
            seen.insert((&item.kind, &item.object));
            let (id, at) = (item.object.clone(), item.fanout_id.time());
            included.push((&item.kind, EmailItem { id, at, object, details }));
        }
    }
    included
}

#[cfg(test)]
#[path = "email_sections_tests.rs"]
mod tests;
