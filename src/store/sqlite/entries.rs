//! The text form of entries in a day table: one per line as canonical Extended JSON.
//!
//! An append to the stack is an append to the text. Every line is exactly one [`Entry`], because
//! positions count lines. Lines of other writers mean the same as on MongoDB.

use std::borrow::Cow;

use rusqlite::types::ValueRef;
use serde::{Deserialize, Serialize};

use crate::domain::{Entry, Event, EventType, Id, Mailed, ObjectId};
use crate::store::days::{StoredEntry, entries_to_append};
use crate::store::entry::{read_entry, with_coverage};
use crate::store::extjson;

/// An event in our own spelling.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct EventLine<'a> {
    #[serde(borrow)]
    t: Cow<'a, str>,
    #[serde(borrow)]
    o: Cow<'a, str>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    i: Option<ObjectIdLine>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct ObjectIdLine {
    #[serde(rename = "$oid")]
    id: Id,
}

/// Returns an event's line.
pub(super) fn event_line(event: &Event) -> String {
    let line = EventLine {
        t: Cow::Borrowed(event.t.as_str()),
        o: Cow::Borrowed(event.o.as_str()),
        i: event.i.map(|id| ObjectIdLine { id }),
    };
    serde_json::to_string(&line).expect("an event is JSON") + "\n"
}

/// Returns a marker's line.
pub(super) fn marker_line(id: Id, n: u32) -> String {
    let kind = if i32::try_from(n).is_ok() {
        "$numberInt"
    } else {
        "$numberLong"
    };
    format!("{{\"flushed\":{{\"$oid\":\"{id}\"}},\"n\":{{\"{kind}\":\"{n}\"}}}}\n")
}

/// Returns the line of a marker `{mailed, i}`.
pub(super) fn mailed_line(mailed: &Mailed) -> String {
    let ids: Vec<String> = mailed
        .fanouts
        .iter()
        .map(|id| format!("{{\"$oid\":\"{id}\"}}"))
        .collect();
    let id = mailed.id;
    format!(
        "{{\"mailed\":{{\"$oid\":\"{id}\"}},\"i\":[{}]}}\n",
        ids.join(",")
    )
}

/// Appends text as JSON. Control characters are escaped, so it stays on one line.
pub(super) fn write_text(lines: &mut String, text: &str) {
    lines.push_str(&serde_json::to_string(text).expect("text is JSON"));
}

/// Returns the bytes of a row's lines. Tampering or a damaged disk may have changed the type of the
/// column.
pub(super) fn bytes(value: ValueRef<'_>) -> &[u8] {
    match value {
        ValueRef::Text(bytes) | ValueRef::Blob(bytes) => bytes,
        ValueRef::Null | ValueRef::Integer(_) | ValueRef::Real(_) => &[],
    }
}

/// Splits the lines; `None` for a line that is not UTF-8, which still counts as an entry.
pub(super) fn lines(bytes: &[u8]) -> impl Iterator<Item = Option<&str>> {
    let lines = bytes.strip_suffix(b"\n").unwrap_or(bytes);
    let lines = (!bytes.is_empty()).then(|| lines.split(|byte| *byte == b'\n'));
    let lines = lines.into_iter().flatten();
    lines.map(|line| std::str::from_utf8(line).ok())
}

/// Reads the entries of these lines.
pub(super) fn read(bytes: &[u8]) -> Vec<Entry> {
    // Our lines take about 75 bytes.
    let mut entries = Vec::with_capacity(1 + bytes.len() / 75);
    // Checking the whole text for UTF-8 at once is faster.
    match std::str::from_utf8(bytes) {
        Ok(text) => entries.extend(text.lines().map(read_line)),
        Err(_) => entries.extend(lines(bytes).map(|line| line.map_or(Entry::Other, read_line))),
    }
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

/// Returns the lines to append to the stored ones, so that each entry of an exported stack is there
/// once (see [`entries_to_append`]). Returns `None` if that cannot be done.
pub(super) fn lines_to_append(stored: &str, ours: &str, is_expired: bool) -> Option<String> {
    let lines = |text: &str| text.lines().map(Line::from).collect::<Vec<_>>();
    let append = entries_to_append(&lines(stored), &lines(ours), is_expired)?;
    Some(
        append
            .iter()
            .map(|Line(line)| format!("{line}\n"))
            .collect(),
    )
}

/// An entry, without its line end.
#[derive(Clone, PartialEq)]
struct Line(String);

impl From<&str> for Line {
    fn from(line: &str) -> Self {
        Self(line.to_owned())
    }
}

impl StoredEntry for Line {
    fn entry(&self) -> Entry {
        read_line(&self.0)
    }

    fn covering(&self, n: usize) -> Option<Self> {
        let marker = extjson::from_line(&self.0).ok()?;
        Some(Self(extjson::to_line(&with_coverage(&marker, n)?)))
    }

    fn mailed(mailed: &Mailed) -> Self {
        Self::from(mailed_line(mailed).trim_end())
    }
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

    const HEX: &str = "5334647b139b2165160000d8";

    fn event(t: &str, o: &str, i: Option<Id>) -> Event {
        Event {
            t: EventType::stored(t),
            o: ObjectId::stored(o),
            i,
        }
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
                read(marker_line(id, n).as_bytes()),
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

    #[test]
    fn an_exported_stack_is_appended_once_and_its_markers_keep_their_coverage() {
        let marker = |n| marker_line(Id::from_hex(HEX).unwrap(), n);
        let (a, b) = ("{\"t\":\"T\",\"o\":\"a\"}\n", "{\"t\":\"T\",\"o\":\"b\"}\n");
        let (existing, ours) = (format!("{a}{}", marker(1)), format!("{b}{}", marker(1)));

        let append = |existing: &str, ours: &str| lines_to_append(existing, ours, false).unwrap();
        let added = append(&existing, &ours);

        assert_eq!(added, format!("{b}{}", marker(3)));
        let both = existing.clone() + &added;
        assert_eq!(append(&both, &ours), "");
        assert_eq!(append(&existing, &both), added);
        assert_eq!(append(&both, &existing), "");
    }

    proptest::proptest! {
        #[test]
        fn any_event_round_trips_with_its_id(t in ".*", o in ".*", bytes: Option<[u8; 12]>) {
            let event = event(&t, &o, bytes.map(Id::from_bytes));
            let lines = event_line(&event);
            proptest::prop_assert_eq!(lines.matches('\n').count(), 1);
            proptest::prop_assert_eq!(our_id(lines.trim_end_matches('\n')), event.i);
            proptest::prop_assert_eq!(read(lines.as_bytes()), [Entry::Event(event)]);
        }
    }
}
