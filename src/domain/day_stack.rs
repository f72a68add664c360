//! A user's stacks: the documents of events and markers, one per day, and their pending events.
//!
//! An array only grows at its end, so (stack, index) identifies an entry for ever. Markers count
//! entries from the front, so coverage only grows. Emails and feeds use the same functions. Start
//! with [`UserStacks::pending`].

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use foldhash::fast::RandomState;
use serde::Serialize;

use super::day::Day;
use super::name::{EventType, InvalidValue, ObjectId, UserId, serde_as_text};
use super::timed_id::Id;

/// An event, stored as `{t, o, i}`. Older writers omitted `i`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// The event type.
    pub kind: EventType,
    /// The object's id. The policy of the type names its model.
    pub object: ObjectId,
    /// The id of the accepted event, whose timestamp is the event's time.
    pub fanout_id: Option<Id>,
}

impl Event {
    /// Creates an event of this type about this object.
    pub fn new(kind: &EventType, object: &ObjectId, fanout_id: Option<Id>) -> Self {
        Self { kind: kind.clone(), object: object.clone(), fanout_id }
    }

    /// Returns the time of the event. Without `fanout_id` only its day is known, and the start of
    /// the day counts.
    pub fn time(&self, day: Day) -> DateTime<Utc> {
        self.fanout_id.map_or(day.start(), Id::time)
    }
}

/// A marker, stored as `{flushed, n}`: the first `n` entries have been processed. A bare
/// `{flushed}` covers everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DigestMarker {
    /// The id that the delivery or flush wrote; `None` from older writers.
    pub id: Option<Id>,
    /// The number of covered entries from the front; `None` for a bare marker.
    pub n: Option<u32>,
}

/// A marker stored as `{mailed, i}`: these events were emailed outside the digest, such as in a
/// batch. Digests exclude them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct BatchMarker {
    /// The marker id of that delivery. It prevents writing the marker twice.
    pub id: Id,
    /// The ids of the accepted events, ascending.
    pub fanouts: Vec<Id>,
}

/// An element of a day's array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// An event about an object.
    Event(Event),
    /// A marker that covers entries from the front.
    DigestMarker(DigestMarker),
    /// A marker that covers the events of some fan-outs.
    BatchMarker(BatchMarker),
    /// Any other element. It is neither shown nor emailed, but it occupies a position.
    Other,
}

impl Entry {
    /// Returns the bytes that the entry takes beyond `size_of::<Entry>()`.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Event(event) => [event.kind.as_str(), event.object.as_str()]
                .into_iter()
                .map(str::len)
                .filter(|bytes| *bytes > size_of::<ObjectId>())
                .sum(),
            Self::BatchMarker(mailed) => mailed.fanouts.len() * size_of::<Id>(),
            Self::DigestMarker(_) | Self::Other => 0,
        }
    }
}

/// A retraction of all events of a (type, object) up to a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retraction {
    /// The event type.
    pub kind: EventType,
    /// The object.
    pub object: ObjectId,
    /// An id made at that moment.
    pub at: Id,
}

/// Returns whether a retraction at `at` covers this event, given the same type and object.
///
/// Within one second only ids of the same process have an order. For ids of two processes, the
/// event counts as the earlier one.
pub fn retraction_covers(at: Id, event: &Event) -> bool {
    event.fanout_id.is_some_and(|id| id.is_no_later_than(at))
}

/// The type of a document's `_id`. tidings writes text; some older writers used an ObjectId.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum IdForm {
    /// Used by some older writers. tidings reads such documents and appends only markers to them.
    ObjectId,
    /// Used by tidings.
    Text,
}

/// Identifies a document of a user. Two writers may have left one of each form on the same day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId {
    /// The day of its collection.
    pub day: Day,
    /// Distinguishes two documents of one day.
    pub form: IdForm,
}

impl StackId {
    /// Returns the stack to which tidings appends the events of this day.
    pub fn for_day(day: Day) -> Self {
        Self { day, form: IdForm::Text }
    }
}

impl fmt::Display for StackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            IdForm::Text => write!(f, "{}", self.day),
            IdForm::ObjectId => write!(f, "{}o", self.day),
        }
    }
}

impl FromStr for StackId {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let (day, form) = match text.strip_suffix('o') {
            Some(day) => (day, IdForm::ObjectId),
            None => (text, IdForm::Text),
        };
        Ok(Self { day: day.parse()?, form })
    }
}

/// The permanent id of an entry: `20140422.17` is the eighteenth entry of that day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The document with the entry.
    pub stack: StackId,
    /// The index in the array, from 0. Markers and unknown entries count too.
    pub index: u32,
}

impl Position {
    fn new(stack: StackId, index: usize) -> Self {
        Self { stack, index: index as u32 }
    }
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.stack, self.index)
    }
}

serde_as_text!(Position);

impl FromStr for Position {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let why = "is not written as YYYYMMDD.INDEX, such as 20140422.17";
        let refuse = || InvalidValue::new("position", text, why);
        let (stack, index) = text.split_once('.').ok_or_else(refuse)?;
        // No array has a billion entries, so nine digits always fit a `u32`.
        if !(1..=9).contains(&index.len()) || !index.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse());
        }
        Ok(Self {
            stack: stack.parse().map_err(|_| refuse())?,
            index: index.parse().map_err(|_| refuse())?,
        })
    }
}

