//! Nothing that people wrote moves the operator's cursor, turns the direction of a line, or begins
//! another one.

use super::{Desk, Ran, days_ago};

/// Clears the screen, sets the window's title, goes back over the line, and turns what follows it;
/// names differ by this letter.
fn evil(what: &str) -> String {
    format!(
        "{what}\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}txt\u{2066}\u{200f}\rerror: all lost\u{85}"
    )
}

/// What a terminal would obey, or a reader could not see.
fn obeyed(text: &str) -> Vec<char> {
    let turns = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars()
        .filter(|c| (c.is_control() && *c != '\n') || turns(*c))
        .collect()
}

fn harmless(arguments: &[&str], ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        assert!(obeyed(text).is_empty(), "{arguments:?}: {text:?}");
        let begun = text.lines().any(|line| line.starts_with("error: all lost"));
        assert!(!begun, "{arguments:?}: {text}");
    }
}

#[test]
fn whatever_people_write_no_command_prints_it_raw() {
    let desk = Desk::new();
    let line = |value: serde_json::Value| value.to_string() + "\n";
    let (ada, name, title) = (evil("ada"), evil("Ada"), evil("Title"));
    desk.write(
        "users",
        &(line(serde_json::json!({"id": "ada", "name": name, "email": "ada@example.org", "confirmed": true}))
            + &line(serde_json::json!({"id": "bad", evil("field"): 1}))
            + &line(serde_json::json!({"id": "bad", "locale": evil("en")}))
            + &line(serde_json::json!({"id": "bad", "tz": evil("Mars")}))),
    );
    desk.write(
        "objects",
        &line(serde_json::json!({"_id": "a1", "title": title, "by": evil("By"), "url": evil("https://x.example/")})),
    );
    desk.write(
        "suppressed",
        &line(serde_json::json!({"address": "eve@example.org", "detail": evil("550")})),
    );
    desk.write("tidings.toml", "[types.Reply]\nroute = \"batch\"\n");
    let config = evil("nonsense = ");
    let old = days_ago(60);
    let commands: Vec<Vec<&str>> = vec![
        vec!["import", "users", "users"],
        vec!["import", "objects", "objects"],
        vec!["import", "suppressions", "suppressed"],
        vec!["import", "users", &ada],
        vec!["notify", "Published", "a1", "--to", "ada"],
        vec!["notify", "Reply", "a1", "--to", "ada"],
        vec!["notify", "Published", &title, "--to", "ada"],
        vec!["notify", "Published", "a1", "--to", "ada", "--at", &old],
        vec!["notify", "Published", "a1", "--to", "ada", "--key", &name],
        vec!["feed", "ada"],
        vec!["feed", "ada", "--json"],
        vec!["feed", &ada],
        vec!["explain", "ada"],
        vec!["explain", "ada", "--json"],
        vec!["explain", &ada],
        vec!["batches"],
        vec!["batches", "--json"],
        vec!["suppressions"],
        vec!["suppressions", "--json"],
        vec!["status"],
        vec!["digest", "--dry-run", "--now", "--sample", "3"],
        vec!["digest", "--user", &ada, "--dry-run"],
        vec!["worker", "--once"],
        vec!["digest", "--now"],
        vec!["deliveries"],
        vec!["deliveries", "--json"],
        vec!["flush", "ada"],
        vec!["flush", &ada],
        vec!["archive", "--dry-run"],
        vec!["restore", &ada],
        vec!["config"],
        vec!["doctor", "--offline"],
        vec!["doctor", "--offline", "--json"],
        vec!["config", "--store", &ada],
    ];
    for arguments in commands {
        harmless(&arguments, &desk.run(&arguments));
    }
    desk.write("tidings.toml", &config);
    harmless(&["config"], &desk.run(&["config"]));
}

#[test]
fn what_is_printed_for_programs_says_what_people_wrote() {
    let desk = Desk::new();
    let title = evil("Title");
    let object = serde_json::json!({"_id": "a1", "title": title}).to_string();
    desk.write(
        "users",
        r#"{"id": "ada", "email": "ada@example.org", "confirmed": true}"#,
    );
    desk.write("objects", &object);
    desk.run(&["import", "users", "users"]).done();
    desk.run(&["import", "objects", "objects"]).done();
    desk.run(&["notify", "Published", "a1", "--to", "ada"])
        .done();

    let page = desk.run(&["feed", "ada", "--json"]).json();

    assert_eq!(
        page["items"][0]["object"]["title"],
        title.as_str(),
        "{page}"
    );
}
