//! Exit codes, and what a failure says: which value, why, and what to do.

use super::{Desk, Ran};

/// Wrong usage: exit code 2, nothing on standard output, and this in the message.
fn refused(ran: Ran, expected: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.starts_with("error: "), "{}", ran.err);
    assert!(ran.err.contains(expected), "{expected} in {}", ran.err);
}

#[test]
fn wrong_arguments_are_refused_with_their_value() {
    let desk = Desk::with_people();
    for (arguments, expected) in [
        (&["notify", "X"][..], "<OBJECT>"),
        (&["notify", "X", "a1"], "--followers-of"),
        (
            &["notify", "X", "a1", "--to", "ada", "--near", "1,2,3"],
            "cannot be used with",
        ),
        (
            &["notify", "X", "a1", "--near", "1,2"],
            "such as -9.14,38.72,25",
        ),
        (
            &["notify", "X", "a1", "--near", "1,99,3"],
            "latitude \"99\"",
        ),
        (&["notify", "X", "a1", "--near", "1,2,0"], "km \"0\""),
        (&["notify", "X", "a1", "--to", " "], "user id \" \""),
        (
            &["notify", "X", "a1", "--to", "ada", "--key", ""],
            "idempotency key \"\"",
        ),
        (
            &["notify", "X", "a1", "--to", "ada", "--at", "noon"],
            "'noon'",
        ),
        (&["feed", "ada", "--limit", "0"], "limit \"0\""),
        (&["feed", "ada", "--days", "9"], "days \"9\""),
        (&["feed", "ada", "--before", "x"], "'x'"),
        (&["digest", "--cadence", "yearly"], "'yearly'"),
        (&["digest", "--limit", "0"], "'0'"),
        (&["import", "dogs", "x"], "'dogs'"),
        (
            &["import", "users", "x", "--model", "Artwork"],
            "--model and --map are for objects",
        ),
        (
            &["import", "objects", "x", "--map", "by"],
            "such as by=artist",
        ),
        (
            &["archive", "--keep", "3d"],
            "archive.keep: is shorter than the window of 8 days",
        ),
        (&["archive", "--keep", "soon"], "\"soon\" is not a duration"),
        (&["juggle"], "'juggle'"),
        (&["status", "--log", "loud"], "'loud'"),
    ] {
        refused(desk.run(arguments), expected);
    }
}

#[test]
fn wrong_configuration_is_refused_with_all_its_problems() {
    let desk = Desk::new();
    desk.write("tidings.toml", "color = 1\n[digest]\nhour = 24");

    let ran = desk.run(&["status"]);

    assert!(ran.err.contains("color: is not an option"), "{}", ran.err);
    refused(ran, "digest.hour: 24 is not a whole number");
    refused(
        desk.run(&["--config", "nowhere.toml", "status"]),
        "nowhere.toml: cannot be read",
    );
    refused(
        Desk::new().run(&["--store", "bogus", "status"]),
        "\"bogus\" is not sqlite:PATH",
    );
}

#[test]
fn a_store_that_cannot_be_there_says_what_to_do() {
    let ran = Desk::new().run(&[
        "--store",
        "sqlite:no/such/folder.db",
        "import",
        "users",
        "-",
    ]);

    refused(ran, "no/such does not exist\n  try: mkdir -p no/such");
}

#[test]
fn a_file_that_is_not_there_has_failed_with_its_name() {
    for arguments in [&["import", "users", "nowhere"][..], &["restore", "nowhere"]] {
        let ran = Desk::new().run(arguments);

        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert!(
            ran.err.starts_with("error: opening nowhere: No such file"),
            "{}",
            ran.err
        );
    }
}

#[test]
fn help_and_version_are_done_and_nothing_at_all_is_not() {
    let desk = Desk::new();

    assert!(desk.run(&["--version"]).done().starts_with("tidings 0."));
    assert!(
        desk.run(&["help", "feed"])
            .done()
            .contains("Usage: tidings feed")
    );
    assert_eq!(desk.run(&[]).code, 2);
}

#[test]
fn a_reader_who_goes_away_is_no_failure() {
    let desk = Desk::new();
    let mut child = desk
        .command(&["config", "--defaults"])
        .stdout(std::process::Stdio::piped())
        .spawn()
        .unwrap();

    drop(child.stdout.take());

    assert!(child.wait().unwrap().success());
}

#[test]
fn the_configuration_is_shown_without_its_secrets() {
    let desk = Desk::new();
    desk.write("tidings.toml", "[server]\nkey = \"s3cret\"");

    let shown = desk.run(&["config"]).done();

    assert!(shown.starts_with("# From the defaults, tidings.toml, the environment and flags."));
    assert!(
        shown.contains("key = \"(hidden)\"") && !shown.contains("s3cret"),
        "{shown}"
    );
}

#[test]
fn the_documented_defaults_can_be_used_as_they_are() {
    let desk = Desk::new();
    let defaults = desk.run(&["config", "--defaults"]).done();

    desk.write("tidings.toml", &defaults);
    desk.fill();

    desk.run(&["status"]).done();
}

#[test]
fn whoever_stops_reading_help_is_told_of_no_error() {
    let desk = Desk::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);

    let ran = desk.command(&["digest", "--help"]).stdout(writer).output();

    let ran = ran.unwrap();
    let said = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), said.as_ref()), (Some(0), ""));
}
