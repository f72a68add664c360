//! What an operator is told of a person.

use tidings::services::explain::Why;

use crate::support::town::{Town, on_both_stores, to};
use crate::support::{Fresh, user};

on_both_stores! {
    what_was_withdrawn_is_told_by_its_title
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
