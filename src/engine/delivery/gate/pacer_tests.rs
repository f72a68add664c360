//! Tests of call rates, concurrency and waits.

use tokio::time::sleep;

use super::*;

#[tokio::test(start_paused = true)]
async fn calls_start_evenly_and_within_the_rate() {
    let (pacer, start) = (Pacer::new(NonZeroU32::new(5)), Instant::now());

    let call = || async {
        while let Some(wait) = pacer.too_soon() {
            sleep(wait).await;
        }
        start.elapsed().as_millis()
    };
    let mut begun = futures::future::join_all((0..11).map(|_| call())).await;

    begun.sort_unstable();
    for (n, at) in begun.iter().enumerate() {
        let due = n as u128 * 200;
        assert!((due..due + 20).contains(at), "{begun:?}");
    }
}

#[test]
fn without_a_rate_limit_no_call_waits() {
    let pacer = Pacer::default();

    assert!((0..10_000).all(|_| pacer.too_soon().is_none()));
}

#[test]
fn a_read_that_started_before_a_pause_was_stored_does_not_end_it() {
    let (pacer, now) = (Pacer::default(), DateTime::UNIX_EPOCH);
    let until = now + TimeDelta::hours(1);

    let early = pacer.before_look();
    pacer.close(until);
    pacer.told(until);
    pacer.looked(early, true, false);
    assert_eq!(pacer.closed(now), Some(until));

    let later = pacer.before_look();
    pacer.looked(later, true, false);
    assert_eq!(pacer.closed(now), None, "somebody let go of it");
}

#[test]
fn a_read_that_started_before_an_unknown_outcome_does_not_reset_it() {
    let pacer = Pacer::default();
    let unknown = Lately {
        astray: 1,
        ..Lately::default()
    };

    let early = pacer.before_look();
    pacer.count(unknown, false, 50);
    pacer.looked(early, true, false);
    assert!(pacer.probes());

    pacer.looked(pacer.before_look(), true, false);
    assert!(!pacer.probes());
}

#[test]
fn calls_run_one_at_a_time_until_the_provider_accepts_enough() {
    let pacer = Pacer::default();
    let now = DateTime::UNIX_EPOCH;
    let record = |times: u32, none_taken: bool| {
        for _ in 0..times {
            let verdicts = Verdicts {
                none_taken,
                ..Verdicts::default()
            };
            pacer.heard(&verdicts, TimeDelta::seconds(1), now);
        }
        pacer.width(3)
    };

    assert_eq!(pacer.width(3), 1);
    assert_eq!(record(9, false), 1);
    assert_eq!(record(1, false), 2);
    assert_eq!(record(10, false), 3);
    assert_eq!(record(30, false), 3, "and never more than are allowed");
    assert_eq!(record(1, true), 1);
    assert_eq!(record(10, false), 2);
}

#[test]
fn a_call_of_deferred_emails_does_not_change_the_concurrency() {
    let pacer = Pacer::default();
    let now = DateTime::UNIX_EPOCH;
    let record = |times: u32, all_deferred: bool| {
        for _ in 0..times {
            let verdicts = Verdicts {
                all_deferred,
                ..Verdicts::default()
            };
            pacer.heard(&verdicts, TimeDelta::seconds(1), now);
        }
        pacer.width(3)
    };

    assert_eq!(record(30, true), 1);
    assert_eq!(record(9, false), 1);
    assert_eq!(record(30, true), 1);
    assert_eq!(record(1, false), 2);
    assert_eq!(record(30, true), 2);
    assert_eq!(pacer.closed(now), None);
}
