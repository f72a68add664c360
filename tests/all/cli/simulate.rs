//! `simulate`: its table, its JSON, and its errors.

use std::io::Write;

use serde_json::Value;

use super::Desk;
use crate::support::assert_starts_with;

const POLICIES: &str = r#"
    [policies.window]
    window = "5m"
    [policies.cooldown]
    cooldown = "4m"
    max_wait = "15m"
"#;

/// Events for ada at 9:00, 9:01, 9:04:30 and 9:12 UTC, and for ben at 9:02.
const EVENTS: &str = r#"{"at": "2026-03-02T09:00:00Z", "user": "ada", "type": "Comment", "object": "budget"}
{"at": "2026-03-02T09:01:00Z", "user": "ada", "type": "Comment"}
{"at": "2026-03-02T09:02:00Z", "user": "ben", "type": "Comment"}
{"at": "2026-03-02T09:04:30Z", "user": "ada", "type": "Comment"}
{"at": "2026-03-02T10:12:00+01:00", "user": "ada", "type": "Comment"}
"#;

fn desk() -> Desk {
    let desk = Desk::new();
    desk.write("policies.toml", POLICIES);
    desk.write("events.ndjson", EVENTS);
    desk
}

#[test]
fn the_figures_match_those_computed_by_hand_and_no_file_is_written() {
    let desk = desk();

    let output = desk.done(&["simulate", "policies.toml", "events.ndjson"]);

    for line in [
        "simulate: 5 events for 2 users, 2026-03-02 09:00 to 2026-03-02 09:12 UTC",
        "policy    emails  per day  per user: mean  p95  max  delay: p50       p95       max  largest",
        "window         3      3.0             1.5    2    2    00:05:00  00:05:00  00:05:00        3",
        "cooldown       3      3.0             1.5    2    2    00:04:00  00:08:30  00:08:30        3",
    ] {
        assert!(output.contains(line), "{line} in {output}");
    }
    assert!(!output.contains('\x1b'), "{output}");
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 2);
}

#[test]
fn it_prints_json_and_reads_standard_input() {
    let desk = desk();
    let mut command = desk.command(&["simulate", "policies.toml", "-", "--json"]);
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(EVENTS.as_bytes()).unwrap();

    let output = child.wait_with_output().unwrap();

    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&report["events"], &report["users"]), (&5.into(), &2.into()));
    let cooldown = &report["policies"][1];
    assert_eq!(cooldown["policy"], "cooldown");
    let delay = serde_json::json!({"mean": 336.0, "p50": 240, "p95": 510, "max": 510});
    assert_eq!((&cooldown["emails"], &cooldown["delay_seconds"]), (&3.into(), &delay));
}

#[test]
fn errors_name_the_line_or_option_and_set_the_exit_code() {
    let desk = desk();
    let late: Vec<&str> = EVENTS.lines().rev().collect();
    desk.write("late.ndjson", &late.join("\n"));
    desk.write("bad.ndjson", &EVENTS.replacen("user", "person", 1));
    desk.write(
        "odd.toml",
        "[policies.a]\nwindow = \"soon\"\ncolor = 1\n[policies.b]\nkeep = \"ten\"",
    );
    desk.write("starving.toml", "[policies.a]\ncooldown = \"4m\"");

    let bad = desk.run(&["simulate", "policies.toml", "bad.ndjson"]);
    let sorted = desk.done(&["simulate", "policies.toml", "late.ndjson"]);
    let odd = desk.run(&["simulate", "odd.toml", "events.ndjson"]);
    let starving = desk.run(&["simulate", "starving.toml", "events.ndjson"]);

    assert_eq!((bad.code, bad.out.as_str()), (1, ""));
    let expected = "bad.ndjson: line 1: names neither a user nor users";
    assert!(bad.err.contains(expected), "{}", bad.err);
    assert_eq!(sorted, desk.done(&["simulate", "policies.toml", "events.ndjson"]));
    assert_eq!(odd.code, 2);
    for expected in ["policies.a.window: \"soon\"", "policies.a.color: is not", "policies.b.keep"] {
        assert!(odd.err.contains(expected), "{expected} in {}", odd.err);
    }
    assert_eq!(starving.code, 0);
    assert_starts_with!(starving.err, "note: policies.a.cooldown has no max_wait");
    for wrong in [
        &["simulate"][..],
        &["simulate", "policies.toml"],
        &["simulate", "policies.toml", "events.ndjson", "--store", "sqlite:x"],
    ] {
        assert_eq!(desk.run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn the_example_in_the_guide_matches_the_output() {
    let guide = include_str!("../../../docs/guides/batches.md");
    let chapter = guide.split("\n## Choosing windows\n").nth(1).unwrap();
    let block = |kind: &str| {
        let (_, rest) = chapter.split_once(&format!("\n```{kind}\n")).unwrap();
        rest.split_once("\n```\n").unwrap().0
    };
    let desk = Desk::new();
    desk.write("policies.toml", block("toml"));
    desk.write("events.ndjson", block("json"));

    let printed = desk.done(&["simulate", "policies.toml", "events.ndjson"]);

    assert_eq!(printed.trim_end(), block("text"));
}
