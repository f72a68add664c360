//! Tests of call rates, concurrency and waits.

use std::time::{Duration, Instant};

use super::*;

#[tokio::test]
async fn calls_start_evenly_and_within_the_rate() {
    let account = ProviderAccount::new("a-".into(), NonZeroU32::new(50));
    let start = Instant::now();

    for n in 0..6 {
        account.wait_for_rate().await;
        let due = Duration::from_millis(20) * n;
        assert!(start.elapsed() >= due, "call {n}: {:?}", start.elapsed());
    }
}

#[test]
fn a_read_that_started_before_a_pause_was_stored_does_not_end_it() {
    let (mut account, now) = (AccountState::default(), DateTime::UNIX_EPOCH);
    let until = now + TimeDelta::hours(1);

    let early = account.shared_wait;
    account.close(until);
    account.shared_wait = Some(until);
    account.end_deleted_wait(early);
    assert_eq!(account.closed(now), Some(until));

    let later = account.shared_wait;
    account.end_deleted_wait(later);
    assert_eq!(account.closed(now), None, "an operator deleted the wait");
}

#[test]
fn a_note_without_lost_calls_does_not_reset_an_unknown_outcome() {
    let mut account = AccountState::default();
    let unknown = RecentOutcomes {
        lost: 1,
        ..RecentOutcomes::default()
    };

    account.count(unknown, false, 50);
    account.noted_lost = false;
    assert!(account.last_is_lost());

    account.count(RecentOutcomes::default(), true, 50);
    assert!(!account.last_is_lost());
}

#[tokio::test]
async fn a_call_waits_until_fewer_calls_run() {
    let account = Arc::new(ProviderAccount::new("a-".into(), None));
    let first = account.slot(|| 1).await;
    let other = account.clone();
    let waiting = tokio::spawn(async move { drop(other.slot(|| 1).await) });

    tokio::task::yield_now().await;
    assert!(!waiting.is_finished());

    drop(first);
    waiting.await.unwrap();
}

#[test]
fn calls_run_one_at_a_time_until_the_provider_accepts_enough() {
    let mut account = AccountState::default();
    let now = DateTime::UNIX_EPOCH;
    let mut record = |times: u32, none_accepted: bool| {
        for _ in 0..times {
            let call = CallSummary {
                none_accepted,
                ..CallSummary::default()
            };
            account.record_call(&call, TimeDelta::seconds(1), now);
        }
        account.width(3)
    };

    assert_eq!(record(0, false), 1);
    assert_eq!(record(9, false), 1);
    assert_eq!(record(1, false), 2);
    assert_eq!(record(10, false), 3);
    assert_eq!(record(30, false), 3, "and never more than are allowed");
    assert_eq!(record(1, true), 1);
    assert_eq!(record(10, false), 2);
}

#[test]
fn a_call_of_deferred_emails_does_not_change_the_concurrency() {
    let mut account = AccountState::default();
    let now = DateTime::UNIX_EPOCH;
    let mut record = |times: u32, all_deferred: bool| {
        for _ in 0..times {
            let call = CallSummary {
                all_deferred,
                ..CallSummary::default()
            };
            account.record_call(&call, TimeDelta::seconds(1), now);
        }
        account.width(3)
    };

    assert_eq!(record(30, true), 1);
    assert_eq!(record(9, false), 1);
    assert_eq!(record(30, true), 1);
    assert_eq!(record(1, false), 2);
    assert_eq!(record(30, true), 2);
    assert_eq!(account.closed(now), None);
}
