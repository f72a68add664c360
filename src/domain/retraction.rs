//! Taking events back: what was told of something up to a moment is not told any more.
//!
//! The rule: a retraction names a (type, object) and a moment, and nothing of stacks is changed, so
//! it costs the same however many people were told. What happened up to then is as if it never had;
//! what happens to the same object later is told. An event that an older writer left without an
//! `i` says no moment, and is not reached: withdraw its object instead.

use super::event::Event;
use super::id::Id;
use super::name::{EventType, ObjectId};

/// What happened to one object is taken back, up to a moment.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Retraction {
    /// What happened.
    pub t: EventType,
    /// To which object.
    pub o: ObjectId,
    /// Up to when: an id made at that moment.
    pub at: Id,
}

/// Whether an event is reached by a retraction of its (type, object) up to this moment.
///
/// Within one second the ids of one process say what came first. Those of two do not; there the
/// event counts as the earlier one.
pub fn reaches(at: Id, event: &Event) -> bool {
    event.i.is_some_and(|i| i.is_no_later_than(at))
}

#[cfg(test)]
mod tests {
    use super::*;
    use chrono::{DateTime, TimeDelta, Utc};

    /// An event's id, or a retraction's: of a process, the nth that it made.
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
    fn what_happened_up_to_then_is_reached_and_what_comes_later_is_not() {
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
    fn an_event_that_says_no_moment_is_not_reached() {
        assert!(!reaches(Id::LAST, &event(None)));
    }
}
