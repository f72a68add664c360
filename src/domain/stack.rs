//! A person's stacks: what the window holds for them, what of it is covered, and what is pending.
//!
//! The rule: an array only ever grows at its end, so `(stack, index)` names an entry for ever, and
//! a marker's `n` counts entries from the front. What is covered can only grow. Everything that
//! mails or shows events asks here.

use std::collections::HashSet;
use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use foldhash::fast::RandomState;
use serde::Serialize;

use super::day::{Day, Window};
use super::event::{Entry, Event, Marker};
use super::id::Id;
use super::name::{EventType, Invalid, ObjectId, UserId};

/// How the document spells its `_id`: as text, as tidings writes it, or as an ObjectId, as some
/// older writers did.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Form {
    /// As some older writers have it; tidings reads such documents, and writes markers there.
    ObjectId,
    /// As tidings has it.
    Text,
}

/// Which document of a person: its day, and its form, as a day in which two writers met may hold
/// both.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StackId {
    /// The day whose collection holds it.
    pub day: Day,
    /// Which of the day's documents it is, where the person has two.
    pub form: Form,
}

impl StackId {
    /// The stack that tidings itself writes to on that day.
    pub fn of(day: Day) -> Self {
        Self {
            day,
            form: Form::Text,
        }
    }
}

impl fmt::Display for StackId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.form {
            Form::Text => write!(f, "{}", self.day),
            Form::ObjectId => write!(f, "{}o", self.day),
        }
    }
}

impl FromStr for StackId {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text.strip_suffix('o') {
            Some(day) => Ok(Self {
                day: day.parse()?,
                form: Form::ObjectId,
            }),
            None => Ok(Self {
                day: text.parse()?,
                form: Form::Text,
            }),
        }
    }
}

/// An entry's name for ever: `20140422.17` is the eighteenth entry of that day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Position {
    /// The document that the entry stands in.
    pub stack: StackId,
    /// 0 for the oldest entry; everything in the array counts, whatever it is.
    pub index: u32,
}

impl fmt::Display for Position {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.stack, self.index)
    }
}

impl Serialize for Position {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl FromStr for Position {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || {
            Invalid::new(
                "position",
                text,
                "is not written as YYYYMMDD.INDEX, such as 20140422.17",
            )
        };
        let (stack, index) = text.split_once('.').ok_or_else(refuse)?;
        // No array has a billion entries.
        if !(1..=9).contains(&index.len()) || !index.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse());
        }
        Ok(Self {
            stack: stack.parse().map_err(|_| refuse())?,
            index: index.parse().map_err(|_| refuse())?,
        })
    }
}

/// One document: a person's entries of one day, in the order they were pushed.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Stack {
    /// The document's day and form.
    pub id: StackId,
    /// As they stand in the array, oldest first; an entry's index is its position.
    pub entries: Vec<Entry>,
    /// What is wrong with the document, if anything is: then no mail is made of it.
    pub defect: Option<Defect>,
}

/// What other hands, or a broken disk, may have done to a document. It is its owner's trouble only.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Defect {
    /// Its `events` is something else than a list: nothing can be added, and nothing in it is
    /// mailed.
    NoList,
    /// Its bytes make no sense.
    Unreadable,
    /// It is as large as a document can be.
    NoRoom,
    /// The database refuses changes to it, by a rule of somebody else's.
    Refused,
}

impl Defect {
    /// What is wrong, as a clause for people; JSON says it in other words.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoList => "its events are no list",
            Self::Unreadable => "it cannot be read",
            Self::NoRoom => "it is too large to take anything more",
            Self::Refused => "a rule of the database refuses the change",
        }
    }
}

impl fmt::Display for Defect {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// A document that something could not be done with.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
pub struct BadStack {
    /// Whose document it is.
    pub user: UserId,
    /// The day it is of.
    pub day: Day,
    /// What is wrong with it.
    pub reason: Defect,
}

impl fmt::Display for BadStack {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "the stack of {} on {}: {}",
            self.user, self.day, self.reason
        )
    }
}

impl Stack {
    /// A stack as it should be.
    pub fn new(id: StackId, entries: Vec<Entry>) -> Self {
        Self {
            id,
            entries,
            defect: None,
        }
    }

    /// How many entries from the front are dealt with: the furthest that any marker covers.
    pub fn covered(&self) -> usize {
        covered(&self.entries)
    }

    /// All markers, oldest first.
    pub fn markers(&self) -> impl Iterator<Item = &Marker> {
        self.entries.iter().filter_map(|entry| match entry {
            Entry::Marker(marker) => Some(marker),
            Entry::Event(_) | Entry::Mailed(_) | Entry::Other => None,
        })
    }

