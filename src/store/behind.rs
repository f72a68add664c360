//! Which entries of an exported stack are appended to a stack that other writers began.
//!
//! The rule: an entry that can be identified is appended once. A marker that would also cover
//! events that still wait for an email becomes a note that names the events it covered.

use std::collections::HashSet;

use crate::domain::{Entry, Id, Mailed, Marker, covered};

/// An entry of the exported stack.
#[derive(Debug, Clone)]
pub(super) struct Returning {
    /// Whether the stack has an entry that is identified by the same value.
    pub stands: bool,
    /// The entry.
    pub entry: Entry,
}

/// What to append.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) enum Append {
    /// The entry at this index of the exported stack.
    Entry(usize),
    /// The marker at this index of the exported stack, so that it covers this many entries.
    Marker(usize, usize),
    /// A note in place of a marker.
    Note(Mailed),
}

/// What to append to `standing`, in order.
///
/// `None` if events of `standing` wait for an email, and the exported stack has markers, and events
/// or markers without an id, of which a note cannot be written. It can be restored after that
/// email.
pub(super) fn not_standing(standing: &[Entry], list: &[Returning]) -> Option<Vec<Append>> {
    let mut mailed = HashSet::new();
    for entry in standing {
        if let Entry::Mailed(note) = entry {
            mailed.extend(note.fanouts.iter().copied());
        }
    }
    let waits = standing[covered(standing)..]
        .iter()
        .any(|entry| match entry {
            Entry::Event(event) => event.i.is_none_or(|i| !mailed.contains(&i)),
            Entry::Marker(_) | Entry::Mailed(_) | Entry::Other => false,
        });
    let named = |returning: &Returning| match &returning.entry {
        Entry::Event(event) => event.i.is_some(),
        Entry::Marker(marker) => marker.id.is_some(),
        Entry::Mailed(_) | Entry::Other => true,
    };
    let is_marker = |returning: &Returning| matches!(returning.entry, Entry::Marker(_));
    if waits && list.iter().any(is_marker) && !list.iter().all(named) {
        return None;
    }
    // How many of the first entries of the list are left out, by number of entries.
    let (mut left_out, mut append) = (vec![0], Vec::new());
    for (index, Returning { stands, entry }) in list.iter().enumerate() {
        let mut is_left_out = *stands;
        match entry {
            Entry::Marker(Marker { id, n }) => {
                let covers = n.map_or(index, |n| (n as usize).min(index));
                let all_left_out = left_out[covers] == covers;
                is_left_out = all_left_out && (*stands || waits);
                if is_left_out {
                } else if let (true, Some(id)) = (waits, id) {
                    append.extend(note(*id, &list[..covers], &mut mailed).map(Append::Note));
                } else {
                    // The same email may have been marked on the part that stands, and this marker
                    // covers more.
                    let covers = covers - left_out[covers] + standing.len();
                    append.push(Append::Marker(index, covers));
                }
            }
            _ if is_left_out => {}
            Entry::Event(_) | Entry::Mailed(_) | Entry::Other => append.push(Append::Entry(index)),
        }
        left_out.push(left_out[index] + usize::from(is_left_out));
    }
    Some(append)
}

/// A note that the email of this marker had these events, but for those that a note names already.
fn note(id: Id, covered: &[Returning], mailed: &mut HashSet<Id>) -> Option<Mailed> {
    let ids = covered
        .iter()
        .filter_map(|returning| match &returning.entry {
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

    fn back(stands: bool, entry: Entry) -> Returning {
        Returning { stands, entry }
    }

    #[test]
    fn what_stands_is_left_out_and_a_marker_that_covers_something_new_is_not() {
        let standing = [event(Some(1)), event(Some(2)), marker(None, None)];
        let (one, other) = (|stands| back(stands, event(Some(1))), event(Some(3)));
        let marked = |stands, n| back(stands, marker(Some(id(9)), n));
        let append = |list: &[Returning]| not_standing(&standing, list).unwrap();

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
    fn a_marker_does_not_cover_events_of_others_that_wait() {
        let standing = [event(Some(1))];
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

        let appended = not_standing(&standing, &list).unwrap();

        let entry = Append::Entry;
        assert_eq!(
            appended,
            [entry(0), note(8, 2), entry(2), note(9, 3), entry(4)]
        );
    }

    #[test]
    fn a_marker_that_cannot_be_written_as_a_note_has_to_wait() {
        let standing = [event(Some(1))];
        let without_id = [
            back(false, event(None)),
            back(false, marker(Some(id(9)), None)),
        ];
        assert_eq!(not_standing(&standing, &without_id), None);
        let pending = [
            back(false, marker(Some(id(9)), Some(0))),
            back(false, event(None)),
        ];
        assert_eq!(not_standing(&standing, &pending), None);
        let bare = [back(false, event(Some(2))), back(false, marker(None, None))];
        assert_eq!(not_standing(&standing, &bare), None);
        let emailed = [event(Some(1)), marker(None, None)];
        assert!(not_standing(&emailed, &bare).is_some());
    }
}
