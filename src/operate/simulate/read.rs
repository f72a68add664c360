//! Recorded events, from NDJSON, plain or compressed.
//!
//! The rule: events come in the order of time, and every line counts. One that cannot be read, or
//! is earlier than the one before, ends it with its number: figures of half a recording would look
//! like figures.

use std::io::{BufRead, Read};
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::Happening;
use crate::domain::batch::ChosenKey;
use crate::domain::{EventType, ObjectId, UserId, moment};
use crate::engine::directory::import::json::{self, Mistake};
use crate::engine::directory::import::open;
use crate::engine::{Error, Result};
use crate::wire::import::BadLine;

/// The longest line, in bytes.
const MAX_LINE: u64 = 1 << 20;

/// A line. Fields we do not know are the recorder's business.
#[derive(Deserialize)]
struct Line {
    #[serde(deserialize_with = "moment::read")]
    at: DateTime<Utc>,
    #[serde(default)]
    user: Option<UserId>,
    #[serde(default)]
    users: Vec<UserId>,
    #[serde(rename = "type")]
    kind: EventType,
    #[serde(default)]
    object: Option<ObjectId>,
    #[serde(default)]
    batch_key: Option<ChosenKey>,
}

/// Whether the lines are in the order of time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Order {
    /// They are; one that is not is an error.
    Expected,
    /// They need not be: all are read and sorted first.
    Sorted,
}

/// The events of a file; `-` is standard input.
pub fn events(path: &Path, order: Order) -> Result<Box<dyn Iterator<Item = Result<Happening>>>> {
    let lines = Lines {
        reader: open(path)?,
        file: path.display().to_string(),
        number: 0,
        line: Vec::new(),
        before: None,
        order,
    };
    Ok(match order {
        Order::Expected => Box::new(lines),
        Order::Sorted => {
            let mut all = lines.collect::<Result<Vec<Happening>>>()?;
            all.sort_by_key(|happening| happening.at);
            Box::new(all.into_iter().map(Ok))
        }
    })
}

struct Lines {
    reader: Box<dyn BufRead>,
    file: String,
    number: u64,
    line: Vec<u8>,
    /// When the line before happened, and its number.
    before: Option<(DateTime<Utc>, u64)>,
    order: Order,
}

impl Iterator for Lines {
    type Item = Result<Happening>;

    fn next(&mut self) -> Option<Self::Item> {
        loop {
            self.line.clear();
            self.number += 1;
            let mut reader = self.reader.by_ref().take(MAX_LINE + 1);
            match reader.read_until(b'\n', &mut self.line) {
                Ok(0) => return None,
                Ok(_) if self.line.trim_ascii().is_empty() => {}
                Ok(_) => return Some(self.read()),
                Err(error) => {
                    let doing = format!("reading {}, line {}", self.file, self.number);
                    return Some(Err(Error::file(doing, error)));
                }
            }
        }
    }
}

impl Lines {
    fn read(&mut self) -> Result<Happening> {
        if self.line.len() as u64 > MAX_LINE {
            let limit = MAX_LINE >> 20;
            return Err(self.damaged(format!("is longer than {limit} MiB: is this NDJSON?").into()));
        }
        let line: Line = json::read(&self.line).map_err(|mistake| self.damaged(mistake))?;
        if let Some((before, number)) = self.before.filter(|(before, _)| line.at < *before)
            && self.order == Order::Expected
        {
            let (at, before) = (line.at.to_rfc3339(), before.to_rfc3339());
            let why = format!(
                "{at} is before line {number}, {before}; events must be in the order of time: \
                 sort them, or let --sort do so"
            );
            return Err(self.damaged(why.into()));
        }
        self.before = Some((line.at, self.number));
        let mut users = line.users;
        users.extend(line.user);
        if users.is_empty() {
            return Err(self.damaged("names neither a user nor users".to_owned().into()));
        }
        users.sort_unstable();
        users.dedup();
        Ok(Happening {
            at: line.at,
            users,
            object: line.object.unwrap_or_else(|| ObjectId::stored("")),
            kind: line.kind,
            key: line.batch_key,
        })
    }

    fn damaged(&self, why: Mistake) -> Error {
        let why = BadLine::new(self.number, why).to_string();
        let file = self.file.clone();
        Error::Damaged { file, why }
    }
}
