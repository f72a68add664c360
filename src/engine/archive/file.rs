//! Export files: zstd-compressed NDJSON with one document per line and a checksum in the last line.
//!
//! A file gets its final name when it is complete, on disk and verified (P9). If a day exists again
//! after its export, the next export is another part (`notifications_20140422.2.ndjson.zst`), so no
//! export is overwritten. `zstd -dc FILE | head -n -1 | sha256sum` prints the checksum.

use std::fs::{self, File};
use std::io::{self, BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use futures::StreamExt;
use serde::{Deserialize, Serialize};

use crate::domain::Day;
use crate::engine::{Error, Progress, Result};
use crate::private;
use crate::store::{self, Checksum, ChecksumBuilder, Days, MergePolicy, StackLine};

/// The contents of an export.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ExportSummary {
    /// The day of the documents.
    pub day: Day,
    /// The number of the part. It is above 1 if the day was exported before and then existed again.
    #[serde(default = "first", skip_serializing_if = "is_first")]
    pub part: u32,
    /// The number of documents.
    pub stacks: u64,
    /// SHA-256 of all lines before the last, with their line ends, in hexadecimal.
    pub sha256: String,
}

fn first() -> u32 {
    1
}

fn is_first(part: &u32) -> bool {
    *part == 1
}

impl ExportSummary {
    fn matches(&self, day: Day, sum: &Checksum) -> bool {
        self.day == day && self.stacks == sum.records && self.sha256 == sum.sha256
    }
}

/// The last line of an export.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Trailer {
    tidings: ExportSummary,
}

/// The file that marks the folder of an unfinished export of a whole store. Such an export may
/// replace files in the folder.
pub(crate) const UNFINISHED_MARKER: &str = "manifest.unfinished";
/// The most documents that are restored at once.
const DOCUMENTS_PER_CHUNK: usize = 1_000;
/// The size in bytes at which a chunk is restored even if it has fewer documents.
const CHUNK_BYTES: usize = 16 << 20;
/// The longest line in bytes: a document of 16 MiB with each byte written as six (`\u0001`), and
/// its frame.
const MAX_LINE_BYTES: u64 = 100 << 20;

/// Returns the path of a part, such as `notifications_20140422.ndjson.zst` or
/// `notifications_20140422.2.ndjson.zst`.
pub(super) fn path(folder: &Path, day: Day, part: u32) -> PathBuf {
    let day = day.collection_name();
    folder.join(match part {
        1 => format!("{day}.ndjson.zst"),
        part => format!("{day}.{part}.ndjson.zst"),
    })
}

/// Returns the number of the part that a file's name contains, so that parts can be restored in
/// order.
pub fn part_number(file: &Path) -> u32 {
    file.file_name()
        .and_then(|name| name.to_str()?.strip_suffix(".ndjson.zst")?.rsplit_once('.'))
        .and_then(|(_, part)| part.parse().ok())
        .unwrap_or(1)
}

/// Writes a day's documents, one per line. Returns their number and checksum.
pub(super) async fn copy_documents(
    days: &dyn Days,
    day: Day,
    mut out: impl Write,
) -> Result<Checksum> {
    let failed = |cause| Error::file(format!("exporting {day}"), cause);
    let mut summing = ChecksumBuilder::default();
    let mut chunks = days.export_day(day);
    while let Some(chunk) = chunks.next().await {
        for line in chunk? {
            summing.add(&line);
            writeln!(out, "{line}").map_err(failed)?;
        }
    }
    Ok(summing.finish())
}

/// A temporary file, which is removed unless it is renamed.
struct Partial(PathBuf);

impl Drop for Partial {
    fn drop(&mut self) {
        // The file may have been renamed. A failure to remove it does not affect the result.
        let _ = fs::remove_file(&self.0);
    }
}

/// Creates the folder for exports if it does not exist.
///
/// # Errors
///
/// If that fails, or if the folder holds an unfinished export of a whole store.
pub(super) fn create_folder(folder: &Path) -> Result<()> {
    let failed = |cause| Error::file(format!("exporting to {}", folder.display()), cause);
    private::create_folder(folder).map_err(failed)?;
    if folder.join(UNFINISHED_MARKER).exists() {
        let why = "holds an unfinished `tidings export`: name another folder";
        return Err(Error::Conflict(format!("{} {why}", folder.display())));
    }
    Ok(())
}

/// A verified export, at first under its temporary name.
pub(super) struct ExportDraft {
    partial: Partial,
    folder: PathBuf,
    pub target: PathBuf,
    pub sum: Checksum,
    /// Whether an earlier export with the same content has the final name.
    exists: bool,
}

