//! Tests that concurrent feed requests share a store call, and that each gets its own feed.

use std::collections::BTreeSet;
use std::pin::pin;
use std::sync::atomic::Ordering;

use futures::future::join_all;

use super::accepting::Gate;
use crate::support::town::{Town, mostly_on_sqlite, to};
use crate::support::{Fresh, feed_of, user};

mostly_on_sqlite! {
    concurrent_requests_share_a_store_call_and_get_their_own_feeds
}

async fn concurrent_requests_share_a_store_call_and_get_their_own_feeds(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2"], to(&["cy"])).await;
    let gate = Gate::before(&town, "windows");
    let feeds = town.process_on(&gate.store).feeds();
    let read = async |person: &str| {
        let page = feeds.page(&feed_of(&user(person))).await.unwrap().answer;
        let items = page.items.iter().map(|item| item.object_id.to_string());
        items.collect::<BTreeSet<_>>()
    };
    // One user twice, and one without any events between them. The first call blocks.
    let mut all = pin!(join_all(["bo", "cy", "ada", "dee", "ada", "cy"].map(read)));
    while gate.calls.load(Ordering::Relaxed) == 0 {
        assert!(futures::poll!(all.as_mut()).is_pending());
        tokio::task::yield_now().await;
    }
    // The call in progress must not see this event, but the later requests must.
    town.happens(&["a3"], to(&["ada"])).await;
    gate.open.send(()).unwrap();

    let feeds: [_; 6] = all.await.try_into().unwrap();

    let expected: [&[&str]; 6] = [&[], &["a2"], &["a1", "a3"], &[], &["a1", "a3"], &["a2"]];
    let feeds = feeds.map(|items| items.into_iter().collect::<Vec<_>>());
    assert_eq!(feeds, expected);
    assert_eq!(gate.calls.load(Ordering::Relaxed), 2);
}