    /// The marker that covered this entry first, if any does.
    pub fn covering(&self, index: u32) -> Option<&Marker> {
        self.entries.iter().enumerate().find_map(|(place, entry)| {
            let Entry::Marker(marker) = entry else {
                return None;
            };
            let covers = marker.n.map_or(place, |n| n as usize);
            ((index as usize) < covers).then_some(marker)
        })
    }

    /// Events that no marker covers and that were not mailed on their own, with their positions,
    /// oldest first.
    pub fn uncovered(&self) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        self.uncovered_from(self.covered())
    }

    /// Returns whether it has events that no marker covers and that were not mailed on their own.
    pub fn has_uncovered(&self) -> bool {
        self.uncovered().next().is_some()
    }

    /// Events that no marker covered when the marker of this id was written; if it was not, that no
    /// marker covers.
    fn uncovered_before(&self, own: Id) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        let is_own =
            |entry: &Entry| matches!(entry, Entry::Marker(marker) if marker.id == Some(own));
        let end = self.entries.iter().position(is_own);
        self.uncovered_from(covered(&self.entries[..end.unwrap_or(self.entries.len())]))
    }

    fn uncovered_from(&self, from: usize) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        let mailed = self.mailed();
        let is_mailed = move |event: &Event| event.i.is_some_and(|i| mailed.contains(&i));
        self.events_from(from)
            .filter(move |(_, event)| !is_mailed(event))
    }

    /// The fan-outs whose events were mailed on their own.
    pub fn mailed(&self) -> HashSet<Id> {
        let lists = self.entries.iter().filter_map(|entry| match entry {
            Entry::Mailed(mailed) => Some(&mailed.fanouts),
            Entry::Event(_) | Entry::Marker(_) | Entry::Other => None,
        });
        lists.flatten().copied().collect()
    }

    /// All events, with their positions, oldest first.
    pub fn events(&self) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        self.events_from(0)
    }

    fn events_from(&self, from: usize) -> impl DoubleEndedIterator<Item = (Position, &Event)> {
        let stack = self.id;
        self.entries
            .iter()
            .enumerate()
            .skip(from)
            .filter_map(move |(index, entry)| match entry {
                Entry::Event(event) => Some((
                    Position {
                        stack,
                        index: index as u32,
                    },
                    event,
                )),
                Entry::Marker(_) | Entry::Mailed(_) | Entry::Other => None,
            })
    }
}

/// How many entries from the front the markers among them cover.
///
/// `{flushed, n}` covers the first `n`, never more than there are; a bare `{flushed}` covers all
/// that stand before it.
pub fn covered(entries: &[Entry]) -> usize {
    let covers = |(index, entry): (usize, &Entry)| match entry {
        Entry::Marker(Marker { n: Some(n), .. }) => Some((*n as usize).min(entries.len())),
        Entry::Marker(Marker { n: None, .. }) => Some(index),
        Entry::Event(_) | Entry::Mailed(_) | Entry::Other => None,
    };
    entries
        .iter()
        .enumerate()
        .filter_map(covers)
        .max()
        .unwrap_or(0)
}

/// Up to where a mail covers each stack: stack and number of entries from the front.
pub type Watermarks = Vec<(StackId, u32)>;

/// A person's documents in a window, in the order of their days.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PersonStacks {
    /// Whose they are.
    pub user: UserId,
    /// Oldest day first; empty where they have none in the window.
    pub stacks: Vec<Stack>,
}

/// An event, with its place on the stacks and its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct EventAt<'a> {
    /// Where it stands: of repetitions, the oldest place.
    pub position: Position,
    /// As it stands on the stack.
    pub event: &'a Event,
    /// When it happened; the day's first moment where the event carries no time.
    pub at: DateTime<Utc>,
}

impl PersonStacks {
    /// Takes out the stacks that something is wrong with, and names them: what is mailed of them
    /// no marker could cover.
    pub fn set_aside_bad(&mut self) -> Vec<BadStack> {
        let mut bad = Vec::new();
        self.stacks.retain(|stack| {
            bad.extend(stack.defect.map(|reason| BadStack {
                user: self.user.clone(),
                day: stack.id.day,
                reason,
            }));
            stack.defect.is_none()
        });
        bad
    }

    /// Whether something stands at this place.
    pub fn holds(&self, place: Position) -> bool {
        let mut stacks = self.stacks.iter();
        stacks.any(|stack| stack.id == place.stack && (place.index as usize) < stack.entries.len())
    }

