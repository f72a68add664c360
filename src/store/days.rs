//! Whole days: their documents as lines, the checksum of a day, and how to restore a stack that
//! other writers have written to meanwhile ([`entries_to_append`]).
//!
//! Days with equal sums hold the same documents, byte for byte and in the same order. An export is
//! verified by its sum, and a day is dropped only if its sum matches.

use std::collections::HashSet;

use sha2::{Digest, Sha256};

use crate::domain::{Entry, Event, Id, Mailed, Marker, covered};

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

/// An entry in the form of a store.
pub(super) trait StoredEntry: Clone + PartialEq {
    fn entry(&self) -> Entry;

    /// Returns the marker with this number of covered entries. `None` if a field of it cannot be
    /// read.
    fn covering(&self, n: usize) -> Option<Self>;

    /// Returns a marker `{mailed, i}`.
    fn mailed(mailed: &Mailed) -> Self;
}

/// Returns the entries of an exported stack to append to `stored`, in order, so that each is there
/// once. Returns `None` if a marker would need a note and an event or a marker has no id, or if a
/// marker cannot be read.
///
/// An identifiable entry is appended once: a marker by its id, others by all of their content. A
/// marker that would also cover pending events of other writers becomes a note: a marker
/// `{mailed, i}` that names the events it covered.
///
/// If `is_expired`, events of the day are no longer emailed, so none is pending.
pub(super) fn entries_to_append<E: StoredEntry>(
    stored: &[E],
    exported: &[E],
    is_expired: bool,
) -> Option<Vec<E>> {
    // A later export holds the stored entries, followed by new ones.
    if let Some(new) = exported.strip_prefix(stored) {
        return Some(new.to_vec());
    }
    let ours: Vec<Entry> = exported.iter().map(E::entry).collect();
    // Whether an earlier restore put the exported entries at this position. If it is not the start,
    // markers then count the `from` entries before them as well.
    let is_at = |from: usize| {
        let pairs = exported.iter().zip(&ours).zip(&stored[from..]);
        let mut pairs = pairs.map(|((exported, entry), stored)| match entry {
            Entry::Marker(Marker { n: Some(n), .. }) if from > 0 => {
                exported.covering(*n as usize + from).as_ref() == Some(stored)
            }
            _ => exported == stored,
        });
        pairs.all(|is_same| is_same)
    };
    let room = stored.len().checked_sub(exported.len());
    if room.is_some_and(|room| (0..=room).any(is_at)) {
        return Some(Vec::new());
    }
    let before: Vec<Entry> = stored.iter().map(E::entry).collect();
    let is_stored = |index: usize| match &ours[index] {
        Entry::Marker(Marker { id: None, .. }) | Entry::Event(Event { i: None, .. }) => false,
        Entry::Marker(Marker { id, .. }) => {
            let has_id = |entry: &Entry| matches!(entry, Entry::Marker(marker) if marker.id == *id);
            before.iter().any(has_id)
        }
        Entry::Event(_) | Entry::Mailed(_) | Entry::Other => stored.contains(&exported[index]),
    };
    let mut mailed = HashSet::new();
    for entry in &before {
        if let Entry::Mailed(note) = entry {
            mailed.extend(note.fanouts.iter().copied());
        }
    }
    let is_pending = |entry: &Entry| match entry {
        Entry::Event(event) => event.i.is_none_or(|i| !mailed.contains(&i)),
        Entry::Marker(_) | Entry::Mailed(_) | Entry::Other => false,
    };
    let has_pending = !is_expired && before[covered(&before)..].iter().any(is_pending);
    let has_id = |entry: &Entry| match entry {
        Entry::Event(event) => event.i.is_some(),
        Entry::Marker(marker) => marker.id.is_some(),
        Entry::Mailed(_) | Entry::Other => true,
    };
    let is_marker = |entry: &Entry| matches!(entry, Entry::Marker(_));
    if has_pending && ours.iter().any(is_marker) && !ours.iter().all(has_id) {
        return None;
    }
    // `left_out[n]`: number of entries among the first `n` that are not appended.
    let (mut left_out, mut append) = (vec![0], Vec::new());
    for (index, entry) in ours.iter().enumerate() {
        let mut is_left_out = is_stored(index);
        if let Entry::Marker(Marker { id, n }) = entry {
            let covers = n.map_or(index, |n| (n as usize).min(index));
            // The stored part may have a marker of the same email. This one is still needed if it
            // covers appended entries.
            is_left_out &= left_out[covers] == covers;
            match id.filter(|_| has_pending) {
                _ if is_left_out => {}
                Some(id) => {
                    let note = note(id, &ours[..covers], &mut mailed);
                    append.extend(note.as_ref().map(E::mailed));
                }
                None if n.is_none() => append.push(exported[index].clone()),
                None => {
                    let covers = covers - left_out[covers] + stored.len();
                    append.push(exported[index].covering(covers)?);
                }
            }
        } else if !is_left_out {
            append.push(exported[index].clone());
        }
        left_out.push(left_out[index] + usize::from(is_left_out));
    }
    Some(append)
}

