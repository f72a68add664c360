//! `tidings archive`: drops old days, after an export if requested.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::session::{Access, Exit, Session, phrases};
use crate::engine::archive::ArchiveRequest;
use crate::wire::archive::{DayFate, DayReport};

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
        let access = if self.dry_run { Access::Read } else { Access::Write };
        session.set_option("archive.keep", self.keep.as_ref());
        let (app, screen) = (session.open(access).await?, &mut *session.screen);
        let request = ArchiveRequest {
            keep: app.config.archive_keep,
            export: self.export.clone(),
            dry_run: self.dry_run,
            force: self.force,
        };
        let mut days = Vec::new();
        let archive = app.archive();
        let result = archive.run(&request, &screen.progress_bar("days checked"), &mut days).await;
        for day in &days {
            if !screen.answer(day)?
                && let Some(outcome) = self.describe(day)
            {
                screen.line(format!("{}  {outcome}", day.day.start().date_naive()))?;
            }
        }
        if !screen.is_json {
            screen.line(self.summary(&days))?;
        }
        result?;
        Ok(match [DROPPED, KEPT, FAILED].map(|group| count(&days, group)) {
            [_, 0, 0] => Exit::Done,
            [0, 0, _] => Exit::Failed,
            _ => Exit::Partly,
        })
    }

    /// Returns the line for a day. Days that are too young or in the window are only counted.
    fn describe(&self, report: &DayReport) -> Option<String> {
        let why_kept = match &report.fate {
            DayFate::InWindow | DayFate::TooYoung => return None,
            DayFate::Busy => {
                "a fan-out still writes to it (tidings worker --once finishes it)".to_owned()
            }
            DayFate::NotEmailed { users: people, events } => {
                let (users, events) = (phrases::users(*people), phrases::events(*events));
                let force = "(--force drops the day anyway)";
                format!("{users} should have been emailed {events} {force}")
            }
            DayFate::Leased => "another process archives or restores it".to_owned(),
            DayFate::Changed => "it was written to meanwhile; the next run drops it".to_owned(),
            DayFate::Failed { why } => format!("it could not be archived: {why}"),
            DayFate::Dropped { file } => {
                let (dropped, preposition) =
                    if self.dry_run { ("would be dropped", "to") } else { ("dropped", "in") };
                let file = file.as_ref().map(|file| format!("{preposition} {}", file.display()));
                let stacks = phrases::stacks(report.stacks);
                return Some(phrases::list([Some(dropped.to_owned()), Some(stacks), file]));
            }
        };
        Some(format!("kept: {why_kept}"))
    }

    fn summary(&self, days: &[DayReport]) -> String {
        let dropped = count(days, DROPPED);
        let dropped_days = phrases::count(dropped, "day", "days");
        let is_dropped = |day: &&DayReport| group_of(day) == DROPPED;
        let stacks = phrases::stacks(days.iter().filter(is_dropped).map(|day| day.stacks).sum());
        let summary = match (dropped, self.dry_run) {
            (0, _) => "no day to drop".to_owned(),
            (_, true) => format!("{dropped_days} with {stacks} would be dropped"),
            (_, false) => format!("{dropped_days} with {stacks} dropped"),
        };
        let others = [KEPT, FAILED, YOUNG].map(|group| phrases::nonzero(count(days, group), group));
        phrases::list([Some(format!("archive: {summary}"))].into_iter().chain(others))
    }
}

const DROPPED: &str = "dropped";
const KEPT: &str = "kept";
const FAILED: &str = "failed";
const YOUNG: &str = "not old enough";

/// Returns the group in which the summary counts a day.
fn group_of(day: &DayReport) -> &'static str {
    match day.fate {
        DayFate::Dropped { .. } => DROPPED,
        DayFate::Failed { .. } => FAILED,
        DayFate::TooYoung | DayFate::InWindow => YOUNG,
        DayFate::Busy | DayFate::NotEmailed { .. } | DayFate::Leased | DayFate::Changed => KEPT,
    }
}

fn count(days: &[DayReport], group: &str) -> u64 {
    days.iter().filter(|day| group_of(day) == group).count() as u64
}
