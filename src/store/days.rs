//! Whole days: their documents as lines, the checksum of a day, and how to restore a stack that
//! other writers have written to meanwhile ([`entries_to_append`]).
//!
//! Days with equal sums hold the same documents, byte for byte and in the same order. An export is
//! verified by its sum, and a day is dropped only if its sum matches.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use crate::domain::{Entry, Id, Mailed, Marker, covered};

/// A document of a day on one line, byte-exact: canonical MongoDB Extended JSON v2, or a
/// store-specific form if that is not exact.
pub type RawStack = String;

/// How to restore a document whose `_id` is already in use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Meeting {
    /// The stored document must be identical.
    Same,
    /// Append the entries to those of other writers, each once. Pending events of other writers
    /// stay pending, unless the day has expired.
    Append {
        /// Whether all events of the day are too old to be emailed.
        is_expired: bool,
    },
}

/// The number of documents, and the SHA-256 of their lines, each with its line end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaySum {
    /// Number of documents.
    pub stacks: u64,
    /// 64 lowercase hexadecimal digits. The sum of a day without documents is that of the empty
    /// string.
    pub sha256: String,
}

/// A sum in progress.
#[derive(Debug, Default)]
pub struct Summing {
    stacks: u64,
    hash: Sha256,
}

impl Summing {
    /// Adds a document's line, given without its line end.
    pub fn add(&mut self, line: &str) {
        self.hash.update(line.as_bytes());
        self.hash.update(b"\n");
        self.stacks += 1;
    }

    /// Returns the number of lines added so far.
    pub fn stacks(&self) -> u64 {
        self.stacks
    }

    /// Returns the sum of all lines.
    pub fn end(self) -> DaySum {
        DaySum {
            stacks: self.stacks,
            sha256: hex::encode(self.hash.finalize()),
        }
    }
}

/// An entry of the exported stack.
#[derive(Debug, Clone)]
pub(super) struct Exported {
    /// Whether the stored stack has an entry with the same identity.
    pub is_stored: bool,
    pub entry: Entry,
}

/// An entry to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Append {
    /// The entry at this index of the exported stack.
    Entry(usize),
    /// The marker at this index of the exported stack, changed to cover this number of entries.
    Marker(usize, usize),
    /// A note in place of a marker.
    Note(Mailed),
}

/// Returns the entries of an exported stack to append to `stored`, in order. Returns `None` if a
/// marker would need a note, and an event or a marker has no id.
///
/// An identifiable entry is appended once. A marker that would also cover pending events of other
/// writers becomes a note: a marker `{mailed, i}` that names the events it covered.
///
/// If `is_expired`, events of the day are no longer emailed, so none is pending.
pub(super) fn entries_to_append(
    stored: &[Entry],
    exported: &[Exported],
    is_expired: bool,
) -> Option<Vec<Append>> {
    let mut mailed = HashSet::new();
    for entry in stored {
        if let Entry::Mailed(note) = entry {
            mailed.extend(note.fanouts.iter().copied());
        }
    }
    let is_pending = |entry: &Entry| match entry {
        Entry::Event(event) => event.i.is_none_or(|i| !mailed.contains(&i)),
        Entry::Marker(_) | Entry::Mailed(_) | Entry::Other => false,
    };
    let has_pending = !is_expired && stored[covered(stored)..].iter().any(is_pending);
    let has_id = |exported: &Exported| match &exported.entry {
        Entry::Event(event) => event.i.is_some(),
        Entry::Marker(marker) => marker.id.is_some(),
        Entry::Mailed(_) | Entry::Other => true,
    };
    let is_marker = |exported: &Exported| matches!(exported.entry, Entry::Marker(_));
    if has_pending && exported.iter().any(is_marker) && !exported.iter().all(has_id) {
        return None;
    }
    // `left_out[n]`: number of entries among the first `n` that are not appended.
    let (mut left_out, mut append) = (vec![0], Vec::new());
    for (index, Exported { is_stored, entry }) in exported.iter().enumerate() {
        let mut is_left_out = *is_stored;
        if let Entry::Marker(Marker { id, n }) = entry {
            let covers = n.map_or(index, |n| (n as usize).min(index));
            // The stored part may have a marker of the same email. This one is still needed if it
            // covers appended entries.
            is_left_out &= left_out[covers] == covers;
            match id.filter(|_| has_pending) {
                _ if is_left_out => {}
                Some(id) => {
                    append.extend(note(id, &exported[..covers], &mut mailed).map(Append::Note));
                }
                None => {
                    let covers = covers - left_out[covers] + stored.len();
                    append.push(Append::Marker(index, covers));
                }
            }
        } else if !is_left_out {
            append.push(Append::Entry(index));
        }
        left_out.push(left_out[index] + usize::from(is_left_out));
    }
    Some(append)
}

