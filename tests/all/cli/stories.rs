//! The history of emails and events, with times and reasons, in `explain`, `deliveries`, `digest`
//! and `status`.

use std::io::{BufRead, BufReader, Read, Write};

use serde_json::Value;

use super::{Desk, now};
use crate::support::assert_contains;

/// The configuration of a provider that refuses connections.
fn unreachable() -> String {
    let free = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", free.local_addr().unwrap());
    format!(
        "[mail]\nprovider = \"resend\"\nurl = {url:?}\nkey = \"re_1\"\nfrom = \"digest@art.example\"\n"
    )
}

/// The configuration of a provider that permanently rejects every email.
fn rejecting() -> String {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let url = format!("http://{}", listener.local_addr().unwrap());
    let body = r#"{"statusCode": 422, "name": "validation_error", "message": "no such domain"}"#;
    let head = "HTTP/1.1 422 Unprocessable Entity\r\ncontent-type: application/json";
    let answer =
        format!("{head}\r\ncontent-length: {}\r\nconnection: close\r\n\r\n{body}", body.len());
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = BufReader::new(stream.unwrap());
            let (mut line, mut length) = (String::new(), 0);
            while stream.read_line(&mut line).unwrap() > 2 {
                if let Some(value) = line.to_lowercase().strip_prefix("content-length:") {
                    length = value.trim().parse().unwrap();
                }
                line.clear();
            }
            stream.read_exact(&mut vec![0; length]).unwrap();
            stream.get_mut().write_all(answer.as_bytes()).unwrap();
        }
    });
    format!(
        "[mail]\nprovider = \"resend\"\nurl = {url:?}\nkey = \"re_1\"\nfrom = \"digest@art.example\"\n"
    )
}

fn emails(desk: &Desk) -> usize {
    let outbox = std::fs::read_dir(desk.path().join("outbox"));
    outbox.map_or(0, Iterator::count)
}

#[test]
fn a_run_for_a_future_time_needs_a_dry_run() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    let ahead = (now() + chrono::TimeDelta::days(7)).to_rfc3339();

    let ran = desk.run(&["digest", "--at", &ahead]);
    let dry_run = desk.done(&["digest", "--at", &ahead, "--dry-run"]);

    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_contains!(ran.err, "lies ahead");
    assert_contains!(ran.err, "--dry-run");
    assert_eq!(emails(&desk), 0);
    assert!(dry_run.contains("1 due"), "{dry_run}");
}

#[test]
fn digest_and_status_report_deferred_emails_with_reason_and_time() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada", "cem"]);
    desk.write("tidings.toml", &(unreachable() + "[delivery]\nretry_after = \"1h\"\n"));
    desk.run(&["digest", "--now", "--no-wait"]);

    let again = desk.run(&["digest", "--no-wait"]);
    let json = desk.run(&["digest", "--no-wait", "--json"]).json();
    let status = desk.run(&["status"]).out;
    let status_json = desk.run(&["status", "--json"]).json();

    assert_eq!(again.code, 3, "{}{}", again.out, again.err);
    let line = again.err.lines().find(|line| line.contains("2 emails deferred ("));
    let line = line.unwrap_or_else(|| panic!("{}", again.err));
    assert_contains!(line, "onnect");
    assert_contains!(line, "), next attempt ");
    assert_eq!(json["emails_waiting"]["emails"], 2);
    assert_contains!(status, "waiting");
    assert_contains!(status, "2 emails deferred (");
    let reason = &status_json["waiting"]["reasons"][0];
    assert_eq!(reason["emails"], 2);
    assert!(reason["until"].is_string(), "{reason}");
}

#[test]
fn explain_names_a_pending_delivery_with_reason_and_next_attempt() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", &unreachable());
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    desk.run(&["digest", "--now", "--no-wait"]);

    let text = desk.done(&["explain", "ada"]);
    let by_address = desk.done(&["explain", "Ada@example.org"]);
    let event = desk.run(&["explain", "ada", "--json"]).json()["events"][0].clone();

    let id = event["delivery"]["id"].as_str().unwrap();
    assert!(id.starts_with("digest:ada:weekly:"), "{event}");
    assert_eq!(event["why"], "in_delivery");
    assert_eq!(event["delivery"]["state"], "pending");
    let reason = event["delivery"]["reason"].as_str().unwrap();
    assert!(reason.contains("refused"), "{reason}");
    assert!(event["delivery"]["next_attempt"].is_string(), "{event}");
    let words = |text: &str| text.split_whitespace().collect::<Vec<_>>().join(" ");
    let expected = words(&format!("waits in {id} (pending): {reason}; next attempt "));
    assert!(words(&text).contains(&expected), "{text}");
    assert_eq!(by_address, text);
    let too_wide = text.lines().find(|line| line.chars().count() > 80);
    assert_eq!(too_wide, None);
}

