//! `tidings archive` and `restore`: drops old days, after an export if requested, and restores
//! exported days exactly.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::exit::explain_failure;
use super::session::{Access, Exit, Session, phrases};
use crate::engine::archive::{ArchiveRequest, part_of};
use crate::wire::transfer::{DayFate, DayReport};

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
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let access = match self.dry_run {
            true => Access::Read,
            false => Access::Write,
        };
        session.set("archive.keep", self.keep.as_ref());
        let (app, screen) = (session.open(access).await?, &mut *session.screen);
        let request = ArchiveRequest {
            keep: app.config.archive_keep,
            export: self.export.clone(),
            dry_run: self.dry_run,
            force: self.force,
        };
        let mut days = Vec::new();
        let bar = screen.bar("days looked at");
        let ended = app.archive().run(&request, &bar, &mut days).await;
        drop(bar);
        for day in &days {
            if !screen.answer(day)?
                && let Some(what) = self.fate(day)
            {
                screen.line(format!("{}  {what}", day.day.start().date_naive()))?;
            }
        }
        if !screen.is_json {
            screen.line(self.summary(&days))?;
        }
        ended?;
        let counts = [DROPPED, KEPT, FAILED].map(|group| count(&days, group));
        Ok(match counts {
            [_, 0, 0] => Exit::Done,
            [0, 0, _] => Exit::Failed,
            _ => Exit::Partly,
        })
    }

    /// Returns the line for a day. Days that are too young or in the window are only counted.
    fn fate(&self, report: &DayReport) -> Option<String> {
        let stacks = phrases::count(report.stacks, "stack", "stacks");
        let kept = |why: &str| format!("kept: {why}");
        Some(match &report.fate {
            DayFate::InWindow | DayFate::Young => return None,
            DayFate::Busy => {
                kept("a fan-out still writes to it (tidings worker --once finishes it)")
            }
            DayFate::Unmailed { people, events } => {
                let (people, events) = (phrases::people(*people), phrases::events(*events));
                let force = "(--force drops the day anyway)";
                let why = format!("{people} should have been emailed {events} {force}");
                kept(&why)
            }
            DayFate::Held => kept("another process archives or restores it"),
            DayFate::Changed => kept("it was written to meanwhile; the next run drops it"),
            DayFate::Failed { why } => kept(&format!("it could not be archived: {why}")),
            DayFate::Dropped { file } => {
                let (dropped, to) = match self.dry_run {
                    true => ("would be dropped", "to"),
                    false => ("dropped", "in"),
                };
                let file = file.as_ref().map(|file| format!("{to} {}", file.display()));
                phrases::list([Some(dropped.to_owned()), Some(stacks), file])
            }
        })
    }

    fn summary(&self, days: &[DayReport]) -> String {
        let dropped = days.iter().filter(|day| group_of(day) == DROPPED);
        let stacks = phrases::count(dropped.map(|day| day.stacks).sum(), "stack", "stacks");
        let dropped = phrases::count(count(days, DROPPED), "day", "days");
        let head = match (count(days, DROPPED), self.dry_run) {
            (0, _) => "no day to drop".to_owned(),
            (_, true) => format!("{dropped} with {stacks} would be dropped"),
            (_, false) => format!("{dropped} with {stacks} dropped"),
        };
        let others = [KEPT, FAILED, YOUNG].map(|group| phrases::some(count(days, group), group));
        phrases::list([Some(format!("archive: {head}"))].into_iter().chain(others))
    }
}

const DROPPED: &str = "dropped";
const KEPT: &str = "kept";
const FAILED: &str = "failed";
const YOUNG: &str = "not old enough";

/// Returns the words under which the summary counts a day.
fn group_of(day: &DayReport) -> &'static str {
    match day.fate {
        DayFate::Dropped { .. } => DROPPED,
        DayFate::Failed { .. } => FAILED,
        DayFate::Young | DayFate::InWindow => YOUNG,
        DayFate::Busy | DayFate::Unmailed { .. } | DayFate::Held | DayFate::Changed => KEPT,
    }
}

fn count(days: &[DayReport], group: &str) -> u64 {
    days.iter().filter(|day| group_of(day) == group).count() as u64
}

/// Restore days that were archived with --export
///
/// Each file is verified completely before any of it is written. Restoring a file twice changes
/// nothing. A day that was archived more than once has several parts
/// (notifications_20140422.2.ndjson.zst), and the later parts are appended to the first.
#[derive(Debug, Arguments)]
pub(super) struct RestoreArgs {
    /// Files to restore, such as notifications_20140422.ndjson.zst
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl RestoreArgs {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (app, screen) = (session.open(Access::Create).await?, &mut *session.screen);
        let archive = app.archive();
        let (mut good, mut bad) = (0, 0);
        // Later parts of a day are appended to earlier ones, so their order matters.
        let mut files: Vec<&PathBuf> = self.files.iter().collect();
        files.sort_by_key(|file| part_of(file));
        for file in files {
            match archive.restore(file, &screen.bar("stacks restored")).await {
                Err(error) => {
                    bad += 1;
                    screen.note(explain_failure(&error.into()).trim_end())?;
                }
                Ok(summary) => {
                    good += 1;
                    if !screen.answer(&summary)? {
                        let stacks = phrases::count(summary.stacks, "stack", "stacks");
                        let day = summary.day.start().date_naive();
                        screen.line(format!("{day}  restored, {stacks}"))?;
                    }
                }
            }
        }
        Ok(Exit::of(good, bad))
    }
}
