//! Compares the formula with a simple model of each named policy, second by second.

use chrono::TimeDelta;
use proptest::prelude::*;

use super::tests::{at, comment, opened};
use super::*;

/// Ascending seconds at which events arrive; the first is 0.
fn seconds() -> impl Strategy<Value = Vec<i64>> {
    prop::collection::vec(0..200i64, 0..20).prop_map(|gaps| {
        let mut now = 0;
        let later = gaps.into_iter().map(|gap| {
            now += gap;
            now
        });
        std::iter::once(0).chain(later).collect()
    })
}

fn policy(window: i64, cooldown: i64, max_wait: Option<i64>) -> BatchPolicy {
    BatchPolicy {
        window: TimeDelta::seconds(window),
        cooldown: TimeDelta::seconds(cooldown),
        max_wait: max_wait.map(TimeDelta::seconds),
        ..BatchPolicy::IMMEDIATE
    }
}

/// Returns the batch that these seconds open, with the events before it is due, and that time in
/// seconds.
fn gather(policy: &BatchPolicy, seconds: &[i64]) -> (Batch, i64) {
    let item = |n: usize| [comment(n as u32, "a")];
    let mut batch = opened(&item(0), at(0), policy);
    for (n, second) in seconds.iter().enumerate().skip(1) {
        if batch.state != BatchState::Open || at(*second) >= batch.closes_at {
            break;
        }
        batch.join(&item(n), at(*second), policy);
    }
    let closes = (batch.closes_at - at(0)).num_seconds();
    (batch, closes)
}

/// Returns the first second that closes a batch, and the number of earlier events. `ends` gets the
/// seconds since the batch was opened and since the last event.
fn first_second(seconds: &[i64], ends: impl Fn(i64, i64) -> bool) -> (i64, u64) {
    let last = |now: i64| seconds.iter().rfind(|second| **second < now || **second == 0);
    let end = (0..).find(|now| ends(*now, now - last(*now).unwrap())).unwrap();
    let before = |second: &&i64| **second < end;
    let count = 1 + seconds[1..].iter().filter(before).count() as u64;
    (end, count)
}

proptest! {
    #[test]
    fn a_fixed_window_closes_its_duration_after_opening(
        window in 1..600i64, seconds in seconds()
    ) {
        let (batch, closes) = gather(&policy(window, 0, None), &seconds);

        let (end, count) = first_second(&seconds, |open, _| open >= window);
        prop_assert_eq!((closes, batch.events.count), (end, count));
    }

    #[test]
    fn a_cooldown_closes_after_a_pause_or_the_maximum_wait(
        cooldown in 1..200i64, longest in 1..900i64, seconds in seconds()
    ) {
        let (batch, closes) = gather(&policy(0, cooldown, Some(longest)), &seconds);

        let (end, count) =
            first_second(&seconds, |open, quiet| quiet >= cooldown || open >= longest);
        prop_assert_eq!((closes, batch.events.count), (end, count));
    }

    #[test]
    fn a_window_is_extended_by_late_events_up_to_a_cap(
        window in 1..600i64, extension in 1..120i64, cap in 1..900i64, seconds in seconds()
    ) {
        let (batch, closes) = gather(&policy(window, extension, Some(cap)), &seconds);

        let (end, count) = first_second(&seconds, |open, quiet| {
            (open >= window && quiet >= extension) || open >= cap
        });
        prop_assert_eq!((closes, batch.events.count), (end, count));
    }

    #[test]
    fn a_full_batch_closes_with_the_event_that_fills_it(
        window in 1..600i64, full in 1..8u64, seconds in seconds()
    ) {
        let filling = BatchPolicy {
            close_at: std::num::NonZeroU64::new(full),
            ..policy(window, 0, None)
        };

        let (batch, closes) = gather(&filling, &seconds);

        let filled = seconds.get(full as usize - 1).filter(|second| full == 1 || **second < window);
        let before = |second: &&i64| **second < window;
        let (end, count) = match filled {
            Some(second) => (*second, full),
            None => (window, 1 + seconds[1..].iter().filter(before).count() as u64),
        };
        prop_assert_eq!((closes, batch.events.count), (end, count));
        prop_assert_eq!(batch.state == BatchState::Closing, filled.is_some());
    }

    #[test]
    fn all_zero_durations_close_at_once_with_any_other_options(
        longest in prop::option::of(1..900i64), leading in any::<bool>(), seconds in seconds()
    ) {
        let immediate = BatchPolicy { leading, ..policy(0, 0, longest) };

        let (batch, closes) = gather(&immediate, &seconds);

        prop_assert_eq!((closes, batch.events.count), (0, 1));
        prop_assert!(batch.state == BatchState::Closing);
    }
}
