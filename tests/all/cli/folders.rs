//! The working directory of commands. A command that needs a store does not create one, and says
//! where it looked.

use bson::{Document, doc};

use super::{Desk, Ran};
use crate::support::poison::database;
use crate::support::{Fresh, assert_contains, mongo};

/// The commands that need an existing store.
const NEED_A_STORE: &[&[&str]] = &[
    &["status"],
    &["feed", "ada"],
    &["explain", "ada"],
    &["flush", "ada"],
    &["digest"],
    &["digest", "--dry-run"],
    &["archive"],
    &["archive", "--dry-run"],
    &["worker", "--once"],
    &["batches"],
    &["deliveries"],
    &["deliveries", "settle", "digest:x", "sent"],
    &["suppressions"],
    &["suppressions", "lift", "ada@example.org"],
];

fn entries(desk: &Desk) -> usize {
    std::fs::read_dir(desk.path()).unwrap().count()
}

#[test]
fn commands_in_a_wrong_folder_fail_and_create_nothing() {
    let desk = Desk::new();

    for arguments in NEED_A_STORE.iter().chain(&[&["doctor", "--offline"][..]]) {
        let ran = desk.run(arguments);

        assert_eq!(ran.code, 2, "{arguments:?}: {}{}", ran.out, ran.err);
        let output = ran.err + &ran.out;
        for word in ["no configuration", "tidings.db", "--config"] {
            assert!(output.contains(word), "{arguments:?}: {word} in {output}");
        }
        assert_eq!(entries(&desk), 0, "{arguments:?}");
    }
}

#[test]
fn a_missing_database_is_reported_with_its_configuration_file() {
    let desk = Desk::new();
    for file in ["mistyped.db", "no/such/folder.db"] {
        desk.write("tidings.toml", &format!("store = \"sqlite:{file}\""));
        for arguments in NEED_A_STORE {
            let ran = desk.run(arguments);

            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}");
            assert!(ran.err.contains(file), "{}", ran.err);
            assert!(ran.err.contains("tidings.toml"), "{}", ran.err);
            let make = "import, notify, serve, restore, suppressions add or keys create";
            assert!(ran.err.contains(make), "{}", ran.err);
            assert_eq!(entries(&desk), 1, "{arguments:?}");
        }
    }
    desk.done(&["send-test", "me@example.org"]);
}

#[test]
fn commands_that_add_data_create_the_database() {
    for arguments in [
        &["notify", "Met", "a1", "--to", "ada"][..],
        &["import", "users", "-"],
        &["suppressions", "add", "ada@example.org"],
        &["keys", "create", "web-app", "--scope", "read"],
    ] {
        let desk = Desk::new();

        let ran = desk.run(arguments);

        assert_eq!(ran.code, 0, "{arguments:?}: {}", ran.err);
        assert!(desk.path().join("tidings.db").exists());
    }
}

#[test]
fn notify_says_once_that_it_created_the_database() {
    let desk = Desk::new();
    let notify = ["notify", "Published", "a1", "--to", "ada"];

    let (first, second) = (desk.run(&notify), desk.run(&notify));

    let created = "there was no database: created sqlite:tidings.db";
    assert!(first.err.contains(created), "{}", first.err);
    let unknown = "there is no record of ada";
    assert!(second.err.contains(unknown), "{}", second.err);
    assert!(!second.err.contains(created), "{}", second.err);
}

#[test]
fn paths_in_a_configuration_are_relative_to_its_folder() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Met", "a1", "--to", "ada"]);
    desk.write("tidings.toml", "");
    let elsewhere = Desk::new();
    let config = desk.path().join("tidings.toml").display().to_string();

    let digest = elsewhere.run(&["digest", "--now", "--config", &config]);

    assert!(digest.out.contains("1 sent"), "{}{}", digest.out, digest.err);
    assert!(desk.path().join("outbox").is_dir());
    assert_eq!(entries(&elsewhere), 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_mistyped_mongodb_database_is_reported_and_not_created() {
    mongo::run(async |fresh: Fresh| {
        let desk = Desk::new();
        let right = fresh.url().to_owned();
        let (place, options) = right.split_once('?').unwrap();
        let wrong = format!("{place}_mistyped?{options}");
        desk.write("tidings.toml", &format!("store = {wrong:?}"));

        for arguments in NEED_A_STORE {
            let ran: Ran = desk.command(arguments).output().unwrap().into();
            assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{arguments:?}: {}", ran.err);
            assert_contains!(ran.err, "there is no database at mongodb://");
        }
        let doctor = desk.run(&["doctor", "--offline"]);

        assert_contains!(doctor.out, "there is no database at mongodb://");
        let client = mongodb::Client::with_uri_str(&right).await.unwrap();
        let names = client.list_database_names().await.unwrap();
        assert!(!names.iter().any(|name| name.ends_with("_mistyped")), "{names:?}");
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_status_of_a_mongodb_database_before_its_upgrade_has_the_counts() {
    mongo::run(async |fresh: Fresh| {
        let desk = Desk::new();
        desk.write("tidings.toml", &format!("store = {:?}", fresh.url()));
        let notified = desk.run(&["notify", "Published", "a1", "--to", "ada", "--wait"]);
        assert_eq!(notified.code, 0, "{}", notified.err);
        let database = database(&fresh).await.unwrap();
        let notes = database.collection::<Document>("notes");
        notes.delete_one(doc! {"_id": "schema"}).await.unwrap();

        let status = desk.run(&["status"]);

        assert_eq!(status.code, 0, "{}", status.err);
        assert_contains!(status.out, "1; the next command that uses the store upgrades it");
        assert_contains!(status.out, "none pending, 1 done");
        assert_contains!(status.err, "stop all processes of earlier versions");
    })
    .await;
}