/// A user's entries of one day, in the order in which they were pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The document's day and form.
    pub id: StackId,
    /// All entries of the array, oldest first. An entry's index here is its index in the database.
    pub entries: Vec<Entry>,
    /// The document's defect, if any. Emails exclude defective documents.
    pub defect: Option<Defect>,
}

/// A defect that another program or a broken disk caused. It affects only the document's user.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, thiserror::Error)]
#[serde(rename_all = "snake_case")]
pub enum Defect {
    /// `events` is not a list, so nothing can be appended or read.
    #[error("its events are not a list")]
    NoList,
    /// The document cannot be decoded.
    #[error("it cannot be read")]
    Unreadable,
    /// The document has reached the maximum size.
    #[error("it is too large to be extended")]
    NoRoom,
    /// A validation rule of the database rejects changes to it.
    #[error("a validation rule of the database rejects changes")]
    Refused,
}

/// A defective document, for reports.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, thiserror::Error)]
#[error("the stack of {user} on {day}: {reason}")]
pub struct DefectiveStack {
    /// The user of the document.
    pub user: UserId,
    /// The day of the document.
    pub day: Day,
    /// The defect.
    pub reason: Defect,
}

impl Stack {
    /// Creates a stack without a defect.
    pub fn new(id: StackId, entries: Vec<Entry>) -> Self {
        Self { id, entries, defect: None }
    }

    /// Returns the number of entries from the front that the furthest marker covers.
    pub fn covered_count(&self) -> usize {
        count_covered(&self.entries)
    }

    /// Returns the `flushed` markers, oldest first.
    pub fn markers(&self) -> impl Iterator<Item = &DigestMarker> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::DigestMarker(marker) => Some(marker),
            Entry::Event(_) | Entry::BatchMarker(_) | Entry::Other => None,
        })
    }

    /// Returns the oldest marker that covers this entry.
    pub fn covering_marker(&self, index: u32) -> Option<&DigestMarker> {
        self.entries.iter().enumerate().find_map(|(marker_index, entry)| {
            let Entry::DigestMarker(marker) = entry else { return None };
            let covered = marker.n.map_or(marker_index, |n| n as usize);
            ((index as usize) < covered).then_some(marker)
        })
    }

    /// Returns the events that no marker covers and no batch has emailed, oldest first.
    pub fn uncovered(&self) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        self.uncovered_from(self.covered_count())
    }

    /// Returns whether [`Self::uncovered`] has any event.
    pub fn has_uncovered(&self) -> bool {
        self.uncovered().next().is_some()
    }

    /// Returns the events that were uncovered when the marker `own` was written. Without such a
    /// marker, returns the events that are uncovered now.
    fn uncovered_before(&self, own: Id) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        let is_own =
            |entry: &Entry| matches!(entry, Entry::DigestMarker(marker) if marker.id == Some(own));
        let end = self.entries.iter().position(is_own);
        self.uncovered_from(count_covered(&self.entries[..end.unwrap_or(self.entries.len())]))
    }

    fn uncovered_from(&self, from: usize) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        let mailed = self.emailed_ids();
        let is_emailed = move |event: &Event| event.fanout_id.is_some_and(|i| mailed.contains(&i));
        self.events_from(from).filter(move |(_, event)| !is_emailed(event))
    }

    /// Returns the ids of the accepted events that batches have emailed.
    pub fn emailed_ids(&self) -> HashSet<Id> {
        let lists = self.entries.iter().filter_map(|entry| match entry {
            Entry::BatchMarker(mailed) => Some(&mailed.fanouts),
            Entry::Event(_) | Entry::DigestMarker(_) | Entry::Other => None,
        });
        lists.flatten().copied().collect()
    }

    /// Returns all events, oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        self.events_from(0)
    }

    fn events_from(&self, from: usize) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        self.entries.iter().enumerate().skip(from).filter_map(move |(index, entry)| match entry {
            Entry::Event(event) => Some((Position::new(self.id, index), event)),
            Entry::DigestMarker(_) | Entry::BatchMarker(_) | Entry::Other => None,
        })
    }
}

/// Returns the number of entries from the front that the markers among `entries` cover, at most all
/// of them.
pub fn count_covered(entries: &[Entry]) -> usize {
    let covers = |(index, entry): (usize, &Entry)| match entry {
        Entry::DigestMarker(DigestMarker { n: Some(n), .. }) => {
            Some((*n as usize).min(entries.len()))
        }
        Entry::DigestMarker(DigestMarker { n: None, .. }) => Some(index),
        Entry::Event(_) | Entry::BatchMarker(_) | Entry::Other => None,
    };
    entries.iter().enumerate().filter_map(covers).max().unwrap_or(0)
}

/// The coverage of an email: for each stack, the number of entries from the front.
pub type Watermarks = Vec<(StackId, u32)>;

