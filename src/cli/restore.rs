//! `tidings restore`: brings exported days back, exactly.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::exit::{Exit, explain_failure};
use super::screen::Screen;
use super::words;
use crate::app::App;
use crate::engine::archive::part_of;

/// Bring back days that were archived with --export
///
/// Each file is verified as a whole before anything of it is written. Restoring twice changes
/// nothing. A day that was archived more than once has parts (notifications_20140422.2.ndjson.zst):
/// they are put behind the first.
#[derive(Debug, Arguments)]
pub(super) struct Args {
    /// Files such as notifications_20140422.ndjson.zst
    #[arg(value_name = "FILE", required = true)]
    files: Vec<PathBuf>,
    /// Answer in JSON, one line a file
    #[arg(long)]
    json: bool,
}

impl Args {
    pub(super) async fn run(&self, app: &App, screen: &mut Screen) -> anyhow::Result<Exit> {
        let archive = app.archive();
        let (mut good, mut bad) = (0, 0);
        // What was exported later belongs behind what was exported first.
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
