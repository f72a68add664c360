//! The files of an export: one for each kind of record and each day. [`VerifiedExport`] checks all
//! of them before anything is imported.

use std::fs;
use std::path::{Path, PathBuf};

use crate::domain::Day;
use crate::engine::archive::{read_lines, restore_lines};
use crate::engine::{Error, Result};
use crate::store::{
    self, AnyRecord, Checksum, ChecksumBuilder, ExportPart, MergePolicy, RecordKind, Store,
};
use crate::wire::transfer::{BadRecords, FileChecksum, Manifest};

/// The version of the format that this program writes and reads.
pub(super) const FORMAT: u32 = 1;
/// The file that a complete export has.
pub(super) const MANIFEST: &str = "manifest.json";

/// The name of [`RecordKind::WebhookReceipts`] in exports of earlier versions.
const FORMER_RECEIPTS: &str = "sightings";

/// One file holds one kind of record, or one day.
impl ExportPart {
    pub(super) fn name(self) -> String {
        match self {
            Self::Records(kind) => kind.as_str().to_owned(),
            Self::Day(day) => day.collection_name(),
        }
    }

    pub(super) fn path(self, folder: &Path) -> PathBuf {
        let path = |name: &str| folder.join(format!("{name}.ndjson.zst"));
        let former = path(FORMER_RECEIPTS);
        if self == Self::Records(RecordKind::WebhookReceipts) && former.exists() {
            return former;
        }
        path(&self.name())
    }

    pub(super) fn from_name(name: &str) -> Option<Self> {
        let kind = RecordKind::ALL.into_iter().find(|kind| kind.as_str() == name);
        let former = || (name == FORMER_RECEIPTS).then_some(RecordKind::WebhookReceipts);
        let day = || Day::from_collection(name).map(Self::Day);
        kind.or_else(former).map(Self::Records).or_else(day)
    }

    /// Writes lines to the store. `first` is the number of the first line in its file. Returns the
    /// errors of the documents of a day that the store rejected.
    pub(super) async fn import_lines(
        self,
        store: &dyn Store,
        first: u64,
        lines: &[String],
    ) -> Result<Vec<store::Error>> {
        let kind = match self {
            Self::Records(kind) => kind,
            Self::Day(day) => {
                return Ok(restore_lines(store, day, lines, MergePolicy::MustBeEqual).await?);
            }
        };
        if store.import_records(kind, lines).await.is_err() {
            // Retried one by one, so that the error names the line.
            for (number, line) in (first..).zip(lines) {
                let imported = store.import_records(kind, std::slice::from_ref(line)).await;
                let doing = || format!("importing {}, line {number}", kind.as_str());
                imported.map_err(|why| match why {
                    store::Error::Database { cause, .. } => store::Error::database(doing(), cause),
                    why => store::Error::Unsupported(format!("{}: {why}", doing())),
                })?;
            }
        }
        Ok(Vec::new())
    }

    /// Reads a file. Returns its sum, and the sum of its records as a store returns them.
    pub(super) fn read(self, path: &Path) -> Result<(Checksum, Checksum)> {
        let (mut sum, mut expected) = (ChecksumBuilder::default(), ChecksumBuilder::default());
        for line in read_lines(path)? {
            let number = sum.records() + 1;
            let damaged = |why: String| Error::damaged(path, format!("line {number}: {why}"));
            let line = line.map_err(|why| damaged(why.to_string()))?;
            sum.add(&line);
            match self {
                Self::Records(kind) => {
                    let stored =
                        AnyRecord::from_line(kind, &line).and_then(|record| record.to_line());
                    expected.add(&stored.map_err(|why| damaged(why.to_string()))?);
                }
                Self::Day(_) => expected.add(&line),
            }
        }
        Ok((sum.finish(), expected.finish()))
    }
}

/// Returns a function that adds what failed to an I/O error.
pub(super) fn failed(doing: &str, path: &Path) -> impl FnOnce(std::io::Error) -> Error {
    let doing = format!("{doing} {}", path.display());
    |cause| Error::file(doing, cause)
}

/// A complete export whose files match their counts and checksums.
pub struct VerifiedExport {
    /// The SHA-256 of the manifest.
    pub(super) sha256: String,
    /// The files, each with the sum that the store will have.
    pub(super) files: Vec<(ExportPart, Checksum)>,
    /// The records that the export lacks.
    pub(super) unreadable: BadRecords,
}

impl VerifiedExport {
    /// Reads and verifies the export in this folder.
    ///
    /// # Errors
    ///
    /// [`Error::File`] if a file is missing or unreadable;
    /// [`Error::Damaged`] if one differs from the manifest.
    pub fn read(folder: &Path) -> Result<Self> {
        let path = folder.join(MANIFEST);
        let text = fs::read_to_string(&path).map_err(failed("reading", &path))?;
        let manifest: Manifest =
            serde_json::from_str(&text).map_err(|why| Error::damaged(&path, why))?;
        if manifest.format != FORMAT {
            let why = "is of another format: use the version of tidings that wrote it";
            return Err(Error::damaged(&path, why));
        }
        let files = manifest.files.iter().map(|file| verify(folder, file));
        let mut sum = ChecksumBuilder::default();
        sum.add(&text);
        Ok(Self {
            sha256: sum.finish().sha256,
            files: files.collect::<Result<_>>()?,
            unreadable: manifest.unreadable,
        })
    }
}

/// Checks a file, and returns the sum that the store will have.
fn verify(folder: &Path, file: &FileChecksum) -> Result<(ExportPart, Checksum)> {
    let Some(part) = ExportPart::from_name(&file.name) else {
        let why = "is of a kind that tidings does not know";
        return Err(Error::damaged(&folder.join(&file.name), why));
    };
    let path = part.path(folder);
    let (sum, expected) = part.read(&path)?;
    if (sum.records, &sum.sha256) == (file.records, &file.sha256) {
        return Ok((part, expected));
    }
    let why = "does not match its count and checksum in manifest.json; nothing was imported";
    Err(Error::damaged(&path, why))
}