#[test]
fn explain_fails_for_unknown_users_and_rejects_shared_addresses() {
    let desk = Desk::with_people();
    desk.write("twin", r#"{"id": "twin", "email": "ADA@example.org", "confirmed": true}"#);

    let codes = ["zoe", "zoe@example.org"].map(|user| {
        let ran = desk.run(&["explain", user]);
        assert_contains!(ran.out, "there is no record of them");
        (ran.code, desk.run(&["explain", user, "--json"]).code)
    });
    desk.done(&["import", "users", "twin"]);
    let shared = desk.run(&["explain", "ada@example.org"]);

    assert_eq!(codes, [(1, 1); 2]);
    assert_eq!((shared.code, shared.out.as_str()), (2, ""));
    assert!(shared.err.contains("ada, twin"), "{}", shared.err);
}

#[test]
fn status_reports_runs_and_failures_and_exits_with_3_on_failures() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    let before = desk.run(&["status", "--json"]);
    desk.done(&["digest", "--now"]);
    desk.done(&["worker", "--once"]);

    let done = desk.done(&["status"]);
    let json = desk.run(&["status", "--json"]).json();
    desk.write("tidings.toml", &rejecting());
    desk.done(&["notify", "Published", "a2", "--to", "cem"]);
    let refused = desk.run(&["digest", "--now"]);
    let failed = ["", "--json"].map(|json| {
        let mut arguments = vec!["status", json];
        arguments.retain(|argument| !argument.is_empty());
        desk.run(&arguments)
    });
    let explained = desk.done(&["explain", "cem"]);

    assert_eq!(refused.code, 1, "{}{}", refused.out, refused.err);
    assert_eq!(failed.each_ref().map(|ran| ran.code), [3, 3]);
    assert_contains!(failed[0].out, "no such domain");
    assert_eq!(failed[1].json()["failed"][0]["user"], "cem");
    let words: Vec<&str> = explained.split_whitespace().collect();
    let explained = words.join(" ");
    assert!(explained.contains("will be in the next digest; digest:cem:daily:"));
    assert!(explained.contains("(failed): "), "{explained}");
    assert_eq!(before.code, 0, "{}", before.err);
    assert!(before.json()["worker"].is_null() && before.json()["digest"].is_null());
    let words: Vec<&str> = done.split_whitespace().collect();
    let done = words.join(" ");
    for line in ["worker not running; last active ", "digest last run ", ": 0 due"] {
        assert!(done.contains(line), "{line} in {done}");
    }
    assert_eq!(json["worker"]["running"], false);
    assert!(json["worker"]["seen"].is_string() && json["digest"]["at"].is_string());
}

#[test]
fn an_arabic_email_is_shown_without_replacement_characters() {
    let desk = Desk::with_people();
    desk.write(
        "lina",
        r#"{"id": "lina", "email": "lina@example.org", "confirmed": true, "locale": "ar"}"#,
    );
    desk.write(
        "works",
        r#"{"id": "a1", "title": "Night Ferry across the Wide and Quiet Harbor at Dusk", "by": "Ada Noor of the Long Family Name"}"#,
    );
    desk.done(&["import", "users", "lina"]);
    desk.done(&["import", "objects", "works"]);
    desk.done(&["notify", "Published", "a1", "--to", "lina"]);
    desk.done(&["digest", "--now"]);
    let listed = desk.run(&["deliveries", "--json"]).json();
    let id = listed[0]["id"].as_str().unwrap();

    let shown = desk.done(&["deliveries", "show", id]);
    let listed = desk.done(&["deliveries"]);

    assert!(shown.contains("Night Ferry across"), "{shown}");
    assert!(!shown.contains('\u{fffd}') && !listed.contains('\u{fffd}'), "{shown}{listed}");
}

