//! Tests of situations that only SQLite has: a full disk, an abandoned call, a file that was
//! tampered with.
//!
//! The contract tests (`tests/all/store_laws`) cover the guarantees of all stores.

use std::future::Future;
use std::path::Path;
use std::pin::pin;
use std::task::{Context, Poll, Waker};
use std::time::Duration;

use futures::TryStreamExt;
use rusqlite::Transaction;

use super::rows::{Statements as _, to_fields};
use super::{Sqlite, deliveries, users};
use crate::domain::{
    Audience, Day, DaySet, Entry, Event, EventType, Fanout, Id, ObjectId, User, UserId,
};
use crate::store::record::user::UserRecord;
use crate::store::record::values::StoredForm;
use crate::store::{Directory, Journal, Notes, PushRequest, Stacks};

fn today() -> Day {
    "20140422".parse().unwrap()
}

fn user_ids(count: usize) -> Vec<UserId> {
    (0..count).map(|n| UserId::stored(format!("p{n:05}"))).collect()
}

fn events(count: usize) -> Vec<Event> {
    let event = |n: usize| Event {
        kind: EventType::stored("ArtworkPublished"),
        object: ObjectId::stored(format!("a{n}")),
        fanout_id: Some(Id::from_bytes([7; 12])),
    };
    (0..count).map(event).collect()
}

fn pushes(users: &[UserId], events: Vec<Event>) -> PushRequest {
    PushRequest { lists: vec![events], users: users.iter().map(|user| (user.clone(), 0)).collect() }
}

async fn open(folder: &Path) -> Sqlite {
    Sqlite::open(folder.join("tidings.db")).await.unwrap()
}

/// Returns the number of entries that each user has today.
async fn counts(store: &Sqlite, users: &[UserId]) -> Vec<usize> {
    let users = store.windows(DaySet::ending(today(), 0), users).await.unwrap();
    users.iter().map(|user| user.stacks.iter().map(|stack| stack.entries.len()).sum()).collect()
}

/// Runs SQL on the writer's connection.
async fn execute(store: &Sqlite, sql: &'static str) {
    store.write(move |transaction| Ok(transaction.execute_batch(sql)?)).await.unwrap();
}

#[tokio::test]
async fn a_full_disk_changes_nothing_and_the_store_recovers() {
    let folder = tempfile::tempdir().unwrap();
    let (store, users) = (open(folder.path()).await, user_ids(2_000));
    store.push(today(), 1_000, &pushes(&users[..1], events(1))).await.unwrap();

    // SQLite's page limit causes the same error as a full disk.
    execute(&store, "PRAGMA max_page_count = 40").await;
    let error = store.push(today(), 1_000, &pushes(&users, events(50))).await.unwrap_err();
    let after_failure = counts(&store, &users).await;
    execute(&store, "PRAGMA max_page_count = 4294967294").await;
    store.push(today(), 1_000, &pushes(&users, events(50))).await.unwrap();

    assert!(error.is_disk_full(), "{error:?}");
    assert_eq!((after_failure[0], after_failure[1..].iter().sum()), (1, 0));
    assert!(counts(&store, &users).await.iter().all(|count| *count == 50));
}

#[tokio::test]
async fn an_abandoned_push_is_applied_entirely_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let (store, users) = (open(folder.path()).await, user_ids(500));
    {
        let list = pushes(&users, events(3));
        let mut abandoned = pin!(store.push(today(), 1_000, &list));
        let first = abandoned.as_mut().poll(&mut Context::from_waker(Waker::noop()));
        assert!(matches!(first, Poll::Pending), "it runs elsewhere");
    }

    // The next write runs after the abandoned one.
    store.push(today(), 1_000, &pushes(&users[..1], events(1))).await.unwrap();

    let counts = counts(&store, &users).await;
    assert!(counts[1..].iter().all(|count| *count == counts[1]), "{counts:?}");
}

