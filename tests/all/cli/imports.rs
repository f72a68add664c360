//! `import`: keeps good lines, and reports bad ones with their line numbers. Unknown types and
//! fields are rejected.

use std::io::Write;
use std::process::Stdio;

use super::Desk;

const USERS: &str = r#"{"id": "ada", "email": "ada@example.org"}
{"id": "ben", "email": "nowhere"}

{"id": "cem"
{"id": 7, "digest": {"hour": 24}}
{"id": 8}
"#;

#[test]
fn bad_lines_are_reported_by_number_and_good_ones_are_kept() {
    let desk = Desk::new();
    desk.write("users.ndjson", USERS);

    let ran = desk.run(&["import", "users", "users.ndjson"]);

    assert_eq!((ran.code, ran.out.as_str()), (3, "import: 2 users, 3 bad lines skipped\n"));
    let lines: Vec<_> = ran.err.lines().collect();
    assert!(
        lines[0].starts_with("users.ndjson, line 2, email: email address \"n…\" has no @"),
        "{}",
        ran.err
    );
    assert!(
        lines[1]
            .starts_with("users.ndjson, line 4: ends in the middle of its JSON, after column 12;"),
        "{}",
        ran.err
    );
    assert!(lines[2].starts_with("users.ndjson, line 5: digest hour \"24\""), "{}", ran.err);
    assert!(desk.run(&["explain", "8", "--json"]).json()["known"].as_bool().unwrap());
}

#[test]
fn a_file_with_only_bad_lines_fails() {
    let desk = Desk::new();
    desk.write("follows", "{}\n[]\n");

    let ran = desk.run(&["import", "follows", "follows", "--json"]);

    assert_eq!(ran.code, 1, "{}", ran.err);
    assert_eq!((&ran.json()["taken"], &ran.json()["bad"]), (&0.into(), &2.into()));
    assert_eq!(
        ran.err,
        "follows, line 1: has no field `user`, which is needed\n\
         follows, line 2: is not a JSON object, which begins with {; write one a line\n"
    );
}

#[test]
fn an_invalid_locale_is_rejected_but_one_without_a_catalog_is_not() {
    let desk = Desk::new();
    desk.write(
        "users",
        "{\"id\": \"ada\", \"locale\": \"german!\"}\n{\"id\": \"ben\", \"locale\": \"tlh-KX\"}\n",
    );

    let ran = desk.run(&["import", "users", "users", "--json"]);

    let counts = ran.json();
    assert_eq!((&counts["taken"], &counts["bad"]), (&1.into(), &1.into()));
    assert_eq!(
        ran.err,
        "users, line 1: locale \"german!\" is no language tag; write one such as de or pt-BR, or leave it out for English\n"
    );
}

#[test]
fn the_help_lists_every_field_of_every_kind() {
    let desk = Desk::new();
    let help = desk.done(&["import", "--help"]);
    let all = help.split("All fields").nth(1).unwrap();
    desk.write("lines", r#"{"": 1}"#);

    for (kind, next) in [
        ("users", "follows"),
        ("follows", "objects"),
        ("objects", "events"),
        ("events", "Examples"),
    ] {
        let message = desk.run(&["import", kind, "lines"]).err;
        let known: Vec<&str> = message.split('`').skip(3).step_by(2).collect();
        assert!(!known.is_empty(), "{message}");

        let listed = all.split(&format!("  {kind} ")).nth(1).unwrap();
        let listed = listed.split(next).next().unwrap();
        let listed: Vec<&str> = listed.split(|c: char| !c.is_alphanumeric() && c != '_').collect();
        // Aliases, which the help leaves out.
        let aliases = ["_id", "object"];
        for field in known.iter().filter(|field| !aliases.contains(field)) {
            assert!(listed.contains(field), "{kind}: {field} in {listed:?}");
        }
    }
}

#[test]
fn events_imported_twice_from_standard_input_are_added_once() {
    let desk = Desk::with_people();
    let import = || {
        let mut child = desk
            .command(&["import", "events", "-"])
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .spawn()
            .unwrap();
        let line = br#"{"type": "Published", "objects": ["a1"], "followers_of": "artist:1"}"#;
        child.stdin.take().unwrap().write_all(line).unwrap();
        super::Ran::from(child.wait_with_output().unwrap()).done()
    };

    assert_eq!(import(), "import: 1 event, 1 fan-out reached 3 users\n");
    assert_eq!(import(), "import: 1 event, 0 fan-outs reached 0 users\n");
    assert_eq!(desk.run(&["feed", "ada", "--json"]).json()["items"].as_array().unwrap().len(), 1);
}

#[test]
fn strict_types_rejects_other_types_in_commands_and_files() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "strict_types = true\n[types.Loan]\n");
    let line =
        |kind: &str| format!("{{\"type\": {kind:?}, \"objects\": \"a1\", \"to\": \"ada\"}}\n");
    desk.write("events", &(line("Loan") + &line("Laon")));

    let known = desk.run(&["notify", "Loan", "a1", "--to", "ada"]);
    let other = desk.run(&["notify", "Laon", "a1", "--to", "ada"]);
    let imported = desk.run(&["import", "events", "events"]);

    assert_eq!(known.code, 0, "{}", known.err);
    assert_eq!((other.code, other.out.as_str()), (2, ""));
    let why = "type \"Laon\" is not configured, and strict_types refuses others";
    assert!(other.err.contains(why), "{}", other.err);
    assert_eq!(imported.code, 3, "{}", imported.err);
    assert!(imported.err.contains("line 2, type: "), "{}", imported.err);
}

#[test]
fn events_accept_the_field_objects_but_not_object() {
    let desk = Desk::with_people();
    desk.write("events", r#"{"type": "Met", "object": "a1", "to": "ada"}"#);

    let ran = desk.run(&["import", "events", "events"]);

    assert_eq!(ran.code, 1, "{}", ran.err);
    assert!(ran.err.contains("unknown field `object`"), "{}", ran.err);
}