impl ExportDraft {
    /// Exports a day and verifies the file.
    pub(super) async fn write(
        days: &dyn Days,
        day: Day,
        folder: &Path,
        owner: &str,
    ) -> Result<Self> {
        static ATTEMPTS: AtomicU64 = AtomicU64::new(0);
        let attempt = ATTEMPTS.fetch_add(1, Ordering::Relaxed);
        let name = format!("{}.{owner}-{attempt}.partial", day.collection_name());
        let partial = Partial(folder.join(name));
        let failed = |cause| Error::file(format!("writing {}", partial.0.display()), cause);
        let file = private::open_options().create_new(true).open(&partial.0);
        let mut out = zstd::Encoder::new(file.map_err(failed)?, 3).map_err(failed)?;
        out.include_checksum(true).map_err(failed)?;
        let sum = copy_documents(days, day, &mut out).await?;
        let (part, exists) = find_part(folder, day, &sum);
        let tidings = ExportSummary { day, part, stacks: sum.records, sha256: sum.sha256.clone() };
        let trailer = serde_json::to_string(&Trailer { tidings }).unwrap_or_default();
        writeln!(out, "{trailer}").map_err(failed)?;
        out.finish().and_then(|file| file.sync_all()).map_err(failed)?;
        if !verify(&partial.0).is_ok_and(|summary| summary.matches(day, &sum)) {
            let why = "does not hold what was written to it; nothing was dropped";
            return Err(Error::damaged(&partial.0, why));
        }
        Ok(Self {
            partial,
            folder: folder.to_owned(),
            target: path(folder, day, part),
            sum,
            exists,
        })
    }

    /// Renames the file, unless an earlier export has the same content.
    pub(super) fn publish(&self) -> Result<()> {
        let failed = |cause| Error::file(format!("exporting to {}", self.target.display()), cause);
        if !self.exists {
            if self.target.exists() {
                let why = "was written by another process meanwhile; nothing was dropped";
                return Err(Error::damaged(&self.target, why));
            }
            fs::rename(&self.partial.0, &self.target).map_err(failed)?;
        }
        let folder = File::open(&self.folder);
        folder.and_then(|folder| folder.sync_all()).map_err(failed)
    }

    /// Removes a published file if it is new, because the day has changed since and stays.
    pub(super) fn withdraw(&self) -> Result<()> {
        let failed = |cause| Error::file(format!("removing {}", self.target.display()), cause);
        if self.exists { Ok(()) } else { fs::remove_file(&self.target).map_err(failed) }
    }
}

/// Returns the part with this content, or the first free one, and whether it exists.
fn find_part(folder: &Path, day: Day, sum: &Checksum) -> (u32, bool) {
    let mut part = 1;
    loop {
        let target = path(folder, day, part);
        if fs::symlink_metadata(&target).is_err() {
            return (part, false);
        }
        if verify(&target).is_ok_and(|earlier| earlier.matches(day, sum)) {
            return (part, true);
        }
        part += 1;
    }
}

/// Reads a whole export and checks that it is complete and undamaged.
pub(super) fn verify(file: &Path) -> Result<ExportSummary> {
    let (mut summing, mut last) = (ChecksumBuilder::default(), None::<String>);
    for line in read_lines(file)? {
        let line = line.map_err(|error| {
            let records = summing.records();
            let why = format!("is damaged after {records} documents: {error}");
            Error::damaged(file, why)
        })?;
        if let Some(document) = last.replace(line) {
            summing.add(&document);
        }
    }
    let Ok(Trailer { tidings }) = serde_json::from_str(last.as_deref().unwrap_or_default()) else {
        let why = "is no export of tidings, or its end is missing";
        return Err(Error::damaged(file, why));
    };
    if !tidings.matches(tidings.day, &summing.finish()) {
        let why = "is damaged: its documents do not match the checksum in its last line";
        return Err(Error::damaged(file, why));
    }
    Ok(tidings)
}

/// Restores the documents of a verified file. A document that cannot be restored does not stop the
/// others. `is_expired` tells whether all events of the day are too old to be emailed.
///
/// # Errors
///
/// Returns the first document's error after all others were restored.
pub(super) async fn restore(
    days: &dyn Days,
    file: &Path,
    summary: &ExportSummary,
    is_expired: bool,
    progress: &dyn Progress,
) -> Result<()> {
    progress.set_total(summary.stacks);
    let mut first_error = None;
    let damaged = |error: io::Error| Error::file(format!("reading {}", file.display()), error);
    for chunk in chunk_lines(read_lines(file)?.take(summary.stacks as usize)) {
        let chunk = chunk.map_err(damaged)?;
        let policy = MergePolicy::Append { is_expired };
        let errors = restore_lines(days, summary.day, &chunk, policy).await?;
        first_error = first_error.or(errors.into_iter().next());
        progress.advance(chunk.len() as u64);
    }
    first_error.map_or(Ok(()), |error| Err(error.into()))
}

