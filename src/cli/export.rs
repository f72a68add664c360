//! `tidings export`: writes the whole store to files.

use std::path::PathBuf;

use clap::Args as Arguments;

use super::exit::Exit;
use super::screen::Screen;
use super::words;
use crate::app::Access;
use crate::config::Config;
use crate::operate::open::{open_store, transfer};
use crate::operate::transfer::{After, reopen};

/// Export the whole store to files, as a backup or to move it
///
/// Writes one compressed NDJSON file for each kind of record and each day, and a manifest with the
/// count and checksum of each. Then the store is read again and compared. Stop serve, worker and
/// cron lines first: an export fails if the store changes. A killed export continues when you
/// repeat the command. The folder holds addresses and secrets; only its owner can read it.
#[derive(Debug, Arguments)]
#[command(after_help = AFTER_HELP)]
pub(super) struct Args {
    /// The folder to write; created if it does not exist
    #[arg(value_name = "DIR", required_unless_present = "reopen")]
    folder: Option<PathBuf>,
    /// Close the store to all other commands, because it is being moved
    #[arg(long)]
    close: bool,
    /// Open the store again that an export closed
    #[arg(long, conflicts_with_all = ["folder", "close"])]
    reopen: bool,
    /// Answer in JSON
    #[arg(long)]
    json: bool,
}

const AFTER_HELP: &str = "\
Examples:
  tidings export /var/backups/tidings/2026-03-01
  tidings export --close moving && tidings --store mongodb://HOST/DATABASE import store moving";

impl Args {
    pub(super) async fn run(&self, config: &Config, screen: &mut Screen) -> anyhow::Result<Exit> {
        let Some(folder) = &self.folder else {
            let store = open_store(config, Access::Export).await?;
            screen.line(match reopen(&*store).await? {
                true => format!("{:?} is open again", config.store),
                false => format!("{:?} was not closed", config.store),
            })?;
            return Ok(Exit::Done);
        };
        let transfer = transfer(config, Access::Export, folder.clone()).await?;
        let after = match self.close {
            true => After::Closed,
            false => After::Open,
        };
        let bar = screen.bar("records written and compared");
        let manifest = transfer.export(after, &bar).await?;
        drop(bar);
        for record in &manifest.unreadable {
            screen.warning(format!("cannot be exported: {record}"))?;
        }
        if self.json {
            screen.json(&manifest)?;
        } else {
            let records = manifest.files.iter().map(|file| file.records).sum();
            let records = words::count(records, "record", "records");
            let folder = folder.display();
            screen.line(format!(
                "exported {records} to {folder}: compared, and the same"
            ))?;
            if self.close {
                screen.line("next: set `store` to the new store in tidings.toml, then run")?;
                screen.line(format!("      tidings import store {folder}"))?;
            }
        }
        Ok(match manifest.unreadable.is_empty() {
            true => Exit::Done,
            false => Exit::Partly,
        })
    }
}
