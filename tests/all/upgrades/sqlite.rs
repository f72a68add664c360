//! Upgrades of SQLite files of earlier schema versions.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;

use tidings::store::sqlite::Sqlite;

use super::{Story, assert_usable};

const FILES: [(u32, &str); 13] = [
    (1, include_str!("schema_1.sql")),
    (2, include_str!("schema_2.sql")),
    (3, include_str!("schema_3.sql")),
    (4, include_str!("schema_4.sql")),
    (5, include_str!("schema_5.sql")),
    (6, include_str!("schema_6.sql")),
    (7, include_str!("schema_7.sql")),
    (8, include_str!("schema_8.sql")),
    (9, include_str!("schema_9.sql")),
    (10, include_str!("schema_10.sql")),
    (11, include_str!("schema_11.sql")),
    (12, include_str!("schema_12.sql")),
    (15, include_str!("schema_15.sql")),
];

fn write(path: &Path, text: &str) {
    let file = rusqlite::Connection::open(path).unwrap();
    file.execute_batch(text).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_file_of_each_schema_version_can_be_used() {
    let folder = tempfile::tempdir().unwrap();
    for (n, text) in FILES {
        let path = folder.path().join(format!("{n}.db"));
        write(&path, text);

        let schema = Sqlite::read_schema(&path).await.unwrap();
        let store = Arc::new(Sqlite::open(&path).await.unwrap());

        assert_eq!(schema.version, n);
        assert!(schema.is_old(), "schema {n}");
        let story = Story { batch: n >= 5, pushed: false };
        assert_usable(store, story).await;
    }
}

#[tokio::test]
async fn a_file_whose_upgrade_fails_is_not_changed() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("old.db");
    write(&path, FILES[3].1);
    // The upgrade needs this table name for the old deliveries, so it fails.
    write(&path, "CREATE TABLE deliveries_4 (x)");

    let result = Sqlite::open(&path).await;

    assert!(result.is_err());
    assert_eq!(Sqlite::read_schema(&path).await.unwrap().version, 4);
}

#[test]
fn status_and_doctor_describe_an_upgrade_without_applying_it() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tidings.db");
    write(&path, FILES[2].1);
    let run = |arguments: &[&str]| {
        let ran = Command::new(env!("CARGO_BIN_EXE_tidings"))
            .args(arguments)
            .current_dir(folder.path())
            .env_clear()
            .output()
            .unwrap();
        String::from_utf8(ran.stdout).unwrap()
    };

    let status = run(&["status"]);
    let doctor = run(&["doctor", "--offline"]);

    assert!(status.contains("upgrades it to 16"), "{status}");
    assert!(doctor.contains("number 3"), "{doctor}");
    assert!(status.contains("Copy the file first"), "{status}");
    let version = |path| {
        let file = rusqlite::Connection::open(path).unwrap();
        let version = file.pragma_query_value(None, "user_version", |row| row.get::<_, i32>(0));
        version.unwrap()
    };
    assert_eq!(version(&path), 3);
    run(&["explain", "ada"]);
    assert_eq!(version(&path), 16);
    assert!(!run(&["status"]).contains("schema"));
}
