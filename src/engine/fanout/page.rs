//! Builds the pages of a group: which users get which entries.
//!
//! A page covers all users up to the merge bound: the lowest id at which the read part of an
//! audience ends. Each user gets one push. Start with [`Page::cut`]; [`audience`] reads the users.

use std::collections::HashMap;

use crate::domain::{BadStack, Counts, Day, Defect, Fanout, Progress, UserId};
use crate::engine::fanout::audience;
use crate::store::{Directory, Pushed, Pushes, Result};

/// A fan-out and its position in its audience.
pub(super) struct Walk {
    pub fanout: Fanout,
    /// Users that were read and not pushed yet, ascending.
    pub people: Vec<UserId>,
    /// Where the next page of the audience starts.
    next: Option<UserId>,
    pub exhausted: bool,
    /// All users up to this one were pushed and counted.
    cursor: Option<UserId>,
    /// The counts since the last save.
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

    /// Reads pages until one contains users, or until there are no more.
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
            // A finished fan-out needs no cursor. Equal progress records are saved together.
            cursor: self.cursor.clone().filter(|_| !self.finished()),
            counts: self.fanout.progress.counts,
            done: self.finished(),
        }
    }
}

/// The pushes between two saves of the cursors, for all users up to the merge bound.
pub(super) struct Page {
    pub pushes: Pushes,
    /// For each list, the origin of its entries: (fan-out, number of entries).
    pub origins: Vec<Vec<(usize, usize)>>,
    /// The number of users, by fan-out.
    served: Vec<u64>,
    frontier: Option<UserId>,
}

impl Page {
    /// Takes the users up to the merge bound from each fan-out, and merges them into one push per
    /// user.
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
        // The sort is stable, so a user's fan-outs stay in order. The input consists of ascending
        // runs.
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

    /// Returns the documents that could not take entries.
    pub(super) fn bad_stacks(&self, day: Day, pushed: &Pushed) -> Vec<BadStack> {
        let bad = |(person, reason): &(usize, Defect)| BadStack {
            user: self.pushes.people[*person].0.clone(),
            day,
            reason: *reason,
        };
        pushed.bad.iter().map(bad).collect()
    }

    /// Adds the result of the push to each fan-out, and moves the cursors.
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
            // Without a merge bound, every audience was read to its end.
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

/// The distinct lists of entries of a page: one for each combination of fan-outs that share a user.
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
