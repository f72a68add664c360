//! Worked examples of common batch designs, each named after its design. Times are minutes and
//! seconds after the first event.

use std::num::NonZeroU64;

use super::tests::{at, comment, five_minutes, minutes, objects, opened};
use super::*;
use crate::domain::{Policies, Policy, Route, User};

fn four_minute_cool_down() -> BatchPolicy {
    BatchPolicy { cooldown: minutes(4), ..BatchPolicy::IMMEDIATE }
}

fn clock(minute: i64, second: i64) -> DateTime<Utc> {
    at(minute * 60 + second)
}

/// Closes a due batch once a minute. Returns the minute in which the batch closed, and its number
/// of events. An event at the time of a poll arrives after it.
fn polled_each_minute(policy: &BatchPolicy, events: &[DateTime<Utc>]) -> Option<(i64, u64)> {
    let mut batch = opened(&[comment(0, "a")], events[0], policy);
    let mut coming = events.iter().enumerate().skip(1).peekable();
    for minute in 0..=60 {
        while let Some((n, then)) = coming.next_if(|(_, then)| **then < clock(minute, 0)) {
            batch.join(&[comment(n as u32, "a")], *then, policy);
        }
        if batch.is_due(clock(minute, 0)) {
            return Some((minute, batch.events.count));
        }
    }
    None
}

#[test]
fn a_four_minute_cool_down_polled_each_minute_without_a_longest_wait() {
    let policy = four_minute_cool_down();

    let alone = polled_each_minute(&policy, &[clock(0, 0)]);
    let late = polled_each_minute(&policy, &[clock(0, 20), clock(3, 50), clock(6, 10)]);
    // The batch is due at 4:20 but not polled before 4:45, so it stays open.
    let between = polled_each_minute(&policy, &[clock(0, 20), clock(4, 45)]);
    let steady: Vec<_> = (0..20).map(|n| clock(n * 3, 30)).collect();

    assert_eq!(alone, Some((4, 1)));
    assert_eq!(late, Some((11, 3)));
    assert_eq!(between, Some((9, 2)));
    // The batch never closes if an event arrives every three minutes.
    assert_eq!(polled_each_minute(&policy, &steady), None);
    assert!(policy.likely_mistakes().iter().any(|(option, ..)| *option == "cooldown"));
}

#[test]
fn a_four_minute_cool_down_polled_each_minute_with_a_longest_wait() {
    let policy = BatchPolicy { max_wait: Some(minutes(15)), ..four_minute_cool_down() };
    let steady: Vec<_> = (0..20).map(|n| clock(n * 3, 30)).collect();

    let alone = polled_each_minute(&policy, &[clock(0, 0)]);

    assert_eq!(alone, Some((4, 1)));
    // The batch opens at 0:30, is due at 15:30, and closes at 16. The event at 15:30 is the sixth.
    assert_eq!(polled_each_minute(&policy, &steady), Some((16, 6)));
    assert!(policy.likely_mistakes().is_empty());
}

#[test]
fn a_five_minute_window_is_extended_by_late_events_up_to_a_cap() {
    let policy =
        BatchPolicy { cooldown: minutes(1), max_wait: Some(minutes(15)), ..five_minutes() };
    let mut batch = opened(&[comment(0, "a")], clock(0, 0), &policy);
    let mut join = |n: u32, at| {
        batch.join(&[comment(n, "a")], at, &policy);
        batch.closes_at
    };

    assert_eq!(join(1, clock(2, 0)), clock(5, 0));
    assert_eq!(join(2, clock(4, 0)), clock(5, 0));
    assert_eq!(join(3, clock(4, 40)), clock(5, 40));
    assert_eq!(join(4, clock(5, 30)), clock(6, 30));
    for n in 0..16 {
        join(5 + n, clock(6, 0) + minutes(1) / 2 * n as i32);
    }
    assert_eq!(join(99, clock(14, 10)), clock(15, 0));
    assert_eq!(join(100, clock(14, 50)), clock(15, 0));
}

