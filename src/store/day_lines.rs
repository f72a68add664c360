//! Whole days: their documents as lines, the checksum of such lines, and how to restore a stack to
//! which other programs have written meanwhile ([`merge`]).
//!
//! Days with equal sums hold the same documents, byte for byte and in the same order. An export is
//! verified by its sum, and a day is dropped only if its sum matches.

use bson::{Bson, RawBson, RawBsonRef, RawDocument};
use sha2::{Digest, Sha256};

use super::entry::{read_entry, with_covered_count};
use super::extjson::to_line;
use super::types::{Error, Result};
use crate::domain::{Day, DigestMarker, Entry, Event, Stack, StackId};

/// A document of a day on one line, byte-exact: canonical MongoDB Extended JSON v2, or a
/// store-specific form if that is not exact.
pub type StackLine = String;

/// How to restore a document whose `_id` is already in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum MergePolicy {
    /// The stored document must be identical.
    MustBeEqual,
    /// Append the entries to those of other writers, each once. A marker is not appended while it
    /// would cover pending events of other writers, unless the day has expired.
    Append {
        /// Whether all events of the day are too old to be emailed.
        is_expired: bool,
    },
}

/// The number of records, and the SHA-256 of their lines, each with its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Checksum {
    /// Number of records. Those of a day are its stacks.
    pub records: u64,
    /// 64 lowercase hexadecimal digits. Without records, the SHA-256 of the empty string.
    pub sha256: String,
}

/// A checksum in progress.
#[derive(Debug, Default)]
pub struct ChecksumBuilder {
    records: u64,
    hash: Sha256,
}

impl ChecksumBuilder {
    /// Adds a record's line, given without its line end.
    pub fn add(&mut self, line: &str) {
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.records += 1;
    }

    /// Returns the number of records added so far.
    pub fn records(&self) -> u64 {
        self.records
    }

    /// Returns the checksum of all records.
    pub fn finish(self) -> Checksum {
        Checksum { records: self.records, sha256: hex::encode(self.hash.finalize()) }
    }
}

/// Returns the entries to append to a stored document, so that it has each entry of an exported one
/// with the same `_id`. None if they are equal.
///
/// # Errors
///
/// [`Error::Conflict`] if the documents differ and cannot be merged, and [`Error::Pending`] if an
/// appended marker would cover pending events of other writers.
pub(super) fn merge(
    day: Day,
    stored: &RawDocument,
    exported: &RawDocument,
    policy: MergePolicy,
) -> Result<Vec<RawBson>> {
    if stored == exported || to_line(stored) == to_line(exported) {
        return Ok(Vec::new());
    }
    let user = || owner_of(exported);
    match (StackFields::read(stored), StackFields::read(exported), policy) {
        (Some(stored), Some(exported), MergePolicy::Append { is_expired })
            if stored.others == exported.others =>
        {
            entries_to_append(day, &stored.events, &exported.events, is_expired)
                .ok_or_else(|| Error::Pending { user: user(), day })
        }
        _ => Err(Error::Conflict(format!("the stack of {} on {day}", user()))),
    }
}

/// Returns the owner of a document, for errors.
pub(super) fn owner_of(document: &RawDocument) -> String {
    match document.get("_id").ok().flatten().map(Bson::try_from) {
        Some(Ok(Bson::String(text))) => text,
        Some(Ok(Bson::ObjectId(id))) => id.to_hex(),
        Some(Ok(other)) => other.to_string(),
        _ => "an unknown user".to_owned(),
    }
}

/// The fields of a document of a day.
struct StackFields<'a> {
    events: Vec<RawBson>,
    /// All other fields, by name.
    others: Vec<(&'a str, RawBson)>,
}

impl<'a> StackFields<'a> {
    /// Returns `None` if `events` is not a list, or a field cannot be read.
    fn read(document: &'a RawDocument) -> Option<Self> {
        let (mut events, mut others) = (None, Vec::new());
        for field in document {
            let (name, value) = field.ok()?;
            match value {
                RawBsonRef::Array(list) if name.as_str() == "events" => {
                    let elements = list.into_iter().map(|element| element.map(RawBson::from));
                    events = Some(elements.collect::<bson::error::Result<_>>().ok()?);
                }
                value => others.push((name.as_str(), RawBson::from(value))),
            }
        }
        Some(Self { events: events?, others })
    }
}

/// Reads an element of `events`.
fn entry_of(element: &RawBson) -> Entry {
    match element {
        RawBson::Document(entry) => read_entry(entry).unwrap_or(Entry::Other),
        _ => Entry::Other,
    }
}

/// Returns the marker with this number of covered entries. `None` if a field of it cannot be read.
fn marker_covering(marker: &RawBson, count: usize) -> Option<RawBson> {
    with_covered_count(marker.as_document()?, count).map(RawBson::Document)
}

/// Returns whether an earlier restore has put the exported elements into `stored`, one after the
/// other. If they are not at the start, their markers also count the entries before them.
fn contains_restored(stored: &[RawBson], exported: &[RawBson], entries: &[Entry]) -> bool {
    let is_at = |position: usize| {
        let mut pairs = exported.iter().zip(entries).zip(&stored[position..]);
        pairs.all(|((exported, entry), stored)| match entry {
            Entry::DigestMarker(DigestMarker { n: Some(n), .. }) if position > 0 => {
                marker_covering(exported, *n as usize + position).as_ref() == Some(stored)
            }
            _ => exported == stored,
        })
    };
    let last = stored.len().checked_sub(exported.len());
    last.is_some_and(|last| (0..=last).any(is_at))
}