#[test]
fn deliveries_are_listed_with_their_subjects_within_a_time_range() {
    let desk = Desk::with_people();
    desk.write("works", "{\"id\": \"a1\", \"title\": \"Night Ferry\"}\n");
    desk.done(&["import", "objects", "works"]);
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    desk.done(&["digest", "--now"]);
    let hour = |hours: i64| (now() + chrono::TimeDelta::hours(hours)).to_rfc3339();
    let listed = |arguments: &[&str]| {
        let ran = desk.run(&[&["deliveries", "--json"], arguments].concat());
        ran.json().as_array().unwrap().len()
    };

    let text = desk.done(&["deliveries"]);
    let row = desk.run(&["deliveries", "--json"]).json()[0].clone();

    let subject = row["subject"].as_str().unwrap();
    assert!(!subject.is_empty() && text.contains(subject), "{text}");
    assert_eq!(listed(&["--since", &hour(-1)]), 1);
    assert_eq!(listed(&["--since", &hour(1)]), 0);
    assert_eq!(listed(&["--until", &hour(-1), "--user", "ada"]), 0);
    assert_eq!(listed(&["--bounced"]), 0);
}

#[test]
fn deliveries_are_listed_although_a_template_is_broken() {
    let desk = Desk::with_people();
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    desk.done(&["digest", "--now"]);
    desk.write("tidings.toml", "[mail]\ntemplates = \"own\"\n");
    std::fs::create_dir_all(desk.path().join("own/digest")).unwrap();
    desk.write("own/digest/subject.txt", "{% if %}");

    let text = desk.done(&["deliveries"]);

    assert!(text.contains("digest:ada:weekly:"), "{text}");
}

#[test]
fn explain_names_the_email_or_the_flush_that_covers_an_event() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "[digest]\nsection_items = 1\n");
    for object in ["a1", "a2"] {
        desk.done(&["notify", "Published", object, "--to", "ada", "cem"]);
    }
    desk.done(&["digest", "--now", "--user", "ada"]);
    desk.done(&["flush", "cem"]);

    let explained = |person: &str| desk.run(&["explain", person, "--json"]).json();
    let (ada, cem) = (explained("ada"), explained("cem"));
    let text = desk.done(&["explain", "ada"]);

    let places = ada["events"].as_array().unwrap().iter();
    let mut places: Vec<&str> =
        places.map(|event| event["covered"]["place"].as_str().unwrap()).collect();
    places.sort_unstable();
    assert_eq!(places, ["counted", "shown"]);
    let by = &ada["events"][0]["covered"];
    assert_eq!((&by["by"], &by["state"]), (&"email".into(), &"sent".into()));
    let id = by["delivery"].as_str().unwrap();
    assert!(id.starts_with("digest:ada:weekly:") && text.contains(id), "{text}");
    assert_contains!(text, "was shown in");
    assert_contains!(text, "(\"+N more\")");
    for event in cem["events"].as_array().unwrap() {
        assert_eq!(event["covered"]["by"], "flush");
        assert!(event["covered"]["at"].is_string());
    }
}

#[test]
fn a_delivery_is_shown_with_its_history_and_its_email() {
    let desk = Desk::with_people();
    desk.write("works", "{\"id\": \"a1\", \"title\": \"Night Ferry\"}\n");
    desk.done(&["import", "objects", "works"]);
    desk.done(&["notify", "Published", "a1", "--to", "ada", "cem"]);
    desk.done(&["digest", "--now", "--user", "ada"]);
    desk.write("tidings.toml", &unreachable());
    desk.run(&["digest", "--now", "--no-wait", "--user", "cem"]);
    let listed = desk.run(&["deliveries", "--json"]).json();
    let id = |state: &str| -> String {
        let rows = listed.as_array().unwrap().iter();
        let mut rows = rows.filter(|row| row["state"] == state);
        rows.next().unwrap()["id"].as_str().unwrap().to_owned()
    };

    let sent = desk.done(&["deliveries", "show", &id("sent")]);
    let pending = desk.done(&["deliveries", "show", &id("pending")]);
    let json = desk.run(&["deliveries", "show", &id("sent"), "--json"]).json();
    let none = desk.run(&["deliveries", "show", "digest:nobody"]);

    for word in ["sent", "to ada, a…@example.org", "created", "handed over", "Night Ferry"] {
        assert!(sent.contains(word), "{word} in {sent}");
    }
    for word in ["pending", "waits until", "because", "Night Ferry"] {
        assert!(pending.contains(word), "{word} in {pending}");
    }
    assert_eq!(json["email"]["items"][0]["title"], "Night Ferry");
    assert_eq!(json["to"], "a…@example.org");
    assert!(json["email"]["html"].as_str().unwrap().contains("Night Ferry"));
    assert!(!(sent + &pending).contains("ada@") && json["no_email"] == Value::Null);
    assert_eq!((none.code, none.out.as_str()), (2, ""));
    assert_eq!(emails(&desk), 1, "looking sends nothing");
}

