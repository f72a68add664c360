//! A user's inbox: which feed items are seen, read or archived.
//!
//! The inbox is one small record per user; stacks are never changed. Unlisted entries are unseen.
//! Any position of a (type, object) names its item. The item has the state of its oldest position.
//! A mark applies to all positions, so it stays when the oldest day leaves the window. Start with
//! [`Inbox::mark`], which never marks entries that do not exist yet.

use std::collections::{BTreeMap, HashMap, HashSet};

use chrono::{DateTime, Utc};

use super::day::DaySet;
use super::day_stack::{Position, Stack, StackId, UserStacks};
use super::feed_page::{FeedCursor, KindFilter};
pub use super::feed_page::{ItemState, StateFilter};
use super::name::{EventType, ObjectId, UserId, named_enum};
use super::timed_id::Id;

named_enum! {
    /// A change of the state of items.
    Mark("mark") {
        /// They were shown.
        Seen = "seen",
        /// They were opened.
        Read = "read",
        /// They are no longer read, but stay seen.
        Unread = "unread",
        /// They are archived.
        Archive = "archive",
        /// They are no longer archived. Their seen and read states are as before.
        Restore = "restore",
    }
}

/// The items to mark.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum MarkTargets {
    /// All items of these types that exist at the cursor.
    UpTo(FeedCursor, KindFilter),
    /// These items, each named by any of its positions.
    Items(Vec<Position>),
}

/// A set of entry indexes of one stack. Equal sets have equal bytes.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct EntrySet(Vec<u8>);

impl EntrySet {
    /// Reads a set from the store: bit *i* of byte *n* is entry 8 *n* + *i*.
    pub fn stored(mut bytes: Vec<u8>) -> Self {
        let used = bytes.iter().rposition(|byte| *byte != 0);
        bytes.truncate(used.map_or(0, |last| last + 1));
        Self(bytes)
    }

    /// Returns the set for the store, without trailing zero bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.0
    }

    /// Returns whether the set contains the entry.
    pub fn contains(&self, index: u32) -> bool {
        let byte = self.0.get(index as usize / 8);
        byte.is_some_and(|byte| byte & (1 << (index % 8)) != 0)
    }

    fn set(&mut self, index: u32, is_in: bool) {
        let (byte_index, bit) = (index as usize / 8, 1 << (index % 8));
        if is_in {
            if self.0.len() <= byte_index {
                self.0.resize(byte_index + 1, 0);
            }
            self.0[byte_index] |= bit;
        } else if let Some(byte) = self.0.get_mut(byte_index) {
            *byte &= !bit;
            *self = Self::stored(std::mem::take(&mut self.0));
        }
    }
}

/// The marks of one stack, by entry index.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct StackMarks {
    /// Seen entries, including the read ones.
    pub seen: EntrySet,
    /// Read entries.
    pub read: EntrySet,
    /// Archived entries.
    pub archived: EntrySet,
}

/// The inbox of a user.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Inbox {
    /// The owner.
    pub user: UserId,
    /// The revision for compare-and-set; `None` if there is no stored record.
    pub revision: Option<Id>,
    /// The time of the last change.
    pub changed: DateTime<Utc>,
    /// The marks by stack. All entries of a missing stack are unseen.
    pub stacks: BTreeMap<StackId, StackMarks>,
}

impl Inbox {
    /// Creates the inbox of a user who has marked nothing.
    pub fn empty(user: UserId) -> Self {
        Self { user, revision: None, changed: DateTime::UNIX_EPOCH, stacks: BTreeMap::new() }
    }

    /// Returns the state of the item whose oldest position this is.
    pub fn state(&self, position: Position) -> ItemState {
        self.item_marks(position).state()
    }

    /// Marks items on these stacks, and drops the marks of days outside the window. Returns whether
    /// anything changed.
    pub fn mark(
        &mut self,
        user_stacks: &UserStacks,
        window: &DaySet,
        which: &MarkTargets,
        mark: Mark,
        now: DateTime<Utc>,
    ) -> bool {
        let before = self.stacks.clone();
        self.stacks.retain(|stack, _| window.contains(stack.day));
        let mut items: HashMap<(&EventType, &ObjectId), Vec<Position>> = HashMap::new();
        for (position, event) in user_stacks.stacks.iter().flat_map(Stack::events) {
            items.entry((&event.kind, &event.object)).or_default().push(position);
        }
        let named: HashSet<Position> = match which {
            MarkTargets::UpTo(..) => HashSet::new(),
            MarkTargets::Items(positions) => positions.iter().copied().collect(),
        };
        for ((kind, _), positions) in items {
            let oldest = positions[0];
            let is_selected = match which {
                MarkTargets::UpTo(cursor, kinds) => !cursor.is_before(oldest) && kinds.admits(kind),
                MarkTargets::Items(_) => positions.iter().any(|position| named.contains(position)),
            };
            let mut marks = self.item_marks(oldest);
            if is_selected {
                marks.mark(mark);
            }
            // Also copies the state of items that are not selected, because they may have new
            // positions.
            for position in positions {
                self.stacks.entry(position.stack).or_default().set(position.index, marks);
            }
        }
        self.stacks.retain(|_, marks| *marks != StackMarks::default());
        let has_changed = self.stacks != before;
        if has_changed {
            self.changed = now;
        }
        has_changed
    }

    fn item_marks(&self, position: Position) -> ItemMarks {
        self.stacks.get(&position.stack).map(|marks| marks.at(position.index)).unwrap_or_default()
    }
}

impl StackMarks {
    fn at(&self, index: u32) -> ItemMarks {
        ItemMarks {
            seen: self.seen.contains(index),
            read: self.read.contains(index),
            archived: self.archived.contains(index),
        }
    }

    fn set(&mut self, index: u32, marks: ItemMarks) {
        self.seen.set(index, marks.seen);
        self.read.set(index, marks.read);
        self.archived.set(index, marks.archived);
    }
}

/// The marks of one item.
#[derive(Debug, Clone, Copy, Default)]
struct ItemMarks {
    seen: bool,
    read: bool,
    archived: bool,
}

impl ItemMarks {
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
#[path = "feed_marks_tests.rs"]
mod tests;
