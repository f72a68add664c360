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
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use crate::clock::{Clock, Ids};
use crate::domain::{Day, Lease};
use crate::engine::archive::{chunks, lease_of, lines, restore_lines};
use crate::engine::crash::point;
use crate::engine::{Error, Result, Watcher};
use crate::private;
use crate::store::{
    self, AnyRecord, DaySum, Importing, Kind, Mark, Meeting, Page, Summing, WholeStore,
};
use crate::wire::transfer::{FileSum, ImportedFile, ImportedStore, Manifest};

/// The version of the format that this program writes and reads.
const FORMAT: u32 = 1;
/// How long a day is leased while it is repaired.
const LEASE: TimeDelta = TimeDelta::minutes(5);

/// A store, and the folder of its export.
pub struct Transfer {
    /// The store to read or write.
    pub store: Arc<dyn WholeStore>,
    /// The folder of the export.
    pub folder: PathBuf,
    /// The current time.
    pub clock: Arc<dyn Clock>,
    /// Names this process in leases.
    pub ids: Arc<Ids>,
}

/// Whether the store can be used after its export.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum After {
    /// All commands can use it.
    Open,
    /// No other command can use it: it is being moved.
    Closed,
}

/// Opens a store that an export closed. Returns whether it was closed.
pub async fn reopen(store: &dyn WholeStore) -> Result<bool> {
    match store.mark().await? {
        Some(mark @ Mark::Closed { .. }) => swap(store, Some(&mark), None).await.map(|()| true),
        _ => Ok(false),
    }
}

impl Transfer {
    /// Writes one file for each kind of record and each day, and then the manifest. Keeps complete
    /// files of an interrupted run.
    ///
    /// # Errors
    ///
    /// [`Error::Conflict`] if the folder holds a complete export, or if the store changed during
    /// the export.
    pub async fn export(&self, after: After, watcher: &dyn Watcher) -> Result<Manifest> {
        let folder = self.folder.display();
        if self.manifest().exists() {
            let why = "holds a complete export already: name another folder";
            return Err(Error::Conflict(format!("{folder} {why}")));
        }
        if after == After::Closed && self.store.mark().await?.is_none() {
            let folder = folder.to_string();
            swap(&*self.store, None, Some(&Mark::Closed { folder })).await?;
        }
        private::folder(&self.folder).map_err(failed("making", &self.folder))?;
        self.repair_days().await?;
        self.store.catch_up().await?;
        let parts = self.parts().await?;
        let mut files = Vec::new();
        for part in &parts {
            let path = self.path(&part.name());
            if !path.exists() {
                self.write(*part, &path, watcher).await?;
                point("export-written");
            }
            files.push(part.file(part.read(&path)?.0));
        }
        let (unreadable, mut changed) = self.compare(&parts, &files, watcher).await?;
        if self.parts().await? != parts {
            changed.push("the list of days".to_owned());
        }
        if !changed.is_empty() {
            let changed = changed.join(", ");
            return Err(Error::Conflict(format!(
                "the store changed while it was exported ({changed}): stop serve, worker and cron \
                 lines, and repeat the command"
            )));
        }
        point("export-compared");
        let manifest = Manifest {
            format: FORMAT,
            at: self.clock.now(),
            files,
            unreadable,
        };
        self.publish(&manifest)?;
        Ok(manifest)
    }

    /// Reads the store again. Returns the unreadable records and the names of changed files, which
    /// it removes.
    async fn compare(
        &self,
        parts: &[Part],
        files: &[FileSum],
        watcher: &dyn Watcher,
    ) -> Result<(Vec<String>, Vec<String>)> {
        let (mut unreadable, mut changed) = (Vec::new(), Vec::new());
        self.store.catch_up().await?;
        for (part, file) in parts.iter().zip(files) {
            let (sum, bad) = self.sum(*part, watcher).await?;
            unreadable.extend(bad);
            if part.file(sum) != *file {
                let path = self.path(&file.name);
                fs::remove_file(&path).map_err(failed("removing", &path))?;
                changed.push(file.name.clone());
            }
        }
        Ok((unreadable, changed))
    }

    /// Completes days that a killed `archive` left half dropped: they are read by their names.
    async fn repair_days(&self) -> Result<()> {
        let owner = self.ids.owner();
        for day in self.store.days().await? {
            let (name, now) = (lease_of(day), self.clock.now());
            let lease = Lease {
                owner: owner.clone(),
                until: now + LEASE,
            };
            if !self.store.lease(&name, &lease, now).await? {
                let why = format!("another process archives or restores {day}");
                return Err(Error::Conflict(why));
            }
            self.store.fix_day(day).await?;
            self.store.unlease(&name, &owner).await?;
        }
        Ok(())
    }

