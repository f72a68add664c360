//! Several processes share one SQLite file. Many of them may also create it at the same time.

use std::process::{Command, Stdio};

use tidings::clock::{Clock, SystemClock};
use tidings::domain::{Day, Entry};
use tidings::store::sqlite::Sqlite;
use tidings::store::{ChecksumBuilder, CountedRecords, Days, Diagnostics, Stacks};

use crate::support::*;

const PROCESSES: usize = 8;

#[tokio::test]
async fn processes_that_share_a_file_lose_and_duplicate_nothing() {
    let folder = tempfile::tempdir().unwrap();
    let now = SystemClock.now();
    let notify = |object: &str, key: &str| {
        Command::new(env!("CARGO_BIN_EXE_tidings"))
            .args(["notify", "ArtworkPublished", object, "--to", "ada", "ben"])
            .args(["--at", &now.to_rfc3339(), "--key", key])
            .current_dir(folder.path())
            .env_clear()
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap()
    };

    // Each process posts one event of its own, and one event that another process posts too.
    let mut running = Vec::new();
    for n in 0..PROCESSES {
        running.push(notify(&format!("own{n}"), &format!("own {n}")));
        running.push(notify(&format!("shared{}", n / 2), &format!("shared {}", n / 2)));
    }
    for process in running {
        let ended = process.wait_with_output().unwrap();
        assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    }

    let store = Sqlite::open(folder.path().join("tidings.db")).await.unwrap();
    let only = tidings::domain::DaySet::ending(Day::of(now), 0);
    let found = store.windows(only, &[user("ada"), user("ben")]).await.unwrap();
    let mut expected: Vec<_> = (0..PROCESSES).map(|n| format!("own{n}")).collect();
    expected.extend((0..PROCESSES / 2).map(|n| format!("shared{n}")));
    for person in found {
        let mut objects: Vec<_> = person.stacks[0].entries.iter().map(object).collect();
        objects.sort_unstable();
        assert_eq!(objects, expected, "{}", person.user);
    }
}

fn object(entry: &Entry) -> &str {
    match entry {
        Entry::Event(event) => event.object.as_str(),
        Entry::DigestMarker(_) | Entry::BatchMarker(_) | Entry::Other => "no event",
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_changed_day_is_detected_while_another_process_writes() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidings.db");
    let store = Sqlite::open(&path).await.unwrap();
    store.push_list(&user("ada"), events(2, 1)).await;
    // An archive run beside `serve` may find the write lock taken by another process.
    let other = rusqlite::Connection::open(&path).unwrap();
    other.execute_batch("BEGIN IMMEDIATE").unwrap();

    let nothing = ChecksumBuilder::default().finish();
    let dropped = store.drop_day(today(), &nothing).await;

    assert_eq!(dropped.ok(), Some(false), "it waited for the lock");
    other.execute_batch("ROLLBACK").unwrap();
    let stacks = [CountedRecords::Stacks(today())];
    assert_eq!(store.count(&stacks).await.unwrap(), [1]);
}
