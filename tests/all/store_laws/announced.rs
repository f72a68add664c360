//! Contract tests of `Journal` for the newest and the oldest pending events, and for long
//! audiences.

use tidings::domain::{Audience, Fanout, FanoutCounts, FanoutProgress, Id};
use tidings::store::Acceptance;

use crate::support::*;

pub async fn the_newest_events_are_returned_first(store: Fresh) {
    store.accept(&[2, 1, 3].map(fanout)).await.unwrap();

    let newest = store.newest(2).await;

    let expected: Vec<Vec<_>> = [3, 2].map(|n| fanout(n).entries_per_user().collect()).into();
    assert_eq!(newest, expected);
    assert_eq!(store.newest(9).await.len(), 3);
}

pub async fn a_long_audience_is_stored_and_claimed_completely(store: Fresh) {
    let to_many_users = |n: u32| {
        let named = (0..100_000).map(|p| user(&format!("{n}{p:0>90}")));
        Fanout { audience: Audience::users(named).unwrap(), ..fanout(n) }
    };
    let (first, second) = (to_many_users(1), to_many_users(2));
    let all = [first.clone(), fanout(3), second.clone()];

    let answers = store.accept(&all).await.unwrap();

    assert!(answers.iter().all(|answer| *answer == Acceptance::New));
    let again = Fanout { key: first.key.clone(), ..to_many_users(4) };
    let known = store.accept(std::slice::from_ref(&again)).await.unwrap().remove(0);
    assert!(known == Acceptance::Duplicate(Box::new(first.clone())));
    assert!(store.fanout(again.id).await.unwrap().is_none());
    let claimed = store.claim_fanouts(&lease("one", noon() + minutes(1)), noon(), 10.into()).await;
    assert!(claimed.unwrap().fanouts.into_iter().map(|one| one.audience).eq([
        first.audience.clone(),
        second.audience,
        fanout(3).audience,
    ]));
    assert!(store.second().fanout(first.id).await.unwrap().unwrap().audience == first.audience);
}

pub async fn the_oldest_pending_event_is_reported_until_it_is_done(store: Fresh) {
    assert_eq!(store.pending(1).await.unwrap().oldest, None);
    let at = |seconds: i64| Id::at(noon() + chrono::TimeDelta::seconds(seconds), [7; 8]);
    let of = |seconds| Fanout { id: at(seconds), key: seconds.to_string(), ..fanout(1) };
    store.accept(&[of(30), of(10), of(20)]).await.unwrap();
    let mut reported = vec![store.pending(1).await.unwrap().oldest];

    for seconds in [10, 30, 20] {
        let claimed =
            store.claim_fanouts(&lease("one", noon() + minutes(1)), noon(), 10.into()).await;
        assert_eq!(claimed.unwrap().bad, []);
        let progress = FanoutProgress { cursor: None, counts: FanoutCounts::default(), done: true };
        let done = [(at(seconds), progress)];
        let saved = store.save_fanouts(&lease("one", noon() + minutes(1)), &done).await.unwrap();
        assert_eq!(saved, [true]);
        reported.push(store.pending(1).await.unwrap().oldest);
    }

    let oldest = [Some(10), Some(20), Some(20), None];
    assert_eq!(reported, oldest.map(|seconds| seconds.map(|seconds| at(seconds).time())));
}
