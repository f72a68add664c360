//! What the demo tells: three weeks of a small art world, in eight chapters.
//!
//! The rule: brief, and true whatever day it is told on. Days are named by their weekday; events
//! keep away from the hours at which a change to summer time could move them past somebody's
//! digest.

use std::collections::BTreeMap;
use std::path::Path;

use super::stage::Stage;
use crate::cli::ink::Ink;
use crate::cli::table::{Column, Table};
use crate::cli::words;
use crate::demo::{Posted, SHOWS, WORKS};

/// The work that is withdrawn.
const WITHDRAWN: &str = "Low Water, Blue Hour";

pub(super) async fn tell(stage: &mut Stage<'_>, dir: &Path) -> anyhow::Result<()> {
    begin(stage, dir)?;
    load(stage).await?;
    first_week(stage).await?;
    first_monday(stage).await?;
    withdrawn(stage).await?;
    let before = stage.mails().len();
    replies(stage).await?;
    second_monday(stage, before).await?;
    archive(stage).await?;
    over_to_you(stage, dir).await
}

fn begin(stage: &mut Stage<'_>, dir: &Path) -> anyhow::Result<()> {
    let title = stage.screen.ink(Ink::Strong, "tidings");
    stage
        .screen
        .line(format!("{title}  feeds and digests, few and good"))?;
    stage.screen.line("")?;
    let dir = format!("{}/", dir.display());
    stage.say(&[
        "Kiosk is a small online gallery: 12 artists, 60 works, and 8 people who",
        "follow some of them. Here are three weeks of it, in a minute. What begins",
        "with $ is a command that was really run, on an embedded store, in",
        &dir,
    ])
}

async fn load(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.chapter(1, "Load what the gallery knows")?;
    for command in [
        "tidings import users people.ndjson",
        "tidings import follows follows.ndjson",
        "tidings import objects artists.ndjson --model artist",
        "tidings import objects works.ndjson --model Artwork --map by=artist",
        "tidings import objects shows.ndjson --model Show --map by=gallery",
    ] {
        stage.type_in(command).await?;
    }
    Ok(())
}

async fn first_week(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.until(-12, 10).await?;
    stage.chapter(
        2,
        "Wednesday: something happens, and whom it concerns is told",
    )?;
    stage.say(&["By what they follow, by where they live, or by name:"])?;
    stage
        .type_in("tidings notify ArtworkPublished W01 W02 --followers-of artist:tavoro")
        .await?;
    stage
        .type_in("tidings notify NearbyShow S1 --near -9.14,38.71,30")
        .await?;
    stage
        .type_in("tidings notify Recommended W41 --to mara nia")
        .await?;
    publish(
        stage,
        &[
            ("W06", "marchetain"),
            ("W16", "hoshikane"),
            ("W31", "nwosheli"),
            ("W46", "calloweth"),
        ],
    )
    .await?;
    stage.until(-11, 14).await?;
    publish(
        stage,
        &[
            ("W36", "fenyvessik"),
            ("W56", "umenori"),
            ("W11", "adarkwei"),
        ],
    )
    .await?;
    stage.until(-10, 15).await?;
    publish(
        stage,
        &[
            ("W42", "quintaverde"),
            ("W26", "orrelund"),
            ("W51", "thistlewray"),
        ],
    )
    .await?;
    stage
        .quietly("tidings notify NearbyShow S2 --near 13.40,52.53,30")
        .await?;
    stage.say(&[
        "",
        "More is published on Thursday and Friday. What mara sees in her feed:",
    ])?;
    stage.type_in("tidings feed mara").await
}

async fn first_monday(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.until(-7, 20).await?;
    stage.chapter(3, "Monday: one mail each, in their own morning")?;
    stage.say(&[
        "An hourly cron line, `tidings digest`, is all it takes. Weekly readers",
        "hear on Monday, daily ones when there is something new, and otto never:",
        "he has the feed.",
        "",
    ])?;
    mails(stage, 0).await?;
    stage.say(&["", "How mara's begins:"])?;
    excerpt(stage, "mara")?;
    stage.say(&["", "However often it runs, nobody is mailed twice:"])?;
    stage.type_in("tidings digest").await?;
    stage.say(&["Somebody is unconfirmed. Why did uma get nothing?"])?;
    stage.type_in("tidings explain uma W01").await
}

