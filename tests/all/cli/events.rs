//! Events: `notify`, `retract`, `feed`, `explain` and `flush`.

use serde_json::json;

use super::{Desk, days_ago};
use crate::support::{assert_contains, assert_starts_with};

#[test]
fn notify_adds_the_event_to_the_feed_at_once() {
    let desk = Desk::with_people();

    let output = desk.done(&["notify", "Published", "a1", "--followers-of", "artist:1"]);

    assert_starts_with!(output, "accepted: reached 3 users  fan-out ");
    let feed = desk.done(&["feed", "ada"]);
    assert!(feed.contains("a1") && feed.contains("Published"), "{feed}");
}

#[test]
fn with_no_wait_an_event_waits_for_a_worker() {
    let desk = Desk::with_people();

    let output = desk.done(&["notify", "Published", "a1", "--to", "ada", "--no-wait"]);

    assert_starts_with!(output, "accepted: a worker fans it out (tidings worker --once)");
    assert_eq!(desk.done(&["feed", "ada"]), "no matching items in ada's feed\n");
    assert!(desk.done(&["status"]).contains("1 pending (oldest of "));
    assert_eq!(
        desk.done(&["worker", "--once"]),
        "worker: 1 fan-out done, 1 entry added to stacks\n"
    );
    assert!(desk.done(&["feed", "ada"]).contains("a1"));
}

#[test]
fn an_event_reaches_only_its_audience() {
    let desk = Desk::with_people();
    let reached = |arguments: &[&str]| {
        let mut all = vec!["notify", "Published", "a1", "--json"];
        all.extend(arguments);
        desk.run(&all).json()["people"].clone()
    };

    assert_eq!(reached(&["--to", "ada", "zoe"]), 2);
    assert_eq!(reached(&["--followers-of", "artist:1", "--except", "ada"]), 2);
    assert_eq!(reached(&["--near", "-9.1,38.7,25"]), 1);
    assert_eq!(reached(&["--near", "0,0,25"]), 0);
}

#[test]
fn an_actor_is_shown_by_name_in_the_feed() {
    let desk = Desk::with_people();
    let actor = ["--actor-name", "Lev Oduya"];
    let reply = ["notify", "Published", "a1", "--to", "ada"];

    let without = desk.run(&[&reply[..], &actor].concat());
    desk.done(&[&reply[..], &["--actor", "lev"], &actor].concat());

    assert_eq!(without.code, 2, "{}", without.err);
    let feed = desk.run(&["feed", "ada", "--json"]).json();
    let actor = &feed["items"][0]["actor"];
    assert_eq!((&actor["id"], &actor["name"]), (&json!("lev"), &json!("Lev Oduya")));
    assert!(desk.done(&["feed", "ada"]).contains("Lev Oduya"));
}

#[test]
fn an_unnamed_actor_is_shown_as_the_author_of_the_object() {
    let desk = Desk::with_people();
    desk.write("by", r#"{"id": "r1", "by": "Lev Oduya"}"#);
    desk.done(&["import", "objects", "by"]);

    for object in ["r1", "a1"] {
        let reply = ["notify", "Reply", object, "--to", "ada", "--actor", "lev-7"];
        desk.done(&reply);
    }

    let feed = desk.done(&["feed", "ada"]);
    let line = |object: &str| feed.lines().find(|line| line.contains(object)).unwrap();
    assert!(line("r1").contains("Lev Oduya"), "{feed}");
    assert!(line("a1").contains("lev-7"), "{feed}");
}

#[test]
fn a_repeated_key_is_a_duplicate_or_a_conflict() {
    let desk = Desk::with_people();
    let notify =
        |object| desk.run(&["notify", "Published", object, "--to", "ada", "--key", "k", "--json"]);

    let (first, again) = (notify("a1").json(), notify("a1").json());

    assert_eq!((&first["duplicate"], &again["duplicate"]), (&json!(false), &json!(true)));
    assert_eq!(first["id"], again["id"]);
    let other = notify("a2");
    assert_eq!(other.code, 2);
    assert_contains!(other.err, "idempotency key \"k\" was used for a different event",);
    assert_eq!(desk.run(&["feed", "ada", "--json"]).json()["items"].as_array().unwrap().len(), 1);
}

#[test]
fn notify_warns_about_events_that_users_will_not_see() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[types.Published]\nmodel = \"Artwork\"\n[types.Met]");
    let withdrawn = "{\"id\": \"a9\", \"notifiable\": false}";
    desk.write("withdrawn", withdrawn);
    assert_eq!(desk.run(&["import", "objects", "withdrawn"]).code, 0);

    let unfollowed = desk.run(&["notify", "Met", "a1", "--followers-of", "artist:2"]);
    let unknown = desk.run(&["notify", "Published", "a1", "--to", "ada"]);

    assert_eq!((unfollowed.code, unfollowed.err.as_str()), (0, "note: no user follows artist:2\n"));
    let mistyped = desk.run(&["notify", "Publised", "a1", "a9", "--to", "ada"]);
    let json = desk.run(&["notify", "Published", "a1", "--to", "ada", "--json"]);
    let status = desk.run(&["status"]);

    let not_emailed = "note: objects without a record, such as \"Artwork:a1\": events about them";
    assert!(unknown.err.starts_with(not_emailed), "{}", unknown.err);
    assert_contains!(unknown.err, "in types.Published");
    assert_contains!(mistyped.err, "type \"Publised\" is not configured");
    assert_contains!(mistyped.err, "\"a9\" is withdrawn");
    assert_eq!((unknown.code, mistyped.code, json.code), (0, 0, 0));
    assert!(json.json()["warnings"][0].as_str().unwrap().contains("Artwork:a1"));
    assert_contains!(status.err, "Publised");
    assert_contains!(status.err, "Artwork:a1");
}

