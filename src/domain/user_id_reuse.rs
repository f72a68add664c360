//! The start of a record whose user id belonged to an erased user before.
//!
//! Events from before the start are not shown, counted or emailed, and earlier links and tokens are
//! invalid (P8). The first record of an id has no start, so events accepted before it belong to its
//! user. Ids of one second have no order, so positions on the stack decide there.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, TimeDelta, Utc};

use super::day::Day;
use super::day_stack::{Event, IdForm, Position, StackId, UserStacks};
use super::name::{InvalidValue, UserId, serde_as_text};
use super::timed_id::Id;

/// The moment and the stack positions at which a record starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RecordStart {
    /// When the earlier user was erased, in whole seconds.
    pub erased: DateTime<Utc>,
    /// An id that was generated when this record was created.
    pub created_id: Id,
    /// The length of that day's stack at that moment.
    pub entries: u32,
    /// The length of that day's other stack, whose `_id` is an ObjectId.
    pub entries_by_object_id: u32,
}

impl RecordStart {
    /// Creates a start at this moment, after the entries that the stacks have now.
    pub fn new(erased: DateTime<Utc>, at: Id, stacks: Option<&UserStacks>) -> Self {
        let day = Day::of(at.time());
        let entries = |form| {
            let id = StackId { day, form };
            let mut stacks = stacks.into_iter().flat_map(|user_stacks| &user_stacks.stacks);
            stacks.find(|stack| stack.id == id).map_or(0, |stack| stack.entries.len() as u32)
        };
        Self {
            erased: Id::at(erased, [0; 8]).time(),
            created_id: at,
            entries: entries(IdForm::Text),
            entries_by_object_id: entries(IdForm::ObjectId),
        }
    }

    /// Returns whether an id is from before the start. Ids that two processes generated within one
    /// second have no order; they count as later.
    pub fn is_after(&self, id: Id) -> bool {
        id.is_earlier_than(self.created_id)
    }

    /// Returns whether an event belongs to the erased user.
    pub fn hides(&self, position: Position, event: &Event) -> bool {
        let day = Day::of(self.created_id.time());
        let entries = match position.stack.form {
            IdForm::Text => self.entries,
            IdForm::ObjectId => self.entries_by_object_id,
        };
        position.stack.day < day
            || (position.stack.day == day && position.index < entries)
            || event.fanout_id.is_some_and(|id| self.is_after(id))
    }

    /// Returns whether a link or token issued at this time is invalid. Compares whole seconds.
    pub fn invalidates(&self, issued: DateTime<Utc>) -> bool {
        let seconds = issued.timestamp();
        seconds < self.created_id.time().timestamp() || seconds <= self.erased.timestamp()
    }

    /// Returns the issue time for a new link: `issued`, or later if a link of that time would be
    /// invalid.
    pub fn earliest_valid_issue_time(&self, issued: DateTime<Utc>) -> DateTime<Utc> {
        issued.max(self.created_id.time()).max(self.erased + TimeDelta::seconds(1))
    }
}

impl UserStacks {
    /// Hides the events from before this start, if there is one.
    pub fn hide_before_start(&mut self, start: Option<RecordStart>) {
        if let Some(start) = start {
            self.hide(|position, event| start.hides(position, event));
        }
    }
}

/// Returns the name of the note that the user of this id was erased. It contains a hash, so that
/// the store does not keep the id.
pub fn erasure_note_name(user: &UserId) -> String {
    use sha2::{Digest, Sha256};
    let hash = Sha256::digest(format!("tidings erased user: {user}"));
    format!("erased:{}", hex::encode(&hash[..16]))
}

/// A note about the erasure of a user.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Erasure {
    /// The start for readers of a user without a record.
    pub start: RecordStart,
    /// Whether all data is removed. If not, the erasure was interrupted and must be repeated.
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
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let refuse = || InvalidValue::new("note of an erasure", text, "is not one");
        let (state, start) = text.split_once(' ').ok_or_else(refuse)?;
        let done = match state {
            DONE => true,
            BEGUN => false,
            _ => return Err(refuse()),
        };
        Ok(Self { start: start.parse()?, done })
    }
}

impl fmt::Display for RecordStart {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (erased, at) = (self.erased.timestamp(), self.created_id);
        let (entries, by_object_id) = (self.entries, self.entries_by_object_id);
        write!(f, "{erased} {at} {entries} {by_object_id}")
    }
}

serde_as_text!(RecordStart);

impl FromStr for RecordStart {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let parse = || {
            let mut parts = text.split(' ');
            let erased = DateTime::from_timestamp(parts.next()?.parse().ok()?, 0)?;
            let at = parts.next()?.parse().ok()?;
            let mut count = || parts.next()?.parse().ok();
            let (entries, entries_by_object_id) = (count()?, count()?);
            parts.next().is_none().then_some(Self {
                erased,
                created_id: at,
                entries,
                entries_by_object_id,
            })
        };
        parse().ok_or_else(|| InvalidValue::new("start of a user", text, "is not one"))
    }
}

#[cfg(test)]
#[path = "user_id_reuse_tests.rs"]
mod tests;
