//! Encodes the addition of entries to a stack as a filter and an update that take effect once.
//!
//! The filter states which stack the update applies to, so any process may send a statement again.
//! Its cost is proportional to the entries it adds. [`super::push`] sends the statements.

use std::collections::{BTreeSet, HashSet};

use super::encode::Writer;
use crate::domain::{Entry, Event, Id};

/// The maximum length of a short list. Comparing it with the stack costs less than finding out
/// whether the stack has entries of its fan-outs.
pub(super) const SHORT: usize = 4;

/// The statement that adds a list. It is encoded once for all users who get the list.
pub(super) struct Statement {
    /// The filter on the stack, besides its `_id`, as encoded fields.
    pub condition: Vec<u8>,
    /// Whether the list fits under the cap at all.
    pub fits: bool,
    /// The number of entries it adds.
    pub count: usize,
    /// The weight of the statement, see [`super::bulk`].
    pub weight: u64,
    pub update: Vec<u8>,
    /// The entries as an encoded array.
    pub entries: Vec<u8>,
}

impl Statement {
    /// Adds a whole list if there is room for it. Applies to any user, and can be repeated.
    pub(super) fn new(list: &[Event], cap: usize) -> Self {
        let (count, entries) = encode(list);
        let standing = cap.saturating_sub(count);
        let ids: BTreeSet<Id> = list.iter().filter_map(|event| event.i).collect();
        let is_short = count <= SHORT || list.iter().any(|event| event.i.is_none());
        let mut condition = Writer::new();
        condition.document(format!("events.{standing}").as_str());
        condition.flag("$exists", false);
        condition.close();
        if !is_short {
            condition.document("events.i");
            condition.array("$nin");
            for (n, id) in ids.into_iter().enumerate() {
                condition.id(n, id);
            }
            condition.close();
            condition.close();
        }
        // The entries that the server moves or compares if the stack has reached the cap.
        let touched = if is_short { cap * count } else { cap + count };
        Self {
            condition: condition.finish().into_bytes(),
            fits: count <= cap,
            count,
            weight: touched as u64,
            update: update(if is_short { "$addToSet" } else { "$push" }, &entries),
            entries,
        }
    }

    /// Appends to a stack of exactly this length. A missing stack has length 0.
    pub(super) fn at(length: usize, list: &[Event]) -> Self {
        let (count, entries) = encode(list);
        let mut condition = Writer::new();
        let places = [(length, false), (length.wrapping_sub(1), true)];
        for (place, exists) in places.into_iter().take(1 + length.min(1)) {
            condition.document(format!("events.{place}").as_str());
            condition.flag("$exists", exists);
            condition.close();
        }
        Self {
            condition: condition.finish().into_bytes(),
            fits: true,
            count,
            weight: (length + count) as u64,
            update: update("$push", &entries),
            entries,
        }
    }
}

/// Returns the number of distinct entries, and the entries as an encoded array.
fn encode(list: &[Event]) -> (usize, Vec<u8>) {
    let mut once = HashSet::with_capacity(list.len());
    let mut entries = Writer::new();
    let mut count = 0;
    for event in list.iter().filter(|event| once.insert(*event)) {
        entries.event(count, event);
        count += 1;
    }
    (count, entries.finish().into_bytes())
}

/// Encodes `{operator: {events: {$each: entries}}}`.
fn update(operator: &str, entries: &[u8]) -> Vec<u8> {
    let mut update = Writer::new();
    update.document(operator);
    update.document("events");
    update.encoded_array("$each", entries);
    update.finish().into_bytes()
}

/// The remaining work for one user.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    /// The current length of the stack.
    pub length: usize,
    /// Missing entries that fit.
    pub add: Vec<Event>,
    /// Missing entries that do not fit, as indices into the list.
    pub capped: Vec<usize>,
}

impl Plan {
    pub(super) fn of(list: &[Event], entries: &[Entry], cap: usize) -> Self {
        let mut standing: HashSet<&Event> = entries
            .iter()
            .filter_map(|entry| match entry {
                Entry::Event(event) => Some(event),
                _ => None,
            })
            .collect();
        let mut missing = list
            .iter()
            .enumerate()
            .filter(|(_, event)| standing.insert(event));
        let length = entries.len();
        let room = cap.saturating_sub(length);
        let add = missing
            .by_ref()
            .take(room)
            .map(|(_, event)| event.clone())
            .collect();
        let capped = missing.map(|(index, _)| index).collect();
        Self {
            length,
            add,
            capped,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{EventType, ObjectId};

    fn event(o: &str) -> Event {
        Event {
            t: EventType::stored("T"),
            o: ObjectId::stored(o),
            i: Some(Id::from_bytes([1; 12])),
        }
    }

    #[test]
    fn missing_entries_are_appended_in_list_order_up_to_the_cap() {
        let list = ["a", "b", "c", "d"].map(event);
        let existing = [Entry::Other, Entry::Event(event("b"))];
        let plan = Plan::of(&list, &existing, 4);
        assert_eq!(plan.add, [event("a"), event("c")]);
        assert_eq!(plan.capped, [3]);
        let full = Plan::of(&list, &existing, 2);
        assert_eq!((full.add.len(), full.capped), (0, vec![0, 2, 3]));
    }

    #[test]
    fn an_entry_listed_twice_is_appended_once() {
        let list = [event("a"), event("a")];
        let plan = Plan::of(&list, &[], 1);
        let expected = Plan {
            add: vec![event("a")],
            ..Plan::default()
        };
        assert_eq!(plan, expected);
    }

    /// Returns the filter as MongoDB's shell shows it.
    fn condition(statement: &Statement) -> String {
        bson::deserialize_from_slice::<bson::Document>(&statement.condition)
            .unwrap()
            .to_string()
    }

    #[test]
    fn a_statement_needs_space_for_its_whole_list() {
        let list = ["a", "b", "c"].map(event);
        let room = |n| format!(r#"{{ "events.{n}": {{ "$exists": false }} }}"#);
        assert_eq!(condition(&Statement::new(&list, 1_000)), room(997));
        assert_eq!(condition(&Statement::new(&list, 3)), room(0));
        assert!(Statement::new(&list, 3).fits && !Statement::new(&list, 2).fits);
        let twice = [event("a"), event("b"), event("a")];
        assert_eq!(condition(&Statement::new(&twice, 1_000)), room(998));
    }

    #[test]
    fn a_long_list_is_appended_if_no_entry_of_its_fan_outs_is_stored() {
        let list = ["a", "b", "c", "d", "e"].map(event);
        let long = Statement::new(&list, 1_000);
        let id = r#"ObjectId("010101010101010101010101")"#;
        let expected = format!(
            r#"{{ "events.995": {{ "$exists": false }}, "events.i": {{ "$nin": [{id}] }} }}"#
        );
        assert_eq!(condition(&long), expected);
        assert_eq!(long.weight, 1_005);
        assert_eq!(Statement::new(&list[..SHORT], 1_000).weight, 4_000);
    }

    #[test]
    fn missing_entries_are_appended_if_the_stack_length_is_unchanged() {
        let list = ["a"].map(event);
        let none = r#"{ "events.0": { "$exists": false } }"#;
        assert_eq!(condition(&Statement::at(0, &list)), none);
        let some = r#"{ "events.7": { "$exists": false }, "events.6": { "$exists": true } }"#;
        assert_eq!(condition(&Statement::at(7, &list)), some);
    }
}
