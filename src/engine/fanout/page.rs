//! A page of fan-outs that walk their audiences together: who is served in it, and with what.
//!
//! The rule: everybody up to where all of them know their people is served, each person by one
//! push. Read [`super::super::fanout::audience`] for how people are found.

use std::collections::HashMap;

use crate::domain::{BadStack, Counts, Day, Defect, Fanout, Progress, UserId};
use crate::engine::fanout::audience;
use crate::store::{Directory, Pushed, Pushes, Result};

/// A fan-out on its way through its audience.
pub(super) struct Walk {
    pub fanout: Fanout,
    /// People fetched and not yet served, ascending.
    pub people: Vec<UserId>,
    /// Where the next page begins.
    next: Option<UserId>,
    pub exhausted: bool,
    /// Everybody up to here is served.
    cursor: Option<UserId>,
    /// What was counted since the last save.
    pub unsaved: Counts,
}

impl Walk {
    pub(super) fn new(fanout: Fanout) -> Self {
        let cursor = fanout.progress.cursor.clone();
        Self {
            people: Vec::new(),
            next: cursor.clone(),
            exhausted: false,
            cursor,
            unsaved: Counts::default(),
            fanout,
        }
    }

    /// Fetches pages until one has people in it, or there are no more.
    pub(super) async fn fetch(&mut self, directory: &dyn Directory, limit: usize) -> Result<()> {
        while self.people.is_empty() && !self.exhausted {
            let audience::Page { people, next } =
                audience::page(directory, &self.fanout.audience, self.next.as_ref(), limit).await?;
            self.people = people;
            self.exhausted = next.is_none();
            self.next = next;
        }
        Ok(())
    }

    pub(super) fn finished(&self) -> bool {
        self.exhausted && self.people.is_empty()
    }

    pub(super) fn progress(&self) -> Progress {
        Progress {
            // A finished one needs none; without it many are the same, and are saved together.
            cursor: self.cursor.clone().filter(|_| !self.finished()),
            counts: self.fanout.progress.counts,
            done: self.finished(),
        }
    }
}

/// What is pushed between two saves: everybody up to where all walks know their people.
pub(super) struct Page {
    pub pushes: Pushes,
    /// For each list, which walks its entries come from: (walk, entries).
    pub origins: Vec<Vec<(usize, usize)>>,
    /// People served, by walk.
    served: Vec<u64>,
    frontier: Option<UserId>,
}

impl Page {
    /// Takes off every walk the people up to the frontier, merged per person.
    pub(super) fn cut(walks: &mut [Walk]) -> Self {
        let frontier = walks
            .iter()
            .filter(|walk| !walk.exhausted)
            .filter_map(|walk| walk.people.last())
            .min()
            .cloned();
        let (mut taken, mut served) = (Vec::new(), Vec::with_capacity(walks.len()));
        for (index, walk) in walks.iter_mut().enumerate() {
            let people = walk.take_until(frontier.as_ref());
            served.push(people.len() as u64);
            taken.extend(people.into_iter().map(|user| (user, index)));
        }
        // Of ascending runs; of one person the walks stay in their order.
        taken.sort_by(|(user, _), (other, _)| user.cmp(other));
        let mut lists = Lists {
            walks,
            pushes: Pushes::default(),
            origins: Vec::new(),
            known: HashMap::new(),
        };
        let mut who: Vec<usize> = Vec::new();
        let mut taken = taken.into_iter().peekable();
        while let Some((user, walk)) = taken.next() {
            who.clear();
            who.push(walk);
            while let Some((_, walk)) = taken.next_if(|(next, _)| *next == user) {
                who.push(walk);
            }
            let list = lists.of(&who);
            lists.pushes.people.push((user, list));
        }
        let Lists {
            pushes, origins, ..
        } = lists;
        Self {
            pushes,
            origins,
            served,
            frontier,
        }
    }

    /// Whose documents took no entries.
    pub(super) fn bad_stacks(&self, day: Day, pushed: &Pushed) -> Vec<BadStack> {
        let bad = |(person, reason): &(usize, Defect)| BadStack {
            user: self.pushes.people[*person].0.clone(),
            day,
            reason: *reason,
        };
        pushed.bad.iter().map(bad).collect()
    }

    /// Notes on every walk what the push came to.
    pub(super) fn count(self, walks: &mut [Walk], pushed: &Pushed) {
        let mut capped = vec![0u64; walks.len()];
        for (person, entries) in &pushed.capped {
            let list = self.pushes.people[*person].1;
            for entry in entries {
                let mut first = 0;
                for (walk, count) in &self.origins[list] {
                    if (first..first + count).contains(entry) {
                        capped[*walk] += 1;
                    }
                    first += count;
                }
            }
        }
        for (index, walk) in walks.iter_mut().enumerate() {
            let people = self.served[index];
            let all = people * walk.fanout.objects.len() as u64;
            let counts = Counts {
                people,
                pushed: all - capped[index],
                capped: capped[index],
            };
            walk.unsaved += counts;
            walk.fanout.progress.counts += counts;
            // Without a frontier every walk was taken to its end.
            if let Some(frontier) = self
                .frontier
                .as_ref()
                .filter(|frontier| walk.cursor.as_ref() < Some(frontier))
            {
                walk.cursor = Some(frontier.clone());
            }
        }
    }
}

impl Walk {
    fn take_until(&mut self, frontier: Option<&UserId>) -> Vec<UserId> {
        let end = frontier.map_or(self.people.len(), |frontier| {
            self.people.partition_point(|user| user <= frontier)
        });
        let rest = self.people.split_off(end);
        std::mem::replace(&mut self.people, rest)
    }
}

/// The distinct lists of entries of a page: one for every combination of walks that share a
/// person.
struct Lists<'a> {
    walks: &'a [Walk],
    pushes: Pushes,
    origins: Vec<Vec<(usize, usize)>>,
    known: HashMap<Vec<usize>, usize>,
}

impl Lists<'_> {
    fn of(&mut self, who: &[usize]) -> usize {
        if let Some(list) = self.known.get(who) {
            return *list;
        }
        let events = who
            .iter()
            .flat_map(|walk| self.walks[*walk].fanout.events())
            .collect();
        self.pushes.lists.push(events);
        self.origins.push(
            who.iter()
                .map(|walk| (*walk, self.walks[*walk].fanout.objects.len()))
                .collect(),
        );
        self.known.insert(who.to_vec(), self.pushes.lists.len() - 1);
        self.pushes.lists.len() - 1
    }
}
