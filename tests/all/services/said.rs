//! Event details: the actor and the text are shown in digests, batches and feeds.

use tidings::domain::details::Actor;
use tidings::domain::{Details, EventType};
use tidings::engine::NoProgress;
use tidings::engine::feed;
use tidings::engine::ingest::NewEvent;

use crate::support::town::{Town, monday, mostly_on_sqlite, request, to};
use crate::support::{FailingStore, Fresh, user};

mostly_on_sqlite! {
    actor_and_text_are_in_digests_and_immediate_emails
    an_actor_with_only_an_id_gets_the_name_from_the_user_record
}

async fn actor_and_text_are_in_digests_and_immediate_emails(fresh: Fresh) {
    let town = Town::found(&fresh, true, "types.Comment.route = \"immediate\"\n").await;
    let event = |object: &str, kind: &str, text: &str| NewEvent {
        kind: EventType::stored(kind),
        details: Details {
            actor: Some(Actor { name: Some("Ben".into()), ..Actor::bare(user("ben")) }),
            text: Some(text.into()),
            ..Details::default()
        },
        ..request(&[object], to(&["ada"]), None)
    };
    let events = vec![
        event("a1", "ArtworkPublished", "on show <b>until</b> May"),
        event("a2", "Comment", "line 3 is too high"),
    ];

    let app = town.process();
    app.notify().accept(events).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
    town.clock.advance(chrono::TimeDelta::minutes(10));
    app.worker().round(&mut None, &NoProgress).await.unwrap();
    town.digests_at(monday(0)).await;

    let emails = town.emails();
    let holds = |n: usize, html: &str, text: &str| {
        let filled = emails[n].fill_links();
        assert!(filled.html.contains(html), "{}", filled.html);
        assert!(filled.text.contains(text), "{}", filled.text);
    };
    assert_eq!(emails.len(), 2);
    holds(0, "Ben", "Ben");
    holds(0, "“line 3 is too high”", "“line 3 is too high”");
    holds(1, "“on show &lt;b&gt;until&lt;/b&gt; May”", "“on show <b>until</b> May”");
}

async fn an_actor_with_only_an_id_gets_the_name_from_the_user_record(fresh: Fresh) {
    let config = "[types.Comment]\nroute = \"batch\"\nphrase = \"commented on\"\n";
    let town = Town::found(&fresh, true, config).await;
    let actors = [("ben", "Ben Bly"), ("cem", "Cem Can"), ("dee", "Dee Dow")];
    for (id, name) in actors {
        town.change(id, |user| user.name = Some(name.into())).await;
    }
    let comment = |(id, object): (&str, &str)| NewEvent {
        kind: EventType::stored("Comment"),
        details: Details { actor: Some(Actor::bare(user(id))), ..Details::default() },
        ..request(&[object], to(&["ada"]), None)
    };
    let events = [("ben", "a1"), ("cem", "a2"), ("dee", "a3")].map(comment);

    let app = town.process();
    app.notify().accept(events.into()).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
    let page = async |limit| {
        let counting = FailingStore::counting(fresh.handle());
        let app = town.process_on(&(counting.clone() as std::sync::Arc<dyn tidings::store::Store>));
        let request = feed::FeedRequest {
            user: user("ada"),
            query: tidings::domain::feed_page::FeedQuery::default(),
            limit,
            accepts_cached: false,
        };
        let page = app.feeds().page(&request).await.unwrap().answer;
        let names = page.items.into_iter().map(|item| {
            let details = item.details.unwrap();
            details.actor.clone().unwrap().name.unwrap()
        });
        (names.collect::<Vec<_>>(), counting.calls())
    };
    let (one, all) = (page(1).await, page(3).await);
    town.clock.advance(chrono::TimeDelta::days(1));
    app.worker().round(&mut None, &NoProgress).await.unwrap();

    assert_eq!(all.0, ["Dee Dow", "Cem Can", "Ben Bly"]);
    assert_eq!(one.1, all.1, "the records are read by one call");
    let [email] = &town.emails()[..] else { panic!("{:?}", town.emails().len()) };
    for (_, name) in actors {
        assert!(email.fill_links().text.contains(name), "{}", email.fill_links().text);
    }
}
