//! Unreadable records. Commands skip and name them, do the rest, and exit with 3.

use bson::doc;
use tidings::domain::Day;

use super::{Desk, now};
use crate::support::poison::{database, put};
use crate::support::{Fresh, assert_contains, mongo};

/// Runs a statement on the database of a desk, to damage it as a faulty program or disk would.
fn execute(desk: &Desk, statement: &str) {
    let file = rusqlite::Connection::open(desk.path().join("tidings.db")).unwrap();
    file.execute_batch(statement).unwrap();
}

/// Accepts an event for ada, makes its record unreadable, and accepts one for cem.
fn with_a_broken_fan_out() -> Desk {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "--no-wait"]);
    execute(&desk, "UPDATE fanouts SET day = 'soon'");
    desk.done(&["notify", "Published", "a2", "--to", "cem", "--no-wait"]);
    desk
}

#[test]
fn a_digest_notes_events_that_a_worker_has_leased() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "--no-wait"]);
    let until = now().timestamp_millis() + 60_000;
    let lease = format!("UPDATE fanouts SET owner = 'worker', until = {until}");
    execute(&desk, &lease);

    let digest = desk.run(&["digest", "--now"]);

    assert_eq!(digest.code, 0, "{}", digest.err);
    assert!(digest.out.contains("no user"), "{}", digest.out);
    let note = "1 accepted event is leased or being fanned out by a worker";
    assert!(digest.err.contains(note), "{}", digest.err);
}

#[test]
fn a_digest_that_fails_after_some_emails_reports_these() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[delivery]\nchunk = 1\n");
    for user in ["ada", "cem"] {
        desk.done(&["notify", "Published", "a1", "--to", user]);
    }
    execute(
        &desk,
        "CREATE TRIGGER full BEFORE UPDATE ON deliveries
         WHEN NEW.state = 'sent' AND EXISTS (SELECT 1 FROM deliveries WHERE state = 'sent')
         BEGIN SELECT RAISE(ABORT, 'the disk is full'); END",
    );

    let digest = desk.run(&["digest", "--now", "--json"]);

    assert_eq!(digest.code, 1, "{}{}", digest.out, digest.err);
    assert_eq!(digest.json()["emails"]["sent"], 1);
    assert!(digest.err.contains("the disk is full"), "{}", digest.err);
    execute(&desk, "DROP TRIGGER full");
    assert_eq!(desk.run(&["digest", "--now"]).code, 0);
}

#[test]
fn every_command_that_fans_out_names_an_unreadable_fan_out() {
    let desk = with_a_broken_fan_out();

    let worker = desk.run(&["worker", "--once", "--json"]);
    let digest = desk.run(&["digest", "--now", "--json"]);
    let notify = desk.run(&["notify", "Published", "a3", "--to", "cem", "--json"]);
    let line = r#"{"type": "Published", "objects": "a4", "to": "cem"}"#;
    desk.write("events", line);
    let import = desk.run(&["import", "events", "events", "--json"]);

    for ran in [&worker, &digest, &notify, &import] {
        assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
        assert!(ran.err.contains("skipped: fan-out "), "{}", ran.err);
        assert!(ran.err.contains("day of fan-out "), "{}", ran.err);
    }
    assert_eq!(worker.json()["fanouts"]["done"], 1);
    assert_eq!(digest.json()["emails"]["sent"], 1);
    for bad in [
        &worker.json()["fanouts"]["bad_fanouts"],
        &digest.json()["bad_fanouts"],
        &notify.json()["bad_fanouts"],
        &import.json()["fanned_out"]["bad_fanouts"],
    ] {
        assert_eq!(bad["count"], 1, "{bad}");
    }
    assert_eq!(desk.run(&["feed", "cem", "--json"]).json()["items"].as_array().unwrap().len(), 3);
}

#[test]
fn status_works_despite_an_unreadable_fan_out() {
    let desk = with_a_broken_fan_out();
    execute(&desk, "UPDATE audiences SET objects = '[' WHERE rowid = 1");

    let status = desk.run(&["status"]);

    assert_eq!(status.code, 0, "{}", status.err);
    assert!(status.out.contains("2 pending"), "{}", status.out);
}

#[test]
fn digests_are_sent_although_fan_out_fails() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    desk.done(&["notify", "Published", "a2", "--to", "cem", "--no-wait"]);
    let refuse = "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    execute(&desk, &format!("CREATE TRIGGER refuses BEFORE UPDATE ON fanouts {refuse}"));

    let ran = desk.run(&["digest", "--now"]);

    assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("1 due, 1 sent"), "{}", ran.out);
    assert!(ran.err.contains("the disk is full"), "{}", ran.err);
    let worker = desk.run(&["worker", "--once"]);
    assert_eq!(worker.code, 3, "{}{}", worker.out, worker.err);
    assert!(worker.out.starts_with("worker: "), "{}", worker.out);
    assert!(worker.err.contains("the disk is full"), "{}", worker.err);
}

#[test]
fn a_run_reports_its_results_although_a_delivery_is_unreadable() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    desk.done(&["digest", "--now"]);
    // The row is closed and belongs to another user, so only the list of waiting emails reads it.
    execute(
        &desk,
        "UPDATE deliveries SET id = 'x', user = 'zoe', slot = 'x', state = 'pending', marker = '?'",
    );
    desk.done(&["notify", "Published", "a2", "--to", "cem"]);

    let ran = desk.run(&["digest", "--now"]);
    let json = desk.run(&["digest", "--now", "--json"]);

    assert_eq!((ran.code, json.code), (3, 3), "{}{}", ran.out, ran.err);
    assert!(ran.out.contains("1 due, 1 sent"), "{}", ran.out);
    assert_contains!(ran.err, "the waiting emails could not be read");
    assert!(json.json()["emails_waiting"].is_null());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_command_that_fans_out_names_an_unreadable_stack() {
    mongo::run(async |fresh: Fresh| {
        let desk = Desk::new();
        desk.write("tidings.toml", &format!("store = {:?}\n", fresh.url()));
        desk.fill();
        let event = ["notify", "Published", "a1", "--to", "ada", "cem"];
        let not_a_list = doc! {"_id": "ada", "events": "none"};
        let database = database(&fresh).await.unwrap();
        put(&database, Day::of(now()), not_a_list).await;
        let line = r#"{"type": "Published", "objects": "a2", "to": "ada"}"#;
        desk.write("events", line);

        desk.done(&event);
        let worker = desk.run(&["worker", "--once", "--json"]);
        desk.done(&event);
        let digest = desk.run(&["digest", "--now", "--json"]);
        let notify = desk.run(&[&event[..], &["--wait", "--json"]].concat());
        let import = desk.run(&["import", "events", "events", "--wait", "--json"]);

        for ran in [&worker, &digest, &notify, &import] {
            assert_eq!(ran.code, 3, "{}{}", ran.out, ran.err);
            assert!(ran.err.contains("skipped: "), "{}", ran.err);
        }
        for bad in [
            &worker.json()["fanouts"]["bad_stacks"],
            &digest.json()["emails"]["bad_stacks"],
            &notify.json()["bad_stacks"],
            &import.json()["fanned_out"]["bad_stacks"],
        ] {
            assert_eq!((&bad["count"], &bad["first"][0]["user"]), (&1.into(), &"ada".into()));
        }
    })
    .await;
}
