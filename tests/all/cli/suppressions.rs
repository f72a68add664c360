//! `suppressions`: list masked addresses, import and lift them. `explain` names the reason.

use serde_json::Value;

use super::Desk;
use crate::support::{assert_contains, assert_starts_with};

const BOUNCES: &str = "\u{feff}address,code,error,created_at\n\
    \"ada@example.org\",550,\"5.1.1 no such user\",2014-04-19\n\
    ben@example.org;550\n\
    not an address,1\n\
    \n\
    cem@example.org\n";

#[test]
fn the_list_names_the_users_of_an_address() {
    let desk = Desk::with_people();
    desk.write("twin", r#"{"id": "twin", "email": "Ada@example.org"}"#);
    desk.done(&["import", "users", "twin"]);
    for address in ["ada@example.org", "zoe@example.org"] {
        desk.done(&["suppressions", "add", address]);
    }

    let listed = desk.done(&["suppressions"]);

    let lines: Vec<&str> = listed.lines().collect();
    assert!(lines[0].ends_with("a…@example.org  ada, twin"), "{listed}");
    assert!(lines[1].ends_with("z…@example.org"), "{listed}");
}

#[test]
fn the_list_of_a_provider_is_imported_and_bad_lines_are_reported() {
    let desk = Desk::with_people();
    desk.write("bounces.csv", BOUNCES);
    desk.write(
        "more.ndjson",
        r#"{"address": "ADA@example.org", "reason": "complaint", "at": "2014-04-19T10:00:00Z", "source": "postmark", "detail": "512"}
{"address": "eve@example.org"}
{"address": "eve@example.org", "reason": "bounce"}
{"address": "eve"#,
    );

    let csv = desk.run(&["suppressions", "import", "bounces.csv", "--reason", "hard_bounce"]);
    let json = desk.run(&["suppressions", "import", "more.ndjson", "--json"]);

    assert_eq!((csv.code, csv.out.as_str()), (3, "import: 3 addresses, 1 bad line skipped\n"));
    assert_starts_with!(csv.err, "bounces.csv, line 4: email address \"n…\" has no @");
    assert_eq!((json.code, &json.json()["taken"], &json.json()["bad"]), (3, &2.into(), &2.into()));
    assert_starts_with!(json.err, "more.ndjson, line 3, reason: unknown variant `bounce`");

    let listed = desk.done(&["suppressions", "--json"]);
    let listed: Vec<Value> =
        listed.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    let rows: Vec<_> = listed
        .iter()
        .map(|one| {
            (
                one["address"].as_str().unwrap(),
                one["reason"].as_str().unwrap(),
                one["source"].as_str().unwrap(),
            )
        })
        .collect();
    assert_eq!(
        rows,
        [
            ("a…@example.org", "complaint", "postmark"),
            ("b…@example.org", "hard_bounce", "operator"),
            ("c…@example.org", "hard_bounce", "operator"),
            ("e…@example.org", "manual", "operator"),
        ]
    );
}

#[test]
fn full_addresses_are_shown_only_with_reveal() {
    let desk = Desk::with_people();
    assert_eq!(desk.done(&["suppressions"]), "no address is suppressed\n");
    let added = desk.done(&["suppressions", "add", "ada@example.org"]);
    assert_eq!(added, "a…@example.org is suppressed: manual\n");

    let masked = desk.done(&["suppressions"]);
    let revealed = desk.done(&["suppressions", "--reveal"]);
    let lines = desk.done(&["suppressions", "--json", "--reveal"]);

    assert_contains!(masked, "manual");
    assert_contains!(masked, "a…@example.org");
    assert!(!masked.contains("ada@"), "{masked}");
    assert!(revealed.contains("ada@example.org"), "{revealed}");
    // The revealed list can be imported elsewhere.
    let other = Desk::new();
    other.write("list", &lines);
    other.run(&["suppressions", "import", "list"]).done();
    assert_eq!(other.run(&["suppressions", "--json", "--reveal"]).done(), lines);
}

#[test]
fn a_suppressed_user_gets_no_digest_and_explain_says_why() {
    let desk = Desk::with_people();
    desk.done(&["suppressions", "add", "ada@example.org", "--reason", "complaint"]);
    desk.done(&["notify", "Published", "a1", "--to", "ada", "cem"]);

    let ran = desk.run(&["digest", "--now", "--json"]);
    let explained = desk.done(&["explain", "ada"]);
    let explained_json = desk.run(&["explain", "ada", "--json"]).json();
    let status = desk.run(&["status", "--json"]).json();

    assert_eq!(ran.json()["unmailable"]["suppressed after a complaint"], 1, "{}", ran.out);
    assert_eq!(ran.json()["emails"]["sent"], 1, "{}", ran.out);
    assert_contains!(explained, "no email is sent: they are suppressed after a complaint",);
    assert_contains!(explained, "their address: complaint since 2");
    assert!(explained.contains("from operator"), "{explained}");
    assert_eq!(explained_json["suppression"]["reason"], "complaint");
    assert_eq!(status["suppressed"]["complaint"], 1);
    assert_eq!(status["heard"]["sent"], 1);

    let lifted = desk.done(&["suppressions", "lift", "ADA@example.org"]);
    let again = desk.done(&["suppressions", "lift", "ada@example.org"]);
    assert_eq!(lifted, "A…@example.org can be emailed again\n");
    assert_eq!(again, "a…@example.org was not suppressed\n");
    assert_eq!(desk.run(&["digest", "--now", "--json"]).json()["emails"]["sent"], 1);
}

#[test]
fn an_invalid_address_or_reason_is_wrong_usage() {
    let desk = Desk::new();
    for arguments in [
        &["suppressions", "add", "nobody"][..],
        &["suppressions", "add", "a@example.org", "--reason", "bounce"],
        &["suppressions", "lift", "nobody"],
        &["suppressions", "import"],
    ] {
        assert_eq!(desk.run(arguments).code, 2, "{arguments:?}");
    }
}
