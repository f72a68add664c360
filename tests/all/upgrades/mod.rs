//! Data of earlier versions can be read and used as if this version had written it.
//!
//! A program of each version wrote its file, except for a row of a crashed worker, the memories of
//! the accumulator of schema 10, and the files `…_15`, which were derived from earlier ones. On
//! Saturday, 19 April 2014, events about a1, a2 and the withdrawn a9 reach all users. On Sunday cem
//! and fay get a digest, and fay's stays `unknown`. Then an event about a3 is pushed, and one about
//! a4 accepted. [`Story`] lists the differences.

mod mongo;
mod sqlite;

use std::sync::Arc;

use tidings::domain::DeliveryState;
use tidings::email::Resolution;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::store::Store;

use crate::support::town::{Town, monday};
use crate::support::{Shorthand, feed_of, user};

const CONFIG: &str = r#"
delivery.chunk = 100
types.Commented.route = "batch"
types.Commented.window = "5m"
"#;

/// How the data of a version differs.
struct Story {
    /// Whether ada has an open batch with a comment on a5.
    batch: bool,
    /// Whether the unfinished fan-out of a4 has already been pushed.
    pushed: bool,
}

/// From Monday morning on, no stored event is lost or emailed twice.
async fn assert_usable(store: Arc<dyn Store>, story: Story) {
    let town = Town::on(store, Resolution::Repeat { within: None }, CONFIG);
    town.clock.set(monday(0));
    assert_readable(&town, &story).await;

    let app = town.process();
    app.fanouts().drain(&NoProgress).await.unwrap();
    app.batches().drain(&NoProgress).await.unwrap();
    let report = town.digests_at(monday(0)).await;

    // The call of fay's first email is not known, so its delivery stays `unknown` and is not
    // repeated.
    let fay = town.deliveries_of("fay").await;
    let states: Vec<DeliveryState> = fay.iter().map(|row| row.state).collect();
    assert_eq!(states, [DeliveryState::Sent, DeliveryState::Unknown]);
    assert!(report.emails.bad_stacks.is_empty() && report.emails.failed == 0);
    assert_eq!(town.emailed_to("ada"), ["a1", "a2", "a3", "a4"]);
    assert_eq!(town.emailed_to("cem"), ["a3", "a4"]);
    assert_eq!(town.emailed_to("fay"), ["a3", "a4"]);
    let of_batch = usize::from(story.batch);
    assert_eq!(town.emailed().len(), 4 + 2 + 2 + of_batch, "{:?}", town.emailed());
    assert_eq!(town.emails().len(), 3 + of_batch);
    let again = town.digests_at(monday(0) + chrono::TimeDelta::days(1)).await;
    assert_eq!((again.emails.settled(), again.emails.deferred), (0, 0));
}

/// Feeds, digests and records show the same content as in the version that wrote them.
async fn assert_readable(town: &Town, story: &Story) {
    let app = town.process();
    let request = feed_of(&user("ada"));
    let page = app.feeds().page(&request).await.unwrap();
    let items = page.answer.items.iter();
    let shown: Vec<&str> = items.map(|item| item.object_id.as_str()).collect();
    let expected = match (story.batch, story.pushed) {
        (true, true) => vec!["a4", "a5", "a3", "a2", "a1"],
        (true, false) => vec!["a5", "a3", "a2", "a1"],
        (false, true) => vec!["a4", "a3", "a2", "a1"],
        (false, false) => vec!["a3", "a2", "a1"],
    };
    assert_eq!(shown, expected);
    let dry_run = DigestRequest { dry_run: true, ..DigestRequest::default() };
    let due = app.digests().run(&dry_run, &NoProgress).await.unwrap();
    let events = if story.pushed { 10 } else { 7 };
    assert_eq!(due.due.users, 3);
    assert_eq!(due.due.events, events);
    assert_eq!(due.users.scanned, 5);
    let ada = app.explain().user(&user("ada"), None).await.unwrap();
    assert_eq!(ada.events.len(), shown.len() + 1, "a9 is withdrawn");
    let record = town.store.user_record(&user("ada")).await;
    let record = record.unwrap();
    assert_eq!(record.name.as_deref(), Some("Ada"));
    assert!(record.loc.is_some() && record.tz == Some(chrono_tz::Tz::Europe__Lisbon));
    assert_eq!(record.types.len(), 1);
}
