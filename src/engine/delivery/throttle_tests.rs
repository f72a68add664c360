//! Tests of call rates, slots and waits.

use std::time::Duration;

use super::*;

#[tokio::test]
async fn calls_start_evenly_and_within_the_rate() {
    let account = ProviderAccount::new("a-".into(), 4, NonZeroU32::new(50));
    let start = std::time::Instant::now();

    for n in 0..6 {
        account.wait_for_rate().await;
        let due = Duration::from_millis(20) * n;
        assert!(start.elapsed() >= due, "call {n}: {:?}", start.elapsed());
    }
}

#[tokio::test]
async fn a_call_that_runs_alone_waits_for_all_others() {
    let account = Arc::new(ProviderAccount::new("a-".into(), 4, None));
    let (first, second) = (account.slot(false).await, account.slot(false).await);
    let other = account.clone();
    let alone = tokio::spawn(async move { other.slot(true).await });

    tokio::task::yield_now().await;
    assert!(!alone.is_finished());

    drop((first, second));
    let alone = alone.await.unwrap();
    assert_eq!(account.slots.available_permits(), 0);
    drop(alone);
    assert_eq!(account.slots.available_permits(), 4);
}

#[test]
fn a_provider_counts_as_reachable_for_a_minute_after_a_definite_answer() {
    let (mut account, now) = (AccountState::default(), DateTime::UNIX_EPOCH);
    let mut record = |has_answer: bool| {
        let call = CallSummary { has_answer, ..CallSummary::default() };
        let wait = account.record_call(&call, TimeDelta::seconds(1), now);
        let minute = now + ANSWER_PROVES_FOR;
        let proven = [now, minute, minute + TimeDelta::seconds(1)];
        (wait, proven.map(|at| account.is_proven(at)))
    };

    assert_eq!(record(true), (None, [true, true, false]));
    assert_eq!(record(false), (None, [false; 3]));
    assert_eq!(record(false), (None, [false; 3]));
    let seconds = |seconds| Some(TimeDelta::seconds(seconds));
    assert_eq!(record(false), (seconds(1), [false; 3]));
    assert_eq!(record(false), (seconds(2), [false; 3]));
    assert_eq!(record(true), (None, [true, true, false]));
}

#[test]
fn only_a_definite_answer_ends_a_row_of_lost_calls() {
    let (mut account, now) = (AccountState::default(), DateTime::UNIX_EPOCH);
    let mut record = |has_answer: bool, lost: Option<&str>| {
        let lost_reason = lost.map(str::to_owned);
        let call = CallSummary { has_answer, lost_reason, ..CallSummary::default() };
        account.record_call(&call, TimeDelta::seconds(1), now);
        account.unshared.lost
    };

    assert_eq!(record(false, Some("cut off")), 1);
    assert_eq!(record(false, None), 1, "a retry delay says nothing");
    assert_eq!(record(false, Some("cut off")), 2);
    assert_eq!(record(true, None), 0);
}
