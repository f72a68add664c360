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

/// A retraction of all events of a (type, object) up to a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retraction {
    /// The event type.
    pub t: EventType,
    /// The object.
    pub o: ObjectId,
    /// An id made at that moment.
    pub at: Id,
}

/// Returns whether a retraction at `at` covers this event, given the same type and object.
///
/// Within one second only ids of the same process have an order. For ids of two processes, the
/// event counts as the earlier one.
pub fn reaches(at: Id, event: &Event) -> bool {
    event.i.is_some_and(|i| i.is_no_later_than(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{DateTime, TimeDelta, Utc};

    /// Creates the `n`th id of a process.
    fn id(at: DateTime<Utc>, process: u8, n: u8) -> Id {
        Id::at(at, [0, 0, 0, 0, process, 0, 0, n])
    }

    fn event(i: Option<Id>) -> Event {
        Event {
            t: EventType::stored("Published"),
            o: ObjectId::stored("1"),
            i,
        }
    }

    #[test]
    fn a_retraction_covers_earlier_events_and_no_later_ones() {
        let noon = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
        let second = TimeDelta::seconds(1);
        let at = id(noon, 1, 5);
        let reached = |i: Id| reaches(at, &event(Some(i)));

        assert!(reached(id(noon, 1, 4)) && !reached(id(noon, 1, 6)));
        assert!(reached(id(noon, 2, 4)) && reached(id(noon, 2, 6)));
        assert!(reached(id(noon, 0, 4)) && reached(id(noon, 0, 6)));
        assert!(reached(id(noon - second, 2, 9)) && !reached(id(noon + second, 0, 0)));
    }

    #[test]
    fn an_event_without_an_id_is_not_covered() {
        assert!(!reaches(Id::LAST, &event(None)));
    }
}