#[test]
fn a_feed_can_be_paged_and_filtered() {
    let desk = Desk::with_people();
    for object in ["a1", "a2", "a3"] {
        desk.done(&["notify", "Published", object, "--to", "ada"]);
    }
    desk.done(&["notify", "Met", "a4", "--to", "ada"]);
    let feed = |arguments: &[&str]| {
        let mut all = vec!["feed", "ada", "--json"];
        all.extend(arguments);
        desk.run(&all).json()
    };
    let objects = |page: &serde_json::Value| -> Vec<String> {
        let items = page["items"].as_array().unwrap();
        items.iter().map(|item| item["object"]["id"].as_str().unwrap().to_owned()).collect()
    };

    let first = feed(&["--limit", "2"]);
    let second = feed(&["--limit", "2", "--before", first["next"].as_str().unwrap()]);

    assert_eq!(
        (objects(&first), objects(&second)),
        (vec!["a4".into(), "a3".into()], vec!["a2".into(), "a1".into()])
    );
    assert!(second["next"].is_null());
    assert_eq!(objects(&feed(&["--type", "Met"])), ["a4"]);
}

#[test]
fn a_feed_includes_past_days() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "--at", &days_ago(3)]);

    assert!(desk.done(&["feed", "ada"]).contains(&days_ago(3)));
}

#[test]
fn explain_gives_the_outcome_and_the_reason_for_each_event() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--followers-of", "artist:1"]);

    let ada = desk.done(&["explain", "ada"]);
    let ben = desk.run(&["explain", "ben", "a1", "--json"]).json();
    let zoe = desk.run(&["explain", "zoe"]).out;

    assert_starts_with!(ada, "ada  a…@example.org\n  digest  weekly, Mondays at 09:00 UTC; next ");
    assert!(ada.contains("will be in the next digest"), "{ada}");
    assert_eq!(ben["unmailable"], "they are unconfirmed");
    assert_eq!(ben["events"][0]["why"], "blocked");
    assert_contains!(zoe, "no email is sent: there is no record of them");
    let other = desk.done(&["explain", "ada", "a7"]);
    assert_contains!(other, "a7 is not on their stacks of the last 8 days");
}

#[test]
fn flushed_events_are_in_no_digest_but_stay_in_the_feed() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);

    let flushed = desk.done(&["flush", "ada"]);

    assert_eq!(flushed, "flushed 1 event pending for ada: no digest includes it\n");
    assert_eq!(desk.run(&["flush", "ada", "--json"]).json(), json!({"user": "ada", "flushed": 0}));
    assert!(desk.done(&["digest", "--now"]).contains("no user is due"));
    assert!(desk.done(&["feed", "ada"]).contains("a1"));
    assert!(desk.done(&["explain", "ada"]).contains("was flushed on "));
}

#[test]
fn an_event_outside_the_window_is_rejected_with_advice() {
    let desk = Desk::with_people();
    let line = |at: &str| {
        format!("{{\"type\": \"Met\", \"objects\": \"a1\", \"to\": \"ada\", \"at\": \"{at}\"}}\n")
    };
    let (old, soon) = ("2014-04-22T09:00:00Z", "2099-01-01T00:00:00Z");
    desk.write("events", &(line(old) + &line(&format!("{}T00:00:00Z", days_ago(2)))));

    let notified =
        [old, soon].map(|at| desk.run(&["notify", "Met", "a1", "--to", "ada", "--at", at]));
    let imported = desk.run(&["import", "events", "events"]);

    for ran in notified {
        assert_eq!((ran.code, ran.out.as_str()), (2, ""));
        assert_contains!(ran.err, &days_ago(7));
        assert_contains!(ran.err, "leave the time out");
    }
    assert_eq!(imported.code, 3, "{}", imported.err);
    assert_contains!(imported.err, "line 1, at: time \"2014-04-22T09:00:00Z\"");
    assert!(desk.done(&["feed", "ada"]).contains(&days_ago(2)));
}

