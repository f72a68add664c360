//! Other processes write to a store while it is exported or imported.
//!
//! An export fails if its store changed, and an import does not open a store that differs.

use std::sync::atomic::{AtomicU64, Ordering};

use tidings::domain::User;
use tidings::engine::{NoProgress, Progress};
use tidings::store::{FollowChange, RecordKind, TransferMark};

use super::{exported, import, imported, refusal, transfer};
use crate::support::town::{Town, followers_of};
use crate::support::{Fresh, assert_contains, key, mongo, sqlite, user};

both_ways! {
    a_change_during_an_export_fails_it_and_the_next_run_succeeds
    a_change_during_an_import_is_found_and_the_store_stays_closed
    an_import_that_another_process_ended_writes_nothing
}

/// Does something once, after a number of records.
struct Meanwhile<F> {
    does: F,
    left: AtomicU64,
}

impl<F: AsyncFn() + Send + Sync> Meanwhile<F> {
    fn after(records: u64, does: F) -> Self {
        let left = AtomicU64::new(records);
        Self { does, left }
    }
}

impl<F: AsyncFn() + Send + Sync> Progress for Meanwhile<F> {
    fn advance(&self, by: u64) {
        let left = self.left.load(Ordering::Relaxed);
        self.left.store(left.saturating_sub(by), Ordering::Relaxed);
        if (1..=by).contains(&left) {
            let handle = tokio::runtime::Handle::current();
            tokio::task::block_in_place(|| handle.block_on((self.does)()));
        }
    }

    fn set_total(&self, _: u64) {}
}

async fn a_change_during_an_export_fails_it_and_the_next_run_succeeds(
    source: Fresh,
    target: Fresh,
) {
    let town = Town::of(&source).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    let folder = tempfile::tempdir().unwrap();
    let other = source.second();
    // Users are the first records.
    let watcher = Meanwhile::after(9, async move || {
        other.put_users(&[User::new(user("late"))]).await.unwrap();
    });

    let export = transfer(&source, folder.path());
    let refused = export.export(&watcher).await;

    let why = refusal(refused.unwrap_err());
    assert_contains!(why, "changed while it was exported (users)");
    let refused = import(&target, folder.path(), &NoProgress).await;
    assert!(refused.is_err(), "there is no manifest yet");
    export.export(&NoProgress).await.unwrap();
    assert!(imported(&target, folder.path()).await.is_same);
    assert_eq!(target.lines().await, source.lines().await);
}

async fn a_change_during_an_import_is_found_and_the_store_stays_closed(
    source: Fresh,
    target: Fresh,
) {
    let town = Town::of(&source).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    let folder = exported(&source).await;
    let other = target.second();
    let watcher = Meanwhile::after(1, async move || {
        other.put_users(&[User::new(user("late"))]).await.unwrap();
    });

    let ended = import(&target, folder.path(), &watcher).await.unwrap();

    let differ = ended.files.iter().filter(|file| !file.is_same);
    let differ: Vec<_> =
        differ.map(|file| (file.name.as_str(), file.records, file.stored)).collect();
    assert_eq!((ended.is_same, differ), (false, vec![("users", 4, 5)]));
    let mark = target.whole().transfer_mark().await.unwrap();
    assert!(matches!(mark, Some(TransferMark::Importing(_))), "{mark:?}");
    target.delete_user(&user("late")).await.unwrap();
    assert!(imported(&target, folder.path()).await.is_same);
    assert_eq!(target.lines().await, source.lines().await);
}

async fn an_import_that_another_process_ended_writes_nothing(source: Fresh, target: Fresh) {
    Town::of(&source).await;
    let folder = exported(&source).await;
    let (other, path) = (target.second(), folder.path().to_owned());
    let is_removed = |line: &String| line.contains("ada") && line.contains("artist:1");
    // The other import ends while this one has written only the users, and a user unfollows.
    let watcher = Meanwhile::after(1, async move || {
        assert!(imported(&other, &path).await.is_same);
        let follow = [(key("artist:1"), user("ada"))];
        let unfollow = other.change_follows(FollowChange::Unfollow, &follow);
        unfollow.await.unwrap();
        let follows = other.lines_of(RecordKind::Follows).await;
        assert!(!follows.iter().any(is_removed));
    });

    let refused = import(&target, folder.path(), &watcher).await;

    let why = refusal(refused.unwrap_err());
    assert!(why.contains("has continued this import"), "{why}");
    let follows = target.lines_of(RecordKind::Follows).await;
    assert!(!follows.iter().any(is_removed));
}
