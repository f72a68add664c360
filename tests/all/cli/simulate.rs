//! `simulate`: what it prints, what it leaves behind, and what it refuses.

use std::io::Write;

use serde_json::Value;

use super::Desk;

const POLICIES: &str = r#"
    [policies.window]
    window = "5m"
    [policies.cooldown]
    cooldown = "4m"
    max_wait = "15m"
"#;

/// Ada at 9:00, 9:01, 9:04:30 and 9:12, Ben at 9:02.
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
fn a_small_stream_is_told_as_computed_by_hand_and_nothing_is_left_behind() {
    let desk = desk();

    let said = desk
        .run(&["simulate", "policies.toml", "events.ndjson"])
        .done();

    for line in [
        "simulate: 5 events for 2 people, 2026-03-02 09:00 to 2026-03-02 09:12 UTC",
        "policy    mails  a day  a person: mean  p95  max  delay: p50    p95    max  largest",
        "window        3    3.0             1.5    2    2          5m     5m     5m        3",
        "cooldown      3    3.0             1.5    2    2          4m  8m30s  8m30s        3",
        "   ≤ 1m  20.0%  ████████████▌
   ≤ 5m  80.0%  ██████████████████████████████████████████████████",
    ] {
        assert!(said.contains(line), "{line} in {said}");
    }
    assert!(!said.contains('\x1b'), "{said}");
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 2);
}

#[test]
fn a_script_gets_the_same_in_json_also_of_standard_input() {
    let desk = desk();
    let mut command = desk.command(&["simulate", "policies.toml", "-", "--json"]);
    command.stdin(std::process::Stdio::piped());
    command.stdout(std::process::Stdio::piped());
    let mut child = command.spawn().unwrap();
    child
        .stdin
        .take()
        .unwrap()
        .write_all(EVENTS.as_bytes())
        .unwrap();

    let output = child.wait_with_output().unwrap();

    let told: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!((&told["events"], &told["people"]), (&5.into(), &2.into()));
    let cooldown = &told["policies"][1];
    assert_eq!(cooldown["policy"], "cooldown");
    let delay = serde_json::json!({"p50": 240, "p95": 510, "max": 510});
    assert_eq!(
        (&cooldown["mails"], &cooldown["delay_seconds"]),
        (&3.into(), &delay)
    );
    assert_eq!(cooldown["mails_by_hour"][9], 3);
}

#[test]
fn whoever_has_no_data_and_no_policies_can_try_it_all_the_same() {
    let desk = Desk::new();

    let first = desk.run(&["simulate", "--generate=2000", "--json"]);
    let again = desk.run(&["simulate", "--generate=2000", "--json"]);
    let other = desk.run(&["simulate", "--generate=2000", "--seed", "2", "--json"]);

    let told = first.json();
    assert_eq!(told["events"], 2000);
    let policies = told["policies"].as_array().unwrap();
    assert_eq!((policies.len(), &policies[0]["mails"]), (6, &2000.into()));
    assert!(
        policies[1..]
            .iter()
            .all(|one| one["mails"].as_u64() < Some(2000))
    );
    assert_eq!(first.out, again.out);
    assert_ne!(first.out, other.out);
    assert_eq!(std::fs::read_dir(desk.path()).unwrap().count(), 0);
}

#[test]
fn a_chart_can_be_an_svg() {
    let desk = desk();

    let words = [
        "simulate",
        "policies.toml",
        "events.ndjson",
        "--chart",
        "hours",
    ];
    let said = desk
        .run(&[&words[..], &["--svg", "hours.svg"]].concat())
        .done();

    assert!(said.ends_with("chart: hours.svg\n"), "{said}");
    let svg = std::fs::read_to_string(desk.path().join("hours.svg")).unwrap();
    assert!(
        svg.starts_with("<svg ") && svg.ends_with("</svg>\n"),
        "{svg}"
    );
    assert!(svg.contains("<title>09: 3</title>"), "{svg}");
}

#[test]
fn what_is_wrong_is_told_with_its_place_and_changes_the_exit_code() {
    let desk = desk();
    let late: Vec<&str> = EVENTS.lines().rev().collect();
    desk.write("late.ndjson", &late.join("\n"));
    desk.write(
        "odd.toml",
        "[policies.a]\nwindow = \"soon\"\ncolor = 1\n[policies.b]\nkeep = \"ten\"",
    );
    desk.write("starving.toml", "[policies.a]\ncooldown = \"4m\"");

    let unordered = desk.run(&["simulate", "policies.toml", "late.ndjson"]);
    let sorted = desk
        .run(&["simulate", "policies.toml", "late.ndjson", "--sort"])
        .done();
    let odd = desk.run(&["simulate", "odd.toml", "events.ndjson"]);
    let starving = desk.run(&["simulate", "starving.toml", "events.ndjson"]);

    assert_eq!((unordered.code, unordered.out.as_str()), (1, ""));
    assert!(
        unordered
            .err
            .contains("late.ndjson: line 2: 2026-03-02T09:04:30+00:00 is before line 1")
    );
    assert_eq!(
        sorted,
        desk.run(&["simulate", "policies.toml", "events.ndjson"])
            .done()
    );
    assert_eq!(odd.code, 2);
    for expected in [
        "policies.a.window: \"soon\"",
        "policies.a.color: is not",
        "policies.b.keep",
    ] {
        assert!(odd.err.contains(expected), "{expected} in {}", odd.err);
    }
    assert_eq!(starving.code, 0);
    assert!(
        starving
            .err
            .starts_with("note: policies.a.cooldown has no max_wait"),
        "{}",
        starving.err
    );
    for wrong in [
        &["simulate"][..],
        &["simulate", "policies.toml"],
        &["simulate", "--generate=0"],
        &["simulate", "--generate", "--store", "sqlite:x"],
        &[
            "simulate",
            "--generate",
            "--svg",
            "x.svg",
            "--chart",
            "none",
        ],
    ] {
        assert_eq!(desk.run(wrong).code, 2, "{wrong:?}");
    }
}

#[test]
fn the_run_in_the_operations_guide_is_what_it_prints() {
    let guide = include_str!("../../../docs/operations.md");
    let chapter = guide.split("\n## Choosing windows\n").nth(1).unwrap();
    let shown = |from: &str, to: &str| {
        let begin = chapter.find(from).unwrap();
        let text = &chapter[begin..];
        let lines = text[..text.find(to).unwrap()].lines().map(str::trim);
        lines.collect::<Vec<_>>().join("\n")
    };
    let desk = Desk::new();
    desk.write(
        "policies.toml",
        &shown("[policies.window-5m]", "\nand the events"),
    );
    desk.write("events.ndjson", &shown("{\"at\"", "\n`object`"));

    let made_up = desk
        .run(&["simulate", "policies.toml", "--generate"])
        .done();
    let recorded = desk
        .run(&["simulate", "policies.toml", "events.ndjson"])
        .done();

    let run = shown("simulate: 100,000", "\nHow to read it");
    assert!(made_up.starts_with(&run), "{made_up}");
    assert!(
        recorded.starts_with("simulate: 3 events for 2 people"),
        "{recorded}"
    );
}
