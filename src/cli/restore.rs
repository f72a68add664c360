//! `tidings restore`: restores exported days exactly.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::exit::{Exit, explain_failure};
use super::screen::Screen;
use super::words;
use crate::app::App;
use crate::engine::archive::part_of;

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
    /// Answer in JSON, one line per file
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let archive = app.archive();
        let (mut good, mut bad) = (0, 0);
        // Later parts of a day are appended to earlier ones, so their order matters.
        let mut files: Vec<&PathBuf> = self.files.iter().collect();
        files.sort_by_key(|file| part_of(file));
        for file in files {
            let restored = archive.restore(file, &screen.bar("stacks restored")).await;
            match restored {
                Ok(summary) if self.json => {
                    good += 1;
                    screen.json(&summary)?;
                }
                Ok(summary) => {
                    good += 1;
                    let stacks = words::count(summary.stacks, "stack", "stacks");
                    let day = summary.day.start().date_naive();
                    screen.line(format!("{day}  restored, {stacks}"))?;
                }
                Err(error) => {
                    bad += 1;
                    screen.note(explain_failure(&error.into()).trim_end())?;
                }
            }
        }
        Ok(Exit::of(good, bad))
    }
}
