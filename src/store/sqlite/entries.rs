//! The text form of entries in a day table: one per line as canonical Extended JSON.
//!
//! An append to the stack is an append to the text. Every line is exactly one [`Entry`], because
//! positions count lines. Lines of other writers mean the same as on MongoDB.

use std::borrow::Cow;
use std::collections::HashSet;

use rusqlite::types::ValueRef;
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::domain::{Entry, Event, EventType, Id, Mailed, Marker, ObjectId};
use crate::store::days::{Append, Exported, entries_to_append};

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
    match serde_json::from_str(line) {
        Ok(Value::Object(fields)) => read_fields(&fields),
        // Anything else is not an event. One bad line must not stop the digests of all users.
        Ok(_) | Err(_) => Entry::Other,
    }
}

/// Returns the lines to append to the stored ones, so that each entry of an exported stack is there
/// once (see [`entries_to_append`]). Returns `None` if that cannot be done.
pub(super) fn lines_to_append(stored: &str, ours: &str, is_expired: bool) -> Option<String> {
    if let Some(new) = ours.strip_prefix(stored) {
        return Some(new.to_owned());
    }
    let before: Vec<&str> = stored.lines().collect();
    let moved_by = |by: usize| ours.lines().map(move |line| moved(line, |n| n + by));
    let count = ours.lines().count();
    let stand_at = |from: usize| moved_by(from).eq(before[from..from + count].iter().copied());
    if before.len() >= count && (0..=before.len() - count).any(stand_at) {
        return Some(String::new());
    }
    let stored: HashSet<Cow<'_, str>> = before.iter().filter_map(|line| name_of(line)).collect();
    let before: Vec<Entry> = before.into_iter().map(read_line).collect();
    let ours: Vec<&str> = ours.lines().collect();
    let exported = |line: &&str| Exported {
        is_stored: name_of(line).is_some_and(|name| stored.contains(&name)),
        entry: read_line(line),
    };
    let list: Vec<Exported> = ours.iter().map(exported).collect();
    let mut lines = String::new();
    for append in entries_to_append(&before, &list, is_expired)? {
        match append {
            Append::Entry(index) => lines.push_str(ours[index]),
            Append::Marker(index, covers) => lines.push_str(&moved(ours[index], |_| covers)),
            Append::Note(note) => {
                lines.push_str(&mailed_line(&note));
                continue;
            }
        }
        lines.push('\n');
    }
    Some(lines)
}

/// Returns the identity of an entry: a marker's id, or otherwise the whole line. An event without
/// an id has no identity, because it may occur twice.
fn name_of(line: &str) -> Option<Cow<'_, str>> {
    match read_line(line) {
        Entry::Marker(Marker { id: Some(id), .. }) => Some(Cow::Owned(id.to_string())),
        Entry::Event(Event { i: Some(_), .. }) | Entry::Mailed(_) | Entry::Other => {
            Some(Cow::Borrowed(line))
        }
        Entry::Event(_) | Entry::Marker(_) => None,
    }
}

/// Returns the line for another place in a list. `covers` maps the number of entries that a marker
/// covers.
fn moved(line: &str, covers: impl Fn(usize) -> usize) -> Cow<'_, str> {
    match read_line(line) {
        Entry::Marker(Marker {
            id: Some(id),
            n: Some(n),
        }) if covers(n as usize) != n as usize => {
            let n = u32::try_from(covers(n as usize)).unwrap_or(u32::MAX);
            Cow::Owned(marker_line(id, n).trim_end().to_owned())
        }
        _ => Cow::Borrowed(line),
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

fn read_fields(fields: &serde_json::Map<String, Value>) -> Entry {
    let text = |name: &str| fields.get(name).and_then(Value::as_str);
    let id = |name: &str| fields.get(name).and_then(object_id);
    if fields.contains_key("flushed") {
        return Entry::Marker(Marker {
            id: id("flushed"),
            n: fields.get("n").and_then(count),
        });
    }
    let object = text("o")
        .map(ObjectId::stored)
        .or_else(|| id("o").map(|id| ObjectId::stored(id.to_string())));
    match (text("t"), object) {
        (Some(t), Some(o)) => Entry::Event(Event {
            t: EventType::stored(t),
            o,
            i: id("i"),
        }),
        _ => mailed(fields).map_or(Entry::Other, Entry::Mailed),
    }
}

fn mailed(fields: &serde_json::Map<String, Value>) -> Option<Mailed> {
    let fanouts = fields.get("i")?.as_array()?;
    Some(Mailed {
        id: object_id(fields.get("mailed")?)?,
        fanouts: fanouts.iter().map(object_id).collect::<Option<_>>()?,
    })
}

fn object_id(value: &Value) -> Option<Id> {
    Id::from_hex(value.get("$oid")?.as_str()?)
}

/// Reads a count of any number type. Negative numbers read as 0.
fn count(value: &Value) -> Option<u32> {
    let number = |name: &str| value.get(name).and_then(Value::as_str);
    let whole = || {
        number("$numberInt")
            .or_else(|| number("$numberLong"))?
            .parse::<i64>()
            .ok()
    };
    let double = || number("$numberDouble")?.parse::<f64>().ok();
    match whole() {
        Some(n) => Some(u32::try_from(n.max(0)).unwrap_or(u32::MAX)),
        // `as` saturates, and converts NaN to 0.
        None => double().map(|n| n as u32),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

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
