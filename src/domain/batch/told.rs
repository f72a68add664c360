//! Which of a batch's events its mail tells.
//!
//! The rule: while all kept events may be told, and are of different things, those that are only
//! counted are taken for the same; otherwise the stacks say what else had joined, and nothing is
//! merely counted.

use std::collections::HashSet;

use super::{Batch, Item};
use crate::domain::id::Id;
use crate::domain::stack::PersonStacks;

impl Batch {
    /// Whether the kept events and their number say what the mail tells, where these of them may
    /// be told; else [`Batch::all_of`] does.
    pub fn is_told_by_kept(&self, may_be_told: impl Fn(&Item) -> bool) -> bool {
        let items = &self.contents.items;
        if self.contents.more() == 0 {
            return true;
        }
        // Where one thing is kept twice, those that are only counted may be that thing as well.
        let things: HashSet<_> = items.iter().map(|item| (&item.t, &item.o)).collect();
        things.len() == items.len() && items.iter().all(may_be_told)
    }

    /// What had joined it: what stands on these stacks, without what was taken out, and what is
    /// kept. A day that is full has not stored all of it.
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
