//! Tests of when large audiences start.

use super::*;
use crate::domain::{Audience, EventType, ObjectId};

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
    let (lingering, five) = (Lingering::default(), TimeDelta::seconds(5));
    let begins = |came, seconds| lingering.begins(came, five, 9, at(seconds)).is_some();

    assert!(!begins(0, 99), "there is nothing");
    assert!(begins(1, 100), "the first");
    assert!(!begins(1, 104));
    assert!(begins(9, 104), "the most");
    assert!(!begins(8, 108));
    assert!(begins(1, 109));
    assert!(begins(1, 50), "the clock was put back");
    assert!(!begins(1, 54));
}

#[test]
fn the_wait_ends_when_no_further_events_arrive() {
    let (lingering, five) = (Lingering::default(), TimeDelta::seconds(5));
    let begins = |came, tenths: i64| {
        let at = DateTime::UNIX_EPOCH + TimeDelta::milliseconds(100 * tenths);
        lingering.begins(came, five, 9, at).is_some()
    };
    let held = |came, tenths| {
        assert!(!begins(came, tenths), "{tenths}");
        let fanouts = std::iter::repeat_n(fanout(), came);
        lingering.hold(fanouts, at(1_000));
    };

    assert!(begins(1, 0));
    // They arrive 1 s apart, so 2 s without an arrival end the wait.
    held(1, 10);
    held(1, 20);
    held(0, 39);
    assert!(begins(0, 40));
    // They arrive quickly, and 1 s is the shortest pause.
    held(3, 43);
    held(0, 52);
    assert!(begins(0, 53));
    // They arrive slowly, and no wait is longer than 5 s.
    held(1, 83);
    held(0, 102);
    assert!(begins(0, 103));
}

#[test]
fn without_a_linger_fan_outs_start_immediately() {
    let lingering = Lingering::default();
    for _ in 0..3 {
        assert!(lingering.begins(1, TimeDelta::zero(), 9, at(1)).is_some());
    }
}
