//! Names and headings as mails write them.
//!
//! The rule: whatever comes from outside is one harmless line of bounded length here, and stays
//! within what subjects and headings have room for.

use super::text::{clamp, clean, spaced};
use crate::domain::EventType;
use crate::domain::content::{Item, Person};

/// How long a title may be, in characters.
pub(super) const TITLE: usize = 140;
/// How long any other name may be.
pub(super) const NAME: usize = 80;
/// The most characters of what somebody said.
pub(super) const SAID: usize = 280;
/// How long a name may be that shares a line with others.
pub(super) const SHORT: usize = 60;

/// One harmless line of at most so many characters. Of endless texts only the beginning is looked
/// at.
pub(super) fn short(text: &str, max: usize) -> String {
    let enough = text
        .char_indices()
        .nth(4 * max)
        .map_or(text.len(), |(at, _)| at);
    clamp(&clean(&text[..enough]), max).into_owned()
}

/// The same, if anything is left of it.
pub(super) fn words(text: &str, max: usize) -> Option<String> {
    Some(short(text, max)).filter(|text| !text.is_empty())
}

/// The title of an item's object, or its id where there is none.
pub(super) fn label(item: &Item, max: usize) -> String {
    let title = item.object.title.as_deref();
    title
        .and_then(|title| words(title, max))
        .unwrap_or_else(|| short(item.id.as_str(), max))
}

/// What mails call a type; one that nobody gave a heading goes by its name, which is written for
/// programs.
pub fn heading_of(heading: &str, kind: &EventType) -> String {
    if heading == kind.as_str() {
        short(&spaced(heading), NAME)
    } else {
        short(heading, NAME)
    }
}

/// What things of an English heading are called after a number: `new works`, where it is `New
/// works`.
pub(super) fn new_things(heading: &str) -> Option<String> {
    let rest = heading.strip_prefix("New ")?;
    Some(format!("new {rest}"))
}

/// What further things of an English heading are called after a number: `more works`, or `more
/// work` for one, where it is `New works`. `None` for one thing that has no plain singular.
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

/// What an item can be named by in a subject.
#[derive(Debug, Clone)]
pub(super) struct Named<'a> {
    pub by: Option<Person>,
    pub title: Option<&'a str>,
    /// How many events the by-line names, and how many the title.
    pub events: (u64, u64),
}

impl Named<'_> {
    /// Its name, the by-line first unless all have the same, and how many events that names.
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

/// How many events these names are of.
pub(super) fn named(sections: &[Vec<Named<'_>>], names: &[Person], by_one: bool) -> u64 {
    let all = sections.iter().flatten();
    let events = all.filter_map(|item| {
        let (name, events) = item.name(by_one)?;
        names.iter().any(|one| one.is(&name)).then_some(events)
    });
    events.sum()
}

/// The one by-line of everything, if every single event is known to have it.
pub(super) fn by_all(
    mut all: impl Iterator<Item = Option<Person>>,
    all_known: bool,
) -> Option<String> {
    let by = all.next()??;
    let same = all.all(|other| other.is_some_and(|other| other.is(&by)));
    words(&by.name, NAME).filter(|_| same && all_known)
}

/// Names for a subject, from all sections in turn: three if that is everything, else two.
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