/// Makes an operation such as `UPDATE ON fanouts` fail from now on, as on a full disk.
fn fail_on(desk: &Desk, operation: &str) {
    let file = rusqlite::Connection::open(desk.path().join("tidings.db")).unwrap();
    let refuse = "BEGIN SELECT RAISE(ABORT, 'the disk is full'); END";
    let trigger = format!("CREATE TRIGGER refuses BEFORE {operation} {refuse}");
    file.execute_batch(&trigger).unwrap();
}

#[test]
fn an_accepted_event_is_reported_although_fan_out_fails() {
    let desk = Desk::with_people();
    fail_on(&desk, "UPDATE ON fanouts");
    let event = ["notify", "Published", "a1", "--to", "ada"];

    let ran = desk.run(&event);
    let json = desk.run(&[&event[..], &["--json"]].concat());

    assert_eq!((ran.code, json.code), (3, 3), "{}{}", ran.err, json.err);
    assert!(ran.out.starts_with("accepted: a worker"), "{}", ran.out);
    for expected in ["the disk is full", "the event is accepted"] {
        assert!(ran.err.contains(expected), "{expected} in {}", ran.err);
    }
    assert_eq!(json.json()["state"], "pending");
    let warnings = json.json()["warnings"].to_string();
    assert!(warnings.contains("the disk is full"), "{warnings}");
}

#[test]
fn only_an_event_with_a_key_can_be_repeated_after_a_failure() {
    let desk = Desk::with_people();
    fail_on(&desk, "INSERT ON fanouts");
    let event = ["notify", "Published", "a1", "--to", "ada"];
    desk.write("events", r#"{"type": "Met", "objects": "a1", "to": "ada"}"#);

    let keyed = desk.run(&[&event[..], &["--key", "k"]].concat());
    let without = [desk.run(&event), desk.run(&["import", "events", "events"])];

    assert!(keyed.err.contains("can be repeated"), "{}", keyed.err);
    for ran in without {
        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert!(!ran.err.contains("can be repeated"), "{}", ran.err);
        assert!(ran.err.contains("would be sent again"), "{}", ran.err);
    }
}

#[test]
fn an_import_is_reported_although_fan_out_fails() {
    let desk = Desk::with_people();
    fail_on(&desk, "UPDATE ON fanouts");
    let lines = "{\"type\": \"Met\", \"objects\": \"a1\", \"to\": \"ada\"}\n{}\n";
    desk.write("events", lines);

    let ran = desk.run(&["import", "events", "events"]);

    assert_eq!(ran.code, 3, "{}", ran.err);
    assert!(ran.out.starts_with("import: 1 event"), "{}", ran.out);
    for expected in ["line 2", "the disk is full"] {
        assert!(ran.err.contains(expected), "{expected} in {}", ran.err);
    }
}

#[test]
fn retract_names_the_objects_and_notes_unknown_ones() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[types.Comment]\nmodel = \"Comment\"");
    desk.write("comments", r#"{"id": "c1"}"#);
    desk.done(&["import", "objects", "comments", "--model", "Comment"]);

    let known = desk.run(&["retract", "Comment", "c1"]);
    let some = desk.run(&["retract", "Comment", "c1", "c2"]);
    let none = desk.run(&["retract", "Coment", "Comment:c2", "c3", "--json"]);

    assert_eq!(
        (known.code, known.out.as_str(), known.err.as_str()),
        (0, "retracted: Comment about Comment:c1\n", "")
    );
    assert_eq!(some.out, "retracted: Comment about Comment:c1, Comment:c2\n");
    assert_eq!(some.err, "note: there is no record of \"Comment:c2\"; check the ids\n");
    assert_eq!(none.code, 0, "{}", none.err);
    assert_contains!(none.err, "did you mean \"Comment\"?");
    assert_eq!(none.json()["objects"], json!(["Comment:c2", "c3"]));
}

#[test]
fn the_feed_of_an_unknown_user_notes_the_missing_record() {
    let desk = Desk::with_people();

    let (ada, mara) = (desk.run(&["feed", "ada"]), desk.run(&["feed", "mara"]));

    assert_eq!(ada.err, "");
    assert_eq!(mara.out, "no matching items in mara's feed\n");
    assert_eq!(
        (mara.code, mara.err.as_str()),
        (0, "note: there is no record of mara: is the id right?\n")
    );
}
