//! Contract tests of `Journal` for claims and progress: one owner works on a fan-out, and another
//! can continue it.

use std::collections::BTreeSet;

use chrono::{DateTime, Utc};
use tidings::domain::{Audience, Fanout, FanoutCounts, FanoutProgress, FanoutState, Point};
use tidings::store::{ClaimLimit, LeasesToEnd};

use crate::support::*;

pub(super) fn soon() -> DateTime<Utc> {
    noon() + minutes(1)
}

pub(super) async fn accept(store: &Fresh, numbers: impl IntoIterator<Item = u32>) {
    let fanouts: Vec<_> = numbers.into_iter().map(fanout).collect();
    store.accept(&fanouts).await.unwrap();
}

/// Leases fan-outs with audiences of any size.
pub(super) async fn claim(
    store: &Fresh,
    owner: &str,
    now: DateTime<Utc>,
    until: DateTime<Utc>,
    most: impl Into<ClaimLimit>,
) -> Vec<Fanout> {
    let claimed = store.claim_fanouts(&lease(owner, until), now, most.into()).await;
    claimed.unwrap().fanouts
}

fn ids(fanouts: &[Fanout]) -> Vec<tidings::domain::Id> {
    fanouts.iter().map(|fanout| fanout.id).collect()
}

pub(super) fn progress(cursor: &str, people: u64, done: bool) -> FanoutProgress {
    FanoutProgress {
        cursor: Some(user(cursor)),
        counts: FanoutCounts { people, pushed: 2 * people, capped: 1 },
        done,
    }
}

/// Saves the progress of the nth fan-out, as the owner `one`. Returns whether it was saved.
async fn save(store: &Fresh, until: DateTime<Utc>, n: u32, progress: FanoutProgress) -> Vec<bool> {
    let saved = store.save_fanouts(&lease("one", until), &[(id(n), progress)]).await;
    saved.unwrap()
}

pub async fn fan_outs_are_claimed_oldest_first_up_to_the_limit(store: Fresh) {
    accept(&store, [3, 1, 2, 5, 4]).await;

    let first = claim(&store, "one", noon(), soon(), 2).await;
    let rest = claim(&store, "one", noon(), soon(), 10).await;

    assert_eq!(ids(&first), [id(1), id(2)]);
    assert_eq!(ids(&rest), [id(3), id(4), id(5)]);
    assert_eq!(first[0], Fanout { lease: Some(lease("one", soon())), ..fanout(1) });
}

pub async fn small_fan_outs_are_claimed_together_up_to_a_large_one(store: Fresh) {
    let to = |n: u32, audience| Fanout { audience, ..fanout(n) };
    let long = |n: usize| user(&format!("{}{n:03}", "é".repeat(126)));
    let named = |count| Audience::users(people(count)).unwrap();
    let with_long_ids = Audience::users((0..16).map(long)).unwrap();
    let near = Audience::near(Point::new(1.0, 2.0).unwrap(), 1.0).unwrap();
    let all = [
        to(1, named(17)),
        to(2, named(16)),
        to(3, with_long_ids.except((16..32).map(long))),
        to(4, named(1).except(people(16))),
        to(5, named(17)),
        fanout(6),
        to(7, Audience::followers_of([key("artist:7")]).unwrap()),
        fanout(8),
        to(9, near),
        fanout(10),
        to(11, named(1).except(people(17))),
        fanout(12),
        fanout(13),
        fanout(14),
    ];
    store.accept(&all).await.unwrap();
    let claim = async |any, small| {
        let most = ClaimLimit { any, small };
        ids(&claim(&store, "one", noon(), soon(), most).await)
    };

    // The claim takes one fan-out of any size and ends before the next large audience.
    assert_eq!(claim(1, 100).await, [1, 2, 3, 4].map(id));
    assert_eq!(claim(1, 100).await, [5, 6].map(id));
    assert_eq!(claim(1, 100).await, [7, 8].map(id));
    assert_eq!(claim(1, 100).await, [9, 10].map(id));
    // The claim takes at most `small` further fan-outs.
    assert_eq!(claim(1, 2).await, [11, 12, 13].map(id));
    assert_eq!(claim(1, 2).await, [id(14)]);
    assert_eq!(claim(1, 2).await, []);
}

