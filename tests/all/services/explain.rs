//! What an operator is told of a person.

use chrono::TimeDelta;
use tidings::services::explain::Why;

use crate::support::town::{Town, monday, on_both_stores, to};
use crate::support::{Fresh, user};

on_both_stores! {
    what_was_withdrawn_is_told_by_its_title
    a_digest_that_is_due_already_is_said_to_be
}

async fn a_digest_that_is_due_already_is_said_to_be(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    let told = async || {
        let told = town.process().explain().user(&user("ada"), None).await;
        told.unwrap().next_due.unwrap()
    };
    let half_an_hour = TimeDelta::minutes(30);

    let before = told().await;
    town.clock.set(monday(0));
    let due = told().await;
    town.digests_at(monday(0)).await;
    let after = told().await;

    assert_eq!(before, monday(0) - half_an_hour);
    assert_eq!(due, before, "nobody has mailed it yet");
    assert_eq!(after, monday(1) - half_an_hour);
}

async fn what_was_withdrawn_is_told_by_its_title(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1", "a9"], to(&["ada"])).await;

    let told = town.process().explain().user(&user("ada"), None).await;

    let told: Vec<_> = told
        .unwrap()
        .events
        .into_iter()
        .map(|fate| (fate.title.unwrap(), fate.why))
        .collect();
    assert_eq!(
        told,
        [
            ("Work a9.".to_owned(), Why::Withdrawn),
            ("Work a1.".to_owned(), Why::NextDigest)
        ]
    );
}