    /// Leaves out the events that are meant: their places stay, and hold nothing that anybody
    /// knows.
    pub fn leave_out(&mut self, meant: impl Fn(Position, &Event) -> bool) {
        for stack in &mut self.stacks {
            let stack_id = stack.id;
            for (index, entry) in stack.entries.iter_mut().enumerate() {
                let place = Position {
                    stack: stack_id,
                    index: index as u32,
                };
                if matches!(entry, Entry::Event(event) if meant(place, event)) {
                    *entry = Entry::Other;
                }
            }
        }
    }

    /// What no marker covers, each (type, object) once, at its oldest place; oldest first.
    pub fn pending(&self) -> Vec<EventAt<'_>> {
        self.pending_that(|_, _| true)
    }

    /// The same of those events that are to be kept, by what they are and whose day they are in.
    pub fn pending_that(&self, keep: impl Fn(&Event, Day) -> bool) -> Vec<EventAt<'_>> {
        unique(self.stacks.iter().flat_map(Stack::uncovered), keep)
    }

    /// What was pending of those to be kept when somebody noted these limits, and still is: for a
    /// mail that is built again. Its own markers, and those written after them, cover nothing of
    /// it: they stand where it was taken for mailed and turned out not to be.
    pub fn pending_within(
        &self,
        watermarks: &Watermarks,
        own: Id,
        keep: impl Fn(&Event, Day) -> bool,
    ) -> Vec<EventAt<'_>> {
        let limit = |stack: StackId| {
            watermarks
                .iter()
                .find(|(id, _)| *id == stack)
                .map_or(0, |(_, n)| *n)
        };
        let uncovered = self
            .stacks
            .iter()
            .flat_map(|stack| stack.uncovered_before(own))
            .filter(|(position, _)| position.index < limit(position.stack));
        unique(uncovered, keep)
    }

    /// Whether the marker of this id stands on any of them.
    pub fn hold_marker(&self, id: Id) -> bool {
        let is_it = |entry: &Entry| matches!(entry, Entry::Marker(marker) if marker.id == Some(id));
        self.stacks
            .iter()
            .any(|stack| stack.entries.iter().any(is_it))
    }

    /// Whether any of them says that a batch with this marker was mailed.
    pub fn are_mailed_by(&self, id: Id) -> bool {
        let is_it = |entry: &Entry| matches!(entry, Entry::Mailed(mailed) if mailed.id == id);
        self.stacks
            .iter()
            .any(|stack| stack.entries.iter().any(is_it))
    }

    /// Every event of the window, each (type, object) once, at its oldest place; oldest first.
    pub fn events(&self) -> Vec<EventAt<'_>> {
        unique(self.stacks.iter().flat_map(Stack::events), |_, _| true)
    }

    /// The same, of these days alone.
    pub fn within(&self, window: &Window) -> Self {
        let stacks = self.stacks.iter();
        let stacks = stacks.filter(|stack| window.contains(stack.id.day));
        Self {
            user: self.user.clone(),
            stacks: stacks.cloned().collect(),
        }
    }

    /// How far each stack that has uncovered events reaches now: what a mail built from this would
    /// cover.
    pub fn covers(&self) -> Watermarks {
        let open = |stack: &&Stack| stack.has_uncovered();
        self.stacks
            .iter()
            .filter(open)
            .map(|stack| (stack.id, stack.entries.len() as u32))
            .collect()
    }
}

/// Below this many events a scan of those already kept is faster than hashing.
const FEW: usize = 8;

/// Those to be kept, each (type, object) once: what is not kept must not stand for what happened to
/// the same thing later.
fn unique<'a>(
    events: impl Iterator<Item = (Position, &'a Event)>,
    keep: impl Fn(&Event, Day) -> bool,
) -> Vec<EventAt<'a>> {
    let mut kept: Vec<EventAt<'a>> = Vec::new();
    let mut seen: HashSet<(&ObjectId, &EventType), RandomState> = HashSet::default();
    for (position, event) in events {
        if !keep(event, position.stack.day) {
            continue;
        }
        if kept.len() < FEW {
            let mut kept = kept.iter().map(|kept| kept.event);
            if kept.any(|kept| kept.o == event.o && kept.t == event.t) {
                continue;
            }
        } else {
            if seen.is_empty() {
                seen.extend(kept.iter().map(|kept| (&kept.event.o, &kept.event.t)));
            }
            if !seen.insert((&event.o, &event.t)) {
                continue;
            }
        }
        kept.push(EventAt {
            position,
            event,
            at: event.at(position.stack.day),
        });
    }
    kept
}

#[cfg(test)]
#[path = "stack_tests.rs"]
mod tests;
