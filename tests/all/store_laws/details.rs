//! Contract tests of `Journal` for the details of events: they are stored once and unchanged.

use std::time::Duration;

use futures::StreamExt;
use serde_json::json;
use tidings::domain::details::Actor;
use tidings::domain::{ChangeNotice, Details, Fanout};
use tidings::store::Acceptance;

use crate::support::*;

pub async fn the_details_of_an_event_are_read_back_unchanged(store: Fresh) {
    let odd = json!({"$set": {"a.b": null}, "": [1, -2.5, "\u{0}", {"$oid": "x"}]});
    let full = Details {
        actor: Some(Actor {
            id: user("ben"),
            name: Some("Ben “B”".into()),
            url: Some("https://a.example/ben".into()),
            image: None,
        }),
        text: Some("line 3 is too high \u{202e}\n“so”".into()),
        data: odd.into(),
        reason: Some("follows".into()),
        keys: vec![key("artist:7"), key("$ne")],
        brand: "acme".parse().ok(),
    };
    let all = [
        Fanout { details: Some(full.clone()), ..fanout(1) },
        fanout(2),
        Fanout { details: None, ..fanout(3) },
    ];
    store.accept(&all).await.unwrap();

    let ids = [4, 3, 1, 2, 1].map(|n| fanout(n).id);
    let details = store.details(&ids).await.unwrap();
    let again = store.accept(&all).await.unwrap();
    let nothing = store.details(&[]).await.unwrap();

    let second = fanout(2).details;
    assert_eq!(details, [None, None, Some(full.clone()), second, Some(full)]);
    for (fanout, again) in all.into_iter().zip(again) {
        assert_eq!(again, Acceptance::Duplicate(Box::new(fanout)));
    }
    assert_eq!(nothing, []);
}

pub async fn forgetting_an_actor_changes_only_that_actors_details(store: Fresh) {
    let by = |actor: &str, n: u32| Fanout {
        details: Some(Details {
            actor: Some(Actor { id: user(actor), name: Some("B".into()), url: None, image: None }),
            text: Some(format!("from ben, number {n}")),
            data: json!({"n": n}).into(),
            reason: Some("follows".into()),
            keys: vec![key("artist:7")],
            brand: "acme".parse().ok(),
        }),
        ..fanout(n)
    };
    let all = [by("ben", 1), by("benn", 2), by("ben", 3), by("Ben", 4), fanout(5)];
    store.accept(&all).await.unwrap();
    let ids = all.each_ref().map(|one| one.id);
    let mut notices = store.change_notices().await.unwrap();
    assert_eq!(notices.next().await.unwrap().unwrap(), ChangeNotice::All);

    store.second().delete_user(&user("ben")).await.unwrap();
    let notice = async { while notices.next().await.unwrap().unwrap() != ChangeNotice::All {} };
    let notice = tokio::time::timeout(Duration::from_secs(30), notice);
    notice.await.expect("no change notice");
    let details = store.details(&ids).await.unwrap();
    store.delete_user(&user("ben")).await.unwrap();

    let mut expected = all.map(|one| one.details);
    for n in [0, 2] {
        let forgotten = expected[n].as_mut().unwrap();
        (forgotten.actor, forgotten.text) = (None, None);
        forgotten.data = Details::default().data;
    }
    assert_eq!(details, expected);
    assert_eq!(store.details(&ids).await.unwrap(), expected);
}
