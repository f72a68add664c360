//! Determines which events of a batch its email includes.
//!
//! The kept events and the total suffice if all kept events may be included and have different
//! objects. Events that were only counted are then assumed to be like them. Otherwise the stacks
//! show all events that joined.

use std::collections::HashSet;

use super::{Batch, Item};
use crate::domain::id::Id;
use crate::domain::stack::PersonStacks;

impl Batch {
    /// Returns whether the kept events and the total suffice, given which events may be included.
    /// If not, call [`Batch::all_of`].
    pub fn is_complete(&self, may_be_included: impl Fn(&Item) -> bool) -> bool {
        let items = &self.contents.items;
        if self.contents.more() == 0 {
            return true;
        }
        // If an object is kept twice, the events that are only counted may repeat it too.
        let things: HashSet<_> = items.iter().map(|item| (&item.t, &item.o)).collect();
        things.len() == items.len() && items.iter().all(may_be_included)
    }

    /// Returns all events that joined: those on the stacks that were not removed, and the kept
    /// ones. Events that a full day did not store are missing, unless they were kept.
    pub fn all_of(&self, stacks: Option<&PersonStacks>) -> Vec<Item> {
        let own: HashSet<Id> = self.own_fanouts().collect();
        let taken: HashSet<&Item> = self.taken.iter().collect();
        let stacks = stacks.iter().flat_map(|person| &person.stacks);
        let events = stacks.flat_map(|stack| stack.events());
        let standing = events.filter_map(|(_, event)| {
            let i = event.i.filter(|i| own.contains(i))?;
            let (t, o) = (event.t.clone(), event.o.clone());
            Some(Item { i, t, o })
        });
        let mut items: Vec<Item> = standing.filter(|item| !taken.contains(item)).collect();
        let known: HashSet<&Item> = items.iter().collect();
        let kept = self.contents.items.iter();
        let unstored: Vec<Item> = kept.filter(|item| !known.contains(item)).cloned().collect();
        items.extend(unstored);
        items
    }
}
