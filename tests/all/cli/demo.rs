//! `demo`: told the same on any day, true to what lies in the folder, and harmless to other
//! folders.

use std::path::Path;

use super::{Desk, Ran};

/// A Thursday.
const DAY: &str = "2014-04-24 12:00";

#[test]
fn the_story() {
    let told = Desk::new().run(&["demo", "--until", DAY]).done();

    insta::assert_snapshot!("demo", told);
}

#[test]
fn the_story_is_the_same_whatever_day_it_ends_on() {
    let days = [
        "2014-04-28 00:00", // a Monday, just begun
        "2014-04-29 23:59",
        "2014-03-16 12:00", // New York has changed to summer time, Lisbon and Berlin have not
        "2014-04-06 12:00", // all of Europe has; Sydney changes back on this day
        "2014-11-04 12:00", // everybody is back, and Sydney in its summer
        "2015-01-02 12:00", // a new year
    ];
    let desks: Vec<Desk> = days.iter().map(|_| Desk::new()).collect();
    let running: Vec<_> = desks
        .iter()
        .zip(days)
        .map(|(desk, day)| {
            let mut command = desk.command(&["demo", "--until", day]);
            command.stdout(std::process::Stdio::piped());
            command.stderr(std::process::Stdio::piped());
            command.spawn().unwrap()
        })
        .collect();

    let told: Vec<String> = running
        .into_iter()
        .map(|child| dateless(&Ran::from(child.wait_with_output().unwrap()).done()))
        .collect();

    let expected = dateless(&Desk::new().run(&["demo", "--until", DAY]).done());
    for (told, day) in told.iter().zip(days) {
        assert_eq!(*told, expected, "{day}");
    }
}

/// A story without its dates, and what is made of them.
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
            let after = words
                .get(index + 1)
                .map_or("", |word| word.trim_end_matches('.'));
            let is_date = |word: &str| word.parse::<chrono::NaiveDate>().is_ok();
            out += match bare {
                _ if is_date(bare) => "DATE",
                _ if bare.contains(':') && is_date(before) => "TIME",
                _ if MONTHS.contains(&bare) => "MONTH",
                _ if MONTHS.contains(&after) || MONTHS.contains(&before) => "NUMBER",
                _ if bare.len() == 24 && bare.chars().all(|c| c.is_ascii_hexdigit()) => "ID",
                _ if bare.contains("notifications_") || bare.contains("-W") => "FILE",
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
fn what_it_leaves_can_be_looked_at_and_gone_on_with() {
    let desk = Desk::new();
    desk.run(&["demo", "--dir", "here"]).done();
    let there = |arguments: &[&str]| {
        let mut all = vec!["--config", "here/tidings.toml"];
        all.extend(arguments);
        desk.run(&all)
    };

    let feed = there(&["feed", "mara"]).done();
    let explained = there(&["explain", "lev", "--json"]).json();

    assert!(
        feed.contains("A Rope for Every Boat") && feed.contains("The Sleeping Vineyard"),
        "{feed}"
    );
    assert!(
        explained["events"]
            .as_array()
            .unwrap()
            .iter()
            .any(|event| event["why"] == "next_digest")
    );
    there(&["digest"]).done();
    let archived: Vec<String> = files(&desk.path().join("here/archive"));
    assert_eq!(archived.len(), 3);
    let file = format!("here/archive/{}", archived[0]);
    assert!(
        there(&["restore", &file])
            .done()
            .contains("restored, 8 stacks")
    );
}

#[test]
fn its_next_steps_do_what_they_say() {
    let desk = Desk::new();
    let story = desk.run(&["demo"]).done();
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
    // Whatever day it is, somebody is mailed by now or can be.
    let now = there(&["digest", "--now"]);

    assert!(typed.len() >= 6, "{steps}");
    assert_eq!(now.code, 0, "{}", now.err);
    let names = files(&outbox);
    let (mails, pages): (Vec<String>, Vec<String>) =
        names.into_iter().partition(|name| name.ends_with(".eml"));
    assert!(mails.len() + pages.len() > before);
    assert_eq!(mails.len(), pages.len(), "each mail has its page");
    let page = steps
        .lines()
        .map(str::trim)
        .find(|line| line.ends_with(".html"));
    assert!(desk.path().join(page.unwrap()).exists());
}

#[test]
fn every_mail_is_there_for_mail_readers_and_for_browsers() {
    let desk = Desk::new();
    desk.run(&["demo"]).done();
    let outbox = desk.path().join("tidings-demo/outbox");

    let (mails, pages): (Vec<String>, Vec<String>) = files(&outbox)
        .into_iter()
        .partition(|name| name.ends_with(".eml"));

    assert_eq!((mails.len(), pages.len()), (19, 19));
    for name in mails.iter().chain(&pages) {
        let text = std::fs::read_to_string(outbox.join(name)).unwrap();
        assert!(
            !text.contains("Low Water"),
            "{name} tells of the withdrawn work"
        );
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
fn a_folder_that_holds_anything_else_is_left_alone() {
    let desk = Desk::new();
    std::fs::create_dir(desk.path().join("mine")).unwrap();
    desk.write("mine/tidings.toml", "store = \"sqlite:precious.db\"");

    let ran = desk.run(&["demo", "--dir", "mine"]);

    assert_eq!((ran.code, ran.out.as_str()), (2, ""));
    assert!(
        ran.err
            .starts_with("error: mine is not empty, and no earlier demo\n"),
        "{}",
        ran.err
    );
    assert_eq!(files(&desk.path().join("mine")), ["tidings.toml"]);
}

#[test]
fn an_earlier_demo_is_replaced_unless_it_is_to_be_kept() {
    let desk = Desk::new();
    let first = desk.run(&["demo", "--until", DAY]).done();
    desk.write("tidings-demo/notes.txt", "mine");

    let kept = desk.run(&["demo", "--keep"]);
    let second = desk.run(&["demo", "--until", DAY]).done();

    assert_eq!(kept.code, 2);
    assert!(
        kept.err.contains("tidings-demo holds an earlier demo"),
        "{}",
        kept.err
    );
    assert_eq!(first, second);
    assert!(
        desk.path().join("tidings-demo/notes.txt").exists(),
        "what is not the demo's stays"
    );
}

#[test]
fn it_has_a_store_of_its_own() {
    let ran = Desk::new().run(&["demo", "--store", "sqlite:mine.db"]);

    assert_eq!(ran.code, 2);
    assert!(
        ran.err.starts_with("error: a demo has a store of its own"),
        "{}",
        ran.err
    );
}