/// Returns the number of covered entries of this stack.
pub(super) fn watermark(watermarks: &Watermarks, stack: StackId) -> u32 {
    watermarks.iter().find(|(id, _)| *id == stack).map_or(0, |(_, n)| *n)
}

/// A user's documents in a window.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UserStacks {
    /// The user of the stacks.
    pub user: UserId,
    /// The stacks, oldest day first. Empty if the user has none in the window.
    pub stacks: Vec<Stack>,
}

/// An event with its position and time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StackEvent<'a> {
    /// The position; for repeated events, the oldest one.
    pub position: Position,
    /// The stored event.
    pub event: &'a Event,
    /// The time of the event. Events without an id have the start of their day.
    pub at: DateTime<Utc>,
}

impl UserStacks {
    /// Removes and returns the defective stacks. No marker can be appended to them, so their events
    /// would be emailed repeatedly.
    pub fn remove_defective(&mut self) -> Vec<DefectiveStack> {
        let report = |stack: &Stack| {
            let reason = stack.defect?;
            Some(DefectiveStack { user: self.user.clone(), day: stack.id.day, reason })
        };
        let defective = self.stacks.iter().filter_map(report).collect();
        self.stacks.retain(|stack| stack.defect.is_none());
        defective
    }

    /// Returns whether an entry exists at this position.
    pub fn contains(&self, position: Position) -> bool {
        let index = position.index as usize;
        self.stacks.iter().any(|stack| stack.id == position.stack && index < stack.entries.len())
    }

    /// Hides the events that `is_hidden` selects. The positions of other entries do not change.
    pub fn hide(&mut self, is_hidden: impl Fn(Position, &Event) -> bool) {
        for stack in &mut self.stacks {
            for (index, entry) in stack.entries.iter_mut().enumerate() {
                let position = Position::new(stack.id, index);
                if matches!(entry, Entry::Event(event) if is_hidden(position, event)) {
                    *entry = Entry::Other;
                }
            }
        }
    }

    /// Returns the pending events, oldest first, with each (type, object) once at its oldest
    /// position.
    pub fn pending(&self) -> Vec<StackEvent<'_>> {
        self.pending_where(|_, _| true)
    }

    /// Returns the pending events that `keep` admits, given the event and the day of its stack.
    pub fn pending_where(&self, keep: impl Fn(&Event, Day) -> bool) -> Vec<StackEvent<'_>> {
        unique(self.stacks.iter().flat_map(Stack::uncovered), keep)
    }

    /// Returns the events to include when an email is built again: those that were pending below
    /// these watermarks and that `keep` admits.
    ///
    /// Ignores the marker `own` of this email and all later `flushed` markers. The marker exists
    /// already if the email was recorded as sent and turned out not to be.
    pub fn pending_below(
        &self,
        watermarks: &Watermarks,
        own: Id,
        keep: impl Fn(&Event, Day) -> bool,
    ) -> Vec<StackEvent<'_>> {
        let uncovered = self
            .stacks
            .iter()
            .flat_map(|stack| stack.uncovered_before(own))
            .filter(|(position, _)| position.index < watermark(watermarks, position.stack));
        unique(uncovered, keep)
    }

    /// Returns whether any stack has the marker with this id.
    pub fn has_digest_marker(&self, id: Id) -> bool {
        self.has_entry(
            |entry| matches!(entry, Entry::DigestMarker(marker) if marker.id == Some(id)),
        )
    }

    /// Returns whether any stack has the `mailed` marker with this id: its batch was emailed.
    pub fn has_batch_marker(&self, id: Id) -> bool {
        self.has_entry(|entry| matches!(entry, Entry::BatchMarker(mailed) if mailed.id == id))
    }

    fn has_entry(&self, matches: impl Fn(&Entry) -> bool) -> bool {
        self.stacks.iter().flat_map(|stack| &stack.entries).any(matches)
    }

    /// Returns all events, oldest first, with each (type, object) once at its oldest position.
    pub fn events(&self) -> Vec<StackEvent<'_>> {
        unique(self.stacks.iter().flat_map(Stack::events), |_, _| true)
    }

    /// Returns the current length of each stack with uncovered events. An email built from these
    /// stacks covers this much.
    pub fn watermarks(&self) -> Watermarks {
        let uncovered = self.stacks.iter().filter(|stack| stack.has_uncovered());
        uncovered.map(|stack| (stack.id, stack.entries.len() as u32)).collect()
    }
}

/// Returns the events that `keep` admits, with each (type, object) once. An excluded event must not
/// hide a later one, so `keep` runs first.
fn unique<'a>(
    events: impl Iterator<Item = (Position, &'a Event)>,
    keep: impl Fn(&Event, Day) -> bool,
) -> Vec<StackEvent<'a>> {
    let mut seen: HashSet<(&ObjectId, &EventType), RandomState> = HashSet::default();
    events
        .filter_map(|(position, event)| {
            let day = position.stack.day;
            let is_kept = keep(event, day) && seen.insert((&event.object, &event.kind));
            is_kept.then(|| StackEvent { position, event, at: event.time(day) })
        })
        .collect()
}

#[cfg(test)]
#[path = "day_stack_tests.rs"]
mod tests;
