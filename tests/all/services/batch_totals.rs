//! Tests that a batch email has exact totals when it excludes events, even if more events joined
//! than the batch keeps.

use chrono::TimeDelta;
use tidings::domain::{Object, ObjectId};
use tidings::engine::NoProgress;

use crate::support::town::{Town, mostly_on_sqlite, to};
use crate::support::{Fresh, kind};

mostly_on_sqlite! {
    a_batch_email_counts_exactly_the_events_that_apply
}

/// The fates of twelve comments on one budget: ` ` applies, `u` is an unknown object, `w` is
/// withdrawn, and `r` is retracted while the batch is open.
const COMMENTS: [&str; 5] =
    ["            ", "uu          ", "       uwr  ", "uwr  uwruwr ", "r    u     w"];

async fn a_batch_email_counts_exactly_the_events_that_apply(fresh: Fresh) {
    let config = r#"
        types.ArtworkPublished.route = "batch"
        types.ArtworkPublished.window = "5m"
        types.ArtworkPublished.keep = "first 10"
        types.ArtworkPublished.phrase = "commented on"
    "#;
    let town = Town::found(&fresh, true, config).await;
    let comments = |round: usize, fates: &'static str| {
        let id = move |(n, fate)| (format!("r{round}c{n}"), fate);
        fates.chars().enumerate().map(id)
    };
    let mut subjects = Vec::new();
    for (round, fates) in COMMENTS.into_iter().enumerate() {
        let put = comments(round, fates).filter(|(_, fate)| *fate != 'u');
        let put = put.map(|(id, fate)| Object {
            title: Some("Budget".into()),
            by: Some("Ada".into()),
            notifiable: fate != 'w',
            ..Object::without_data(id.parse().unwrap())
        });
        let put: Vec<Object> = put.collect();
        town.store.put_objects(&put).await.unwrap();
        let ids: Vec<String> = comments(round, fates).map(|(id, _)| id).collect();
        let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
        town.happens(&ids, to(&["ada"])).await;
        let retracted = comments(round, fates).filter(|(_, fate)| *fate == 'r');
        let retracted: Vec<ObjectId> = retracted.map(|(id, _)| ObjectId::stored(id)).collect();
        let app = town.process();
        if !retracted.is_empty() {
            let kind = kind("ArtworkPublished");
            app.objects().retract(&kind, &retracted).await.unwrap();
        }
        town.clock.advance(TimeDelta::minutes(5));
        app.batches().drain(&NoProgress).await.unwrap();
        let sender = app.sender();
        sender.drain().await.unwrap();
        let email = town.emails().pop().unwrap().fill_links();
        let apply = fates.chars().filter(|fate| *fate == ' ').count() as u64;
        assert_eq!(sender.ledger.tally.snapshot().events, apply, "{fates:?}");
        let more = format!("{} more on Budget", apply.min(10).saturating_sub(5));
        assert_eq!(email.text.contains(&more), apply > 5, "{fates:?}: {}", email.text);
        subjects.push(email.subject);
    }

    assert_eq!(
        subjects,
        [
            "Ada commented on Budget 10 times, and 2 more",
            "Ada commented on Budget 10 times",
            "Ada commented on Budget 9 times",
            "Ada commented on Budget 3 times",
            "Ada commented on Budget 9 times",
        ]
    );
}