/// Returns the elements of an exported stack to append to `stored`, in order, so that each is there
/// once. Returns `None` if an appended marker would cover pending events of other writers, or if a
/// marker cannot be read.
///
/// An identifiable entry is appended once: a marker by its id, others by all of their content.
///
/// If `is_expired`, events of the day are no longer emailed, so none is pending.
fn entries_to_append(
    day: Day,
    stored: &[RawBson],
    exported: &[RawBson],
    is_expired: bool,
) -> Option<Vec<RawBson>> {
    // A later export holds the stored entries, followed by new ones.
    if let Some(new) = exported.strip_prefix(stored) {
        return Some(new.to_vec());
    }
    let entries: Vec<Entry> = exported.iter().map(entry_of).collect();
    if contains_restored(stored, exported, &entries) {
        return Some(Vec::new());
    }
    let stack = Stack::new(StackId::for_day(day), stored.iter().map(entry_of).collect());
    let is_stored = |index: usize| match &entries[index] {
        Entry::DigestMarker(DigestMarker { id: None, .. })
        | Entry::Event(Event { fanout_id: None, .. }) => false,
        Entry::DigestMarker(DigestMarker { id, .. }) => {
            stack.markers().any(|marker| marker.id == *id)
        }
        Entry::Event(_) | Entry::BatchMarker(_) | Entry::Other => stored.contains(&exported[index]),
    };
    let has_pending = !is_expired && stack.has_uncovered();
    // `excluded[n]`: number of entries among the first `n` that are not appended.
    let (mut excluded, mut appended) = (vec![0], Vec::new());
    for (index, entry) in entries.iter().enumerate() {
        let mut is_excluded = is_stored(index);
        let mut element = exported[index].clone();
        if let Entry::DigestMarker(DigestMarker { n, .. }) = entry {
            let covered = n.map_or(index, |n| (n as usize).min(index));
            // The stored part may have a marker of the same email. This one is still needed if it
            // covers appended entries.
            is_excluded &= excluded[covered] == covered;
            if has_pending && !is_excluded {
                return None;
            }
            if n.is_some() && !is_excluded {
                element = marker_covering(&element, covered - excluded[covered] + stored.len())?;
            }
        }
        if !is_excluded {
            appended.push(element);
        }
        excluded.push(excluded[index] + usize::from(is_excluded));
    }
    Some(appended)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::domain::{EventType, Id, ObjectId};
    use crate::store::entry::{event_document, flushed_document, object_id};

    fn id(n: u8) -> Id {
        Id::from_bytes([n; 12])
    }

    fn event(i: Option<u8>) -> RawBson {
        let event = event_document(&Event {
            kind: EventType::stored("T"),
            object: ObjectId::stored("1"),
            fanout_id: i.map(id),
        });
        event.into()
    }

    fn marker(by: u8, n: u32) -> RawBson {
        flushed_document(id(by), n).into()
    }

    /// Returns a marker of an older writer, without a number of entries.
    fn bare(by: Option<u8>) -> RawBson {
        let id = by.map_or(RawBson::Boolean(true), |by| RawBson::ObjectId(object_id(id(by))));
        rawdoc! {"flushed": id}.into()
    }

    fn append(stored: &[RawBson], exported: &[RawBson], is_expired: bool) -> Option<Vec<RawBson>> {
        entries_to_append("20140422".parse().unwrap(), stored, exported, is_expired)
    }

    #[test]
    fn stored_entries_are_skipped_but_a_marker_that_covers_a_new_one_is_not() {
        let [one, two, three, four] = [1, 2, 3, 4].map(|n| event(Some(n)));
        let existing = [one.clone(), two.clone(), marker(9, 2)];
        let append = |list: &[RawBson]| append(&existing, list, false).unwrap();

        let later = [one.clone(), two, marker(9, 2), three.clone()];
        assert_eq!(append(&later), std::slice::from_ref(&three));
        let all_again = [one.clone(), marker(9, 1), three.clone()];
        assert_eq!(append(&all_again), std::slice::from_ref(&three));
        let marked_again = [three.clone(), marker(9, 1)];
        assert_eq!(append(&marked_again), [three.clone(), marker(9, 4)]);
        let some_of_both = [one.clone(), three.clone(), marker(8, 2), four.clone()];
        let rest = [three, marker(8, 4), four];
        assert_eq!(append(&some_of_both), rest);
        let repeated = [one.clone(), bare(Some(9)), one];
        assert_eq!(append(&repeated), []);
    }

    #[test]
    fn entries_that_an_earlier_restore_appended_are_not_appended_again() {
        let marker = |n: i32| RawBson::from(rawdoc! {"flushed": true, "n": n});
        let stored = [event(Some(1)), event(None), marker(2)];
        let exported = [event(None), marker(1)];

        assert_eq!(append(&stored, &exported, false), Some(vec![]));
    }

    #[test]
    fn an_appended_marker_never_covers_stored_pending_events() {
        let pending = [event(Some(1))];
        let events = [event(Some(2)), event(Some(3))];
        assert_eq!(append(&pending, &events, false), Some(events.to_vec()));
        for marker in [marker(9, 1), bare(Some(9)), bare(None)] {
            let exported = [event(Some(2)), marker];
            assert_eq!(append(&pending, &exported, false), None);
        }
        let emailed = [event(Some(1)), bare(None)];
        let exported = [event(Some(2)), marker(9, 1)];
        let appended = vec![event(Some(2)), marker(9, 3)];
        assert_eq!(append(&emailed, &exported, false), Some(appended));
    }

    #[test]
    fn on_an_expired_day_markers_are_appended_unchanged() {
        let list = [event(None), bare(None)];

        let appended = append(&[event(Some(1))], &list, true).unwrap();

        assert_eq!(appended, list);
    }
}
