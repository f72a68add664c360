//! Where the record of a user begins whose id had belonged to a deleted user.
//!
//! The rule (P8): nothing from before the start is shown, counted or emailed, and links and tokens
//! issued before it are dead. A first record has no start: events that arrive before it belong to
//! its user. Positions on the stack decide where ids of one second have no order.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::day::Day;
use super::event::Event;
use super::id::Id;
use super::name::{Invalid, UserId};
use super::stack::{Form, PersonStacks, Position};

/// Where a record begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Start {
    /// When the earlier user was deleted, in whole seconds.
    pub erased: DateTime<Utc>,
    /// An id of the moment at which this record was created.
    pub at: Id,
    /// How many entries the stack of that day held then.
    pub entries: u32,
    /// The same of the stack whose `_id` is an ObjectId.
    pub entries_by_object_id: u32,
}

impl Start {
    /// A start at this moment, on top of the entries that the user's stacks hold.
    pub fn new(erased: DateTime<Utc>, at: Id, stacks: Option<&PersonStacks>) -> Self {
        let day = Day::of(at.time());
        let entries = |form| {
            let stacks = stacks.into_iter().flat_map(|person| &person.stacks);
            let mut stacks = stacks.filter(|stack| stack.id.day == day && stack.id.form == form);
            stacks.next().map_or(0, |stack| stack.entries.len() as u32)
        };
        Self {
            erased: Id::at(erased, [0; 8]).time(),
            at,
            entries: entries(Form::Text),
            entries_by_object_id: entries(Form::ObjectId),
        }
    }

    /// Returns whether this id was made before the start. Ids that two processes made within one
    /// second have no order; they count as made after it.
    pub fn is_after(&self, id: Id) -> bool {
        id.is_earlier_than(self.at)
    }

    /// Returns whether an event belongs to the deleted user.
    pub fn hides(&self, place: Position, event: &Event) -> bool {
        let day = Day::of(self.at.time());
        let entries = match place.stack.form {
            Form::Text => self.entries,
            Form::ObjectId => self.entries_by_object_id,
        };
        place.stack.day < day
            || (place.stack.day == day && place.index < entries)
            || event.i.is_some_and(|id| self.is_after(id))
    }

    /// Returns whether a link or token that was issued in this second is dead.
    pub fn rejects(&self, issued: DateTime<Utc>) -> bool {
        let issued = issued.timestamp();
        issued < self.at.time().timestamp() || issued <= self.erased.timestamp()
    }

    /// Returns the first second from this one on in which a valid link can be issued.
    pub fn valid_from(&self, issued: DateTime<Utc>) -> DateTime<Utc> {
        let created = self.at.time();
        let first = created.max(self.erased + TimeDelta::seconds(1));
        issued.max(first)
    }
}

impl PersonStacks {
    /// Hides the events from before this start, if there is one.
    pub fn begin_at(&mut self, start: Option<Start>) {
        if let Some(start) = start {
            self.leave_out(|place, event| start.hides(place, event));
        }
    }
}

/// The name under which the store notes that the user of this id was deleted. It holds a hash, so
/// the id itself is forgotten.
pub fn note_name(user: &UserId) -> String {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(format!("tidings erased user: {user}"));
    format!("erased:{}", hex::encode(&hash[..16]))
}

/// A note that the user of an id was deleted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erasure {
    /// Where a reader without a record begins.
    pub start: Start,
    /// Whether all of the user's data is gone. An erasure that was cut short is repeated.
    pub done: bool,
}

const DONE: &str = "done";
const BEGUN: &str = "begun";

impl fmt::Display for Erasure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.done { DONE } else { BEGUN };
        write!(f, "{state} {}", self.start)
    }
}

impl FromStr for Erasure {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("note of an erasure", text, "is not one");
        let (state, start) = text.split_once(' ').ok_or_else(refuse)?;
        let done = match state {
            DONE => true,
            BEGUN => false,
            _ => return Err(refuse()),
        };
        let start = start.parse()?;
        Ok(Self { start, done })
    }
}

impl fmt::Display for Start {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            erased,
            at,
            entries,
            entries_by_object_id,
        } = self;
        let erased = erased.timestamp();
        write!(f, "{erased} {at} {entries} {entries_by_object_id}")
    }
}

impl FromStr for Start {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let read = || {
            let mut parts = text.split(' ');
            let erased = DateTime::from_timestamp(parts.next()?.parse().ok()?, 0)?;
            let at = parts.next()?.parse().ok()?;
            let mut count = || parts.next()?.parse().ok();
            let (entries, entries_by_object_id) = (count()?, count()?);
            parts.next().is_none().then_some(Self {
                erased,
                at,
                entries,
                entries_by_object_id,
            })
        };
        read().ok_or_else(|| Invalid::new("start of a user", text, "is not one"))
    }
}

impl Serialize for Start {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for Start {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

#[cfg(test)]
#[path = "start_tests.rs"]
mod tests;
