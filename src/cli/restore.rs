//! `tidings restore`: restores days that `tidings archive` exported, exactly.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::failure_text::explain_failure;
use super::session::{Access, Exit, Session, phrases};
use crate::engine::archive::part_number;

/// Restore days that were archived with --export
///
/// Each file is verified completely before any of it is written. Restoring a file twice changes
/// nothing. A day that was archived more than once has several parts
/// (notifications_20140422.2.ndjson.zst), and the later parts are appended to the first.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Files to restore, such as notifications_20140422.ndjson.zst
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
}

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (app, screen) = (session.open(Access::Create).await?, &mut *session.screen);
        let archive = app.archive();
        let (mut good, mut bad) = (0, 0);
        // Later parts of a day are appended to earlier ones, so their order matters.
        let mut files: Vec<&PathBuf> = self.files.iter().collect();
        files.sort_by_key(|file| part_number(file));
        for file in files {
            match archive.restore(file, &screen.progress_bar("stacks restored")).await {
                Err(error) => {
                    bad += 1;
                    screen.note(explain_failure(&error.into()).trim_end())?;
                }
                Ok(summary) => {
                    good += 1;
                    if !screen.answer(&summary)? {
                        let stacks = phrases::stacks(summary.stacks);
                        let day = summary.day.start().date_naive();
                        screen.line(format!("{day}  restored, {stacks}"))?;
                    }
                }
            }
        }
        Ok(Exit::of(good, bad))
    }
}
