//! A person's feed: newest first, in pages that stay put while events arrive.
//!
//! The rule: an item's id is its position and never changes. `before` an item goes to older ones;
//! `after` a cursor, which notes how long every stack was, gives exactly what has been pushed
//! since, even onto yesterday's stack.

use std::fmt;
use std::str::FromStr;

use super::about;
use super::day::Day;
use super::item_state::StateFilter;
use super::name::{EventType, Invalid};
use super::object::Object;
use super::policy::{Category, Policies};
use super::stack::{EventAt, PersonStacks, Position, StackId};

/// How much of every stack a reader has seen: `c20140421.3-20140422.18`.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Cursor(Vec<(StackId, u32)>);

impl Cursor {
    /// All there is now.
    pub fn at_end_of(person: &PersonStacks) -> Self {
        Self(
            person
                .stacks
                .iter()
                .map(|stack| (stack.id, stack.entries.len() as u32))
                .collect(),
        )
    }

    /// Whether all that its reader had been shown stands on these stacks.
    pub fn is_within(&self, person: &PersonStacks) -> bool {
        let stands = |(id, n): &(StackId, u32)| {
            let mut stacks = person.stacks.iter();
            stacks.any(|stack| stack.id == *id && stack.entries.len() >= *n as usize)
        };
        self.0.iter().all(stands)
    }

    /// Leaves on these stacks what stood when the cursor was given.
    pub fn cut(&self, person: &mut PersonStacks) {
        for stack in &mut person.stacks {
            let stood = self.0.iter().find(|(id, _)| *id == stack.id);
            let stood = stood.map_or(0, |(_, n)| *n as usize);
            stack.entries.truncate(stood);
        }
    }

    /// Whether the reader had not seen this yet.
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

/// The longest text of a cursor, or of where a page ended, in bytes: one of 61 days with two
/// stacks each, the most that a window has, is shorter.
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

/// Which part of a feed is asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Query {
    /// Only what was pushed since this cursor was given.
    pub after: Option<Cursor>,
    /// Only what is older than this item, or groups that are older than their newest.
    pub before: Option<Position>,
    /// Only what stood when this cursor was given.
    pub stood: Option<Cursor>,
    /// Only events of these types.
    pub kinds: Kinds,
    /// Only items that stand on this day.
    pub day: Option<Day>,
    /// Only items whose objects are about this ([`super::about::key`]).
    pub about: Option<String>,
    /// Only items of these states.
    pub state: StateFilter,
}

/// Which types are meant: all, unless some were asked for.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Kinds(Option<Vec<EventType>>);

impl Kinds {
    /// This type, of this category; what is left out is not asked for. Only types that are
    /// configured have a category.
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

    /// Whether this type is meant.
    pub fn admit(&self, kind: &EventType) -> bool {
        self.0.as_ref().is_none_or(|kinds| kinds.contains(kind))
    }
}

impl Query {
    /// Whether what happened to this object is asked for.
    pub fn is_about(&self, object: &Object) -> bool {
        let asked = self.about.as_deref();
        asked.is_none_or(|asked| about::key(object) == *asked)
    }

    /// Whether these stacks hold all that the cursors were given for.
    pub fn is_within(&self, person: &PersonStacks) -> bool {
        let mut cursors = self.after.iter().chain(&self.stood);
        cursors.all(|cursor| cursor.is_within(person))
    }
}

/// The events asked for, newest first; whether their objects still apply, what these are about, and
/// of which state they are, is the caller's to ask.
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