    async fn write(&self, part: Part, path: &Path, watcher: &dyn Watcher) -> Result<()> {
        let partial = path.with_extension("partial");
        let failed = || failed("writing", &partial);
        let out = private::create(&partial).map_err(failed())?;
        let mut out = zstd::Encoder::new(out, 3).map_err(failed())?;
        out.include_checksum(true).map_err(failed())?;
        let mut pages = part.pages(&*self.store);
        while let Some(page) = pages.try_next().await? {
            for line in &page.lines {
                writeln!(out, "{line}").map_err(failed())?;
            }
            watcher.advance(page.lines.len() as u64);
        }
        let file = out.finish().map_err(failed())?;
        file.sync_all().map_err(failed())?;
        fs::rename(&partial, path).map_err(failed())
    }

    fn publish(&self, manifest: &Manifest) -> Result<()> {
        let (partial, path) = (self.folder.join("manifest.partial"), self.manifest());
        let failed = || failed("writing", &path);
        private::write(&partial, manifest.text()).map_err(failed())?;
        let sync = |path: &Path| File::open(path).and_then(|file| file.sync_all());
        sync(&partial).map_err(failed())?;
        fs::rename(&partial, &path).map_err(failed())?;
        sync(&self.folder).map_err(failed())
    }

    /// Writes all records of the export to the store, which must be empty or hold an unfinished
    /// import of the same export. All files are verified first.
    pub async fn import(&self, watcher: &dyn Watcher) -> Result<ImportedStore> {
        let path = self.manifest();
        let text = fs::read_to_string(&path).map_err(failed("reading", &path))?;
        let manifest = Manifest::read(&text).map_err(|why| damaged(&path, why))?;
        if manifest.format != FORMAT {
            let why = "is of another format: use the version of tidings that wrote it";
            return Err(damaged(&path, why));
        }
        let records: u64 = manifest.files.iter().map(|file| file.records).sum();
        watcher.total(2 * records);
        let files = manifest.files.iter().map(|file| self.verify(file));
        let files: Vec<(Part, DaySum)> = files.collect::<Result<_>>()?;
        let mut sum = Summing::default();
        sum.add(&text);
        let mut import = self.begin(sum.end().sha256).await?;
        point("import-marked");
        let rejected = self.put(&files, &mut import, watcher).await?;
        let files = self.compare_all(&files, watcher).await?;
        point("import-compared");
        let same = files.iter().all(|file| file.same);
        if same {
            let mark = Mark::Importing(import);
            swap(&*self.store, Some(&mark), None).await?;
        } else {
            // The next run writes everything again.
            self.note(&mut import, 0, 0).await?;
        }
        Ok(ImportedStore {
            same,
            files,
            rejected,
        })
    }

    /// Checks a file, and returns the sum that the store will have.
    fn verify(&self, file: &FileSum) -> Result<(Part, DaySum)> {
        let path = self.path(&file.name);
        let part = Part::named(&file.name);
        let part = part.ok_or_else(|| damaged(&path, "is of a kind that tidings does not know"))?;
        let (sum, expected) = part.read(&path)?;
        match part.file(sum) == *file {
            true => Ok((part, expected)),
            false => Err(damaged(
                &path,
                "does not match its count and checksum in manifest.json; nothing was imported",
            )),
        }
    }

    /// Marks the store as half imported, unless an earlier run has.
    async fn begin(&self, manifest: String) -> Result<Importing> {
        let store = &*self.store;
        match store.mark().await? {
            Some(Mark::Importing(import)) if import.manifest == manifest => Ok(import),
            Some(Mark::Importing(Importing { folder, .. })) => Err(Error::Conflict(format!(
                "an import of {folder} has not ended: continue that one, or empty the database"
            ))),
            Some(Mark::Closed { folder }) => Err(Error::Conflict(format!(
                "the store is closed: it was exported to {folder}"
            ))),
            None => {
                store.catch_up().await?;
                for part in self.parts().await? {
                    let mut pages = part.pages(store);
                    while let Some(page) = pages.try_next().await? {
                        if !(page.lines.is_empty() && page.bad.is_empty()) {
                            let why = "import into an empty database";
                            let name = part.name();
                            let why = format!("the store is not empty, it holds {name}: {why}");
                            return Err(Error::Conflict(why));
                        }
                    }
                }
                let import = Importing {
                    folder: self.folder.display().to_string(),
                    manifest,
                    files: 0,
                    lines: 0,
                };
                swap(store, None, Some(&Mark::Importing(import.clone()))).await?;
                Ok(import)
            }
        }
    }

    /// Writes the lines behind the mark, and moves it. Returns the rejected documents.
    async fn put(
        &self,
        files: &[(Part, DaySum)],
        import: &mut Importing,
        watcher: &dyn Watcher,
    ) -> Result<Vec<String>> {
        let mut rejected = Vec::new();
        let (first, mut done) = (import.files, import.lines);
        for (index, (part, _)) in files.iter().enumerate().skip(first) {
            let path = self.path(&part.name());
            for chunk in chunks(lines(&path)?.skip(done as usize)) {
                let chunk = chunk.map_err(failed("reading", &path))?;
                let errors = part.put(&*self.store, &chunk).await?;
                rejected.extend(errors.iter().map(ToString::to_string));
                point("import-put");
                done += chunk.len() as u64;
                self.note(import, index, done).await?;
                watcher.advance(chunk.len() as u64);
                point("import-noted");
            }
            done = 0;
        }
        Ok(rejected)
    }

