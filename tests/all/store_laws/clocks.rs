//! Contract tests of all leases: one from a clock that runs too far ahead counts as expired, and
//! one of a valid length does not.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::DeliveryState;
use tidings::domain::coordination::DIGEST_SCAN_LEASE;
use tidings::domain::delivery::Deferral;
use tidings::domain::schedule::SCAN_INTERVAL;

use super::batches::{opened, put};
use crate::support::*;

fn days(days: i64) -> TimeDelta {
    TimeDelta::days(days)
}

/// The time one minute after noon on a clock that runs ahead by `by`.
fn ahead(by: TimeDelta) -> DateTime<Utc> {
    noon() + by + minutes(1)
}

pub async fn a_lease_from_a_clock_ahead_is_free(store: Fresh) {
    for (name, valid, too_long) in
        [("call:1", minutes(60), days(1)), (DIGEST_SCAN_LEASE, SCAN_INTERVAL, minutes(60))]
    {
        let acquire = async |who: &str, until: DateTime<Utc>, now: DateTime<Utc>| {
            let store = store.second();
            store.lease(name, &lease(who, until), now).await.unwrap()
        };
        assert!(acquire("wrong", ahead(too_long), noon() + too_long).await);

        assert!(acquire("right", ahead(minutes(0)), noon()).await, "{name}");

        let (later, until) = (noon() + minutes(2), noon() + minutes(2) + valid);
        assert!(acquire("right", until, later).await);
        assert!(!acquire("other", until, later).await, "{name}");
    }
}

pub async fn a_fan_out_leased_by_a_clock_ahead_can_be_claimed(store: Fresh) {
    store.accept(&[fanout(1)]).await.unwrap();
    let claim = async |who: &str, now: DateTime<Utc>, lasts: TimeDelta| {
        let store = store.second();
        let claimed = store.claim_fanouts(&lease(who, now + lasts), now, 10.into()).await;
        claimed.unwrap().fanouts.len()
    };
    assert_eq!(claim("wrong", noon() + days(1), minutes(1)).await, 1);

    assert_eq!(claim("right", noon(), minutes(60)).await, 1);
    assert_eq!(claim("other", noon(), minutes(60)).await, 0);
}

pub async fn a_delivery_leased_or_deferred_by_a_clock_ahead_can_be_claimed(store: Fresh) {
    let until = |by| Some(lease("wrong", ahead(by)));
    let (mut leased, mut deferred, mut ours) = (
        delivery("ada", "2014-04-22", "wrong"),
        delivery("ben", "2014-04-22", "wrong"),
        delivery("cem", "2014-04-22", "wrong"),
    );
    (leased.lease, deferred.lease, ours.lease) =
        (until(days(1)), until(days(1)), until(minutes(59)));
    let ids = [leased.id.clone(), deferred.id.clone()];
    store.open(&[leased, deferred, ours]).await.unwrap();
    let put_off = |not_before| Deferral {
        id: ids[1].clone(),
        from: DeliveryState::Sending,
        state: DeliveryState::Pending,
        not_before,
        reason: None,
        has_failed: false,
    };
    let claim = async |who: &str| {
        let store = store.second();
        let claimed = store.take(who, noon(), noon() + minutes(5), 10).await;
        let users = claimed.into_iter().map(|row| row.user.to_string());
        users.collect::<Vec<_>>()
    };
    let defer = async |who: &str, not_before| {
        let requested = [put_off(not_before)];
        assert_eq!(store.defer(who, &requested).await, [true]);
    };

    defer("wrong", ahead(days(1))).await;
    assert_eq!(claim("right").await, ["ada", "ben"]);

    // A provider may ask for a retry as late as tomorrow.
    defer("right", noon() + TimeDelta::hours(23)).await;
    assert_eq!(claim("other").await, [""; 0]);
}

pub async fn an_accumulator_leased_by_a_clock_ahead_is_due(store: Fresh) {
    let due = async || {
        let due = store.second().due_accumulators(noon() + minutes(9), 10).await;
        due.len()
    };
    let mut accumulator = opened("ada", "k", 1, 0);
    accumulator.lease = Some(lease("wrong", ahead(days(1))));
    assert!(put(&store, &accumulator, 50).await);
    assert_eq!(due().await, 1);

    accumulator.revision = Some(id(50));
    accumulator.lease = Some(lease("right", ahead(minutes(60))));
    assert!(put(&store, &accumulator, 51).await);
    assert_eq!(due().await, 0);
}
