//! Marks are judged by what stands, however lately the feed was read.

use tidings::domain::inbox::{ItemState, Mark};
use tidings::domain::{Poke, Position};
use tidings::wire::feed::Page;

use super::retracting::feed;
use super::skip_seen::mark;
use crate::support::town::{Town, on_both_stores, to};
use crate::support::{Fresh, feed_of, user};

on_both_stores! {
    a_mark_is_made_though_another_process_marked_and_that_was_not_heard
}

async fn a_mark_is_made_though_another_process_marked_and_that_was_not_heard(fresh: Fresh) {
    let town = Town::found(&fresh, true, "feed.fresh = \"30s\"").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let (here, elsewhere) = (town.process(), town.process());
    // It believes what it read, as if it listened, and hears nothing more.
    here.polls().hear(&Poke::All);
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
