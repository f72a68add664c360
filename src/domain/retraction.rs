//! Retractions of events: they hide a (type, object) up to a moment.
//!
//! Retracting costs the same for any number of recipients, because stacks are not changed. Later
//! events about the same object are not affected. Neither are events of older writers without `i`,
//! whose time is unknown. To hide those, make their object not notifiable.

use super::event::Event;
use super::id::Id;
use super::name::{EventType, ObjectId};

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
