//! `tidings archive`: drops old days, after an export if requested.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::exit::Exit;
use super::ink::Ink;
use super::screen::Screen;
use super::words;
use crate::app::{Access, App};
use crate::engine::archive::{Effect, Protection, Request};
use crate::wire::transfer::{DayReport, Fate};

/// Drop old days, optionally exporting them first
///
/// Days in the window are always kept. Older days are kept while a fan-out writes to them or while
/// their events may still be emailed, unless you use --force. Exits with 3 if an older day is kept
/// or some days fail; the other days are still dropped.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Drop days older than this [default: archive.keep, 30d]
    #[arg(long, value_name = "DURATION")]
    keep: Option<String>,
    /// Export each day to a file in this folder and verify it before the day is dropped
    #[arg(long, value_name = "DIR")]
    export: Option<PathBuf>,
    /// Show what would be dropped, and change nothing
    #[arg(long)]
    dry_run: bool,
    /// Also drop protected days, but never days in the window
    #[arg(long)]
    force: bool,
    /// Answer in JSON, one line per day
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) fn access(&self) -> Access {
        match self.dry_run {
            true => Access::Read,
            false => Access::Write,
        }
    }

    pub(super) fn options(&self) -> Vec<(String, String)> {
        let keep = self.keep.clone();
        keep.map(|keep| ("archive.keep".to_owned(), keep))
            .into_iter()
            .collect()
    }

    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let request = Request {
            keep: app.config.archive_keep,
            export: self.export.clone(),
            effect: if self.dry_run {
                Effect::Rehearse
            } else {
                Effect::Drop
            },
            protection: if self.force {
                Protection::Force
            } else {
                Protection::Keep
            },
        };
        let mut days = Vec::new();
        let bar = screen.bar("days looked at");
        let ended = app.archive().run(&request, &bar, &mut days).await;
        drop(bar);
        for day in &days {
            if self.json {
                screen.json(day)?;
            } else if let Some(what) = self.fate(screen, day) {
                screen.line(format!("{}  {what}", day.day.start().date_naive()))?;
            }
        }
        if !self.json {
            screen.line(self.summary(&days))?;
        }
        ended?;
        let dropped = |day: &DayReport| matches!(day.fate, Fate::Dropped { .. });
        let kept = |day: &DayReport| protected(&day.fate) || left(&day.fate);
        let none = !days.iter().any(dropped) && !days.iter().any(kept);
        Ok(if days.iter().any(|day| failed(&day.fate)) {
            if none { Exit::Failed } else { Exit::Partly }
        } else if days.iter().any(kept) {
            Exit::Partly
        } else {
            Exit::Done
        })
    }

    /// Returns the line for a day. Days that are too young or in the window are only counted.
    fn fate(&self, screen: &Screen, report: &DayReport) -> Option<String> {
        let stacks = words::count(report.stacks, "stack", "stacks");
        let kept = screen.ink(Ink::Warning, "kept:");
        Some(match &report.fate {
            Fate::InWindow | Fate::Young => return None,
            Fate::Busy => {
                format!("{kept} a fan-out still writes to it (tidings worker --once finishes it)")
            }
            Fate::Unmailed { people, events } => {
                let who = words::count(*people, "person", "people");
                let what = words::count(*events, "event", "events");
                format!(
                    "{kept} {who} should have been mailed {what} (--force drops it all the same)"
                )
            }
            Fate::Held => format!("{kept} another process archives or restores it"),
            Fate::Changed => {
                format!("{kept} somebody wrote to it meanwhile; it goes the next time")
            }
            Fate::Failed { why } => {
                format!("{} {why}", screen.ink(Ink::Warning, "failed, stands:"))
            }
            Fate::Dropped { file } => {
                let dropped = if self.dry_run { "would go" } else { "dropped" };
                let file = file.as_ref().map(|file| {
                    let to = if self.dry_run { "to" } else { "in" };
                    format!(", {to} {}", file.display())
                });
                format!("{dropped}, {stacks}{}", file.unwrap_or_default())
            }
        })
    }

    fn summary(&self, days: &[DayReport]) -> String {
        let count =
            |which: fn(&Fate) -> bool| days.iter().filter(|day| which(&day.fate)).count() as u64;
        let dropped = count(|fate| matches!(fate, Fate::Dropped { .. }));
        let stacks: u64 = days
            .iter()
            .filter(|day| matches!(day.fate, Fate::Dropped { .. }))
            .map(|day| day.stacks)
            .sum();
        let what = format!(
            "{} with {}",
            words::count(dropped, "day", "days"),
            words::count(stacks, "stack", "stacks")
        );
        let head = match (dropped, self.dry_run) {
            (0, _) => "nothing to drop".to_owned(),
            (_, true) => format!("{what} would go"),
            (_, false) => format!("{what} dropped"),
        };
        words::list([
            Some(format!("archive: {head}")),
            words::some(count(protected), "protected"),
            words::some(count(left), "left for the next time"),
            words::some(count(failed), "failed"),
            words::some(count(|fate| *fate == Fate::Young), "not old enough"),
            words::some(count(|fate| *fate == Fate::InWindow), "in the window"),
        ])
    }
}

fn left(fate: &Fate) -> bool {
    matches!(fate, Fate::Held | Fate::Changed)
}

fn failed(fate: &Fate) -> bool {
    matches!(fate, Fate::Failed { .. })
}

fn protected(fate: &Fate) -> bool {
    matches!(fate, Fate::Busy | Fate::Unmailed { .. })
}