/// There are more fan-outs than one step of the claim reads.
pub async fn very_many_small_fan_outs_are_claimed_together(store: Fresh) {
    accept(&store, 1..=300).await;
    let named = Audience::users(people(17)).unwrap();
    let last = Fanout { audience: named, ..fanout(301) };
    store.accept(&[last, fanout(302)]).await.unwrap();

    let most = ClaimLimit { any: 1, small: 2_000 };
    let claimed = claim(&store, "one", noon(), soon(), most).await;

    let expected: Vec<_> = (1..=300).map(id).collect();
    assert_eq!(ids(&claimed), expected);
}

pub async fn progress_without_a_cursor_keeps_the_saved_cursor(store: Fresh) {
    accept(&store, [1]).await;
    claim(&store, "one", noon(), soon(), 1).await;
    let page = [(id(1), progress("m", 3, false))];
    store.save_fanouts(&lease("one", soon()), &page).await.unwrap();

    let last = FanoutProgress { cursor: None, ..progress("m", 5, true) };
    save(&store, soon(), 1, last).await;

    let saved = store.fanout(id(1)).await.unwrap().unwrap();
    assert_eq!(saved.progress, progress("m", 5, true));
}

pub async fn a_leased_fan_out_is_not_claimed_until_its_lease_expires(store: Fresh) {
    accept(&store, [1, 2]).await;
    claim(&store, "one", noon(), soon(), 1).await;

    let other = claim(&store.second(), "two", noon(), noon() + minutes(9), 10).await;
    let again = claim(&store, "one", noon(), soon(), 10).await;
    let later = claim(&store, "two", noon() + minutes(2), noon() + minutes(9), 10).await;

    assert_eq!(ids(&other), [id(2)]);
    assert_eq!(ids(&again), []);
    assert_eq!(ids(&later), [id(1)], "its lease has run out, the other's has not");
    assert_eq!(later[0].lease, Some(lease("two", noon() + minutes(9))));
}

pub async fn concurrent_claims_of_fan_outs_never_overlap(store: Fresh) {
    accept(&store, 0..60).await;

    let claim_all = |store: Fresh, n: u32| async move {
        let owner = format!("owner {n}");
        let mut held = Vec::new();
        loop {
            let claimed = claim(&store, &owner, noon(), soon(), 3).await;
            if claimed.is_empty() {
                return held;
            }
            held.extend(ids(&claimed));
        }
    };
    let held = store.at_once(8, claim_all).await.concat();

    let each: BTreeSet<_> = held.iter().copied().collect();
    assert_eq!((held.len(), each.len()), (60, 60));
}

pub async fn saving_progress_extends_the_lease(store: Fresh) {
    accept(&store, [1, 2]).await;
    claim(&store, "one", noon(), soon(), 10).await;

    let until = noon() + minutes(30);
    let saved = save(&store, until, 2, progress("ü", 7, false)).await;

    assert_eq!(saved, [true]);
    let expected =
        Fanout {
            lease: Some(lease("one", until)), progress: progress("ü", 7, false), ..fanout(2)
        };
    assert_eq!(store.fanout(id(2)).await.unwrap(), Some(expected));
    let later = claim(&store, "two", noon() + minutes(2), until, 10).await;
    assert_eq!(ids(&later), [id(1)]);
}

pub async fn a_new_owner_continues_from_the_saved_progress(store: Fresh) {
    accept(&store, [1]).await;
    claim(&store, "one", noon(), soon(), 10).await;
    save(&store, soon(), 1, progress("m", 7, false)).await;

    let claimed = claim(&store, "two", noon() + minutes(5), noon() + minutes(9), 10).await;

    assert_eq!(claimed[0].progress, progress("m", 7, false));
}

