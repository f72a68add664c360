//! `tidings demo`: a short story of real commands, in a new folder with its own store.
//!
//! It prints the text of `story.txt`, and parses and runs each command in it. The first word of a
//! line selects a step; every other line is text (see [`DemoStory::step`]). The story starts a week
//! ago at a fixed hour, on a clock of its own, so it is the same on every day. `serve --demo` plays
//! it without output and then serves the folder ([`play_silently`]).

use std::path::{Path, PathBuf};
use std::sync::Arc;

use anyhow::{Context, ensure};
use chrono::{DateTime, NaiveTime, TimeDelta, Utc};
use clap::Args as Arguments;

use super::session::{Access, App, Exit, Refusal, RunCommand, Screen, Session};
use crate::clock::{Clock, ManualClock, SystemClock};
use crate::config::{Config, LogFormat, Sources};
use crate::demo::folder::{self, ForeignFolder, ServedDemo};
use crate::engine::delivery::brand_identities::new_outbox;
use crate::engine::delivery::operator_actions::DeliverySelection;
use crate::ids::Ids;
use crate::operate::open::open_store;

/// See the whole story in a minute: import, notify, feed, digest, batch
///
/// Makes a folder with a small invented gallery in an SQLite store, and runs the commands that it
/// shows. The folder's tidings.toml lets every command, and serve, go on from there.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Folder to create; replaces an earlier demo there
    #[arg(long, value_name = "DIR", default_value = DIR)]
    dir: PathBuf,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        session.refuse_store(OWN_STORE)?;
        session.start_log(LogFormat::Text);
        create_folder(&self.dir, None, "tidings demo")?;
        play(session.screen, session.run_command, &self.dir).await?;
        Ok(Exit::Done)
    }
}

/// Why a demo rejects `--store`.
pub(super) const OWN_STORE: &str = "a demo has a store of its own";
/// The default folder.
pub(super) const DIR: &str = "tidings-demo";

/// Creates the folder and changes to it, because the paths in the story are relative to it.
fn create_folder(dir: &Path, served: Option<&ServedDemo>, command: &str) -> anyhow::Result<()> {
    folder::create_and_enter(dir, served).map_err(|error| {
        if !error.is::<ForeignFolder>() {
            return error;
        }
        let next = format!("{command} --dir DIR, with a new folder");
        Refusal::new(error.to_string(), next).into()
    })
}

/// Creates a demo in this folder and returns its app, which runs on the machine's clock.
pub(super) async fn play_silently(
    dir: &Path,
    served: &ServedDemo,
    run_command: RunCommand,
) -> anyhow::Result<App> {
    create_folder(dir, Some(served), "tidings serve --demo")?;
    let app = play(&mut Screen::new(false, false), run_command, dir).await?;
    let (config, store) = (app.config.as_ref().clone(), app.context.store.clone());
    let (mailer, clock) = (Arc::new(new_outbox(&config)), Arc::new(SystemClock));
    let ids = Arc::new(Ids::random());
    Ok(App::assemble(config, store, mailer, clock, ids)?)
}

const SCRIPT: &str = include_str!("../demo/data/story.txt");
/// The number of lines of an email that the story shows.
const EXCERPT_LINES: usize = 9;

/// Plays the story in the current folder, which the text calls `dir`, up to now. Returns the app
/// that ran its commands.
async fn play(screen: &mut Screen, run_command: RunCommand, dir: &Path) -> anyhow::Result<App> {
    // Reads only the folder's file: the environment may configure the reader's own tidings.
    let config =
        Config::load(&Sources { file: Some(folder::CONFIG.into()), ..Sources::default() })?;
    let now = SystemClock.now();
    let week_ago = now.date_naive() - TimeDelta::days(7);
    let start = week_ago.and_time(NaiveTime::MIN).and_utc() + TimeDelta::hours(10);
    let clock = Arc::new(ManualClock::at(start));
    let store = open_store(&config, Access::Create).await?;
    let (mailer, ids) = (Arc::new(new_outbox(&config)), Arc::new(Ids::random()));
    let app = App::assemble(config, store, mailer, clock.clone(), ids)?;
    screen.text("tidings  feeds and digests\n\n")?;
    let mut story = DemoStory { screen, run_command, app, clock, now, chapter: 0 };
    for line in SCRIPT.lines() {
        let result = story.step(line, dir).await;
        result.with_context(|| format!("the demo's step {line:?}"))?;
    }
    Ok(story.app)
}

struct DemoStory<'a> {
    screen: &'a mut Screen,
    run_command: RunCommand,
    app: App,
    clock: Arc<ManualClock>,
    now: DateTime<Utc>,
    chapter: u32,
}

impl DemoStory<'_> {
    async fn step(&mut self, line: &str, dir: &Path) -> anyhow::Result<()> {
        match line.split_once(' ') {
            Some(("#", title)) => {
                self.chapter += 1;
                self.screen.line(format!("{}  {title}", self.chapter))?;
            }
            Some(("$", command)) => {
                self.screen.line(line)?;
                run(self.run_command, command, &self.app, self.screen).await?;
            }
            Some(("%", command)) => {
                let mut screen = Screen::new(false, false);
                run(self.run_command, command, &self.app, &mut screen).await?;
            }
            Some(("+", minutes)) => self.clock.advance(TimeDelta::minutes(minutes.parse()?)),
            Some(("@", "today")) => self.clock.set(self.now),
            Some((">", user)) => self.show_latest_email(user).await?,
            _ => {
                let dir = dir.display().to_string();
                self.screen.line(line.replace("{dir}", &dir))?;
            }
        }
        Ok(())
    }

    async fn show_latest_email(&mut self, user: &str) -> anyhow::Result<()> {
        let filter =
            DeliverySelection { user: Some(user.parse()?), ..DeliverySelection::default() };
        let mut rows = self.app.deliveries().list(&filter, 1).await?;
        let row = rows.pop().context("no email was sent")?;
        let email = self.app.compose().describe_delivery(row).await?.email;
        let text = email.context("the email cannot be shown")?.text;
        let lines = text.lines().filter(|line| !line.trim().is_empty());
        for line in lines.take(EXCERPT_LINES).chain(["…"]) {
            self.screen.line(format!("│ {line}"))?;
        }
        Ok(())
    }
}

/// Runs a command line; quotes hold words together.
async fn run(
    run_command: RunCommand,
    command: &str,
    app: &App,
    screen: &mut Screen,
) -> anyhow::Result<()> {
    let mut words = Vec::new();
    for (n, part) in command.split('"').enumerate() {
        match n % 2 {
            0 => words.extend(part.split_whitespace().map(str::to_owned)),
            _ => words.push(part.to_owned()),
        }
    }
    let exit = run_command(words, app, screen).await?;
    ensure!(exit == Exit::Done, "it ended with {exit:?}");
    Ok(())
}