#[tokio::test]
async fn an_unreadable_field_is_reported_without_secrets() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let ada = UserId::stored("ada");
    for (tampering, complaint) in [
        ("UPDATE users SET tz = 'Mars/Phobos'", "tz of user ada in the store cannot be read"),
        (
            "UPDATE users SET cadence = 'hourly'",
            "digest.cadence of user ada in the store cannot be read",
        ),
        ("UPDATE users SET types = '{'", "types of user ada in the store cannot be read"),
        (
            "UPDATE users SET types = '{\"T\": [\"batch\", 0, \"soon\"]}'",
            "types.T[2] of user ada in the store cannot be read: window \"soon\" is not",
        ),
        ("UPDATE users SET email = 'secret'", "email of user ada in the store cannot be read"),
        (
            "UPDATE users SET suppressed = 9223372036854775807",
            "suppressed of user ada in the store",
        ),
        ("UPDATE users SET lng = 181, lat = 0", "loc of user ada in the store cannot be read"),
        (
            "UPDATE users SET confirmed = 'maybe'",
            "confirmed of user ada in the store cannot be read",
        ),
    ] {
        execute(&store, "DELETE FROM users").await;
        store.put_users(&[User::new(ada.clone())]).await.unwrap();
        execute(&store, tampering).await;

        let find = |transaction: &Transaction<'_>| {
            users::USERS.find::<UserRecord>(transaction, "id = ?1", ["ada"])
        };
        let error = store.read(find).await.unwrap_err().to_string();
        let users = store.users(std::slice::from_ref(&ada)).await.unwrap();

        assert!(error.starts_with(complaint), "{error}");
        let user = users.into_iter().next().flatten().unwrap();
        let [unreadable] = &user.unreadable[..] else {
            panic!("{user:?}");
        };
        let texts = format!("{error} {}", unreadable.why);
        assert!(!texts.contains("secret"), "{texts}");
    }
}

#[tokio::test]
async fn a_preference_without_a_column_is_stored_with_the_others() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let ada = User::new(UserId::stored("ada"));
    let fields = to_fields(&UserRecord::from_value(&ada)).unwrap();
    let write_with = |preference: Option<(&str, &str)>| {
        let mut fields = fields.clone();
        fields.insert("rev".to_owned(), 1.into());
        fields.extend(preference.map(|(field, value)| (field.to_owned(), value.into())));
        move |transaction: &Transaction<'_>| {
            users::USERS.replace(transaction, &fields)?;
            let sql = "SELECT preferences FROM users";
            Ok(transaction.query_row(sql, [], |row| row.get::<_, Option<String>>(0))?)
        }
    };

    let empty = store.write(write_with(None)).await.unwrap();
    let stored = store.write(write_with(Some(("font", "large")))).await.unwrap();
    let quiet = r#"UPDATE users SET preferences = '{"quiet": {"from": "22:00", "to": "07:00"}}'"#;
    execute(&store, quiet).await;
    let users = store.users(std::slice::from_ref(&ada.id)).await.unwrap();

    assert_eq!((empty, stored.as_deref()), (None, Some(r#"{"font":"large"}"#)));
    let [Some(user)] = &users[..] else {
        panic!("{users:?}");
    };
    assert!(user.quiet.is_some() && user.unreadable.is_empty(), "{user:?}");
}

#[tokio::test]
async fn a_fan_out_without_its_audience_is_neither_new_nor_a_duplicate() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let fanout = |id: u8, key: &str| {
        let to = Audience::users(user_ids(1)).unwrap();
        let (kind, objects) = (EventType::stored("T"), vec![ObjectId::stored("1")]);
        Fanout::new(Id::from_bytes([id; 12]), Some(key.into()), kind, objects, to).unwrap()
    };
    store.accept(&[fanout(1, "one")]).await.unwrap();
    execute(&store, "DELETE FROM audiences").await;

    let same_key = store.accept(&[fanout(2, "one")]).await;
    let same_id = store.accept(&[fanout(1, "two")]).await;

    let error = same_key.unwrap_err().to_string();
    assert!(error.starts_with("audience of fan-out"), "{error}");
    assert!(same_id.is_err(), "{same_id:?}");
}

#[tokio::test]
async fn an_entry_that_is_not_json_keeps_its_position() {
    let folder = tempfile::tempdir().unwrap();
    let (store, ada) = (open(folder.path()).await, user_ids(1));
    store.push(today(), 1_000, &pushes(&ada, events(1))).await.unwrap();
    execute(&store, "UPDATE notifications_20140422 SET n = 2, events = '{]' || char(10) || events")
        .await;

    let users = store.windows(DaySet::ending(today(), 0), &ada).await.unwrap();

    let entries = &users[0].stacks[0].entries;
    assert_eq!(entries[..], [Entry::Other, Entry::Event(events(1).remove(0))]);
}

#[tokio::test]
async fn a_scan_continues_after_rows_without_a_valid_id() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let ids = [1, 2, 3].map(|n| UserId::stored(format!("ff{n:022}")));
    let users = [ids.to_vec(), user_ids(3)].concat();
    store.push(today(), 1_000, &pushes(&users, events(1))).await.unwrap();
    execute(
        &store,
        "UPDATE notifications_20140422 SET id = unhex(id) WHERE id LIKE 'ff%';
         INSERT INTO notifications_20140422 VALUES (x'0102', 0, ''), (x'0103', 0, '')",
    )
    .await;

    let scan = store.scan(DaySet::ending(today(), 0), None, 2);
    let chunks: Vec<_> = scan.try_collect().await.unwrap();

    let scanned: Vec<_> = chunks.into_iter().flatten().map(|stacks| stacks.user).collect();
    assert_eq!(scanned, users);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn several_processes_can_open_a_new_file_at_once() {
    for _ in 0..20 {
        let folder = tempfile::tempdir().unwrap();
        let opening: Vec<_> =
            (0..8).map(|_| tokio::spawn(Sqlite::open(folder.path().join("new.db")))).collect();
        for store in opening {
            let store = store.await.unwrap().unwrap();
            store.put_users(&[User::new(user_ids(1).remove(0))]).await.unwrap();
        }
    }
}

#[tokio::test]
async fn a_file_that_cannot_be_opened_is_reported_by_name() {
    let folder = tempfile::tempdir().unwrap();
    let nowhere = folder.path().join("no such folder").join("tidings.db");

    let error = Sqlite::open(&nowhere).await.unwrap_err();

    assert!(error.to_string().contains(&nowhere.display().to_string()), "{error}");
}

#[tokio::test]
async fn finding_claimable_deliveries_does_not_scan_waiting_ones() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let explain = |transaction: &Transaction<'_>| {
        let sql = format!("EXPLAIN QUERY PLAN {}", deliveries::CLAIMABLE);
        transaction.query_all(&sql, (1, 2, 3, 4), |row| row.get::<_, String>(3))
    };

    let plan = store.read(explain).await.unwrap();

    let steps = |text: &str| plan.iter().filter(|step| step.contains(text)).count();
    let searches = steps("SEARCH deliveries USING INDEX deliveries_free");
    assert_eq!((searches, steps("SCAN deliveries")), (2, 0), "{plan:?}");
}

