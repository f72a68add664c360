//! What earlier versions wrote is read and worked on as if this one had written it.
//!
//! The rule: each file here was written by a program of its time, never by hand, but for what a
//! worker leaves that dies between the provider's yes and the ledger, and what the accumulator of
//! schema 10 remembers. All tell one story. On
//! Saturday 19 April 2014 the works a1, a2 and a9, which is withdrawn, are published to everybody;
//! on Sunday cem and fay get their daily digest, and fay's mail is in doubt; a3 is published, and
//! a4 accepted. From schema 5 on ada has an open batch of a comment on a5. On MongoDB a4 is pushed,
//! and the cursor not saved, where programs could die there.

mod mongo;
mod sqlite;

use std::sync::Arc;

use tidings::domain::DeliveryState;
use tidings::email::Certainty;
use tidings::engine::Silent;
use tidings::engine::digest::{Effect, Request};
use tidings::store::Store;

use crate::support::town::{Town, monday};
use crate::support::{feed_of, user};

const CONFIG: &str = r#"
delivery.chunk = 100
types.Commented.route = "batch"
types.Commented.window = "5m"
"#;

/// What the story has come to by Monday morning.
struct Story {
    /// There is an open batch.
    batch: bool,
    /// What stands on the stacks already of the fan-out that is not done.
    pushed: bool,
}

/// Nothing is lost of what stands there, and nothing mailed twice, from Monday morning on.
async fn goes_on(store: Arc<dyn Store>, story: Story) {
    let town = Town::on(store, Certainty::Repeat { within: None }, CONFIG);
    town.clock.set(monday(0));
    reads_as_before(&town, &story).await;

    let app = town.process();
    app.fanouts().drain(&Silent).await.unwrap();
    app.closer().drain(&Silent).await.unwrap();
    let report = town.digests_at(monday(0)).await;

    // Nobody knows which call fay's first mail was in, so it stays in doubt, and is not sent again.
    let fay = town.deliveries_of("fay").await;
    let states: Vec<DeliveryState> = fay.iter().map(|row| row.state).collect();
    assert_eq!(states, [DeliveryState::Sent, DeliveryState::Unknown]);
    assert!(report.mails.bad_stacks.is_empty() && report.mails.failed == 0);
    assert_eq!(town.told_to("ada"), ["a1", "a2", "a3", "a4"]);
    assert_eq!(town.told_to("cem"), ["a3", "a4"]);
    assert_eq!(town.told_to("fay"), ["a3", "a4"]);
    let of_batch = usize::from(story.batch);
    assert_eq!(town.told().len(), 4 + 2 + 2 + of_batch, "{:?}", town.told());
    assert_eq!(town.mails().len(), 3 + of_batch);
    let again = town
        .digests_at(monday(0) + chrono::TimeDelta::days(1))
        .await;
    assert_eq!((again.mails.settled(), again.mails.deferred), (0, 0));
}

/// What stands there shows as it did when its own version looked.
async fn reads_as_before(town: &Town, story: &Story) {
    let app = town.process();
    let request = feed_of(&user("ada"));
    let page = app.feeds().page(&request).await.unwrap();
    let items = page.answer.items.iter();
    let shown: Vec<&str> = items.map(|item| item.object.as_str()).collect();
    let expected = match (story.batch, story.pushed) {
        (true, true) => vec!["a4", "a5", "a3", "a2", "a1"],
        (true, false) => vec!["a5", "a3", "a2", "a1"],
        (false, true) => vec!["a4", "a3", "a2", "a1"],
        (false, false) => vec!["a3", "a2", "a1"],
    };
    assert_eq!(shown, expected);
    let rehearsal = Request {
        effect: Effect::Rehearse,
        ..Request::default()
    };
    let due = app.digests().run(&rehearsal, &Silent).await.unwrap();
    let events = if story.pushed { 10 } else { 7 };
    assert_eq!(due.due.users, 3);
    assert_eq!(due.due.events, events);
    assert_eq!(due.users.scanned, 5);
    let ada = app.explain().user(&user("ada"), None).await.unwrap();
    assert_eq!(ada.events.len(), shown.len() + 1, "a9 is withdrawn");
    let record = town.store.users(&[user("ada")]).await.unwrap().remove(0);
    let record = record.unwrap();
    assert_eq!(record.name.as_deref(), Some("Ada"));
    assert!(record.loc.is_some() && record.tz == Some(chrono_tz::Tz::Europe__Lisbon));
    assert_eq!(record.types.len(), 1);
}