async fn withdrawn(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.until(-4, 10).await?;
    stage.chapter(
        4,
        "Thursday: a work is published, and withdrawn in the evening",
    )?;
    stage
        .type_in("tidings notify ArtworkPublished W03 W04 --followers-of artist:tavoro")
        .await?;
    publish(
        stage,
        &[
            ("W43", "quintaverde"),
            ("W17", "hoshikane"),
            ("W57", "umenori"),
            ("W32", "nwosheli"),
        ],
    )
    .await?;
    stage.until(-4, 19).await?;
    stage
        .type_in("tidings import objects withdrawn.ndjson --model Artwork --map by=artist")
        .await?;
    stage.say(&["Whether it still applies is asked again just before a mail leaves:"])?;
    stage.type_in("tidings explain mara W04").await
}

async fn replies(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.until(-3, 10).await?;
    stage.chapter(5, "Friday: three replies within minutes, and one mail")?;
    stage.say(&[
        "Replies are not for Monday. They wait ten minutes for more, and leave together:",
    ])?;
    stage
        .quietly("tidings import objects replies.ndjson --model Comment")
        .await?;
    let first = reply(stage, "R1", "Lev", "Is the left panel upside down?");
    stage.type_in(&first).await?;
    for (id, name, text) in [
        ("R2", "Mara", "It is. Look at the shadows."),
        ("R3", "Otto", "I like it better so."),
    ] {
        stage.wait(3).await?;
        let command = reply(stage, id, name, text);
        stage.quietly(&command).await?;
    }
    stage.wait(10).await?;
    stage.type_in("tidings worker --once").await?;
    excerpt(stage, "nia")
}

/// The command by which this person replies to Nia.
fn reply(stage: &Stage<'_>, id: &str, name: &str, text: &str) -> String {
    let actor = name.to_lowercase();
    let portrait = stage
        .portrait(&actor)
        .map(|url| format!(" --actor-image {url}"));
    let portrait = portrait.unwrap_or_default();
    format!(
        "tidings notify Reply {id} --to nia --actor {actor} --actor-name {name}{portrait} --text \"{text}\""
    )
}

async fn second_monday(stage: &mut Stage<'_>, before: usize) -> anyhow::Result<()> {
    stage.until(-3, 15).await?;
    publish(
        stage,
        &[
            ("W12", "adarkwei"),
            ("W21", "lindqvale"),
            ("W47", "calloweth"),
            ("W52", "thistlewray"),
        ],
    )
    .await?;
    stage.until(0, 20).await?;
    stage.chapter(
        6,
        "Monday again: only what is new, and nothing that was withdrawn",
    )?;
    mails(stage, before).await?;
    let checked = check(&stage.mails());
    stage.say(&["", "Looking through all mails so far:"])?;
    stage.say(&[&format!("  {checked}")])
}

async fn archive(stage: &mut Stage<'_>) -> anyhow::Result<()> {
    stage.chapter(
        7,
        "Old days go: a day is one table, or one collection on MongoDB",
    )?;
    stage.say(&[
        "Uma may still confirm her address, so days with events for her would stay",
        "for 30 days. Flush her events first.",
    ])?;
    stage.type_in("tidings flush uma").await?;
    stage
        .type_in("tidings archive --keep 8d --export archive")
        .await?;
    stage.say(&["Each file is checked before its day goes. `tidings restore` brings it back."])
}

