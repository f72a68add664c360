//! What is said of an event is shown wherever the event is.

use tidings::domain::details::Actor;
use tidings::domain::{Details, EventType};
use tidings::services::Silent;
use tidings::services::notify::Request;

use crate::support::town::{Town, monday, on_both_stores, request, to};
use crate::support::{Fresh, user};

on_both_stores! {
    what_was_said_is_in_the_digest_and_in_the_batch
}

async fn what_was_said_is_in_the_digest_and_in_the_batch(fresh: Fresh) {
    let town = Town::found(&fresh, true, "types.Comment.route = \"immediate\"\n").await;
    let said = |object: &str, kind: &str, text: &str| Request {
        kind: EventType::stored(kind),
        details: Details {
            actor: Some(Actor {
                name: Some("Ben".into()),
                ..Actor::bare(user("ben"))
            }),
            text: Some(text.into()),
            ..Details::default()
        },
        ..request(&[object], to(&["ada"]), None)
    };
    let events = vec![
        said("a1", "ArtworkPublished", "on show <b>until</b> May"),
        said("a2", "Comment", "line 3 is too high"),
    ];

    let app = town.process();
    app.notify().accept(events).await.unwrap();
    app.fanouts().drain(&Silent).await.unwrap();
    town.clock.advance(chrono::TimeDelta::minutes(10));
    app.worker().round(&mut None, &Silent).await.unwrap();
    town.digests_at(monday(0)).await;

    let mails = town.mails();
    let holds = |n: usize, html: &str, text: &str| {
        let filled = mails[n].filled();
        assert!(filled.html.contains(html), "{}", filled.html);
        assert!(filled.text.contains(text), "{}", filled.text);
    };
    assert_eq!(mails.len(), 2);
    holds(0, "Ben", "Ben");
    holds(0, "“line 3 is too high”", "“line 3 is too high”");
    holds(
        1,
        "“on show &lt;b&gt;until&lt;/b&gt; May”",
        "“on show <b>until</b> May”",
    );
}
