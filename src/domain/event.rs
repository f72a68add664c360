//! What stands in a person's day: events, markers, and what nobody knows any more.
//!
//! The rule: every element of the array is an [`Entry`], whoever wrote it and whatever it is,
//! because positions count them all. See [`super::stack`] for what they mean together.

use chrono::{DateTime, Utc};

use super::day::Day;
use super::id::Id;
use super::name::{EventType, ObjectId};

/// `{t, o, i}`: something happened to an object. Older writers wrote no `i`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// What happened.
    pub t: EventType,
    /// To which object; its type's policy says of which model that id is.
    pub o: ObjectId,
    /// The fan-out that wrote it; its time is the event's time.
    pub i: Option<Id>,
}

impl Event {
    /// When it happened. Of an event without `i` only its day is known: it counts as the day's
    /// first moment.
    pub fn at(&self, day: Day) -> DateTime<Utc> {
        self.i.map_or(day.start(), Id::time)
    }
}

/// `{flushed, n}`: the first `n` entries of this array are dealt with. A bare `{flushed}` covers
/// all before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// Of the delivery or flush that wrote it; `None` where an older writer left no id.
    pub id: Option<Id>,
    /// How many entries from the front it covers; `None` covers all that stand before it.
    pub n: Option<u32>,
}

/// `{mailed, i}`: what these fan-outs put on this stack was mailed on its own, such as in a batch.
/// No digest tells it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mailed {
    /// The marker of the delivery that mailed them, so that it is not written twice.
    pub id: Id,
    /// The `i` of the events, ascending.
    pub fanouts: Vec<Id>,
}

/// One element of a day's array.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Entry {
    /// Something happened to an object.
    Event(Event),
    /// Everything up to some place is dealt with.
    Marker(Marker),
    /// The events of some fan-outs were mailed on their own.
    Mailed(Mailed),
    /// Something else stands here. It is neither shown nor mailed, but it holds its place.
    Other,
}

impl Entry {
    /// Returns the bytes that the entry takes beyond `size_of::<Entry>()`.
    pub fn bytes(&self) -> usize {
        match self {
            Self::Event(event) => [event.t.as_str(), event.o.as_str()]
                .into_iter()
                .map(str::len)
                .filter(|bytes| *bytes > size_of::<ObjectId>())
                .sum(),
            Self::Mailed(mailed) => mailed.fanouts.len() * size_of::<Id>(),
            Self::Marker(_) | Self::Other => 0,
        }
    }
}