async fn over_to_you(stage: &mut Stage<'_>, dir: &Path) -> anyhow::Result<()> {
    publish(
        stage,
        &[
            ("W05", "tavoro"),
            ("W44", "quintaverde"),
            ("W18", "hoshikane"),
            ("W37", "fenyvessik"),
        ],
    )
    .await?;
    stage
        .quietly("tidings notify NearbyShow S3 --near 139.70,35.66,30")
        .await?;
    stage.until_now();
    publish(
        stage,
        &[
            ("W07", "marchetain"),
            ("W22", "lindqvale"),
            ("W58", "umenori"),
            ("W53", "thistlewray"),
        ],
    )
    .await?;
    stage.chapter(8, "Now it is yours")?;
    stage
        .say(&["More was published since, the latest just now. Nobody has been mailed it yet."])?;
    let page = stage.latest("mara").map(|mail| dir.join(mail.page));
    let page = page.map_or(String::new(), |page| page.display().to_string());
    let folder = dir.display();
    let mut table = Table::new([
        Column::new("").ink(Ink::Accent),
        Column::new("").ink(Ink::Faint),
    ]);
    for (command, what) in [
        (format!("cd {folder}"), "where its tidings.toml is"),
        ("tidings feed mara".into(), "what she sees now"),
        (
            "tidings explain lev".into(),
            "what his next mail holds, and why",
        ),
        ("tidings digest --dry-run".into(), "who is due by now"),
        ("tidings digest".into(), "mail them"),
        ("tidings status".into(), "what is waiting, what was mailed"),
        ("tidings serve".into(), "the same over HTTP; then"),
    ] {
        table.row([command, what.to_owned()]);
    }
    let indent = stage.screen.indent("   ".into());
    stage.screen.line("")?;
    stage.screen.table(&table)?;
    let curl = "curl -H 'Authorization: Bearer demo' http://127.0.0.1:8080/v1/users/mara/feed";
    let curl = stage.screen.ink(Ink::Accent, curl);
    stage.screen.line(curl)?;
    stage.screen.line("")?;
    stage
        .screen
        .line("Every mail lies in the outbox, and beside it a page for the browser:")?;
    let page = stage.screen.ink(Ink::Accent, page);
    stage.screen.line(page)?;
    stage.screen.indent(indent);
    Ok(())
}

/// Works that are published without being shown.
async fn publish(stage: &mut Stage<'_>, works: &[(&str, &str)]) -> anyhow::Result<()> {
    for (work, artist) in works {
        let command =
            format!("tidings notify ArtworkPublished {work} --followers-of artist:{artist}");
        stage.quietly(&command).await?;
    }
    Ok(())
}

/// The mails after the first `before`: when they came where their reader lives, and what they are
/// called.
async fn mails(stage: &mut Stage<'_>, before: usize) -> anyhow::Result<()> {
    let mut rows = Vec::new();
    for mail in stage.mails().into_iter().skip(before) {
        let moment = stage.there(&mail).await?;
        rows.push((moment.local, mail.user.clone(), moment.place, mail.subject));
    }
    rows.sort();
    let mut table = Table::new([
        Column::new("").ink(Ink::Faint),
        Column::new("").ink(Ink::Faint),
        Column::new("").ink(Ink::Strong),
        Column::new("").gives_way(),
    ]);
    for (local, user, place, subject) in rows {
        let when = local.format("%a %H:%M").to_string();
        table.row([when, format!("in {place}"), user, subject]);
    }
    let indent = stage.screen.indent("     ".into());
    stage.screen.table(&table)?;
    stage.screen.indent(indent);
    Ok(())
}

/// How this person's latest mail begins.
fn excerpt(stage: &mut Stage<'_>, user: &str) -> anyhow::Result<()> {
    const LINES: usize = 9;
    let Some(mail) = stage.latest(user) else {
        return Ok(());
    };
    let written = mail.text.lines().filter(|line| !line.trim().is_empty());
    let bar = stage.screen.ink(Ink::Faint, "│");
    for line in written.take(LINES).chain(["…"]) {
        stage.screen.line(format!("     {bar} {line}"))?;
    }
    Ok(())
}

/// What was told how often: read in the mails themselves.
fn check(mails: &[Posted]) -> String {
    let titles = titles();
    let mut told: BTreeMap<(&str, &str), u64> = BTreeMap::new();
    for mail in mails {
        let lines: Vec<&str> = mail
            .text
            .lines()
            .map(|line| line.trim_start_matches("* "))
            .collect();
        for title in titles
            .iter()
            .filter(|title| lines.contains(&title.as_str()))
        {
            *told.entry((&mail.user, title)).or_default() += 1;
        }
    }
    let twice = told.values().filter(|times| **times > 1).count() as u64;
    let gone = told.keys().filter(|(_, title)| *title == WITHDRAWN).count() as u64;
    let none = |n: u64| {
        if n == 0 {
            "none".to_owned()
        } else {
            words::number(n)
        }
    };
    format!(
        "{} told {} events; {} twice, {} of the withdrawn work.",
        words::count(mails.len() as u64, "mail", "mails"),
        words::number(told.values().sum()),
        none(twice),
        none(gone)
    )
}

fn titles() -> Vec<String> {
    let works = WORKS.lines();
    let shows = SHOWS.lines();
    works
        .chain(shows)
        .filter_map(|line| {
            let record: serde_json::Value = serde_json::from_str(line).ok()?;
            Some(record["title"].as_str()?.to_owned())
        })
        .collect()
}
