//! Selects the events of a user's feed, newest first, in pages that stay stable as events arrive.
//!
//! An item's id is its position and never changes. `before` an item selects older ones. A cursor
//! records the length of every stack, so `after` selects exactly the later pushes, even onto
//! yesterday's stack.

use std::fmt;
use std::str::FromStr;

use super::about;
use super::day::Day;
use super::item_state::StateFilter;
use super::name::{EventType, Invalid};
use super::object::Object;
use super::policy::{Category, Policies};
use super::stack::{EventAt, PersonStacks, Position, StackId};

/// The length of every stack when the feed was read, such as `c20140421.3-20140422.18`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor(Vec<(StackId, u32)>);

impl Cursor {
    /// Returns the cursor at the end of all stacks.
    pub fn at_end_of(person: &PersonStacks) -> Self {
        Self(
            person
                .stacks
                .iter()
                .map(|stack| (stack.id, stack.entries.len() as u32))
                .collect(),
        )
    }

    /// Returns whether these stacks still contain everything up to the cursor.
    pub fn is_within(&self, person: &PersonStacks) -> bool {
        let stands = |(id, n): &(StackId, u32)| {
            let mut stacks = person.stacks.iter();
            stacks.any(|stack| stack.id == *id && stack.entries.len() >= *n as usize)
        };
        self.0.iter().all(stands)
    }

    /// Truncates the stacks to their length at the cursor.
    pub fn cut(&self, person: &mut PersonStacks) {
        for stack in &mut person.stacks {
            let stood = self.0.iter().find(|(id, _)| *id == stack.id);
            let stood = stood.map_or(0, |(_, n)| *n as usize);
            stack.entries.truncate(stood);
        }
    }

    /// Returns whether the position lies beyond the cursor.
    pub fn is_before(&self, position: Position) -> bool {
        let seen = self
            .0
            .iter()
            .find(|(stack, _)| *stack == position.stack)
            .map_or(0, |(_, n)| *n);
        position.index >= seen
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("c")?;
        for (index, (stack, n)) in self.0.iter().enumerate() {
            let dash = if index > 0 { "-" } else { "" };
            write!(f, "{dash}{stack}.{n}")?;
        }
        Ok(())
    }
}

impl serde::Serialize for Cursor {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// The longest text of a cursor or page end, in bytes. A window has at most 61 days with two stacks
/// each, and its cursor is shorter.
pub(super) const MAX_TEXT: usize = 4_000;

impl FromStr for Cursor {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("cursor", text, "is not a cursor that a feed gave");
        let list = text.strip_prefix('c').ok_or_else(refuse)?;
        if text.len() > MAX_TEXT {
            return Err(refuse());
        }
        if list.is_empty() {
            return Ok(Self::default());
        }
        let part = |part: &str| {
            part.parse::<Position>()
                .map(|p| (p.stack, p.index))
                .map_err(|_| refuse())
        };
        let parts = list.split('-').map(part);
        parts.collect::<Result<_, _>>().map(Self)
    }
}

/// The part of a feed that a request selects.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Only items pushed since this cursor.
    pub after: Option<Cursor>,
    /// Only items older than this one. In a grouped feed, groups whose newest item is older.
    pub before: Option<Position>,
    /// Only items that existed at this cursor.
    pub stood: Option<Cursor>,
    /// Only events of these types.
    pub kinds: Kinds,
    /// Only items on this day.
    pub day: Option<Day>,
    /// Only items whose objects have this topic ([`super::about::key`]).
    pub about: Option<String>,
    /// Only items in these states.
    pub state: StateFilter,
}

/// A selection of event types; all by default.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kinds(Option<Vec<EventType>>);

impl Kinds {
    /// Selects one type, one category, or their intersection; all types if both are `None`. Only
    /// configured types have a category.
    pub fn of(only: Option<EventType>, category: Option<&Category>, policies: &Policies) -> Self {
        let Some(category) = category else {
            return Self(only.map(|kind| vec![kind]));
        };
        let is_asked = |kind: &&EventType| {
            only.as_ref().is_none_or(|only| only == *kind)
                && policies.of(kind).category.as_ref() == Some(category)
        };
        Self(Some(policies.kinds().filter(is_asked).cloned().collect()))
    }

    /// Returns whether the type is selected.
    pub fn admit(&self, kind: &EventType) -> bool {
        self.0.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }
}

impl Query {
    /// Returns whether the query selects events about this object.
    pub fn is_about(&self, object: &Object) -> bool {
        let asked = self.about.as_deref();
        asked.is_none_or(|asked| about::key(object) == *asked)
    }

    /// Returns whether these stacks contain everything up to the cursors of the query.
    pub fn is_within(&self, person: &PersonStacks) -> bool {
        let mut cursors = self.after.iter().chain(&self.stood);
        cursors.all(|cursor| cursor.is_within(person))
    }
}

/// Returns the selected events, newest first. The caller still has to apply `stood`, and to filter
/// by object, topic and state.
pub fn select<'a>(person: &'a PersonStacks, query: &Query) -> Vec<EventAt<'a>> {
    let mut events = person.events();
    events.retain(|item| {
        query
            .after
            .as_ref()
            .is_none_or(|cursor| cursor.is_before(item.position))
            && query.before.is_none_or(|before| item.position < before)
            && query.kinds.admit(&item.event.t)
            && query.day.is_none_or(|day| item.position.stack.day == day)
    });
    events.sort_by_key(|item| std::cmp::Reverse(item.position));
    events
}

#[cfg(test)]
#[path = "feed_tests.rs"]
mod tests;