pub async fn a_save_is_rejected_after_the_lease_is_lost(store: Fresh) {
    accept(&store, [1, 2]).await;
    claim(&store, "one", noon(), soon(), 1).await;
    claim(&store, "two", noon() + minutes(5), noon() + minutes(9), 1).await;

    let work = [
        (id(1), progress("m", 1, true)),
        (id(2), progress("m", 1, true)),
        (id(99), progress("m", 1, true)),
    ];
    let saved = store.save_fanouts(&lease("one", noon() + minutes(9)), &work).await.unwrap();

    assert_eq!(saved, [false, false, false], "lost, never held, unknown");
    assert_eq!(store.fanout(id(1)).await.unwrap().unwrap().progress, FanoutProgress::default());
    assert_eq!(store.backlog().await, Backlog { pending: 2, done: 0 });
}

pub async fn saves_are_answered_in_the_order_of_the_request(store: Fresh) {
    accept(&store, [1, 2, 3]).await;
    claim(&store, "two", noon(), soon(), 1).await;
    claim(&store, "one", noon(), soon(), 2).await;

    let work = [3, 1, 2].map(|n| (id(n), progress("m", u64::from(n), false)));
    let saved = store.save_fanouts(&lease("one", soon()), &work).await.unwrap();

    assert_eq!(saved, [true, false, true]);
    assert_eq!(store.fanout(id(3)).await.unwrap().unwrap().progress, progress("m", 3, false));
    assert!(store.save_fanouts(&lease("one", soon()), &[]).await.unwrap().is_empty());
}

pub async fn a_finished_fan_out_leaves_the_backlog_and_is_released(store: Fresh) {
    accept(&store, [1, 2]).await;
    claim(&store, "one", noon(), soon(), 10).await;

    save(&store, soon(), 1, progress("z", 5, true)).await;

    assert_eq!(store.backlog().await, Backlog { pending: 1, done: 1 });
    let done = store.fanout(id(1)).await.unwrap().unwrap();
    assert_eq!((done.state, done.lease), (FanoutState::Done, None));
    let later = claim(&store, "two", noon() + minutes(5), noon() + minutes(9), 10).await;
    assert_eq!(ids(&later), [id(2)], "what is done is not claimed again");
    let again = save(&store, soon(), 1, progress("a", 0, false)).await;
    assert_eq!(again, [false]);
    assert_eq!(store.fanout(id(1)).await.unwrap().unwrap().progress, progress("z", 5, true));
}

pub async fn a_released_fan_out_can_be_claimed_at_once(store: Fresh) {
    accept(&store, [1, 2, 3]).await;
    claim(&store, "two", noon(), soon(), 1).await;
    claim(&store, "one", noon(), soon(), 10).await;
    save(&store, soon(), 2, progress("m", 1, false)).await;

    store.release(&LeasesToEnd::Fanouts("one")).await.unwrap();
    store.release(&LeasesToEnd::Fanouts("nobody")).await.unwrap();

    assert_eq!(store.fanout(id(2)).await.unwrap().unwrap().lease, None);
    let claimed = claim(&store, "three", noon(), soon(), 10).await;
    assert_eq!(ids(&claimed), [id(2), id(3)], "what others hold stays theirs");
    assert_eq!(claimed[0].progress, progress("m", 1, false));
}

pub async fn busy_days_are_those_with_pending_fan_outs(store: Fresh) {
    let on = |n, back| Fanout { day: today().days_before(back), ..fanout(n) };
    store.accept(&[on(1, 3), on(2, 0), on(3, 3), on(4, 5)]).await.unwrap();
    claim(&store, "one", noon(), soon(), 10).await;
    store
        .save_fanouts(
            &lease("one", soon()),
            &[(id(1), progress("z", 1, true)), (id(4), progress("z", 1, true))],
        )
        .await
        .unwrap();

    let busy = store.pending(usize::MAX).await.unwrap().days;

    assert_eq!(busy, [today().days_before(3), today()], "each once");
}

pub async fn an_empty_journal_has_no_work(store: Fresh) {
    assert!(store.accept(&[]).await.unwrap().is_empty());

    assert!(claim(&store, "one", noon(), soon(), 10).await.is_empty());
    assert!(store.pending(usize::MAX).await.unwrap().days.is_empty());
    assert_eq!(store.backlog().await, Backlog::default());
}