/// Groups lines into chunks of limited length and size.
pub(crate) fn chunk_lines(
    mut lines: impl Iterator<Item = io::Result<String>>,
) -> impl Iterator<Item = io::Result<Vec<String>>> {
    std::iter::from_fn(move || {
        let (mut chunk, mut bytes) = (Vec::new(), 0);
        while chunk.len() < DOCUMENTS_PER_CHUNK && bytes < CHUNK_BYTES {
            match lines.next() {
                None => break,
                Some(Err(error)) => return Some(Err(error)),
                Some(Ok(line)) => {
                    bytes += line.len();
                    chunk.push(line);
                }
            }
        }
        (!chunk.is_empty()).then_some(Ok(chunk))
    })
}

/// Restores these documents. If some are rejected, restores the others and returns the errors.
pub(crate) async fn restore_lines(
    days: &dyn Days,
    day: Day,
    lines: &[StackLine],
    policy: MergePolicy,
) -> store::Result<Vec<store::Error>> {
    match days.restore_day(day, lines, policy).await {
        Err(error) if !error.is_outage() => {}
        restored => return restored.map(|()| Vec::new()),
    }
    let mut errors = Vec::new();
    for line in lines {
        match days.restore_day(day, std::slice::from_ref(line), policy).await {
            Err(error) if !error.is_outage() => errors.push(error),
            restored => restored?,
        }
    }
    Ok(errors)
}

/// Reads the lines of a compressed file.
pub(crate) fn read_lines(file: &Path) -> Result<impl Iterator<Item = io::Result<String>> + use<>> {
    let failed = |cause| Error::file(format!("opening {}", file.display()), cause);
    let decoder = zstd::Decoder::new(File::open(file).map_err(failed)?).map_err(failed)?;
    let lines = BoundedLines::new(BufReader::new(decoder), MAX_LINE_BYTES);
    let text = |line: Vec<u8>| String::from_utf8(line).map_err(io::Error::other);
    Ok(lines.map(move |line| text(line?)))
}

/// The lines of a file, without their ends. A line of more bytes than the limit is an error, to
/// bound memory.
pub(crate) struct BoundedLines<R> {
    file: R,
    limit: u64,
}

impl<R: BufRead> BoundedLines<R> {
    pub(crate) fn new(file: R, limit: u64) -> Self {
        Self { file, limit }
    }
}

impl<R: BufRead> Iterator for BoundedLines<R> {
    type Item = io::Result<Vec<u8>>;

    fn next(&mut self) -> Option<Self::Item> {
        let mut line = Vec::new();
        let mut bounded = (&mut self.file).take(self.limit + 1);
        match bounded.read_until(b'\n', &mut line) {
            Ok(0) => return None,
            Ok(_) => {}
            Err(error) => return Some(Err(error)),
        }
        if line.pop_if(|last| *last == b'\n').is_none() && line.len() as u64 > self.limit {
            let why = format!("a line is longer than {} MiB", self.limit >> 20);
            return Some(Err(io::Error::other(why)));
        }
        Some(Ok(line))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_longer_than_any_document_is_an_error() {
        let folder = tempfile::tempdir().unwrap();
        let bomb = folder.path().join("notifications_20140422.ndjson.zst");
        let mut out = zstd::Encoder::new(File::create(&bomb).unwrap(), 1).unwrap();
        let (spaces, mut remaining) = (vec![b' '; 1 << 20], MAX_LINE_BYTES + 1);
        while remaining > 0 {
            let written = remaining.min(spaces.len() as u64);
            out.write_all(&spaces[..written as usize]).unwrap();
            remaining -= written;
        }
        out.finish().unwrap();

        let error = verify(&bomb).unwrap_err().to_string();

        assert!(error.contains("longer than 100 MiB"), "{error}");
    }

    #[test]
    fn the_part_number_is_read_from_the_file_name() {
        let (folder, day) = (Path::new("old"), "20140422".parse().unwrap());
        for part in [1, 2, 17] {
            assert_eq!(part_number(&path(folder, day, part)), part);
        }
        let names =
            ["old/notifications_20140422.ndjson.zst", "old/notifications_20140422.2.ndjson.zst"];
        assert_eq!(names.map(Path::new), [1, 2].map(|part| path(folder, day, part)));
        assert_eq!(part_number(Path::new("kept.zst")), 1);
    }
}
