//! The examples in the README work as printed.

use super::Desk;
use crate::support::assert_contains;

const README: &str = include_str!("../../../README.md");

/// Returns the lines of code between two texts in the README.
fn code(from: &str, to: &str) -> Vec<&'static str> {
    let (_, rest) = README.split_once(from).unwrap();
    let (part, _) = rest.split_once(to).unwrap();
    // Between fences, every other part is code. Its first line names the language.
    let blocks = part.split("```").skip(1).step_by(2);
    blocks.flat_map(|block| block.lines().skip(1)).collect()
}

/// Returns the arguments of a `tidings` command line, without its comment.
fn arguments(line: &str) -> Option<Vec<&str>> {
    let typed = line.split('#').next()?.trim();
    Some(typed.strip_prefix("tidings ")?.split_whitespace().collect())
}

#[test]
fn the_example_request_is_an_event() {
    let desk = Desk::new();
    desk.write("people", r#"{"id": "bo"}"#);
    desk.done(&["import", "users", "people"]);
    desk.write("works", r#"{"id": "W41"}"#);
    desk.done(&["import", "objects", "works", "--model", "Artwork"]);
    let lines = code("# tidings", "## Why");
    let body = lines.iter().find_map(|line| line.trim().strip_prefix("-d '")?.strip_suffix('\''));
    desk.write("events", body.unwrap());

    let ran = desk.run(&["import", "events", "events"]);

    assert_eq!(ran.code, 0, "{}", ran.err);
    assert!(ran.out.starts_with("import: 1 event"), "{}", ran.out);
}

#[test]
fn the_example_of_a_burst_sends_one_email() {
    let desk = Desk::new();
    desk.write("people", r#"{"id": "mara", "email": "mara@example.org", "confirmed": true}"#);
    desk.done(&["import", "users", "people"]);
    let lines = code("## A burst becomes one email", "## How it works");
    let toml: Vec<&str> = lines.iter().copied().take_while(|line| !line.starts_with('{')).collect();
    desk.write("tidings.toml", &toml.join("\n"));
    let object = lines.iter().find(|line| line.starts_with('{')).unwrap();
    let comments = [("c1", "Ada"), ("c2", "Ben"), ("c3", "Cem"), ("c4", "Dee")];
    let comments = comments.map(|(id, by)| object.replace("c1", id).replace("Ada", by));
    desk.write("comments.ndjson", &comments.join("\n"));

    for typed in lines.iter().filter_map(|line| arguments(line)) {
        desk.done(&typed);
    }
    let listed = desk.run(&["batches", "--json"]).json();
    let id = listed[0]["id"].as_str().unwrap();
    desk.done(&["batches", "close", id]);
    desk.run(&["worker", "--once"]);

    let mut emails = std::fs::read_dir(desk.path().join("outbox")).unwrap();
    let email = std::fs::read_to_string(emails.next().unwrap().unwrap().path()).unwrap();
    assert!(emails.next().is_none());
    assert!(email.contains("and 2 others commented on Budget"), "{email}");
    for id in ["c1", "c2", "c3", "c4"] {
        assert!(
            !email.contains(&format!("Comment:{id}")) && !email.contains(&format!("- {id}")),
            "{email}"
        );
    }
}

#[test]
fn the_cron_lines_name_the_configuration_and_work_from_any_folder() {
    let desk = Desk::with_people();
    desk.write("tidings.toml", "");
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);
    let own = desk.path().join("tidings.toml").display().to_string();
    let lines = code("three lines of cron do", "## How it compares");
    let typed: Vec<String> = lines
        .iter()
        .filter_map(|line| line.split('#').next()?.split_once("tidings "))
        .map(|(_, arguments)| arguments.to_owned())
        .collect();
    let elsewhere = Desk::new();

    assert_eq!(typed.len(), 3, "{lines:?}");
    for arguments in typed {
        assert_contains!(arguments, "--config /etc/tidings/tidings.toml");
        let arguments = arguments
            .replace("/etc/tidings/tidings.toml", &own)
            .replace("/var/lib/tidings/archive", "exported");
        let arguments: Vec<&str> = arguments.split_whitespace().collect();
        elsewhere.run(&arguments).done();
    }
    let left: Vec<_> = std::fs::read_dir(elsewhere.path()).unwrap().collect();
    assert!(left.len() <= 1, "{left:?}");
}
