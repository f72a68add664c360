//! `tidings export` and `import store`: writes the whole store to files, and reads it from them.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args as Arguments;

use super::session::{Access, Exit, Screen, Session, phrases};
use crate::config::Config;
use crate::operate::open::{open_store, open_transfer};
use crate::operate::transfer::{VerifiedExport, reopen};
use crate::store::TransferMark;
use crate::wire::transfer::BadRecords;

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
    /// Reopen the store even if its export is complete: no other store has sent emails since
    #[arg(long, requires = "reopen")]
    force: bool,
}

const AFTER_HELP: &str = "\
Examples:
  tidings export /var/backups/tidings/2026-03-01
  tidings export --close moving && tidings --store mongodb://HOST/DATABASE import store moving";

impl Args {
    pub(super) async fn run(&self, session: &mut Session<'_>) -> anyhow::Result<Exit> {
        let (config, screen) = (&session.load()?, &mut *session.screen);
        match &self.folder {
            Some(folder) => self.export(folder, config, screen).await,
            None => self.reopen(config, screen).await,
        }
    }

    async fn reopen(&self, config: &Config, screen: &mut Screen) -> anyhow::Result<Exit> {
        let store = open_store(config, Access::Export).await?;
        let is_reopened = reopen(&*store, self.force).await?;
        let state = if is_reopened { "is open again" } else { "was not closed" };
        screen.line(format!("{:?} {state}", config.store))?;
        if is_reopened && !self.force {
            let sent = "if a store that imported the export has sent emails since";
            screen.warning(format!("{sent}, this one sends them again"))?;
        }
        Ok(Exit::Done)
    }

    async fn export(
        &self,
        folder: &Path,
        config: &Config,
        screen: &mut Screen,
    ) -> anyhow::Result<Exit> {
        let transfer = open_transfer(config, Access::Export, folder.to_owned()).await?;
        let export = async {
            if self.close {
                transfer.close().await?;
            }
            transfer.export(&screen.progress_bar("records written and compared")).await
        };
        let result = export.await;
        if self.close && result.is_err() {
            let state = match transfer.store.transfer_mark().await {
                Ok(Some(TransferMark::Closed { .. })) => Some("stays closed"),
                Ok(_) => None,
                Err(_) => Some("may stay closed"),
            };
            let next = "`tidings export --reopen` opens it";
            screen.warnings(state.map(|state| format!("the store {state}; {next}")))?;
        }
        let manifest = result?;
        warn(screen, "cannot be exported", &manifest.unreadable)?;
        if !screen.answer(&manifest)? {
            let records = record_count(manifest.files.iter().map(|file| file.records));
            let folder = folder.display();
            screen.line(format!("exported {records} to {folder}: compared, and the same"))?;
            if self.close {
                screen.line("next: set `store` to the new store in tidings.toml, then run")?;
                screen.line(format!("      tidings import store {folder}"))?;
            }
        }
        Ok(Exit::Done.partly_unless(manifest.unreadable.count == 0))
    }
}

/// Imports the export in this folder into an empty store.
pub(super) async fn import_store(folder: &Path, session: &mut Session<'_>) -> anyhow::Result<Exit> {
    let (config, screen) = (&session.load()?, &mut *session.screen);
    // A mistyped or damaged folder creates no store.
    let export = VerifiedExport::read(folder)?;
    let transfer = open_transfer(config, Access::Import, folder.to_owned()).await?;
    let bar = screen.progress_bar("records imported and compared");
    let imported = transfer.import(&export, &bar).await?;
    drop(bar);
    warn(screen, "cannot be imported", &imported.rejected)?;
    let in_store = &imported.unreadable_in_store;
    warn(screen, "cannot be compared", in_store)?;
    warn(screen, "not in the export", &imported.unreadable)?;
    let store = &config.store;
    let is_complete = imported.unreadable.count == 0;
    let exit = if imported.is_same { Exit::Done.partly_unless(is_complete) } else { Exit::Failed };
    if screen.answer(&imported)? {
        return Ok(exit);
    }
    if imported.is_same {
        let records = record_count(imported.files.iter().map(|file| file.records));
        let folder = folder.display();
        let exception =
            if is_complete { "" } else { ", except for the records that the export lacks" };
        screen.line(format!(
            "imported {records} from {folder} into {store:?}: compared, and the same{exception}"
        ))?;
    } else {
        for file in imported.files.iter().filter(|file| !file.is_same) {
            let (records, stored) = (phrases::number(file.records), phrases::number(file.stored));
            let counts = format!("{records} in the file, {stored} in the store");
            screen.line(format!("{} differs: {counts}", file.name))?;
        }
        let next = match in_store.count {
            0 => "stop all writers and repeat",
            _ => "stop all writers, delete the unreadable records from the store and repeat",
        };
        screen.line(format!("{store:?} stays closed; next: {next}"))?;
    }
    Ok(exit)
}

/// Formats the number of records of some files.
fn record_count(files: impl Iterator<Item = u64>) -> String {
    phrases::count(files.sum(), "record", "records")
}

/// Warns about records that were not copied.
fn warn(screen: &mut Screen, problem: &str, records: &BadRecords) -> io::Result<()> {
    let more = records.count.saturating_sub(records.first.len() as u64);
    let listed = records.first.iter().cloned().chain(phrases::nonzero(more, "more"));
    screen.warnings(listed.map(|record| format!("{problem}: {record}")))
}
