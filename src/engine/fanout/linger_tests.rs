//! Tests of when large audiences start.

use super::*;
use crate::domain::{Audience, EventType, Id, ObjectId, UserId};

fn at(seconds: i64) -> DateTime<Utc> {
    DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
}

fn fanout() -> Fanout {
    let id = Id::at(DateTime::UNIX_EPOCH, [0; 8]);
    let audience = Audience::users([UserId::stored("ada")]).unwrap();
    let objects = vec![ObjectId::stored("a1")];
    Fanout::new(id, None, EventType::stored("Work"), objects, audience).unwrap()
}

#[test]
fn the_wait_ends_at_its_limit_even_after_a_clock_change() {
    let (lingering, five) = (WaitingFanouts::default(), TimeDelta::seconds(5));
    let starts = |arrived, seconds| lingering.take_if_due(arrived, five, 9, at(seconds)).is_some();

    assert!(starts(0, 99), "nothing exists, so this does not count as a start");
    assert!(starts(1, 100), "the first");
    assert!(!starts(1, 104));
    assert!(starts(9, 104), "the maximum");
    assert!(!starts(8, 108));
    assert!(starts(1, 109));
    assert!(starts(1, 50), "the clock was set back");
    assert!(!starts(1, 54));
}

#[test]
fn the_wait_ends_when_no_further_events_arrive() {
    let (lingering, five) = (WaitingFanouts::default(), TimeDelta::seconds(5));
    let starts = |arrived, tenths: i64| {
        let at = DateTime::UNIX_EPOCH + TimeDelta::milliseconds(100 * tenths);
        lingering.take_if_due(arrived, five, 9, at).is_some()
    };
    let waits = |arrived, tenths| {
        assert!(!starts(arrived, tenths), "{tenths}");
        let fanouts = std::iter::repeat_n(fanout(), arrived);
        lingering.delay(fanouts, at(1_000));
    };

    assert!(starts(1, 0));
    // They arrive 1 s apart, so 2 s without an arrival end the wait.
    waits(1, 10);
    waits(1, 20);
    waits(0, 39);
    assert!(starts(0, 40));
    // They arrive quickly, and 1 s is the shortest pause.
    waits(3, 43);
    waits(0, 52);
    assert!(starts(0, 53));
    // They arrive slowly, and no wait is longer than 5 s.
    waits(1, 83);
    waits(0, 102);
    assert!(starts(0, 103));
}

#[test]
fn without_a_linger_fan_outs_start_immediately() {
    let lingering = WaitingFanouts::default();
    for _ in 0..3 {
        assert!(lingering.take_if_due(1, TimeDelta::zero(), 9, at(1)).is_some());
    }
}
