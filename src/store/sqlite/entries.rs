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

/// An event in our own spelling.
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
pub(super) fn line(entry: &RawDocument) -> String {
    extjson::to_line(entry) + "\n"
}

/// Returns the lines of a row. Tampering or a damaged disk may have changed the type of the column;
/// a line that is not UTF-8 still counts as an entry.
pub(super) fn lines(value: ValueRef<'_>) -> Cow<'_, str> {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => String::from_utf8_lossy(bytes),
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => Cow::Borrowed(""),
    }
}

/// Reads the entries of these lines.
pub(super) fn read(lines: &str) -> Vec<Entry> {
    // Our lines take about 75 bytes.
    let mut entries = Vec::with_capacity(1 + lines.len() / 75);
    entries.extend(lines.lines().map(read_line));
    entries
}

/// Reads one line.
pub(super) fn read_line(line: &str) -> Entry {
    // Serde would also read lists of field values.
    if line.starts_with('{')
        && let Ok(EventLine { t, o, i }) = serde_json::from_str(line)
        && (i.is_none() || our_id(line).is_some())
    {
        return Entry::Event(Event {
            t: EventType::stored(t),
            o: ObjectId::stored(o),
            i: i.map(|i| i.id),
        });
    }
    let document = extjson::from_line(line).ok();
    let entry = document.and_then(|document| read_entry(&document).ok());
    entry.unwrap_or(Entry::Other)
}

/// Returns the `i` of an event in our own spelling, without parsing the rest. If the result is
/// `None`, the line has to be parsed.
pub(super) fn our_id(line: &str) -> Option<Id> {
    const ID: &str = "\"i\":{\"$oid\":\"";
    let end = line.strip_suffix("\"}}")?;
    let (start, hex) = end.split_at_checked(end.len().checked_sub(24)?)?;
    if start.ends_with(ID) {
        Id::from_hex(hex)
    } else {
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::Marker;
    use crate::store::entry::{event_document, flushed_document};

    const HEX: &str = "5334647b139b2165160000d8";

    fn event(t: &str, o: &str, i: Option<Id>) -> Event {
        Event {
            t: EventType::stored(t),
            o: ObjectId::stored(o),
            i,
        }
    }

    fn event_line(event: &Event) -> String {
        line(&event_document(event))
    }

    fn marker_line(id: Id, n: u32) -> String {
        line(&flushed_document(id, n))
    }

    #[test]
    fn an_event_is_written_in_the_form_of_the_archive() {
        let lines = event_line(&event("T", "a\"\n", Id::from_hex(HEX)))
            + &event_line(&event("T", "b", None));
        let first = r#"{"t":"T","o":"a\"\n","i":{"$oid":"5334647b139b2165160000d8"}}"#;
        assert_eq!(lines, format!("{first}\n{}\n", r#"{"t":"T","o":"b"}"#));
    }

    #[test]
    fn a_count_beyond_signed_32_bits_is_written_as_a_long() {
        let id = Id::from_hex(HEX).unwrap();
        assert!(marker_line(id, 7).ends_with("\"n\":{\"$numberInt\":\"7\"}}\n"));
        assert!(marker_line(id, u32::MAX).ends_with("\"n\":{\"$numberLong\":\"4294967295\"}}\n"));
        for n in [0, 7, u32::MAX] {
            assert_eq!(
                read(&marker_line(id, n)),
                [Entry::Marker(Marker {
                    id: Some(id),
                    n: Some(n)
                })]
            );
        }
    }

    #[test]
    fn lines_of_other_writers_mean_the_same_as_on_mongodb() {
        let id = Id::from_hex(HEX);
        let marker = |id, n| Entry::Marker(Marker { id, n });
        for (line, expected) in [
            (r#"{"o":"b","t":"T"}"#, Entry::Event(event("T", "b", None))),
            (
                r#"{"t":"T","o":"b","x":null}"#,
                Entry::Event(event("T", "b", None)),
            ),
            (
                r#"{"t":"T","o":"b","i":"no id"}"#,
                Entry::Event(event("T", "b", None)),
            ),
            (
                r#"{"t":"T","o":{"$oid":"5334647b139b2165160000d8"}}"#,
                Entry::Event(event("T", HEX, None)),
            ),
            (
                r#"{"flushed":{"$oid":"5334647b139b2165160000d8"}}"#,
                marker(id, None),
            ),
            (
                r#"{"flushed":true,"n":{"$numberLong":"-3"}}"#,
                marker(None, Some(0)),
            ),
            (
                r#"{"flushed":null,"n":{"$numberDouble":"2.9"}}"#,
                marker(None, Some(2)),
            ),
            (
                r#"{"flushed":null,"n":{"$numberDouble":"NaN"}}"#,
                marker(None, Some(0)),
            ),
            (r#"{"flushed":null,"n":"5"}"#, marker(None, None)),
            (r#"{"t":"T"}"#, Entry::Other),
            (r#"{"t":{"$numberInt":"1"},"o":"b"}"#, Entry::Other),
            ("null", Entry::Other),
            ("[]", Entry::Other),
        ] {
            assert_eq!(read_line(line), expected, "{line}");
        }
    }

    proptest::proptest! {
        #[test]
        fn any_event_round_trips_with_its_id(t in ".*", o in ".*", bytes: Option<[u8; 12]>) {
            let event = event(&t, &o, bytes.map(Id::from_bytes));
            let lines = event_line(&event);
            proptest::prop_assert_eq!(lines.matches('\n').count(), 1);
            proptest::prop_assert_eq!(our_id(lines.trim_end_matches('\n')), event.i);
            proptest::prop_assert_eq!(read(&lines), [Entry::Event(event)]);
        }
    }
}
