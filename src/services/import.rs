//! Brings in users, follows, objects and events from NDJSON files, plain or compressed, and lists of suppressed addresses.
//!
//! The rule (P10): a line is taken whole or not at all; a bad one is reported with its number and the reason, and the good ones around it
//! are kept. Memory is bounded by the batch. Bringing the same file in again changes nothing.

use std::fs::File;
use std::io::{BufRead, BufReader, Read};
use std::path::Path;

use serde::Deserialize;
use serde_json::{Map, Value};
use sha2::{Digest, Sha256};
use tokio::sync::mpsc;

use super::notify::{EventInput, Notify, Request};
use super::objects::last_of_each;
use super::people::{FollowInput, PeopleBook, UserInput};
use super::suppressions::{SuppressionBook, SuppressionInput};
use super::{Error, Progress, Result};
use crate::domain::{Address, ModelName, Object, Reason};
use crate::store::Objects;

/// What a file holds.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Kind {
    Users,
    Follows,
    Objects(Mapping),
    Events,
    /// Addresses with this reason where a line names none; as JSON, or as text whose first field is the address.
    Suppressions(Reason),
}

/// How an application's own objects become ours.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Mapping {
    /// Their ids get this model in front, and fields we do not know go into `data`.
    pub model: Option<ModelName>,
    /// (our field, their field), such as ("by", "artist"). A name that is none of our fields is one in `data`: so a field
    /// of theirs that means something else than ours of that name is moved out of the way.
    pub fields: Vec<(String, String)>,
}

/// A line that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct BadLine {
    pub line: u64,
    pub why: String,
}

/// What an import came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, serde::Serialize)]
pub struct Report {
    pub taken: u64,
    pub bad: u64,
    /// The first bad lines, at most [`SHOWN`].
    pub bad_lines: Vec<BadLine>,
}

/// How many bad lines are told in full.
pub const SHOWN: usize = 20;
/// Lines put into the store at once.
const BATCH: usize = 2_000;
/// The longest line, in bytes.
const MAX_LINE: u64 = 16 << 20;

pub struct Import {
    pub people: PeopleBook,
    pub notify: Notify,
    pub objects: std::sync::Arc<dyn Objects>,
    pub suppressions: SuppressionBook,
}

/// A line, read.
enum Record {
    User(Box<UserInput>),
    Follow(FollowInput),
    Object(Box<Object>),
    /// With its line, as only the journal can tell whether its key is taken.
    Event(u64, Box<Request>),
    Suppression(SuppressionInput),
}

type Line = std::result::Result<Record, BadLine>;

impl Report {
    fn leave_out(&mut self, bad: BadLine) {
        self.bad += 1;
        if self.bad_lines.len() < SHOWN {
            self.bad_lines.push(bad);
        }
    }
}

impl Import {
    /// Brings in a file; `-` is standard input.
    pub async fn file(&self, kind: &Kind, path: &Path, progress: &dyn Progress) -> Result<Report> {
        let (lines, mut batches) = mpsc::channel::<Result<Vec<Line>>>(2);
        let (path, kind) = (path.to_owned(), kind.clone());
        let reader = tokio::task::spawn_blocking(move || read(&path, &kind, &lines));
        let mut report = Report::default();
        while let Some(batch) = batches.recv().await {
            let batch = batch?;
            progress.advance(batch.len() as u64);
            self.put(batch, &mut report).await?;
        }
        reader.await.expect("the reader does not panic");
        Ok(report)
    }

    async fn put(&self, batch: Vec<Line>, report: &mut Report) -> Result<()> {
        let (mut users, mut follows, mut objects, mut events, mut suppressions) =
            (Vec::new(), Vec::new(), Vec::new(), Vec::new(), Vec::new());
        for line in batch {
            report.taken += u64::from(line.is_ok());
            match line {
                Ok(Record::User(user)) => users.push(*user),
                Ok(Record::Follow(follow)) => follows.push(follow),
                Ok(Record::Object(object)) => objects.push(*object),
                Ok(Record::Event(line, event)) => events.push((line, *event)),
                Ok(Record::Suppression(suppression)) => suppressions.push(suppression),
                Err(bad) => report.leave_out(bad),
            }
        }
        if !users.is_empty() {
            self.people.put(users).await?;
        }
        if !follows.is_empty() {
            self.people.follow(follows).await?;
        }
        if !objects.is_empty() {
            self.objects.put_objects(&last_of_each(objects)).await?;
        }
        if !events.is_empty() {
            self.accept(events, report).await?;
        }
        if !suppressions.is_empty() {
            self.suppressions.add(suppressions).await?;
        }
        Ok(())
    }

