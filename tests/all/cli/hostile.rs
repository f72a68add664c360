//! Text from users cannot control the terminal of an operator: it cannot move the cursor, change
//! the direction of text, or fake a line of output.

use super::{Desk, Ran, days_ago};

/// Appends characters to a text that clear the screen, set the window title, overwrite the line
/// and reverse the text after them.
fn evil(what: &str) -> String {
    format!(
        "{what}\u{1b}[2J\u{1b}]0;owned\u{7}\u{9b}31m\u{202e}txt\u{2066}\u{200f}\rerror: all lost\u{85}"
    )
}

/// Returns the control and direction characters in a text, except line feeds.
fn control_characters(text: &str) -> Vec<char> {
    let is_direction = |c: char| matches!(c, '\u{200e}' | '\u{200f}' | '\u{61c}' | '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}');
    text.chars().filter(|c| (c.is_control() && *c != '\n') || is_direction(*c)).collect()
}

fn assert_harmless(arguments: &[&str], ran: &Ran) {
    for text in [&ran.out, &ran.err] {
        assert!(control_characters(text).is_empty(), "{arguments:?}: {text:?}");
        let is_faked = text.lines().any(|line| line.starts_with("error: all lost"));
        assert!(!is_faked, "{arguments:?}: {text}");
    }
}

#[test]
fn no_command_prints_control_characters_from_users() {
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
        vec!["digest", "--dry-run", "--now"],
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
        assert_harmless(&arguments, &desk.run(&arguments));
    }
    desk.write("tidings.toml", &config);
    assert_harmless(&["config"], &desk.run(&["config"]));
}

#[test]
fn json_output_preserves_the_text_of_users() {
    let desk = Desk::new();
    let title = evil("Title");
    let object = serde_json::json!({"_id": "a1", "title": title}).to_string();
    desk.write("users", r#"{"id": "ada", "email": "ada@example.org", "confirmed": true}"#);
    desk.write("objects", &object);
    desk.done(&["import", "users", "users"]);
    desk.done(&["import", "objects", "objects"]);
    desk.done(&["notify", "Published", "a1", "--to", "ada"]);

    let page = desk.run(&["feed", "ada", "--json"]).json();

    assert_eq!(page["items"][0]["object"]["title"], title.as_str(), "{page}");
}