/// Polls a future once, like a caller that then waits for something else. Returns whether it is
/// pending.
fn is_pending(future: std::pin::Pin<&mut impl Future>) -> bool {
    future.poll(&mut Context::from_waker(Waker::noop())).is_pending()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_writer_does_not_block_other_writers() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (start, started) = tokio::sync::oneshot::channel();
    let first = store.write(move |_| {
        let _ = start.send(());
        let _ = released.recv();
        Ok(())
    });
    let mut first = pin!(first);
    assert!(is_pending(first.as_mut()));
    started.await.unwrap();
    let mut queued = pin!(store.write(|_| Ok(())));
    assert!(is_pending(queued.as_mut()));

    // The queued writer gets its turn, although it is not polled.
    release.send(()).unwrap();
    first.await.unwrap();
    let third = store.write(|_| Ok(()));
    let third = tokio::time::timeout(Duration::from_secs(30), third).await;

    third.expect("it hangs").unwrap();
    queued.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn abandoned_readers_do_not_block_other_readers() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    // More than the limit of concurrent reads: some run and some wait, and none is polled again.
    let reads: Vec<_> = (0..20)
        .map(|_| Box::pin(store.read(|_| Ok(()))))
        .filter_map(|mut read| is_pending(read.as_mut()).then_some(read))
        .collect();

    let last = store.read(|_| Ok(()));
    let last = tokio::time::timeout(Duration::from_secs(30), last).await;

    last.expect("it hangs").unwrap();
    for read in reads {
        read.await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_abandoned_queued_write_is_never_started() {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await;
    let (release, released) = std::sync::mpsc::channel::<()>();
    let (start, started) = tokio::sync::oneshot::channel();
    let mut first = pin!(store.write(move |_| {
        let _ = start.send(());
        let _ = released.recv();
        Ok(())
    }));
    assert!(is_pending(first.as_mut()));
    started.await.unwrap();
    {
        let given_up = store.write(|transaction| {
            let user = "INSERT INTO notes (name, text) VALUES ('given-up', 'yes')";
            Ok(transaction.execute_batch(user)?)
        });
        assert!(is_pending(pin!(given_up).as_mut()));
    }

    release.send(()).unwrap();
    first.await.unwrap();

    assert_eq!(store.note("given-up").await.unwrap(), None);
}
