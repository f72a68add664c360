//! `tidings export` and `import store`: writes the whole store to files, and reads it from them.

use std::io;
use std::path::{Path, PathBuf};

use clap::Args as Arguments;

use super::session::{Access, Exit, Screen, Session, phrases};
use crate::operate::open::{open_store, transfer};
use crate::operate::transfer::{VerifiedExport, reopen};
use crate::store::Mark;
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
        let Some(folder) = &self.folder else {
            let store = open_store(config, Access::Export).await?;
            let reopened = reopen(&*store, self.force).await?;
            screen.line(match reopened {
                true => format!("{:?} is open again", config.store),
                false => format!("{:?} was not closed", config.store),
            })?;
            if reopened && !self.force {
                let sent = "if a store that imported the export has sent emails since";
                screen.warning(format!("{sent}, this one sends them again"))?;
            }
            return Ok(Exit::Done);
        };
        let transfer = transfer(config, Access::Export, folder.clone()).await?;
        let bar = screen.progress_bar("records written and compared");
        let exported = async {
            if self.close {
                transfer.close().await?;
            }
            transfer.export(&bar).await
        };
        let exported = exported.await;
        drop(bar);
        if self.close && exported.is_err() {
            let closed = match transfer.store.mark().await {
                Ok(Some(Mark::Closed { .. })) => Some("stays closed"),
                Ok(_) => None,
                Err(_) => Some("may stay closed"),
            };
            let next = "`tidings export --reopen` opens it";
            screen.warnings(closed.map(|closed| format!("the store {closed}; {next}")))?;
        }
        let manifest = exported?;
        warn(screen, "cannot be exported", &manifest.unreadable)?;
        if !screen.answer(&manifest)? {
            let records = records(manifest.files.iter().map(|file| file.records));
            let folder = folder.display();
            let same = "compared, and the same";
            screen.line(format!("exported {records} to {folder}: {same}"))?;
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
    let transfer = transfer(config, Access::Import, folder.to_owned()).await?;
    let bar = screen.progress_bar("records imported and compared");
    let imported = transfer.import(&export, &bar).await?;
    drop(bar);
    warn(screen, "cannot be imported", &imported.rejected)?;
    let in_store = &imported.unreadable_in_store;
    warn(screen, "cannot be compared", in_store)?;
    warn(screen, "not in the export", &imported.unreadable)?;
    let (store, shown) = (&config.store, folder.display());
    let exit = match imported.same {
        true => Exit::Done.partly_unless(imported.unreadable.count == 0),
        false => Exit::Failed,
    };
    if screen.answer(&imported)? {
        return Ok(exit);
    }
    if imported.same {
        let records = records(imported.files.iter().map(|file| file.records));
        let same = match imported.unreadable.count {
            0 => "compared, and the same",
            _ => "compared, and the same, but for the records that the export lacks",
        };
        let done = format!("imported {records} from {shown} into {store:?}: {same}");
        screen.line(done)?;
    } else {
        for file in imported.files.iter().filter(|file| !file.same) {
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
fn records(files: impl Iterator<Item = u64>) -> String {
    phrases::count(files.sum(), "record", "records")
}

/// Warns about records that were not copied.
fn warn(screen: &mut Screen, what: &str, records: &BadRecords) -> io::Result<()> {
    let more = records.count.saturating_sub(records.first.len() as u64);
    let first = records.first.iter().cloned();
    let records = first.chain(phrases::nonzero(more, "more"));
    screen.warnings(records.map(|record| format!("{what}: {record}")))
}
