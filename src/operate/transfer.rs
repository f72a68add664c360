//! Exports a whole store to a folder, and imports it into an empty store of either kind.
//!
//! An export ends after the store was read twice with the same sums. An import ends after the store
//! was read again with the sums of the files. Either can be killed at any step and repeated.
//! Start with [`Transfer::export`]; docs/decisions/0019-export-and-import.md has the reasons.

use std::fs::{self, File};
use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use chrono::TimeDelta;
use futures::TryStreamExt;

use crate::clock::Clock;
use crate::domain::Lease;
use crate::engine::archive::{UNFINISHED_MARKER, chunk_lines, day_lease_name, read_lines};
use crate::engine::crash::point;
use crate::engine::{Error, Progress, Result};
use crate::private;
use crate::store::{
    Checksum, ChecksumBuilder, ExportPart, ImportProgress, LeasesToEnd, RecordKind, Store,
    TransferMark,
};
use crate::wire::transfer::{BadRecords, FileChecksum, ImportedFile, ImportedStore, Manifest};

mod files;

pub use files::VerifiedExport;
use files::{FORMAT, MANIFEST, failed};

/// How long a day is leased while it is repaired.
const LEASE: TimeDelta = TimeDelta::minutes(5);

/// A store, and the folder of its export.
pub struct Transfer {
    /// The store to read or write.
    pub store: Arc<dyn Store>,
    /// The folder of the export.
    pub folder: PathBuf,
    /// The current time.
    pub clock: Arc<dyn Clock>,
}

/// Opens a store that an export closed. Returns whether it was closed.
///
/// # Errors
///
/// [`Error::Conflict`] if the export is complete, unless `force` is set: the store that imported it
/// may have sent emails.
pub async fn reopen(store: &dyn Store, force: bool) -> Result<bool> {
    let mark = store.transfer_mark().await?;
    let Some(TransferMark::Closed { folder }) = &mark else {
        return Ok(false);
    };
    if !force && Path::new(folder).join(MANIFEST).exists() {
        return conflict(format!(
            "the export to {folder} is complete: a store that imported it may have sent emails, \
             and this one would send them again; if none has, add --force"
        ));
    }
    swap(store, mark.as_ref(), None).await.map(|()| true)
}

impl Transfer {
    /// Closes the store to all other commands, because this export moves it.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the folder holds anything but an unfinished export.
    pub async fn close(&self) -> Result<()> {
        self.begin_folder()?;
        let existing = self.store.transfer_mark().await?;
        let closed = existing.filter(|mark| matches!(mark, TransferMark::Closed { .. }));
        let mark = TransferMark::Closed { folder: self.folder.display().to_string() };
        swap(&*self.store, closed.as_ref(), Some(&mark)).await
    }

    /// Writes one file for each kind of record and each day, and then the manifest. Keeps complete
    /// files of an interrupted run.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the folder holds anything but an unfinished export, or if the store
    /// changed during the export.
    pub async fn export(&self, progress: &dyn Progress) -> Result<Manifest> {
        self.begin_folder()?;
        self.repair_days().await?;
        self.store.catch_up().await?;
        let mut files = Vec::new();
        for part in self.parts().await? {
            let path = part.path(&self.folder);
            if !path.exists() {
                self.write_file(part, &path, progress).await?;
                point("export-written");
            }
            files.push((part, part.read(&path)?.0));
        }
        let (compared, unreadable) = self.compare(&files, progress).await?;
        // Removed, so that the next run writes them again. Files of new days come last in
        // `compared`, and do not exist yet.
        for ((part, _), _) in files.iter().zip(&compared).filter(|(_, file)| !file.is_same) {
            let path = part.path(&self.folder);
            fs::remove_file(&path).map_err(failed("removing", &path))?;
        }
        let changed = compared.iter().filter(|file| !file.is_same);
        let names: Vec<&str> = changed.map(|file| &*file.name).collect();
        if !names.is_empty() {
            return conflict(format!(
                "the store changed while it was exported ({}): stop serve, worker and cron lines, \
                 and repeat the command",
                names.join(", ")
            ));
        }
        point("export-compared");
        let sums = files.into_iter().map(|(part, sum)| FileChecksum {
            name: part.name(),
            records: sum.records,
            sha256: sum.sha256,
        });
        let manifest =
            Manifest { format: FORMAT, at: self.clock.now(), files: sums.collect(), unreadable };
        self.publish(&manifest)?;
        Ok(manifest)
    }

