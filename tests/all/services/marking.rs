//! Marks are judged by what stands, however lately the feed was read; and no page is older than the
//! cursor after which it is asked for.

use tidings::app::App;
use tidings::domain::feed::Cursor;
use tidings::domain::inbox::{ItemState, Mark};
use tidings::domain::{Poke, Position};
use tidings::wire::feed::Page;

use super::retracting::feed;
use super::skip_seen::mark;
use crate::support::town::{Town, on_both_stores, to};
use crate::support::{Fresh, feed_of, user};

on_both_stores! {
    a_mark_is_made_though_another_process_marked_and_that_was_not_heard
    a_page_after_a_cursor_of_another_process_is_no_older_than_that
}

async fn a_mark_is_made_though_another_process_marked_and_that_was_not_heard(fresh: Fresh) {
    let town = Town::found(&fresh, true, "feed.fresh = \"30s\"").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let (here, elsewhere) = (town.process(), town.process());
    // It believes what it read, as if it listened, and hears nothing more.
    here.polls.hear(&Poke::All);
    let page = async || -> Page {
        let request = feed_of(&user("ada"));
        here.feeds().page(&request).await.unwrap().answer
    };
    let ids: Vec<Position> = page().await.items.iter().map(|item| item.id).collect();
    mark(&here, "ada", Mark::Seen, ids.clone()).await;
    page().await;

    mark(&elsewhere, "ada", Mark::Read, ids.clone()).await;
    mark(&here, "ada", Mark::Unread, ids).await;

    assert_eq!(feed(&town, "ada").await.items[0].state, ItemState::Seen);
}

async fn a_page_after_a_cursor_of_another_process_is_no_older_than_that(fresh: Fresh) {
    let town = Town::found(&fresh, true, "feed.fresh = \"30s\"").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let (here, elsewhere) = (town.process(), town.process());
    here.polls.hear(&Poke::All);
    let load = async |app: &App, after: Option<Cursor>| {
        let mut request = feed_of(&user("ada"));
        request.lately = true;
        request.query.after = after;
        let page = app.feeds().page(&request).await.unwrap().answer;
        let groups = app.feeds().groups(&request).await.unwrap().answer;
        assert_eq!(groups.counts.cursor, page.counts.cursor);
        (page.items.len(), page.counts.cursor)
    };
    let (_, old) = load(&here, None).await;
    town.happens(&["a2"], to(&["ada"])).await;

    let (_, newer) = load(&elsewhere, None).await;
    let unheard = load(&here, Some(old.clone())).await;
    let after = load(&here, Some(newer.clone())).await;

    // What was not heard of may be missing from what is no older than it has to be.
    assert_eq!(unheard, (0, old));
    assert_eq!(after, (0, newer));
}