/// Returns a note of the marker's events that no note names yet.
fn note(id: Id, covered: &[Exported], mailed: &mut HashSet<Id>) -> Option<Mailed> {
    let ids = covered.iter().filter_map(|exported| match &exported.entry {
        Entry::Event(event) => event.i,
        Entry::Marker(_) | Entry::Mailed(_) | Entry::Other => None,
    });
    let mut fanouts: Vec<Id> = ids.filter(|id| mailed.insert(*id)).collect();
    fanouts.sort_unstable();
    (!fanouts.is_empty()).then_some(Mailed { id, fanouts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Event, EventType, ObjectId};

    fn id(n: u8) -> Id {
        Id::from_bytes([n; 12])
    }

    fn event(i: Option<u8>) -> Entry {
        Entry::Event(Event {
            t: EventType::stored("T"),
            o: ObjectId::stored("1"),
            i: i.map(id),
        })
    }

    fn marker(id: Option<Id>, n: Option<u32>) -> Entry {
        Entry::Marker(Marker { id, n })
    }

    fn back(is_stored: bool, entry: Entry) -> Exported {
        Exported { is_stored, entry }
    }

    #[test]
    fn stored_entries_are_skipped_but_a_marker_that_covers_a_new_one_is_not() {
        let existing = [event(Some(1)), event(Some(2)), marker(None, None)];
        let (one, other) = (|is_stored| back(is_stored, event(Some(1))), event(Some(3)));
        let marked = |is_stored, n| back(is_stored, marker(Some(id(9)), n));
        let append = |list: &[Exported]| entries_to_append(&existing, list, false).unwrap();

        let all_again = [one(true), marked(true, Some(1)), back(false, other.clone())];
        assert_eq!(append(&all_again), [Append::Entry(2)]);
        let marked_again = [back(false, other.clone()), marked(true, Some(1))];
        let both = [Append::Entry(0), Append::Marker(1, 4)];
        assert_eq!(append(&marked_again), both);
        let some_of_both = [one(true), back(false, other), marked(false, Some(2))];
        let rest = [Append::Entry(1), Append::Marker(2, 4)];
        assert_eq!(append(&some_of_both), rest);
        let bare = [one(true), marked(true, None), one(true)];
        assert_eq!(append(&bare), []);
    }

    #[test]
    fn an_appended_marker_does_not_cover_stored_pending_events() {
        let existing = [event(Some(1))];
        let list = [
            back(false, event(Some(2))),
            back(false, marker(Some(id(8)), None)),
            back(false, event(Some(3))),
            back(false, marker(Some(id(9)), Some(3))),
            back(false, event(Some(4))),
        ];
        let note = |by, of| {
            Append::Note(Mailed {
                id: id(by),
                fanouts: vec![id(of)],
            })
        };

        let appended = entries_to_append(&existing, &list, false).unwrap();

        let entry = Append::Entry;
        assert_eq!(
            appended,
            [entry(0), note(8, 2), entry(2), note(9, 3), entry(4)]
        );
    }

    #[test]
    fn without_ids_a_stack_is_rejected_while_events_are_pending() {
        let existing = [event(Some(1))];
        let without_id = [
            back(false, event(None)),
            back(false, marker(Some(id(9)), None)),
        ];
        assert_eq!(entries_to_append(&existing, &without_id, false), None);
        let pending = [
            back(false, marker(Some(id(9)), Some(0))),
            back(false, event(None)),
        ];
        assert_eq!(entries_to_append(&existing, &pending, false), None);
        let bare = [back(false, event(Some(2))), back(false, marker(None, None))];
        assert_eq!(entries_to_append(&existing, &bare, false), None);
        let emailed = [event(Some(1)), marker(None, None)];
        assert!(entries_to_append(&emailed, &bare, false).is_some());
    }

    #[test]
    fn a_marker_of_stored_events_only_becomes_a_mailed_note() {
        let stored = [event(Some(1)), event(Some(2))];
        let list = [
            back(true, event(Some(2))),
            back(false, marker(Some(id(9)), Some(1))),
        ];

        let appended = entries_to_append(&stored, &list, false).unwrap();

        let note = Mailed {
            id: id(9),
            fanouts: vec![id(2)],
        };
        assert_eq!(appended, [Append::Note(note)]);
    }

    #[test]
    fn on_an_expired_day_markers_are_appended_unchanged() {
        let list = [back(false, event(None)), back(false, marker(None, None))];

        let appended = entries_to_append(&[event(Some(1))], &list, true).unwrap();

        assert_eq!(appended, [Append::Entry(0), Append::Marker(1, 2)]);
    }
}
