//! The text form of entries in a day table: one per line as canonical Extended JSON.
//!
//! An append to the stack is an append to the text. Every line is exactly one [`Entry`], because
//! positions count lines. Lines of other writers mean the same as on MongoDB.

use std::borrow::Cow;

use bson::RawDocument;
use rusqlite::types::ValueRef;
use serde::Deserialize;

use crate::domain::{Entry, Event, EventType, Id, ObjectId};
use crate::store::entry::read_entry;
use crate::store::extjson;

/// An event as tidings itself writes it.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct EventLine<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(borrow)]
    o: Cow<'a, str>,
    i: Option<ObjectIdLine>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectIdLine {
    #[serde(rename = "$oid")]
    id: Id,
}

/// Returns the line of an entry.
pub(super) fn to_line(entry: &RawDocument) -> String {
    extjson::to_line(entry) + "\n"
}

/// Returns the lines of a row. Accepts a column of any type, because tampering or a damaged disk
/// may have changed it. A line that is not UTF-8 still counts as an entry.
pub(super) fn lines(value: ValueRef<'_>) -> Cow<'_, str> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => Cow::Borrowed(""),
    }
}

/// Reads the entries of these lines.
pub(super) fn read_lines(lines: &str) -> Vec<Entry> {
    // The line of an event takes about 75 bytes.
    let mut entries = Vec::with_capacity(1 + lines.len() / 75);
    entries.extend(lines.lines().map(read_line));
    entries
}

/// Reads one line.
pub(super) fn read_line(line: &str) -> Entry {
    // Serde would also read an array of field values.
    if line.starts_with('{')
        && let Ok(EventLine { t, o, i }) = serde_json::from_str(line)
        && (i.is_none() || trailing_id(line).is_some())
    {
        return Entry::Event(Event {
            kind: EventType::stored(t),
            object: ObjectId::stored(o),
            fanout_id: i.map(|i| i.id),
        });
    }
    let document = extjson::from_line(line).ok();
    document.and_then(|document| read_entry(&document).ok()).unwrap_or(Entry::Other)
}

/// Returns the `i` at the end of an event as tidings itself writes it, without parsing the rest. If
/// the result is `None`, the line has to be parsed.
pub(super) fn trailing_id(line: &str) -> Option<Id> {
    const ID: &str = "\"i\":{\"$oid\":\"";
    let end = line.strip_suffix("\"}}")?;
    let (start, hex) = end.split_at_checked(end.len().checked_sub(24)?)?;
    if start.ends_with(ID) { Id::from_hex(hex) } else { None }
}

#[cfg(test)]
#[path = "entry_text_tests.rs"]
mod tests;