/// Returns a note of the marker's events that no note names yet.
fn note(id: Id, covered: &[Entry], mailed: &mut HashSet<Id>) -> Option<Mailed> {
    let ids = covered.iter().filter_map(|entry| match entry {
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

    impl StoredEntry for Entry {
        fn entry(&self) -> Entry {
            self.clone()
        }

        fn covering(&self, n: usize) -> Option<Self> {
            match self {
                Self::Marker(Marker { id, .. }) => Some(marker(*id, Some(n as u32))),
                _ => None,
            }
        }

        fn mailed(mailed: &Mailed) -> Self {
            Self::Mailed(mailed.clone())
        }
    }

    fn note(by: u8, of: u8) -> Entry {
        Entry::Mailed(Mailed {
            id: id(by),
            fanouts: vec![id(of)],
        })
    }

    #[test]
    fn stored_entries_are_skipped_but_a_marker_that_covers_a_new_one_is_not() {
        let marked = |n| marker(Some(id(9)), n);
        let [one, two, three, four] = [1, 2, 3, 4].map(|n| event(Some(n)));
        let existing = [one.clone(), two.clone(), marked(Some(2))];
        let append = |list: &[Entry]| entries_to_append(&existing, list, false).unwrap();

        let later = [one.clone(), two, marked(Some(2)), three.clone()];
        assert_eq!(append(&later), std::slice::from_ref(&three));
        let all_again = [one.clone(), marked(Some(1)), three.clone()];
        assert_eq!(append(&all_again), std::slice::from_ref(&three));
        let marked_again = [three.clone(), marked(Some(1))];
        assert_eq!(append(&marked_again), [three.clone(), marked(Some(4))]);
        let new_marker = |n| marker(Some(id(8)), n);
        let some_of_both = [
            one.clone(),
            three.clone(),
            new_marker(Some(2)),
            four.clone(),
        ];
        let rest = [three, new_marker(Some(4)), four];
        assert_eq!(append(&some_of_both), rest);
        let bare = [one.clone(), marked(None), one];
        assert_eq!(append(&bare), []);
    }

    #[test]
    fn entries_that_an_earlier_restore_appended_are_not_appended_again() {
        let stored = [event(Some(1)), event(None), marker(None, Some(2))];
        let exported = [event(None), marker(None, Some(1))];

        assert_eq!(entries_to_append(&stored, &exported, false), Some(vec![]));
    }

    #[test]
    fn an_appended_marker_does_not_cover_stored_pending_events() {
        let existing = [event(Some(1))];
        let list = [
            event(Some(2)),
            marker(Some(id(8)), None),
            event(Some(3)),
            marker(Some(id(9)), Some(3)),
            event(Some(4)),
        ];

        let appended = entries_to_append(&existing, &list, false).unwrap();

        let [two, three, four] = [2, 3, 4].map(|n| event(Some(n)));
        assert_eq!(appended, [two, note(8, 2), three, note(9, 3), four]);
    }

    #[test]
    fn without_ids_a_stack_is_rejected_while_events_are_pending() {
        let existing = [event(Some(1))];
        let without_id = [event(None), marker(Some(id(9)), None)];
        assert_eq!(entries_to_append(&existing, &without_id, false), None);
        let pending = [marker(Some(id(9)), Some(0)), event(None)];
        assert_eq!(entries_to_append(&existing, &pending, false), None);
        let bare = [event(Some(2)), marker(None, None)];
        assert_eq!(entries_to_append(&existing, &bare, false), None);
        let emailed = [event(Some(1)), marker(None, None)];
        assert!(entries_to_append(&emailed, &bare, false).is_some());
    }

    #[test]
    fn a_marker_of_stored_events_only_becomes_a_mailed_note() {
        let stored = [event(Some(1)), event(Some(2))];
        let list = [event(Some(2)), marker(Some(id(9)), Some(1))];

        let appended = entries_to_append(&stored, &list, false).unwrap();

        assert_eq!(appended, [note(9, 2)]);
    }

    #[test]
    fn on_an_expired_day_markers_are_appended_unchanged() {
        let list = [event(None), marker(None, None)];

        let appended = entries_to_append(&[event(Some(1))], &list, true).unwrap();

        assert_eq!(appended, list);
    }
}
