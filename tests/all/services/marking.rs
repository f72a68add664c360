//! A stale feed cache affects neither marks nor cursors.
//!
//! A mark applies to the stored state. A page is at least as recent as the cursor of its request.

use tidings::app::App;
use tidings::domain::feed_marks::{ItemState, Mark};
use tidings::domain::feed_page::FeedCursor;
use tidings::domain::{ChangeNotice, Position};
use tidings::wire::feed::FeedPage;

use super::skip_seen::mark;
use crate::support::town::{Town, on_both_stores, to};
use crate::support::{Fresh, feed_of, user};

on_both_stores! {
    a_mark_applies_to_the_stored_state_not_to_the_cached_feed
    a_page_is_at_least_as_recent_as_the_cursor_of_its_request
}

async fn a_mark_applies_to_the_stored_state_not_to_the_cached_feed(fresh: Fresh) {
    let town = Town::found(&fresh, true, "feed.fresh = \"30s\"").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let (here, elsewhere) = (town.process(), town.process());
    // This turns on the cache of the process, which then receives no change notices.
    here.feed_cache.apply_notice(&ChangeNotice::All);
    let page = async || -> FeedPage {
        let request = feed_of(&user("ada"));
        here.feeds().page(&request).await.unwrap().answer
    };
    let ids: Vec<Position> = page().await.items.iter().map(|item| item.id).collect();
    mark(&here, "ada", Mark::Seen, ids.clone()).await;
    page().await;

    mark(&elsewhere, "ada", Mark::Read, ids.clone()).await;
    mark(&here, "ada", Mark::Unread, ids).await;

    assert_eq!(town.feed("ada").await.items[0].state, ItemState::Seen);
}

async fn a_page_is_at_least_as_recent_as_the_cursor_of_its_request(fresh: Fresh) {
    let town = Town::found(&fresh, true, "feed.fresh = \"30s\"").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let (here, elsewhere) = (town.process(), town.process());
    here.feed_cache.apply_notice(&ChangeNotice::All);
    let load = async |app: &App, after: Option<FeedCursor>| {
        let mut request = feed_of(&user("ada"));
        request.accepts_cached = true;
        request.query.after = after;
        let page = app.feeds().page(&request).await.unwrap().answer;
        let groups = app.feeds().groups(&request).await.unwrap().answer;
        assert_eq!(groups.counts.cursor, page.counts.cursor);
        (page.items.len(), page.counts.cursor)
    };
    let (_, old) = load(&here, None).await;
    town.happens(&["a2"], to(&["ada"])).await;

    let (_, newer) = load(&elsewhere, None).await;
    let cached = load(&here, Some(old.clone())).await;
    let current = load(&here, Some(newer.clone())).await;

    // The old cursor does not require `a2`, so the cached page is recent enough.
    assert_eq!(cached, (0, old));
    assert_eq!(current, (0, newer));
}
