//! Contract tests of `Objects` for retractions: the latest retraction of each (type, object) wins.

use chrono::TimeDelta;
use futures::StreamExt;
use tidings::domain::{
    Audience, ChangeNotice, Event, Fanout, FanoutProgress, Id, ObjectId, Retraction,
};
use tidings::store::ExpiringRecords;

use crate::support::{Fresh, fanout, id, kind, lease, minutes, noon, user};

fn event(t: &str, o: &str) -> Event {
    Event { kind: kind(t), object: ObjectId::stored(o), fanout_id: None }
}

fn retraction(t: &str, o: &str, at: Id) -> Retraction {
    let Event { kind, object, .. } = event(t, o);
    Retraction { kind, object, at }
}

fn no_objects() -> ChangeNotice {
    ChangeNotice::objects([])
}

pub async fn retractions_are_returned_in_the_order_of_the_request(store: Fresh) {
    let odd = "o 1\u{1}$x.y";
    let all = [
        retraction("Loan", "o1", id(1)),
        retraction("Loan", odd, id(2)),
        retraction("Gift", "o1", id(3)),
    ];
    store.retract(&all, &no_objects()).await.unwrap();
    store.retract(&[], &no_objects()).await.unwrap();

    let requested = [
        event("Gift", "o1"),
        event("Gift", odd),
        event("Loan", "o1"),
        event("Loan", odd),
        event("Gift", "o1"),
    ];
    let found = store.retractions(&requested).await.unwrap();
    let nothing = store.retractions(&[]).await.unwrap();

    let expected = [Some(id(3)), None, Some(id(1)), Some(id(2)), Some(id(3))];
    assert_eq!(found, expected);
    assert_eq!(nothing, []);
}

pub async fn the_latest_retraction_wins_in_any_order(store: Fresh) {
    for at in [id(2), id(5), id(3)] {
        let one = retraction("Loan", "o1", at);
        store.retract(&[one], &no_objects()).await.unwrap();
    }

    let found = store.retractions(&[event("Loan", "o1")]).await.unwrap();

    assert_eq!(found, [Some(id(5))]);
}

pub async fn the_latest_of_concurrent_retractions_wins(store: Fresh) {
    let retract = |n: u32| {
        let store = &store;
        async move {
            let one = retraction("Loan", "o1", id(n));
            store.retract(&[one], &no_objects()).await.unwrap();
        }
    };

    futures::future::join_all([7, 3, 11, 1, 9, 5].map(retract)).await;

    let found = store.retractions(&[event("Loan", "o1")]).await.unwrap();
    assert_eq!(found, [Some(id(11))]);
}

pub async fn a_retraction_sends_its_change_notice(store: Fresh) {
    let mut notices = store.change_notices().await.unwrap();
    assert_eq!(notices.next().await.unwrap().unwrap(), ChangeNotice::All);
    let about = ChangeNotice::objects(["Artwork:1"]);

    let one = retraction("Loan", "1", id(1));
    store.retract(&[one], &about).await.unwrap();

    loop {
        let notice = notices.next().await.unwrap().unwrap();
        if notice == about {
            break;
        }
    }
}

pub async fn old_retractions_are_removed_in_small_steps(store: Fresh) {
    let at = |minute: i64| Id::at(noon() + minutes(minute), [1; 8]);
    let all = [
        retraction("Loan", "o1", at(0)),
        retraction("Loan", "o2", at(1)),
        retraction("Loan", "o3", at(2)),
    ];
    store.retract(&all, &no_objects()).await.unwrap();

    let before = noon() + minutes(2);
    let forget = || store.forget(ExpiringRecords::Retractions, before, 1);
    let forgotten = [forget().await.unwrap(), forget().await.unwrap(), forget().await.unwrap()];

    assert_eq!(forgotten, [1, 1, 0]);
    let requested = ["o1", "o2", "o3"].map(|o| event("Loan", o));
    let remaining = store.retractions(&requested).await.unwrap();
    assert_eq!(remaining, [None, None, Some(at(2))]);
}

pub async fn old_events_are_removed_once_their_fan_out_is_done(store: Fresh) {
    let long_ago = |n: u32| Fanout {
        id: Id::at(noon() - TimeDelta::days(100) + minutes(n.into()), [n as u8; 8]),
        audience: Audience::users([user("ada")]).unwrap(),
        ..fanout(n)
    };
    let (done, pending, later) = ([long_ago(1), long_ago(2)], long_ago(3), fanout(4));
    store.accept(&done).await.unwrap();
    let held = lease("w1", noon() + minutes(5));
    let claimed = store.claim_fanouts(&held, noon(), 10.into());
    assert_eq!(claimed.await.unwrap().fanouts.len(), 2);
    let progress = FanoutProgress { done: true, ..FanoutProgress::default() };
    let saved = done.each_ref().map(|one| (one.id, progress.clone()));
    store.save_fanouts(&held, &saved).await.unwrap();
    store.accept(&[pending.clone(), later.clone()]).await.unwrap();

    let before = noon() - TimeDelta::days(60);
    let forget = || store.forget(ExpiringRecords::Events, before, 1);
    let forgotten = [forget().await.unwrap(), forget().await.unwrap(), forget().await.unwrap()];

    assert_eq!(forgotten, [1, 1, 0]);
    for one in &done {
        assert_eq!(store.fanout(one.id).await.unwrap(), None);
    }
    let ids = done.each_ref().map(|one| one.id);
    assert_eq!(store.details(&ids).await.unwrap(), [None, None]);
    assert!(store.fanout(pending.id).await.unwrap().is_some());
    assert!(store.fanout(later.id).await.unwrap().is_some());
}
