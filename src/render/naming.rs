//! Shortens the names and headings that emails show.
//!
//! All external text becomes one safe line of bounded length that fits a subject or heading.

use super::text::{clamp, clean, spaced};
use crate::domain::EventType;
use crate::domain::content::{Item, Person};

/// The longest title, in characters.
pub(super) const TITLE: usize = 140;
/// The longest other name, in characters.
pub(super) const NAME: usize = 80;
/// The longest quoted text, in characters.
pub(super) const SAID: usize = 280;
/// The longest name that shares a line with others, in characters.
pub(super) const SHORT: usize = 60;

/// Returns the text as one safe line of at most `max` characters. Reads only the first `4 * max`
/// characters, to bound the cost.
pub(super) fn short(text: &str, max: usize) -> String {
    let enough = text
        .char_indices()
        .nth(4 * max)
        .map_or(text.len(), |(at, _)| at);
    clamp(&clean(&text[..enough]), max).into_owned()
}

/// Like [`short`], but `None` if the result is empty.
pub(super) fn words(text: &str, max: usize) -> Option<String> {
    Some(short(text, max)).filter(|text| !text.is_empty())
}

/// Returns the title of an item's object, or the id if there is none.
pub(super) fn label(item: &Item, max: usize) -> String {
    let title = item.object.title.as_deref();
    title
        .and_then(|title| words(title, max))
        .unwrap_or_else(|| short(item.id.as_str(), max))
}

/// Returns the heading of a type. A type without a configured heading gets its name with spaces
/// between the words.
pub fn heading_of(heading: &str, kind: &EventType) -> String {
    if heading == kind.as_str() {
        short(&spaced(heading), NAME)
    } else {
        short(heading, NAME)
    }
}

/// Returns the noun for new events from an English heading: `new works` from `New works`.
pub(super) fn new_things(heading: &str) -> Option<String> {
    let rest = heading.strip_prefix("New ")?;
    Some(format!("new {rest}"))
}

/// Returns the noun for further events from an English heading: from `New works`, `more works`, or
/// `more work` for a count of 1. `None` if the heading does not start with `New ` or has no simple
/// singular.
pub(super) fn more_things(heading: &str, count: u64) -> Option<String> {
    let things = heading.strip_prefix("New ")?;
    if count != 1 {
        return Some(format!("more {things}"));
    }
    let singular = match things.strip_suffix("ies") {
        Some(stem) => format!("{stem}y"),
        None => {
            let stem = things.strip_suffix('s')?;
            // `boxes`, `classes` and `news` would come out wrong.
            let is_plain = !["s", "x", "z", "che", "she", "xe", "sse", "new"]
                .iter()
                .any(|end| stem.ends_with(end));
            is_plain.then(|| stem.to_owned())?
        }
    };
    Some(format!("more {singular}"))
}

/// The names that can represent an item in a subject.
#[derive(Debug, Clone)]
pub(super) struct Named<'a> {
    pub by: Option<Person>,
    pub title: Option<&'a str>,
    /// The number of events by that person, and the number with that title.
    pub events: (u64, u64),
}

impl Named<'_> {
    /// Returns the person, else the title, with the number of its events. If all events are by one
    /// person, returns the title.
    fn name(&self, by_one: bool) -> Option<(Person, u64)> {
        let by = self.by.clone().filter(|_| !by_one);
        let by = by.map(|by| (by, self.events.0));
        let title = || {
            let name = self.title?.to_owned();
            Some((Person { id: None, name }, self.events.1))
        };
        let (name, events) = by.or_else(title)?;
        let shown = words(&name.name, SHORT)?;
        let name = Person {
            name: shown,
            ..name
        };
        Some((name, events))
    }
}

/// Returns the number of events that these names represent.
pub(super) fn named(sections: &[Vec<Named<'_>>], names: &[Person], by_one: bool) -> u64 {
    let all = sections.iter().flatten();
    let events = all.filter_map(|item| {
        let (name, events) = item.name(by_one)?;
        names.iter().any(|one| one.is(&name)).then_some(events)
    });
    events.sum()
}

/// Returns the name of the one person behind all events; `None` if there are several, or if some
/// are unknown.
pub(super) fn by_all(
    mut all: impl Iterator<Item = Option<Person>>,
    all_known: bool,
) -> Option<String> {
    let by = all.next()??;
    let same = all.all(|other| other.is_some_and(|other| other.is(&by)));
    words(&by.name, NAME).filter(|_| same && all_known)
}

/// Returns names for a subject, taken from the sections in turn: three if there are three events,
/// else at most two.
pub(super) fn names(sections: &[Vec<Named<'_>>], total: u64, by_one: bool) -> Vec<Person> {
    const ROUNDS: usize = 12;
    let mut names: Vec<Person> = Vec::new();
    for n in 0..ROUNDS {
        for item in sections.iter().filter_map(|section| section.get(n)) {
            if let Some((name, _)) = item.name(by_one)
                && !names.iter().any(|one| one.is(&name))
            {
                names.push(name);
            }
            if names.len() == 3 {
                names.truncate(if total == 3 { 3 } else { 2 });
                return names;
            }
        }
    }
    names
}