    /// Creates the folder, and marks it as an unfinished export.
    fn begin_folder(&self) -> Result<()> {
        let folder = self.folder.display();
        if self.folder.join(MANIFEST).exists() {
            let why = "holds a complete export already: name another folder";
            return conflict(format!("{folder} {why}"));
        }
        private::create_folder(&self.folder).map_err(failed("making", &self.folder))?;
        let mark = self.folder.join(UNFINISHED_MARKER);
        if mark.exists() {
            return Ok(());
        }
        let mut files = fs::read_dir(&self.folder).map_err(failed("reading", &self.folder))?;
        if files.next().is_some() {
            let why = "holds files, and no unfinished export: name a new or empty folder";
            return conflict(format!("{folder} {why}"));
        }
        private::write(&mark, "").map_err(failed("writing", &mark))
    }

    /// Completes days that a killed `archive` has dropped in part. An export reads days by name.
    async fn repair_days(&self) -> Result<()> {
        // An export that continues a killed one owns its lease.
        let owner = format!("export {}", self.folder.display());
        for day in self.store.days().await? {
            let (name, now) = (&day_lease_name(day), self.clock.now());
            let lease = Lease { owner: owner.clone(), until: now + LEASE };
            if !self.store.lease(name, &lease, now).await? {
                return conflict(format!("another process archives or restores {day}"));
            }
            let repaired = self.store.fix_day(day).await;
            self.store.release(&LeasesToEnd::Lease { name, owner: &owner }).await?;
            repaired?;
        }
        Ok(())
    }

    async fn write_file(
        &self,
        part: ExportPart,
        path: &Path,
        progress: &dyn Progress,
    ) -> Result<()> {
        let partial = path.with_extension("partial");
        let failed = || failed("writing", &partial);
        let file = private::create(&partial).map_err(failed())?;
        let mut encoder = zstd::Encoder::new(file, 3).map_err(failed())?;
        encoder.include_checksum(true).map_err(failed())?;
        let mut pages = self.store.export(part);
        while let Some(page) = pages.try_next().await? {
            for line in &page.lines {
                writeln!(encoder, "{line}").map_err(failed())?;
            }
            progress.advance(page.lines.len() as u64);
        }
        let file = encoder.finish().map_err(failed())?;
        file.sync_all().map_err(failed())?;
        fs::rename(&partial, path).map_err(failed())
    }

    fn publish(&self, manifest: &Manifest) -> Result<()> {
        let path = self.folder.join(MANIFEST);
        let text = serde_json::to_string_pretty(manifest).expect("a manifest has no maps");
        private::replace(&path, text).map_err(failed("writing", &path))?;
        let synced = File::open(&self.folder).and_then(|folder| folder.sync_all());
        synced.map_err(failed("writing", &self.folder))?;
        let mark = self.folder.join(UNFINISHED_MARKER);
        fs::remove_file(&mark).map_err(failed("removing", &mark))
    }

    /// Writes all records of the export to the store, which must be empty or hold an unfinished
    /// import of the same export.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the store holds anything else, or another process ended the import.
    pub async fn import(
        &self,
        export: &VerifiedExport,
        progress: &dyn Progress,
    ) -> Result<ImportedStore> {
        let records: u64 = export.files.iter().map(|(_, sum)| sum.records).sum();
        progress.set_total(2 * records);
        let mut import = self.begin_import(&export.sha256).await?;
        point("import-marked");
        let rejected = self.write_records(&export.files, &mut import, progress).await?;
        let (files, bad) = self.compare(&export.files, progress).await?;
        point("import-compared");
        let is_same = bad.count == 0 && files.iter().all(|file| file.is_same);
        if is_same {
            let mark = TransferMark::Importing(import);
            swap(&*self.store, Some(&mark), None).await?;
        } else {
            // The next run writes everything again.
            self.save_progress(&mut import, 0, 0).await?;
        }
        Ok(ImportedStore {
            is_same,
            files,
            rejected,
            unreadable_in_store: bad,
            unreadable: export.unreadable.clone(),
        })
    }

    /// Marks the store as half imported, unless an earlier run has.
    async fn begin_import(&self, manifest: &str) -> Result<ImportProgress> {
        let store = &*self.store;
        let mut import = match store.transfer_mark().await? {
            Some(TransferMark::Importing(import)) if import.manifest == manifest => import,
            Some(TransferMark::Importing(ImportProgress { folder, .. })) => {
                let next = "continue that one, or empty the database";
                return conflict(format!("an import of {folder} has not ended: {next}"));
            }
            Some(TransferMark::Closed { folder }) => {
                return conflict(format!("the store is closed: it was exported to {folder}"));
            }
            Some(TransferMark::Moving) => return conflict("the store is being moved"),
            None => {
                self.require_empty_store().await?;
                point("import-checked");
                let import = ImportProgress {
                    folder: self.folder.display().to_string(),
                    manifest: manifest.to_owned(),
                    ..ImportProgress::default()
                };
                swap(store, None, Some(&TransferMark::Importing(import.clone()))).await?;
                import
            }
        };
        if import.checked {
            return Ok(import);
        }
        // A process that opened the store before the mark may have written since the first check.
        let mark = TransferMark::Importing(import.clone());
        if let Err(error) = self.require_empty_store().await {
            swap(store, Some(&mark), None).await?;
            return Err(error);
        }
        import.checked = true;
        swap(store, Some(&mark), Some(&TransferMark::Importing(import.clone()))).await?;
        Ok(import)
    }

