//! What others do to the two stores while a move is under way.
//!
//! The rule: what came in beside it is found before the target is opened, and a move that was
//! undone opens nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use tidings::clock::Clock;
use tidings::domain::User;
use tidings::engine::moving::{Mover, Reopening, rehearse, reopen};
use tidings::engine::{Silent, Watcher};

use super::{mover, names, refusal};
use crate::support::town::{Town, followers_of, saturday};
use crate::support::{Fresh, mongo, sqlite, user};

both_ways! {
    what_comes_into_the_target_while_the_move_begins_is_found
    a_source_that_is_opened_again_while_it_is_compared_leaves_the_target_closed
}

/// Somebody who does something while a move is under way: once, as soon as it has come so far.
struct Meanwhile<F> {
    does: F,
    left: AtomicU64,
}

impl<F: AsyncFn() + Send + Sync> Meanwhile<F> {
    /// After so many records; where that is none, when a move looks at the clock.
    fn after(records: u64, does: F) -> Self {
        let left = AtomicU64::new(records);
        Self { does, left }
    }

    fn act(&self) {
        let handle = tokio::runtime::Handle::current();
        tokio::task::block_in_place(|| handle.block_on((self.does)()));
    }
}

impl<F: AsyncFn() + Send + Sync> Watcher for Meanwhile<F> {
    fn advance(&self, by: u64) {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(by), Ordering::Relaxed);
        if (1..=by).contains(&left) {
            self.act();
        }
    }

    fn total(&self, _: u64) {}

    fn stopping(&self) -> bool {
        false
    }
}

#[async_trait]
impl<F: AsyncFn() + Send + Sync> Clock for Meanwhile<F> {
    fn now(&self) -> DateTime<Utc> {
        if self.left.swap(1, Ordering::Relaxed) == 0 {
            self.act();
        }
        saturday()
    }

    async fn sleep(&self, _: TimeDelta) {}
}

async fn what_comes_into_the_target_while_the_move_begins_is_found(source: Fresh, target: Fresh) {
    let town = Town::of(&source).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    let before = source.lines().await;
    // It was opened before the move was noted in it.
    let opened = target.second();
    let writes = async move || {
        opened.put_users(&[User::new(user("late"))]).await.unwrap();
    };
    let mover = Mover {
        clock: Arc::new(Meanwhile::after(0, writes)),
        ..mover(&source, &target)
    };

    let run = mover.run(&Silent).await;

    let refused = "new is not empty: it holds 1 users";
    assert_eq!(refusal(run.unwrap_err()), refused);
    assert_eq!(source.lines().await, before);
}

async fn a_source_that_is_opened_again_while_it_is_compared_leaves_the_target_closed(
    source: Fresh,
    target: Fresh,
) {
    Town::of(&source).await;
    let account = rehearse(&*source.movable(), None, &names()).await.unwrap();
    let records: u64 = account.parts.iter().map(|part| part.records).sum();
    let movable = source.movable();
    let opens = async move || assert!(reopen(&*movable, Reopening::Unmoved).await.unwrap());
    // All is read twice; with the last record everything is found the same.
    let watcher = Meanwhile::after(2 * records, opens);

    let run = mover(&source, &target).run(&watcher).await;

    refusal(run.unwrap_err());
    let note = target.movable().move_note().await.unwrap().unwrap();
    assert!(!note.done, "{note:?}");
    source.put_users(&[User::new(user("later"))]).await.unwrap();
}