#[test]
fn a_removed_item_delays_the_early_close_of_a_fixed_window_at_three() {
    let policy =
        BatchPolicy { close_at: NonZeroU64::new(3), keep: Keep::Last(2), ..five_minutes() };
    let mut batch = opened(&[comment(1, "a")], clock(0, 0), &policy);
    batch.join(&[comment(2, "b")], clock(1, 0), &policy);

    batch.remove_events(&EventType::stored("Comment"), &[ObjectId::stored("b")], None);
    batch.join(&[comment(3, "c")], clock(2, 0), &policy);
    assert_eq!((batch.state, batch.closes_at), (BatchState::Open, clock(5, 0)));
    batch.join(&[comment(4, "d")], clock(3, 0), &policy);

    assert_eq!((batch.state, batch.closes_at), (BatchState::Closing, clock(3, 0)));
    assert_eq!((batch.events.count, objects(&batch.events)), (3, vec!["c", "d"]));
    assert_eq!(batch.events.omitted_count(), 1);
}

#[test]
fn an_item_removed_from_a_full_batch_is_not_emailed() {
    let policy = BatchPolicy { close_at: NonZeroU64::new(2), ..five_minutes() };
    let mut batch = opened(&[comment(1, "a"), comment(1, "b")], clock(0, 0), &policy);
    assert_eq!(batch.state, BatchState::Closing);

    batch.remove_events(&EventType::stored("Comment"), &[ObjectId::stored("a")], None);

    assert_eq!((batch.state, objects(&batch.events)), (BatchState::Closing, vec!["b"]));
}

#[test]
fn users_choose_between_an_hour_and_a_day() {
    let policy = BatchPolicy {
        cooldown: minutes(1),
        max_wait: Some(minutes(15)),
        close_at: NonZeroU64::new(50),
        ..five_minutes()
    };
    let closes = |window: Option<i64>| {
        let theirs = policy.with_window(window.map(minutes));
        let batch = opened(&[comment(1, "a")], clock(0, 0), &theirs);
        assert_eq!((theirs.close_at, theirs.cooldown), (policy.close_at, policy.cooldown));
        (batch.closes_at - clock(0, 0)).num_minutes()
    };

    assert_eq!(closes(None), 5);
    assert_eq!(closes(Some(60)), 60);
    assert_eq!(closes(Some(24 * 60)), 24 * 60);
    assert_eq!(closes(Some(2)), 2);
}

#[test]
fn immediate_and_never_with_mute_and_unmute() {
    let kind = EventType::stored("Comment");
    let policies =
        Policies::new([(kind.clone(), Policy { route: Route::Immediate, ..Policy::default() })]);
    let mut mara = User::new(UserId::stored("mara"));
    let mut choose = |route, when| {
        let mut chosen = mara.clone();
        let preference = crate::domain::user::TypePreference::new(route, when);
        chosen.types.insert(kind.clone(), preference);
        let schedule = crate::domain::Schedule {
            cadence: crate::domain::Cadence::Weekly,
            weekday: chrono::Weekday::Mon,
            hour: 9,
            tz: chrono_tz::Tz::UTC,
        };
        mara = chosen.into_replacement_of(Some(&mara.clone()), &schedule, &policies, when);
        mara.clone()
    };

    let muted = choose(Route::Never, clock(10, 0));
    let unmuted = choose(Route::Immediate, clock(20, 0));
    let slowed = choose(Route::Batch, clock(30, 0));

    let route = |user: &User, minute| user.route(&kind, clock(minute, 0), &policies);
    assert_eq!(route(&User::new(UserId::stored("ben")), 5), Route::Immediate);
    assert_eq!([5, 15].map(|minute| route(&muted, minute)), [Route::Never; 2]);
    // Events that arrived while it was off are not emailed later.
    assert_eq!(
        [5, 15, 25].map(|minute| route(&unmuted, minute)),
        [Route::Never, Route::Never, Route::Immediate]
    );
    assert_eq!(
        [15, 25, 35].map(|minute| route(&slowed, minute)),
        [Route::Never, Route::Never, Route::Batch]
    );
    let at_once = opened(&[comment(1, "a")], clock(25, 0), &BatchPolicy::IMMEDIATE);
    assert!(at_once.is_due(clock(25, 0)));
}
