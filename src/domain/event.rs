//! The entries of a user's day: events, markers and unrecognized elements.
//!
//! Every element of the array is an [`Entry`], including foreign ones, because positions count them
//! all. See [`super::stack`] for their meaning together.

use chrono::{DateTime, Utc};

use super::day::Day;
use super::id::Id;
use super::name::{EventType, ObjectId};

/// An event, stored as `{t, o, i}`. Older writers omitted `i`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Event {
    /// The event type.
    pub t: EventType,
    /// The object's id. The policy of the type names its model.
    pub o: ObjectId,
    /// The id of the accepted event, whose timestamp is the event's time.
    pub i: Option<Id>,
}

impl Event {
    /// Returns the time of the event. Without `i` only its day is known, and the day's start
    /// counts.
    pub fn at(&self, day: Day) -> DateTime<Utc> {
        self.i.map_or(day.start(), Id::time)
    }
}

/// A marker, stored as `{flushed, n}`: the first `n` entries have been processed. A bare
/// `{flushed}` covers everything before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Marker {
    /// The id that the delivery or flush wrote; `None` from older writers.
    pub id: Option<Id>,
    /// The number of covered entries from the front; `None` covers everything before the marker.
    pub n: Option<u32>,
}

/// A marker stored as `{mailed, i}`: these events were emailed outside the digest, such as in a
/// batch. Digests exclude them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Mailed {
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
    Marker(Marker),
    /// A marker that covers the events of some fan-outs.
    Mailed(Mailed),
    /// Any other element. It is neither shown nor emailed, but it occupies a position.
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
