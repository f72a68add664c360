//! `demo`: its output, the folder it creates, and the folders it does not touch.

use std::path::Path;

use super::{Desk, Ran};
use crate::support::{assert_contains, assert_starts_with};

#[test]
fn the_output_matches_the_snapshot() {
    let story = Desk::new().run(&["demo"]).done();

    insta::assert_snapshot!("demo", dateless(&story));
}

/// Replaces dates, times and ids with placeholders, and each run of spaces with one space.
fn dateless(story: &str) -> String {
    const MONTHS: [&str; 12] = [
        "January",
        "February",
        "March",
        "April",
        "May",
        "June",
        "July",
        "August",
        "September",
        "October",
        "November",
        "December",
    ];
    let mut out = String::new();
    for line in story.lines() {
        let words: Vec<&str> = line.split_whitespace().collect();
        for (index, word) in words.iter().enumerate() {
            let bare = word.trim_end_matches(['.', ',', ';']);
            let before = index.checked_sub(1).map_or("", |index| words[index]);
            let after = words.get(index + 1).map_or("", |word| word.trim_end_matches('.'));
            let is_date = |word: &str| word.parse::<chrono::NaiveDate>().is_ok();
            out += match bare {
                _ if is_date(bare) => "DATE",
                _ if bare.contains(':') && is_date(before) => "TIME",
                _ if MONTHS.contains(&bare) => "MONTH",
                _ if MONTHS.contains(&after) || MONTHS.contains(&before) => "NUMBER",
                _ if bare.len() == 24 && bare.chars().all(|c| c.is_ascii_hexdigit()) => "ID",
                _ if bare.starts_with("digest:") && bare.len() > 7 => "DELIVERY",
                _ if bare.parse::<tidings::domain::Position>().is_ok() => "ITEM",
                _ => word,
            };
            out.push(' ');
        }
        out.push('\n');
    }
    out
}

#[test]
fn other_commands_can_use_the_demo_folder() {
    let desk = Desk::new();
    desk.done(&["demo", "--dir", "here"]);
    let there = |arguments: &[&str]| {
        let mut all = vec!["--config", "here/tidings.toml"];
        all.extend(arguments);
        desk.run(&all)
    };

    let feed = there(&["feed", "mara"]).done();
    let explained = there(&["explain", "ada", "--json"]).json();

    assert_contains!(feed, "A Rope for Every Boat");
    assert_contains!(feed, "The Sleeping Vineyard");
    assert!(
        explained["events"].as_array().unwrap().iter().any(|event| event["why"] == "next_digest")
    );
    there(&["digest"]).done();
}

#[test]
fn the_suggested_commands_succeed() {
    let desk = Desk::new();
    let story = desk.done(&["demo"]);
    let (_, steps) = story.split_once("Now it is yours").unwrap();
    let typed: Vec<Vec<&str>> = steps
        .lines()
        .filter_map(|line| line.trim().strip_prefix("tidings "))
        .map(|line| line.split("  ").next().unwrap().split(' ').collect())
        .collect();
    let there = |arguments: &[&str]| {
        let mut command = desk.command(arguments);
        command.current_dir(desk.path().join("tidings-demo"));
        Ran::from(command.output().unwrap())
    };
    let outbox = desk.path().join("tidings-demo/outbox");
    let before = files(&outbox).len();

    for arguments in typed.iter().filter(|arguments| arguments[0] != "serve") {
        let ran = there(arguments);
        assert_eq!(ran.code, 0, "{arguments:?}: {}{}", ran.out, ran.err);
    }

    assert!(typed.len() >= 6, "{steps}");
    let names = files(&outbox);
    let (emails, pages): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| name.ends_with(".eml"));
    assert!(emails.len() + pages.len() > before);
    assert_eq!(emails.len(), pages.len(), "each email has its page");
}

#[test]
fn every_email_has_a_file_and_a_page() {
    let desk = Desk::new();
    desk.done(&["demo"]);
    let outbox = desk.path().join("tidings-demo/outbox");

    let (emails, pages): (Vec<String>, Vec<String>) =
        files(&outbox).into_iter().partition(|name| name.ends_with(".eml"));

    assert_eq!((emails.len(), pages.len()), (7, 7));
    for name in emails.iter().chain(&pages) {
        let text = std::fs::read_to_string(outbox.join(name)).unwrap();
        assert!(!text.contains("Low Water"), "{name} includes the withdrawn work");
    }
}

fn files(folder: &Path) -> Vec<String> {
    let mut names: Vec<String> = std::fs::read_dir(folder)
        .unwrap()
        .map(|entry| entry.unwrap().file_name().into_string().unwrap())
        .collect();
    names.sort();
    names
}

#[test]
fn a_folder_with_other_files_is_rejected_and_not_touched() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path().join("mine")).unwrap();
    desk.write("mine/tidings.toml", "store = \"sqlite:precious.db\"");

    let ran = desk.run(&["demo", "--dir", "mine"]);

    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert_starts_with!(ran.err, "error: mine is not empty, and no earlier demo\n");
    assert_eq!(files(&desk.path().join("mine")), ["tidings.toml"]);
}

#[test]
fn an_earlier_demo_is_replaced_and_other_files_are_kept() {
    let desk = Desk::new();
    let first = desk.done(&["demo"]);
    desk.write("tidings-demo/notes.txt", "mine");

    let second = desk.done(&["demo"]);

    assert_eq!(dateless(&first), dateless(&second));
    assert!(desk.path().join("tidings-demo/notes.txt").exists());
}

#[test]
fn a_demo_rejects_the_option_store() {
    let ran = Desk::new().run(&["demo", "--store", "sqlite:mine.db"]);

    assert_eq!(ran.code, 2);
    assert_starts_with!(ran.err, "error: a demo has a store of its own");
}