    /// Refuses a store that is not empty.
    async fn require_empty_store(&self) -> Result<()> {
        self.store.catch_up().await?;
        for part in self.parts().await? {
            let mut pages = self.store.export(part);
            while let Some(page) = pages.try_next().await? {
                if !(page.lines.is_empty() && page.unreadable.is_empty()) {
                    let why = "import into an empty database";
                    let name = part.name();
                    return conflict(format!("the store is not empty, it holds {name}: {why}"));
                }
            }
        }
        Ok(())
    }

    /// Writes the lines that the mark does not count yet. Returns the rejected documents.
    async fn write_records(
        &self,
        files: &[(ExportPart, Checksum)],
        import: &mut ImportProgress,
        progress: &dyn Progress,
    ) -> Result<BadRecords> {
        let mut rejected = BadRecords::default();
        let (first, mut done) = (import.files, import.lines);
        for (index, (part, _)) in files.iter().enumerate().skip(first) {
            let path = part.path(&self.folder);
            for chunk in chunk_lines(read_lines(&path)?.skip(done as usize)) {
                let chunk = chunk.map_err(failed("reading", &path))?;
                // A suspended import writes nothing after another process has ended it.
                if self.store.transfer_mark().await?
                    != Some(TransferMark::Importing(import.clone()))
                {
                    return conflict("another process has continued this import");
                }
                let errors = part.import_lines(&*self.store, done + 1, &chunk).await?;
                rejected.add(errors.iter().map(ToString::to_string));
                point("import-put");
                done += chunk.len() as u64;
                self.save_progress(import, index, done).await?;
                progress.advance(chunk.len() as u64);
                point("import-noted");
            }
            done = 0;
        }
        Ok(rejected)
    }

    /// Stores in the mark how many files, and lines of the next one, are imported.
    async fn save_progress(
        &self,
        import: &mut ImportProgress,
        files: usize,
        lines: u64,
    ) -> Result<()> {
        let before = TransferMark::Importing(import.clone());
        (import.files, import.lines) = (files, lines);
        let after = TransferMark::Importing(import.clone());
        swap(&*self.store, Some(&before), Some(&after)).await
    }

    /// Compares all parts of the store with these files. A part without a file is compared with an
    /// empty one. Also returns the unreadable records.
    async fn compare(
        &self,
        files: &[(ExportPart, Checksum)],
        progress: &dyn Progress,
    ) -> Result<(Vec<ImportedFile>, BadRecords)> {
        self.store.catch_up().await?;
        let mut expected_sums = files.to_vec();
        let parts = self.parts().await?.into_iter();
        let without_file = parts.filter(|part| files.iter().all(|(file, _)| file != part));
        expected_sums.extend(without_file.map(|part| (part, ChecksumBuilder::default().finish())));
        let (mut compared, mut bad) = (Vec::new(), BadRecords::default());
        for (part, expected) in expected_sums {
            let mut summing = ChecksumBuilder::default();
            let mut pages = self.store.export(part);
            while let Some(page) = pages.try_next().await? {
                page.lines.iter().for_each(|line| summing.add(line));
                progress.advance(page.lines.len() as u64);
                bad.add(page.unreadable);
            }
            let stored = summing.finish();
            compared.push(ImportedFile {
                name: part.name(),
                records: expected.records,
                stored: stored.records,
                is_same: stored == expected,
            });
        }
        Ok((compared, bad))
    }

    async fn parts(&self) -> Result<Vec<ExportPart>> {
        let days = self.store.days().await?.into_iter().map(ExportPart::Day);
        let records = RecordKind::ALL.map(ExportPart::Records).into_iter();
        Ok(records.chain(days).collect())
    }
}

/// Replaces the mark; fails if another process has changed it.
async fn swap(
    store: &dyn Store,
    before: Option<&TransferMark>,
    after: Option<&TransferMark>,
) -> Result<()> {
    if store.swap_transfer_mark(before, after).await? {
        return Ok(());
    }
    conflict("another process exports or imports this store at the same time")
}

fn conflict<T>(why: impl Into<String>) -> Result<T> {
    Err(Error::Conflict(why.into()))
}
