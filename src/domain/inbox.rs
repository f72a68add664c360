//! What a person has seen, read and archived of their feed: one small record a person.
//!
//! The rule: nothing is written into stacks. The record says, stack by stack, which entries were
//! seen, read and put away; whatever it does not name is new. An item is told by any place at which its (type, object) stands, and a
//! mark holds for all of them: an item's place changes when its oldest day leaves the window, and
//! what was read must not come back then. A mark never reaches further than what stands.

use std::collections::{BTreeMap, HashSet};

use super::day::Window;
use super::feed::Cursor;
use super::name::{EventType, ObjectId};
use super::stack::{PersonStacks, Position, StackId};

/// How an item stands with its reader; the later, the more was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// It was not shown yet.
    Unseen,
    /// It was shown.
    Seen,
    /// It was opened, or marked as read.
    Read,
    /// It is put away: the feed shows it only where it is asked for.
    Archived,
}

/// What is done to items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Mark {
    /// They were shown.
    Seen,
    /// They were opened.
    Read,
    /// They are to be opened still; they stay seen.
    Unread,
    /// They are put away.
    Archive,
    /// They are not put away any more; whether they were read stays as it was.
    Restore,
}

/// Which items are marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marked {
    /// All that a reader was shown who was given this cursor; of one type if it is named.
    To(Cursor, Option<EventType>),
    /// These, each by any place at which it stands.
    Items(Vec<Position>),
}

/// A set of entries of one stack, by their index; equal sets are equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Entries(Vec<u8>);

impl Entries {
    /// A set as it is kept: bit *i* of byte *n* is entry 8 *n* + *i*.
    pub fn stored(mut bytes: Vec<u8>) -> Self {
        let used = bytes.iter().rposition(|byte| *byte != 0);
        bytes.truncate(used.map_or(0, |last| last + 1));
        Self(bytes)
    }

    /// The same as it is kept, without a zero at its end.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Whether the entry is in it.
    pub fn has(&self, index: u32) -> bool {
        let byte = self.0.get(index as usize / 8);
        byte.is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }

    fn set(&mut self, index: u32, is_in: bool) {
        let (place, bit) = (index as usize / 8, 1 << (index % 8));
        if is_in {
            if self.0.len() <= place {
                self.0.resize(place + 1, 0);
            }
            self.0[place] |= bit;
        } else if let Some(byte) = self.0.get_mut(place) {
            *byte &= !bit;
            *self = Self::stored(std::mem::take(&mut self.0));
        }
    }
}

/// What is known of one stack, by the places at which events stand.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackMarks {
    /// These were seen; those that were read or put away are among them.
    pub seen: Entries,
    /// These were read.
    pub read: Entries,
    /// These are put away.
    pub archived: Entries,
}

/// What is known of a person's feed. A person without a record has an empty one.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Inbox {
    /// By stack; one that is not named is new as a whole.
    pub stacks: BTreeMap<StackId, StackMarks>,
}

impl Inbox {
    /// How the item at this place stands.
    pub fn state(&self, place: Position) -> ItemState {
        let Some(marks) = self.stacks.get(&place.stack) else {
            return ItemState::Unseen;
        };
        if marks.archived.has(place.index) {
            ItemState::Archived
        } else if marks.read.has(place.index) {
            ItemState::Read
        } else if marks.seen.has(place.index) {
            ItemState::Seen
        } else {
            ItemState::Unseen
        }
    }

    /// Marks items of these stacks, and forgets what has left the window.
    pub fn mark(&mut self, person: &PersonStacks, window: &Window, which: &Marked, mark: Mark) {
        self.stacks.retain(|stack, _| window.contains(stack.day));
        let events = || person.stacks.iter().flat_map(|stack| stack.events());
        let named: HashSet<(&EventType, &ObjectId)> = match which {
            Marked::To(..) => HashSet::new(),
            Marked::Items(places) => {
                let asked: HashSet<&Position> = places.iter().collect();
                let named = events().filter(|(place, _)| asked.contains(place));
                named.map(|(_, event)| (&event.t, &event.o)).collect()
            }
        };
        for (place, event) in events() {
            let is_meant = match which {
                Marked::To(cursor, kind) => {
                    !cursor.is_before(place) && kind.as_ref().is_none_or(|kind| event.t == *kind)
                }
                Marked::Items(_) => named.contains(&(&event.t, &event.o)),
            };
            if is_meant {
                self.stacks
                    .entry(place.stack)
                    .or_default()
                    .mark(place.index, mark);
            }
        }
        self.stacks
            .retain(|_, marks| *marks != StackMarks::default());
    }
}

impl StackMarks {
    fn mark(&mut self, index: u32, mark: Mark) {
        // Whatever was done to it, it was shown.
        self.seen.set(index, true);
        match mark {
            Mark::Seen => {}
            Mark::Read => self.read.set(index, true),
            Mark::Unread => self.read.set(index, false),
            Mark::Archive => self.archived.set(index, true),
            Mark::Restore => self.archived.set(index, false),
        }
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
