//! Laws of what is said of events: kept once an event, as it was.

use serde_json::json;
use tidings::domain::details::Actor;
use tidings::domain::{Details, Fanout};
use tidings::store::Accepted;

use crate::support::*;

pub async fn what_is_said_of_an_event_comes_back_as_it_was(store: Fresh) {
    let odd = json!({"$set": {"a.b": null}, "": [1, -2.5, "\u{0}", {"$oid": "x"}]});
    let said = Details {
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
        Fanout {
            details: Some(said.clone()),
            ..fanout(1)
        },
        fanout(2),
        Fanout {
            details: None,
            ..fanout(3)
        },
    ];
    store.accept(&all).await.unwrap();

    let ids = [4, 3, 1, 2, 1].map(|n| fanout(n).id);
    let details = store.details(&ids).await.unwrap();
    let again = store.accept(&all).await.unwrap();
    let nothing = store.details(&[]).await.unwrap();

    let second = fanout(2).details;
    assert_eq!(
        details,
        [None, None, Some(said.clone()), second, Some(said)]
    );
    for (fanout, again) in all.into_iter().zip(again) {
        assert_eq!(again, Accepted::Known(Box::new(fanout)));
    }
    assert_eq!(nothing, []);
}
