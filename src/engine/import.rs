//! Imports users, follows, objects, events and suppressed addresses from NDJSON files.
//!
//! Each line is accepted or rejected as a whole (P10). A rejected line is reported with its number
//! and the reason, and the other lines are accepted. Memory is bounded, even if a compressed file
//! expands without limit. Importing a file again changes nothing. Start with
//! [`FileImport::import_file`].

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use tokio::sync::mpsc;

use crate::engine::archive::BoundedLines;
use crate::engine::feedback::suppressions::SuppressionService;
use crate::engine::ingest::objects::ObjectService;
use crate::engine::ingest::{EventService, NewEvent};
use crate::engine::users::service::UserService;
use crate::engine::{Error, Progress, Result};
use crate::wire::transfer::{BadLine, ImportReport};

pub(crate) mod line;

use line::{ImportedRecord, LineError, is_header, parse};

pub use line::ImportKind;

impl BadLine {
    pub(crate) fn new(line: u64, LineError { field, why }: LineError) -> Self {
        Self { line, field, why }
    }
}

/// The maximum number of rejected lines in a report. Further ones are only counted.
pub const MAX_REPORTED_LINES: usize = 20;
/// The maximum number of lines in a batch, which is written to the store at once.
const LINES_PER_BATCH: usize = 2_000;
/// A batch also ends when its lines have this many bytes. Up to three batches are in memory: one
/// that is read, one in the channel, and one that is written.
const BYTES_PER_BATCH: usize = 8 << 20;
const MAX_LINE_BYTES: u64 = 16 << 20;

/// Imports files in batches of lines.
pub struct FileImport {
    /// Writes users and follows.
    pub users: UserService,
    /// Accepts events.
    pub notify: EventService,
    /// Writes objects.
    pub objects: ObjectService,
    /// Writes suppressed addresses.
    pub suppressions: SuppressionService,
}

/// A record with its line number, because the store and the configuration may reject it later.
type Line = Result<(u64, ImportedRecord), BadLine>;

impl ImportReport {
    fn reject(&mut self, bad: BadLine) {
        self.bad += 1;
        if self.bad_lines.len() < MAX_REPORTED_LINES {
            self.bad_lines.push(bad);
        }
    }
}

impl FileImport {
    /// Imports a file; `-` is standard input.
    pub async fn import_file(
        &self,
        kind: &ImportKind,
        path: &Path,
        progress: &dyn Progress,
    ) -> Result<ImportReport> {
        let (lines, mut batches) = mpsc::channel::<Vec<Line>>(1);
        let (path, kind) = (path.to_owned(), kind.clone());
        let reader = tokio::task::spawn_blocking(move || read_lines(&path, &kind, &lines));
        let mut report = ImportReport::default();
        while let Some(batch) = batches.recv().await {
            progress.advance(batch.len() as u64);
            self.put(batch, &mut report).await?;
        }
        reader.await.expect("the reader does not panic")?;
        report.bad_lines.sort_by_key(|bad| bad.line);
        Ok(report)
    }

    async fn put(&self, batch: Vec<Line>, report: &mut ImportReport) -> Result<()> {
        let (mut users, mut follows, mut objects, mut events, mut suppressions) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for line in batch {
            let (number, record) = match line.and_then(|line| self.check(line)) {
                Ok(line) => line,
                Err(bad) => {
                    report.reject(bad);
                    continue;
                }
            };
            report.accepted += 1;
            match record {
                ImportedRecord::User(user) => users.push(*user),
                ImportedRecord::Follow(follow) => follows.push(follow),
                ImportedRecord::Object(object) => objects.push(*object),
                ImportedRecord::Event(event) => events.push((number, *event)),
                ImportedRecord::Suppression(suppression) => suppressions.push(suppression),
            }
        }
        if !users.is_empty() {
            self.users.put_users(users).await?;
        }
        if !follows.is_empty() {
            self.users.follow(follows).await?;
        }
        if !objects.is_empty() {
            self.objects.store_checked(objects).await?;
        }
        if !events.is_empty() {
            self.accept(events, report).await?;
        }
        if !suppressions.is_empty() {
            self.suppressions.add(suppressions).await?;
        }
        Ok(())
    }

    /// Rejects a record that the configuration does not allow.
    fn check(&self, (number, record): (u64, ImportedRecord)) -> Line {
        let checked = match &record {
            ImportedRecord::User(user) => self.users.check(user),
            ImportedRecord::Object(object) => self.objects.check(object),
            _ => Ok(()),
        };
        checked.map_err(|invalid| BadLine::new(number, invalid.into()))?;
        Ok((number, record))
    }

    /// Accepts events. Rejects the line of an event whose key belongs to a different event, or
    /// which is otherwise invalid, such as one that is too old.
    async fn accept(&self, events: Vec<(u64, NewEvent)>, report: &mut ImportReport) -> Result<()> {
        let (lines, events): (Vec<_>, Vec<_>) = events.into_iter().unzip();
        let results = self.notify.accept_each(events).await?;
        for (line, result) in lines.into_iter().zip(results) {
            let mistake = match result {
                Ok(_) => continue,
                Err(Error::Conflict(why)) => why.into(),
                Err(Error::Invalid(why)) => LineError::from_event_error(why),
                Err(error) => return Err(error),
            };
            report.accepted -= 1;
            report.reject(BadLine::new(line, mistake));
        }
        Ok(())
    }
}

/// Reads, decompresses and parses lines. Sends batches until the file or the receiver ends.
fn read_lines(path: &Path, kind: &ImportKind, batches: &mpsc::Sender<Vec<Line>>) -> Result<()> {
    let (mut batch, mut bytes, mut last_line) = (Vec::with_capacity(LINES_PER_BATCH), 0, 0);
    for (number, line) in (1..).zip(BoundedLines::new(open_decompressed(path)?, MAX_LINE_BYTES)) {
        let line = match line {
            Ok(line) => line,
            Err(error) => {
                // The lines before it are imported.
                drop(batches.blocking_send(batch));
                let doing = format!("reading {} after line {last_line}", path.display());
                return Err(Error::file(doing, error));
            }
        };
        last_line = number;
        if line.trim_ascii().is_empty() || number == 1 && is_header(kind, &line) {
            continue;
        }
        bytes += line.len();
        let parsed = parse(kind, &line).map(|record| (number, record));
        batch.push(parsed.map_err(|mistake| BadLine::new(number, mistake)));
        if batch.len() == LINES_PER_BATCH || bytes >= BYTES_PER_BATCH {
            bytes = 0;
            if batches.blocking_send(std::mem::take(&mut batch)).is_err() {
                return Ok(());
            }
        }
    }
    drop(batches.blocking_send(batch));
    Ok(())
}

/// Opens a file for reading. Detects gzip and Zstandard by their magic numbers and decompresses
/// them.
pub(crate) fn open_decompressed(path: &Path) -> Result<Box<dyn BufRead>> {
    let failed = |error| Error::file(format!("opening {}", path.display()), error);
    let buffered = |bytes: Box<dyn Read>| BufReader::with_capacity(1 << 16, bytes);
    let source: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(failed)?)
    };
    let mut file = buffered(source);
    let start = file.fill_buf().map_err(failed)?;
    if start.starts_with(&[0x1f, 0x8b]) {
        let decoder = flate2::bufread::MultiGzDecoder::new(file);
        return Ok(Box::new(buffered(Box::new(decoder))));
    }
    if start.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder = zstd::Decoder::with_buffer(file).map_err(failed)?;
        return Ok(Box::new(buffered(Box::new(decoder))));
    }
    Ok(Box::new(file))
}