#[test]
fn explain_names_mandatory_types_and_types_outside_the_feed() {
    let desk = Desk::new();
    desk.write(
        "tidings.toml",
        "[types.Alarm]\nmandatory = true\nfeed = false\n[types.Reply]\ncategory = \"Community\"\n",
    );
    desk.fill();
    desk.write(
        "left",
        r#"{"id": "ada", "email": "ada@example.org", "confirmed": true, "unsubscribed": true}"#,
    );
    desk.done(&["import", "users", "left"]);
    for (kind, object) in [("Alarm", "a1"), ("Reply", "a2"), ("Other", "a3")] {
        desk.run(&["notify", kind, object, "--to", "ada"]);
    }

    let explained = desk.done(&["explain", "ada"]);
    let feed = desk.done(&["feed", "ada"]);

    for expected in [
        "no email is sent: they are unsubscribed, so none but of mandatory types",
        "will be in the next digest; mandatory, so their choices do not count; not in the feed",
        "waits: they get no digests",
    ] {
        let text = explained.split_whitespace().collect::<Vec<_>>().join(" ");
        assert!(text.contains(expected), "{expected} in {text}");
    }
    let shows = |text: &str| ["a1", "a2", "a3"].map(|object| text.contains(object));
    assert_eq!(shows(&feed), [false, true, true], "{feed}");
}

#[test]
fn explain_names_disabled_types_and_shows_titles_from_about() {
    let desk = Desk::with_people();
    desk.write(
        "tidings.toml",
        "[types.Rule]\nmandatory = true\n[types.Comment]\nmodel = \"Comment\"\n",
    );
    desk.write(
        "ada",
        r#"{"id": "ada", "email": "ada@example.org", "confirmed": true, "types": {"Rule": {"route": "never"}, "Loan": {"route": "never"}, "Comment": {"route": "digest"}}}"#,
    );
    desk.write(
        "c7",
        r#"{"id": "Comment:c7", "data": {"about": {"title": "Budget", "url": "https://x.example/b"}}}"#,
    );
    desk.done(&["import", "users", "ada"]);
    desk.done(&["import", "objects", "c7"]);
    desk.done(&["notify", "Comment", "c7", "--to", "ada"]);

    let explained = desk.done(&["explain", "ada"]);
    let feed = desk.done(&["feed", "ada"]);

    assert_contains!(explained, "\n  off     Loan, as they chose\n");
    for output in [&explained, &feed] {
        assert!(output.contains("  Budget "), "{output}");
        assert!(!output.contains("Comment:c7"), "{output}");
    }
}

#[test]
fn explain_can_be_filtered_by_object_and_type() {
    let desk = Desk::with_people();
    for (kind, object) in [("Published", "a1"), ("Loan", "a1"), ("Loan", "a2")] {
        desk.done(&["notify", kind, object, "--to", "ada"]);
    }

    let explained = |only: &[&str]| {
        let ran = desk.run(&[&["explain", "ada"], only, &["--json"]].concat());
        let events = ran.json()["events"].as_array().unwrap().clone();
        let name =
            |event: &Value| format!("{} {}", event["type"], event["object"]).replace('"', "");
        events.iter().map(name).collect::<Vec<_>>()
    };

    assert_eq!(explained(&[]), ["Loan a2", "Loan a1", "Published a1"]);
    assert_eq!(explained(&["a1"]), ["Loan a1", "Published a1"]);
    assert_eq!(explained(&["Loan", "a1"]), ["Loan a1"]);
    let none = desk.done(&["explain", "ada", "Loan", "a9"]);
    assert!(none.contains("Loan a9 is not on their stacks"), "{none}");
}
