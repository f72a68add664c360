//! Reads recorded events from NDJSON, plain or compressed.

use std::io::BufRead;
use std::path::Path;

use chrono::{DateTime, Utc};
use serde::Deserialize;

use super::RecordedEvent;
use crate::domain::batch::ChosenKey;
use crate::domain::{EventType, ObjectId, UserId, moment};
use crate::engine::directory::import::line::{self, Mistake};
use crate::engine::directory::import::open;
use crate::engine::{Error, Result};
use crate::wire::transfer::BadLine;

/// A line of the recording. Other fields are ignored.
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

/// Reads all events of a file, sorted by time; `-` is standard input.
///
/// # Errors
/// Names the first line that is not an event. Figures from part of a recording would mislead.
pub fn events(path: &Path) -> Result<Vec<RecordedEvent>> {
    let file = path.display();
    let mut events = Vec::new();
    for (number, line) in (1..).zip(open(path)?.split(b'\n')) {
        let line =
            line.map_err(|error| Error::file(format!("reading {file}, line {number}"), error))?;
        if line.trim_ascii().is_empty() {
            continue;
        }
        let event = parse(&line).map_err(|mistake| Error::Damaged {
            file: file.to_string(),
            why: BadLine::new(number, mistake).to_string(),
        })?;
        events.push(event);
    }
    events.sort_by_key(|event| event.at);
    Ok(events)
}

fn parse(line: &[u8]) -> std::result::Result<RecordedEvent, Mistake> {
    let line: Line = line::read(line)?;
    let mut users = line.users;
    users.extend(line.user);
    if users.is_empty() {
        return Err("names neither a user nor users".to_owned().into());
    }
    users.sort_unstable();
    users.dedup();
    Ok(RecordedEvent {
        at: line.at,
        users,
        kind: line.kind,
        object: line.object.unwrap_or_else(|| ObjectId::stored("")),
        key: line.batch_key,
    })
}
