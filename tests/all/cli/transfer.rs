//! `tidings export` and `tidings import store`, as they are typed: from one file into another.

use super::Desk;
use crate::support::assert_contains;

const IMPORT: [&str; 5] = ["--store", "sqlite:new.db", "import", "store", "moving"];

/// Kills the import once two pages are noted.
const HALF_WAY: (&str, &str) = ("TIDINGS_CRASH", "import-noted:2");

#[test]
fn a_store_is_moved_and_the_old_one_is_closed() {
    let desk = Desk::with_people();
    let ran = desk.run(&["notify", "ArtworkPublished", "a1", "--to", "ada"]);
    assert_eq!(ran.code, 0, "{}", ran.err);

    let exported = desk.run(&["export", "--close", "moving", "--json"]).json();
    assert_eq!(exported["files"][0]["name"], "users");
    assert_eq!(exported["files"][0]["records"], 3);
    let again = desk.run(&["export", "moving"]);
    assert_eq!(again.code, 2);
    assert_contains!(again.err, "holds a complete export");
    let imported = desk.done(&IMPORT);
    assert!(imported.contains("compared, and the same"), "{imported}");
    let again = desk.run(&IMPORT);
    assert_eq!(again.code, 2);
    assert_contains!(again.err, "the store is not empty");

    let closed = "error: sqlite:tidings.db is closed: it was exported to moving to be moved\n  \
                  try: set the option `store` to the new store; or, if there is none, open this \
                  one again with tidings export --reopen\n";
    for command in [
        &["notify", "ArtworkPublished", "a2", "--to", "ada"][..],
        &["status"],
        &["import", "store", "moving"],
    ] {
        let ran = desk.run(command);
        assert_eq!((ran.code, ran.err.as_str()), (2, closed), "{command:?}");
    }
    let doctor = desk.run(&["doctor", "--offline"]);
    assert!(doctor.out.contains("to be moved"), "{}", doctor.out);
    desk.run(&["--store", "sqlite:new.db", "worker", "--once"]);
    let feed = desk.run(&["--store", "sqlite:new.db", "feed", "ada", "--json"]);
    assert!(feed.out.contains("a1"), "{}{}", feed.out, feed.err);
    let refused = desk.run(&["export", "--reopen"]);
    assert_eq!(refused.code, 2);
    assert!(refused.err.contains("is complete"), "{}", refused.err);
    assert_eq!(desk.run(&["export", "--reopen", "--json"]).code, 2);
    let open = desk.done(&["export", "--reopen", "--force"]);
    assert_eq!(open, "sqlite:tidings.db is open again\n");
    desk.done(&["status"]);
}

#[test]
fn a_half_imported_store_is_closed_to_everything_but_the_import() {
    let desk = Desk::with_people();
    desk.done(&["export", "moving"]);
    desk.done(&["status"]);
    let died = desk.command(&IMPORT).env(HALF_WAY.0, HALF_WAY.1).output().unwrap();
    assert!(died.status.code().is_none(), "{died:?}");

    let closed = "error: sqlite:new.db is incomplete: the import of moving has not ended\n  \
                  try: tidings import store moving, which continues\n";
    for command in [
        &["status"][..],
        &["worker", "--once"],
        &["import", "users", "users"],
        &["export", "other"],
    ] {
        let ran = desk.run(&[&["--store", "sqlite:new.db"], command].concat());
        assert_eq!((ran.code, ran.err.as_str()), (2, closed), "{command:?}");
    }
    desk.done(&["export", "other"]);
    let other = desk.run(&["--store", "sqlite:new.db", "import", "store", "other"]);
    assert_eq!(other.code, 2);
    assert!(other.err.contains("continue that one"), "{}", other.err);
    desk.done(&IMPORT);
    desk.done(&["--store", "sqlite:new.db", "status"]);
}

#[test]
fn a_missing_store_or_export_is_refused() {
    let desk = Desk::new();
    let ran = desk.run(&["export", "moving"]);
    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("there is no database"), "{}", ran.err);
    assert!(!desk.path().join("moving").exists());
    assert_eq!(desk.run(&["export"]).code, 2);
    let ran = desk.run(&["import", "store", "moving"]);
    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("moving/manifest.json"), "{}", ran.err);
    assert!(!desk.path().join("tidings.db").exists());
}

#[test]
fn a_folder_with_other_files_is_refused_and_keeps_them() {
    let desk = Desk::with_people();
    let archived = "old/notifications_20140422.ndjson.zst";
    std::fs::create_dir(desk.path().join("old")).unwrap();
    desk.write(archived, "archived");

    let ran = desk.run(&["export", "--close", "old"]);

    assert_eq!(ran.code, 2);
    assert!(ran.err.contains("no unfinished export"), "{}", ran.err);
    let files = std::fs::read_dir(desk.path().join("old")).unwrap();
    assert_eq!(files.count(), 1);
    let kept = std::fs::read_to_string(desk.path().join(archived));
    assert_eq!(kept.unwrap(), "archived");
    desk.done(&["status"]);
}

#[test]
fn a_failed_export_says_that_the_store_stays_closed() {
    let desk = Desk::with_people();
    std::fs::create_dir(desk.path().join("moving")).unwrap();
    desk.write("moving/manifest.unfinished", "");
    desk.write("moving/users.ndjson.zst", "damaged");

    let ran = desk.run(&["export", "--close", "moving"]);

    assert_eq!(ran.code, 1);
    assert!(ran.err.contains("the store stays closed"), "{}", ran.err);
    assert_eq!(desk.run(&["status"]).code, 2);
    let ran = desk.run(&["export", "--reopen"]);
    assert_eq!(ran.code, 0);
    assert!(ran.err.contains("sends them again"), "{}", ran.err);
    desk.done(&["status"]);
}

#[test]
fn an_import_names_the_records_that_its_export_lacks() {
    let desk = Desk::with_people();
    let database = rusqlite::Connection::open(desk.path().join("tidings.db")).unwrap();
    let odd = "UPDATE users SET types = '[' WHERE id = 'cem'";
    database.execute(odd, []).unwrap();
    assert_eq!(desk.run(&["export", "moving"]).code, 3);

    let ran = desk.run(&IMPORT);

    assert_eq!(ran.code, 3);
    assert!(ran.err.contains("user cem"), "{}", ran.err);
    assert!(ran.out.contains("except for the records"), "{}", ran.out);
}

#[test]
fn an_import_names_the_records_that_it_cannot_compare() {
    let desk = Desk::with_people();
    desk.done(&["export", "moving"]);
    desk.command(&IMPORT).env(HALF_WAY.0, HALF_WAY.1).output().unwrap();
    let database = rusqlite::Connection::open(desk.path().join("new.db")).unwrap();
    let odd = "UPDATE users SET types = '[' WHERE id = 'cem'";
    assert_eq!(database.execute(odd, []).unwrap(), 1);

    let ran = desk.run(&IMPORT);

    assert_eq!(ran.code, 1);
    assert_contains!(ran.err, "user cem");
    assert_contains!(ran.out, "delete the unreadable records");
    database.execute("DELETE FROM users WHERE id = 'cem'", []).unwrap();
    desk.done(&IMPORT);
}
