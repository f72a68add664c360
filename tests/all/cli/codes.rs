//! Exit codes and error messages. A message names the value, the reason and the remedy.

use super::{Desk, Ran};
use crate::support::assert_starts_with;

/// Asserts wrong usage: exit code 2, an empty standard output, and `expected` in the message.
fn assert_rejected(ran: Ran, expected: &str) {
    assert_eq!((ran.code, ran.out.as_str()), (2, ""), "{}", ran.err);
    assert!(ran.err.starts_with("error: "), "{}", ran.err);
    assert!(ran.err.contains(expected), "{expected} in {}", ran.err);
}

#[test]
fn invalid_arguments_are_rejected_with_their_value() {
    let desk = Desk::with_people();
    for (arguments, expected) in [
        (&["notify", "X"][..], "<OBJECT>"),
        (&["notify", "X", "a1"], "--followers-of"),
        (&["notify", "X", "a1", "--to", "ada", "--near", "1,2,3"], "cannot be used with"),
        (&["notify", "X", "a1", "--near", "1,2"], "such as -9.14,38.72,25"),
        (&["notify", "X", "a1", "--near", "1,99,3"], "latitude \"99\""),
        (&["notify", "X", "a1", "--near", "1,2,0"], "km \"0\""),
        (&["notify", "X", "a1", "--to", " "], "user id \" \""),
        (&["notify", "X", "a1", "--to", "ada", "--key", ""], "idempotency key \"\""),
        (&["notify", "X", "a1", "--to", "ada", "--at", "noon"], "'noon'"),
        (&["feed", "ada", "--limit", "0"], "limit \"0\""),
        (&["feed", "ada", "--before", "x"], "'x'"),
        (&["digest", "--cadence", "yearly"], "'yearly'"),
        (&["digest", "--limit", "0"], "'0'"),
        (&["import", "dogs", "x"], "'dogs'"),
        (&["import", "users", "x", "--model", "Artwork"], "--model is for objects"),
        (&["archive", "--keep", "3d"], "archive.keep: is shorter than the window of 8 days"),
        (&["archive", "--keep", "soon"], "\"soon\" is not a duration"),
        (&["juggle"], "'juggle'"),
        (&["status", "--log", "loud"], "'loud'"),
    ] {
        assert_rejected(desk.run(arguments), expected);
    }
}

#[test]
fn an_invalid_configuration_is_rejected_with_all_its_problems() {
    let desk = Desk::new();
    desk.write("tidings.toml", "color = 1\n[digest]\nhour = 24");

    let ran = desk.run(&["status"]);

    assert!(ran.err.contains("color: is not an option"), "{}", ran.err);
    assert_rejected(ran, "digest.hour: 24 is not a whole number");
    assert_rejected(
        desk.run(&["--config", "nowhere.toml", "status"]),
        "nowhere.toml: cannot be read",
    );
    assert_rejected(
        Desk::new().run(&["--store", "bogus", "status"]),
        "\"bogus\" is not sqlite:PATH",
    );
}

#[test]
fn a_missing_folder_of_the_store_is_reported_with_advice() {
    let ran = Desk::new().run(&["--store", "sqlite:no/such/folder.db", "import", "users", "-"]);

    assert_rejected(ran, "no/such does not exist\n  try: mkdir -p no/such");
}

#[test]
fn a_missing_file_is_a_failure_that_names_it() {
    for arguments in [&["import", "users", "nowhere"][..], &["restore", "nowhere"]] {
        let ran = Desk::new().run(arguments);

        assert_eq!((ran.code, ran.out.as_str()), (1, ""));
        assert_starts_with!(ran.err, "error: opening nowhere: No such file");
    }
}

#[test]
fn help_and_version_succeed_but_no_arguments_is_wrong_usage() {
    let desk = Desk::new();

    assert!(desk.done(&["--version"]).starts_with("tidings 0."));
    assert!(desk.done(&["help", "feed"]).contains("Usage: tidings feed"));
    assert_eq!(desk.run(&[]).code, 2);
}

#[test]
fn a_closed_pipe_is_not_a_failure() {
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
fn config_hides_secrets() {
    let desk = Desk::new();
    desk.write("tidings.toml", "[server]\nkey = \"s3cret\"");

    let shown = desk.done(&["config"]);

    assert!(shown.starts_with("# From the defaults, tidings.toml, the environment and flags."));
    assert!(shown.contains("key = \"(hidden)\"") && !shown.contains("s3cret"), "{shown}");
}

#[test]
fn the_printed_defaults_are_a_valid_configuration() {
    let desk = Desk::new();
    let defaults = desk.done(&["config", "--defaults"]);

    desk.write("tidings.toml", &defaults);
    desk.fill();

    desk.done(&["status"]);
}

#[test]
fn help_into_a_closed_pipe_prints_no_error() {
    let desk = Desk::new();
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);

    let ran = desk.command(&["digest", "--help"]).stdout(writer).output();

    let ran = ran.unwrap();
    let message = String::from_utf8_lossy(&ran.stderr);
    assert_eq!((ran.status.code(), message.as_ref()), (Some(0), ""));
}
