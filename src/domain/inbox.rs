//! What a person has seen, read and archived of their feed: one small record a person.
//!
//! The rule: nothing is written into stacks. The record says, stack by stack, which entries were
//! seen, read and put away; whatever it does not name is new. An item is told by any place at which
//! its (type, object) stands. It is as the oldest of them says, and a mark holds for all of them:
//! an item's place changes when its oldest day leaves the window, and what was read must not come
//! back then. A mark never reaches further than what stands.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};

use super::day::Window;
use super::feed::{Cursor, Kinds};
use super::id::Id;
pub use super::item_state::{ItemState, StateFilter};
use super::name::{EventType, ObjectId, UserId};
use super::stack::{PersonStacks, Position, Stack, StackId};

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
    /// They are not archived any more. Whether they were seen or read stays as it was before.
    Restore,
}

impl Mark {
    /// Its name, as it is handed in.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Seen => "seen",
            Self::Read => "read",
            Self::Unread => "unread",
            Self::Archive => "archive",
            Self::Restore => "restore",
        }
    }
}

/// Which items are marked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Marked {
    /// All that a reader was shown who was given this cursor, of these types.
    To(Cursor, Kinds),
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
    /// These were seen; those that were read are among them.
    pub seen: Entries,
    /// These were read.
    pub read: Entries,
    /// These are put away.
    pub archived: Entries,
}

/// What is known of a person's feed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbox {
    /// Whose it is.
    pub user: UserId,
    /// What it is known by in a compare-and-set; `None` where none stands.
    pub revision: Option<Id>,
    /// When anything was marked last.
    pub changed: DateTime<Utc>,
    /// By stack; one that is not named is new as a whole.
    pub stacks: BTreeMap<StackId, StackMarks>,
}

impl Inbox {
    /// That of somebody who marked nothing yet.
    pub fn empty(user: UserId) -> Self {
        Self {
            user,
            revision: None,
            changed: DateTime::UNIX_EPOCH,
            stacks: BTreeMap::new(),
        }
    }

    /// How the item stands whose oldest place this is.
    pub fn state(&self, place: Position) -> ItemState {
        self.done(place).state()
    }

    /// Marks items of these stacks, and forgets what has left the window. Says whether that
    /// changed anything.
    pub fn mark(
        &mut self,
        person: &PersonStacks,
        window: &Window,
        which: &Marked,
        mark: Mark,
        now: DateTime<Utc>,
    ) -> bool {
        let before = self.stacks.clone();
        self.stacks.retain(|stack, _| window.contains(stack.day));
        let mut items: HashMap<(&EventType, &ObjectId), Vec<Position>> = HashMap::new();
        for (place, event) in person.stacks.iter().flat_map(Stack::events) {
            items.entry((&event.t, &event.o)).or_default().push(place);
        }
        let named: HashSet<Position> = match which {
            Marked::To(..) => HashSet::new(),
            Marked::Items(places) => places.iter().copied().collect(),
        };
        for ((kind, _), places) in items {
            let is_meant = match which {
                Marked::To(cursor, kinds) => !cursor.is_before(places[0]) && kinds.admit(kind),
                Marked::Items(_) => places.iter().any(|place| named.contains(place)),
            };
            let mut done = self.done(places[0]);
            if is_meant {
                done.mark(mark);
            }
            // Of items that are not meant as well: what was told again since is as old as they are.
            for place in places {
                self.stacks
                    .entry(place.stack)
                    .or_default()
                    .set(place.index, done);
            }
        }
        self.stacks
            .retain(|_, marks| *marks != StackMarks::default());
        let changed = self.stacks != before;
        if changed {
            self.changed = now;
        }
        changed
    }

    fn done(&self, place: Position) -> Done {
        self.stacks
            .get(&place.stack)
            .map_or(Done::default(), |marks| marks.at(place.index))
    }
}

impl StackMarks {
    fn at(&self, index: u32) -> Done {
        Done {
            seen: self.seen.has(index),
            read: self.read.has(index),
            archived: self.archived.has(index),
        }
    }

    fn set(&mut self, index: u32, done: Done) {
        self.seen.set(index, done.seen);
        self.read.set(index, done.read);
        self.archived.set(index, done.archived);
    }
}

/// What was done to one item.
#[derive(Debug, Clone, Copy, Default)]
struct Done {
    seen: bool,
    read: bool,
    archived: bool,
}

impl Done {
    fn state(self) -> ItemState {
        match self {
            Self { archived: true, .. } => ItemState::Archived,
            Self { read: true, .. } => ItemState::Read,
            Self { seen: true, .. } => ItemState::Seen,
            _ => ItemState::Unseen,
        }
    }

    fn mark(&mut self, mark: Mark) {
        match mark {
            Mark::Seen => self.seen = true,
            Mark::Read | Mark::Unread => {
                self.seen = true;
                self.read = mark == Mark::Read;
            }
            Mark::Archive | Mark::Restore => self.archived = mark == Mark::Archive,
        }
    }
}

#[cfg(test)]
#[path = "inbox_tests.rs"]
mod tests;
