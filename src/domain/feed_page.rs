//! Selects the events of a user's feed, newest first, in pages that stay stable as events arrive.
//!
//! An item's id is its position and never changes. `before` an item selects older ones. A cursor
//! records the length of every stack, so `after` selects exactly the later pushes, even onto
//! yesterday's stack.

use std::collections::HashMap;
use std::fmt;
use std::str::FromStr;

use super::day::Day;
use super::day_stack::{Position, Stack, StackEvent, StackId, UserStacks, Watermarks, watermark};
use super::name::{EventType, InvalidValue, named_enum, serde_as_text};
use super::object::{Object, feed_topic};
use super::text_checks::Category;
use super::type_policy::Policies;

/// The length of every stack when the feed was read, such as `c20140421.3-20140422.18`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedCursor(Watermarks);

impl FeedCursor {
    /// Returns the cursor at the end of all stacks.
    pub fn at_end_of(user_stacks: &UserStacks) -> Self {
        let end = |stack: &Stack| (stack.id, stack.entries.len() as u32);
        Self(user_stacks.stacks.iter().map(end).collect())
    }

    /// Returns whether these stacks still contain everything up to the cursor.
    pub fn is_contained_in(&self, user_stacks: &UserStacks) -> bool {
        let exists = |(id, n): &(StackId, u32)| {
            user_stacks
                .stacks
                .iter()
                .any(|stack| stack.id == *id && stack.entries.len() >= *n as usize)
        };
        self.0.iter().all(exists)
    }

    /// Truncates the stacks to their length at the cursor.
    pub fn truncate(&self, user_stacks: &mut UserStacks) {
        for stack in &mut user_stacks.stacks {
            stack.entries.truncate(watermark(&self.0, stack.id) as usize);
        }
    }

    /// Returns whether the position lies beyond the cursor.
    pub fn is_before(&self, position: Position) -> bool {
        position.index >= watermark(&self.0, position.stack)
    }
}

impl fmt::Display for FeedCursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("c")?;
        for (index, (stack, n)) in self.0.iter().enumerate() {
            let dash = if index > 0 { "-" } else { "" };
            write!(f, "{dash}{stack}.{n}")?;
        }
        Ok(())
    }
}

/// The longest text of a cursor, in bytes. A window has at most 61 days with two stacks each, and
/// its cursor is shorter.
const MAX_TEXT: usize = 4_000;

serde_as_text!(FeedCursor);

impl FromStr for FeedCursor {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let refuse = || InvalidValue::new("cursor", text, "is not a cursor that a feed gave");
        let list = text.strip_prefix('c').ok_or_else(refuse)?;
        if text.len() > MAX_TEXT {
            return Err(refuse());
        }
        if list.is_empty() {
            return Ok(Self::default());
        }
        let parse = |part: &str| match part.parse::<Position>() {
            Ok(Position { stack, index }) => Ok((stack, index)),
            Err(_) => Err(refuse()),
        };
        list.split('-').map(parse).collect::<Result<_, _>>().map(Self)
    }
}

/// The part of a feed that a request selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct FeedQuery {
    /// Only items pushed since this cursor.
    pub after: Option<FeedCursor>,
    /// Only items older than this one. In a grouped feed, groups whose newest item is older. A
    /// group with a new item moves to the first page.
    pub before: Option<Position>,
    /// Only events of these types.
    pub kinds: KindFilter,
    /// Only items on this day.
    pub day: Option<Day>,
    /// Only items whose objects have this topic ([`super::object::feed_topic`]).
    pub topic: Option<String>,
    /// Only items in these states.
    pub state: StateFilter,
}

/// A selection of event types; all by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct KindFilter(Option<Vec<EventType>>);