    /// An event whose key was used for a different one is a bad line like any other.
    async fn accept(&self, events: Vec<(u64, Request)>, report: &mut Report) -> Result<()> {
        let (lines, requests): (Vec<_>, Vec<_>) = events.into_iter().unzip();
        let answers = self.notify.accept_each(requests).await?;
        for (line, answer) in lines.into_iter().zip(answers) {
            match answer {
                Ok(_) => {}
                Err(Error::Conflict(why)) => {
                    report.taken -= 1;
                    report.leave_out(BadLine { line, why });
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }
}

/// Reads, decompresses and parses; sends batches until the file or the listener ends.
fn read(path: &Path, kind: &Kind, batches: &mpsc::Sender<Result<Vec<Line>>>) {
    let send = |batch| batches.blocking_send(batch).is_ok();
    let mut reader = match open(path) {
        Ok(reader) => reader,
        Err(error) => {
            send(Err(error));
            return;
        }
    };
    let (mut batch, mut number) = (Vec::with_capacity(BATCH), 0);
    loop {
        let mut line = Vec::new();
        match reader
            .by_ref()
            .take(MAX_LINE + 1)
            .read_until(b'\n', &mut line)
        {
            Ok(0) => break,
            Ok(_) => {}
            Err(error) => {
                send(Ok(batch));
                let doing = format!("reading {} after line {number}", path.display());
                send(Err(Error::file(doing, error)));
                return;
            }
        }
        number += 1;
        if line.len() as u64 > MAX_LINE {
            send(Ok(batch));
            let why = format!(
                "line {number} is longer than {} MiB: is this NDJSON?",
                MAX_LINE >> 20
            );
            send(Err(Error::Damaged {
                file: path.display().to_string(),
                why,
            }));
            return;
        }
        if line.trim_ascii().is_empty() {
            continue;
        }
        if number == 1 && is_heading(kind, &line) {
            continue;
        }
        batch.push(parse(kind, &line, number).map_err(|why| BadLine { line: number, why }));
        if batch.len() == BATCH
            && !send(Ok(std::mem::replace(&mut batch, Vec::with_capacity(BATCH))))
        {
            return;
        }
    }
    send(Ok(batch));
}

/// A file, decompressed if it begins like gzip or Zstandard.
pub(super) fn open(path: &Path) -> Result<Box<dyn BufRead>> {
    let doing = || format!("opening {}", path.display());
    let plain: Box<dyn Read> = if path.as_os_str() == "-" {
        Box::new(std::io::stdin())
    } else {
        Box::new(File::open(path).map_err(|error| Error::file(doing(), error))?)
    };
    let mut plain = BufReader::with_capacity(1 << 16, plain);
    let begin = plain
        .fill_buf()
        .map_err(|error| Error::file(doing(), error))?;
    if begin.starts_with(&[0x1f, 0x8b]) {
        return Ok(Box::new(BufReader::with_capacity(
            1 << 16,
            flate2::bufread::MultiGzDecoder::new(plain),
        )));
    }
    if begin.starts_with(&[0x28, 0xb5, 0x2f, 0xfd]) {
        let decoder =
            zstd::Decoder::with_buffer(plain).map_err(|error| Error::file(doing(), error))?;
        return Ok(Box::new(BufReader::with_capacity(1 << 16, decoder)));
    }
    Ok(Box::new(plain))
}

fn parse(kind: &Kind, line: &[u8], number: u64) -> std::result::Result<Record, String> {
    fn from<'a, T: Deserialize<'a>>(line: &'a [u8]) -> std::result::Result<T, String> {
        serde_json::from_slice(line).map_err(|error| without_line(&error))
    }
    match kind {
        Kind::Users => {
            let user: UserInput = from(line)?;
            user.check().map_err(|error| error.to_string())?;
            Ok(Record::User(Box::new(user)))
        }
        Kind::Follows => Ok(Record::Follow(from(line)?)),
        Kind::Objects(mapping) => {
            let object: Object = match mapping {
                Mapping {
                    model: None,
                    fields,
                } if fields.is_empty() => from(line)?,
                mapping => mapping.object(from(line)?)?,
            };
            object.check().map_err(|error| error.to_string())?;
            Ok(Record::Object(Box::new(object)))
        }
        Kind::Events => {
            let mut event: EventInput = from(line)?;
            // The same line brought in twice is the same event.
            event.key.get_or_insert_with(|| {
                format!("import:{}", hex::encode(Sha256::digest(line.trim_ascii())))
            });
            let request = event.into_request().map_err(|error| error.to_string())?;
            request.check().map_err(|error| error.to_string())?;
            Ok(Record::Event(number, Box::new(request)))
        }
        Kind::Suppressions(reason) if line.trim_ascii_start().starts_with(b"{") => {
            let mut fields: Map<String, Value> = from(line)?;
            let reason = Value::from(reason.as_str());
            fields.entry("reason").or_insert(reason);
            SuppressionInput::deserialize(Value::Object(fields))
                .map(Record::Suppression)
                .map_err(|error| error.to_string())
        }
        Kind::Suppressions(reason) => {
            let address = Address::new(first_field(line)?).map_err(|why| why.to_string())?;
            Ok(Record::Suppression(SuppressionInput::new(address, *reason)))
        }
    }
}

/// Whether a file's first line names the fields of the others, as providers write their lists.
fn is_heading(kind: &Kind, line: &[u8]) -> bool {
    let names = ["address", "email", "recipient"];
    matches!(kind, Kind::Suppressions(_))
        && first_field(line)
            .is_ok_and(|field| names.iter().any(|name| field.eq_ignore_ascii_case(name)))
}

/// The first field of a line of comma-separated values.
fn first_field(line: &[u8]) -> std::result::Result<&str, String> {
    let line = std::str::from_utf8(line).map_err(|_| "it is not UTF-8".to_owned())?;
    // Spreadsheets begin files with a byte order mark.
    let line = line.trim_start_matches('\u{feff}').trim();
    let field = match line.strip_prefix('"') {
        Some(quoted) => quoted.split('"').next(),
        None => line.split([',', ';', '\t']).next(),
    };
    Ok(field.unwrap_or_default().trim())
}

/// What JSON's reader says of one line: it calls every line the first.
pub(super) fn without_line(error: &serde_json::Error) -> String {
    let told = error.to_string();
    let place = format!(" at line {} column {}", error.line(), error.column());
    match told.strip_suffix(&place) {
        Some(what) if error.is_data() => what.to_owned(),
        Some(what) => format!("{what} at column {}", error.column()),
        None => told,
    }
}

/// What an object has besides its id and data.
const FIELDS: [&str; 7] = ["notifiable", "title", "url", "image", "by", "at", "place"];

impl Mapping {
    fn object(&self, mut theirs: Map<String, Value>) -> std::result::Result<Object, String> {
        let (mut ours, mut data) = (Map::new(), Map::new());
        for (to, from) in &self.fields {
            if let Some(value) = theirs.remove(from) {
                let ours_too = to == "id" || FIELDS.contains(&to.as_str());
                let place = if ours_too { &mut ours } else { &mut data };
                place.insert(to.clone(), value);
            }
        }
        for field in FIELDS {
            if let Some(value) = theirs.remove(field) {
                ours.entry(field).or_insert(value);
            }
        }
        let id = ours
            .remove("id")
            .or_else(|| theirs.remove("id"))
            .or_else(|| theirs.remove("_id"));
        let id = match id {
            Some(Value::String(text)) if !text.is_empty() => text,
            Some(Value::Number(number)) => number.to_string(),
            Some(other) => return Err(format!("id {other} is not text or a number")),
            None => return Err("has no id".into()),
        };
        let id = self
            .model
            .as_ref()
            .map_or_else(|| id.clone(), |model| format!("{model}:{id}"));
        ours.insert("_id".into(), Value::String(id));
        ours.retain(|_, value| !value.is_null());
        for text in ["title", "by"] {
            if let Some(value) = ours.get_mut(text).filter(|value| value.is_number()) {
                *value = Value::String(value.to_string());
            }
        }
        data.append(&mut theirs);
        if !data.is_empty() {
            ours.insert("data".into(), Value::Object(data));
        }
        serde_json::from_value(Value::Object(ours)).map_err(|error| error.to_string())
    }
}