    /// Moves the mark.
    async fn note(&self, import: &mut Importing, files: usize, lines: u64) -> Result<()> {
        let next = Importing {
            files,
            lines,
            ..import.clone()
        };
        let marks = [&*import, &next].map(|import| Mark::Importing(import.clone()));
        swap(&*self.store, Some(&marks[0]), Some(&marks[1])).await?;
        *import = next;
        Ok(())
    }

    /// Compares all parts of the store, those without a file as well.
    async fn compare_all(
        &self,
        files: &[(Part, DaySum)],
        watcher: &dyn Watcher,
    ) -> Result<Vec<ImportedFile>> {
        self.store.catch_up().await?;
        let nothing = Summing::default().end();
        let mut all: Vec<(Part, &DaySum)> = files.iter().map(|(part, sum)| (*part, sum)).collect();
        let others = self.parts().await?.into_iter();
        let others = others.filter(|part| files.iter().all(|(file, _)| file != part));
        all.extend(others.map(|part| (part, &nothing)));
        let mut compared = Vec::new();
        for (part, expected) in all {
            let (stored, bad) = self.sum(part, watcher).await?;
            compared.push(ImportedFile {
                name: part.name(),
                records: expected.stacks,
                stored: stored.stacks,
                same: stored == *expected && bad.is_empty(),
            });
        }
        Ok(compared)
    }

    /// Reads a part of the store. Returns its sum and its unreadable records.
    async fn sum(&self, part: Part, watcher: &dyn Watcher) -> Result<(DaySum, Vec<String>)> {
        let (mut summing, mut bad) = (Summing::default(), Vec::new());
        let mut pages = part.pages(&*self.store);
        while let Some(page) = pages.try_next().await? {
            page.lines.iter().for_each(|line| summing.add(line));
            watcher.advance(page.lines.len() as u64);
            bad.extend(page.bad);
        }
        Ok((summing.end(), bad))
    }

    async fn parts(&self) -> Result<Vec<Part>> {
        let days = self.store.days().await?.into_iter().map(Part::Day);
        Ok(Kind::ALL
            .map(Part::Records)
            .into_iter()
            .chain(days)
            .collect())
    }

    fn manifest(&self) -> PathBuf {
        self.folder.join("manifest.json")
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.join(format!("{name}.ndjson.zst"))
    }
}

/// What one file holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Part {
    Records(Kind),
    Day(Day),
}

impl Part {
    fn name(self) -> String {
        match self {
            Self::Records(kind) => kind.as_str().to_owned(),
            Self::Day(day) => day.collection(),
        }
    }

    fn file(self, sum: DaySum) -> FileSum {
        FileSum {
            name: self.name(),
            records: sum.stacks,
            sha256: sum.sha256,
        }
    }

    fn named(name: &str) -> Option<Self> {
        let kind = Kind::ALL.into_iter().find(|kind| kind.as_str() == name);
        let day = || Day::of_collection(name).map(Self::Day);
        kind.map(Self::Records).or_else(day)
    }

    fn pages(self, store: &dyn WholeStore) -> BoxStream<'_, store::Result<Page>> {
        let page = |lines| Page {
            lines,
            ..Page::default()
        };
        match self {
            Self::Records(kind) => store.export_pages(kind),
            Self::Day(day) => store.export_day(day).map_ok(page).boxed(),
        }
    }

    /// Writes lines. Returns the errors of documents that the store rejected.
    async fn put(self, store: &dyn WholeStore, lines: &[String]) -> Result<Vec<store::Error>> {
        Ok(match self {
            Self::Records(kind) => store.put_page(kind, lines).await.map(|()| Vec::new())?,
            Self::Day(day) => restore_lines(store, day, lines, Meeting::Same).await?,
        })
    }

    /// Reads a file. Returns its sum, and the sum of its records as a store returns them.
    fn read(self, path: &Path) -> Result<(DaySum, DaySum)> {
        let (mut sum, mut expected) = (Summing::default(), Summing::default());
        for line in lines(path)? {
            let number = sum.stacks() + 1;
            let line = line.map_err(|why| damaged(path, format!("line {number}: {why}")))?;
            sum.add(&line);
            match self {
                Self::Records(kind) => {
                    let again = AnyRecord::read(kind, &line).and_then(|record| record.line());
                    let again = again.map_err(|why| damaged(path, format!("line {number}: {why}")));
                    expected.add(&again?);
                }
                Self::Day(_) => expected.add(&line),
            }
        }
        Ok((sum.end(), expected.end()))
    }
}

async fn swap(store: &dyn WholeStore, read: Option<&Mark>, mark: Option<&Mark>) -> Result<()> {
    match store.swap_mark(read, mark).await? {
        true => Ok(()),
        false => Err(Error::Conflict(
            "another process exports or imports this store at the same time".to_owned(),
        )),
    }
}

fn failed(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let doing = format!("{doing} {}", path.display());
    |cause| Error::file(doing, cause)
}

fn damaged(path: &Path, why: impl ToString) -> Error {
    Error::Damaged {
        file: path.display().to_string(),
        why: why.to_string(),
    }
}