impl KindFilter {
    /// Selects one type, one category, or their intersection; all types if both are `None`. Only
    /// configured types have a category.
    pub fn selecting(
        only: Option<EventType>,
        category: Option<&Category>,
        policies: &Policies,
    ) -> Self {
        let Some(category) = category else {
            return Self(only.map(|kind| vec![kind]));
        };
        let is_selected = |kind: &&EventType| {
            only.as_ref().is_none_or(|only| only == *kind)
                && policies.policy(kind).category.as_ref() == Some(category)
        };
        Self(Some(policies.kinds().filter(is_selected).cloned().collect()))
    }

    /// Returns whether the type is selected.
    pub fn admits(&self, kind: &EventType) -> bool {
        self.0.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }
}

impl FeedQuery {
    /// Returns whether the query selects events about this object.
    pub fn selects_object(&self, object: &Object) -> bool {
        self.topic.as_ref().is_none_or(|topic| feed_topic(object) == *topic)
    }

    /// Returns whether these stacks contain everything up to the cursor of the query.
    pub fn is_contained_in(&self, user_stacks: &UserStacks) -> bool {
        self.after.as_ref().is_none_or(|cursor| cursor.is_contained_in(user_stacks))
    }
}

/// Returns the selected events, newest first. The caller still has to filter by object, topic and
/// state.
pub fn select_events<'a>(user_stacks: &'a UserStacks, query: &FeedQuery) -> Vec<StackEvent<'a>> {
    let (mut events, after) = (user_stacks.events(), query.after.as_ref());
    events.retain(|item| {
        after.is_none_or(|cursor| cursor.is_before(item.position))
            && query.before.is_none_or(|before| item.position < before)
            && query.kinds.admits(&item.event.kind)
            && query.day.is_none_or(|day| item.position.stack.day == day)
    });
    events.sort_by_key(|item| std::cmp::Reverse(item.position));
    events
}

/// The identity of a group.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct GroupKey {
    /// The day of the items.
    pub day: Day,
    /// The event type.
    pub kind: EventType,
    /// The topic of the objects ([`super::object::feed_topic`]).
    pub topic: String,
}

/// Groups items that are ordered newest first. Groups and their items keep that order.
pub fn group_items<T>(items: impl IntoIterator<Item = (GroupKey, T)>) -> Vec<(GroupKey, Vec<T>)> {
    let mut index_by_key: HashMap<GroupKey, usize> = HashMap::new();
    let mut groups: Vec<(GroupKey, Vec<T>)> = Vec::new();
    for (key, item) in items {
        let index = *index_by_key.entry(key).or_insert_with_key(|key| {
            groups.push((key.clone(), Vec::new()));
            groups.len() - 1
        });
        groups[index].1.push(item);
    }
    groups
}

named_enum! {
    /// The state of an item for its reader, in the order of progress.
    ItemState("state") {
        /// Not shown yet.
        Unseen = "unseen",
        /// Shown.
        Seen = "seen",
        /// Opened, or marked as read.
        Read = "read",
        /// Archived. Feeds omit it unless the request asks for archived items.
        Archived = "archived",
    }
}

impl ItemState {
    /// Returns whether the item is neither read nor archived.
    pub fn is_unread(self) -> bool {
        self < Self::Read
    }
}

named_enum! {
    /// A filter for items by state.
    #[derive(Default)]
    StateFilter("state") {
        /// Items that are not archived: the default of feeds.
        #[default]
        Current = "current",
        /// Items that were not shown yet.
        Unseen = "unseen",
        /// Items that are neither read nor archived.
        Unread = "unread",
        /// Items that are read and not archived.
        Read = "read",
        /// Archived items.
        Archived = "archived",
        /// All items.
        All = "all",
    }
}

impl StateFilter {
    /// Returns whether an item in this state passes the filter.
    pub fn admits(self, state: ItemState) -> bool {
        match self {
            Self::Current => state != ItemState::Archived,
            Self::Unseen => state == ItemState::Unseen,
            Self::Unread => state.is_unread(),
            Self::Read => state == ItemState::Read,
            Self::Archived => state == ItemState::Archived,
            Self::All => true,
        }
    }
}

#[cfg(test)]
#[path = "feed_page_tests.rs"]
mod tests;
