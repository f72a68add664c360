//! Carries journal entries to the people they concern.
//!
//! The rule (P1, P2): a page is pushed, and its events have joined the batches of whoever gets them so, before the cursor moves past it; both
//! are harmless again, so a crash at any point loses nothing and doubles nothing. Fan-outs claimed together walk their audiences together, in the order of user ids: what
//! goes to the same person is one push. Read [`super::audience`] for how people are found.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::audience::{self, Page};
use super::batches::{Join, Joiner};
use super::crash;
use super::trouble::BadStacks;
use crate::clock::Clock;
use crate::domain::batch::{Item, SeatId};
use crate::domain::{
    BadStack, BatchPolicy, Counts, Day, Defect, Fanout, Id, Policies, Progress, Route, User, UserId,
};
use crate::store::{Directory, Journal, Pushed, Pushes, Result, Stacks};

/// How the work is cut.
#[derive(Debug, Clone, Copy)]
pub struct Settings {
    pub day_cap: usize,
    /// People between two saves of the cursors.
    pub page: usize,
    /// Fan-outs done together.
    pub merge: usize,
    pub lease: TimeDelta,
}

pub struct Fanouts {
    pub journal: Arc<dyn Journal>,
    pub stacks: Arc<dyn Stacks>,
    pub directory: Arc<dyn Directory>,
    pub joiner: Joiner,
    pub policies: Arc<Policies>,
    pub clock: Arc<dyn Clock>,
    pub owner: String,
    pub settings: Settings,
}

/// What one step did.
#[derive(Debug, Clone, PartialEq, Eq, Default, serde::Serialize)]
pub struct Done {
    /// Fan-outs that are finished now.
    pub fanouts: u64,
    pub counts: Counts,
    /// Documents that took no entries. What should stand there is counted as not stored; it is in batches all the same.
    #[serde(skip_serializing_if = "BadStacks::is_empty")]
    pub bad_stacks: BadStacks,
}

impl std::ops::AddAssign for Done {
    fn add_assign(&mut self, other: Self) {
        self.fanouts += other.fanouts;
        self.counts += other.counts;
        self.bad_stacks += other.bad_stacks;
    }
}

impl Fanouts {
    /// Claims what is pending and finishes it; `None` if there was nothing to claim.
    pub async fn step(&self, progress: &dyn super::Progress) -> Result<Option<Done>> {
        let now = self.clock.now();
        let claimed = self
            .journal
            .claim_fanouts(
                &self.owner,
                now,
                now + self.settings.lease,
                self.settings.merge,
            )
            .await?;
        if claimed.is_empty() {
            return Ok(None);
        }
        let mut done = Done::default();
        for (day, group) in self.groups(claimed) {
            done += self.carry(day, group, progress).await?;
        }
        Ok(Some(done))
    }

    /// Steps until nothing is left, or until somebody wants it to stop.
    pub async fn drain(&self, progress: &dyn super::Progress) -> Result<Done> {
        let mut all = Done::default();
        while !progress.stopping()
            && let Some(done) = self.step(progress).await?
        {
            all += done;
        }
        Ok(all)
    }

    /// What can be carried together: the same day, and no more entries a person than a day can take.
    fn groups(&self, claimed: Vec<Fanout>) -> Vec<(Day, Vec<Fanout>)> {
        let mut groups: Vec<(Day, Vec<Fanout>, usize)> = Vec::new();
        for fanout in claimed {
            let entries = fanout.objects.len();
            let fits = |group: &&mut (Day, Vec<Fanout>, usize)| {
                group.0 == fanout.day && group.2 + entries <= self.settings.day_cap
            };
            match groups.iter_mut().rev().find(fits) {
                Some(group) => {
                    group.2 += entries;
                    group.1.push(fanout);
                }
                None => groups.push((fanout.day, vec![fanout], entries)),
            }
        }
        groups
            .into_iter()
            .map(|(day, fanouts, _)| (day, fanouts))
            .collect()
    }

    /// Walks these fan-outs' audiences side by side and pushes page by page.
    async fn carry(
        &self,
        day: Day,
        fanouts: Vec<Fanout>,
        progress: &dyn super::Progress,
    ) -> Result<Done> {
        let mut walks: Vec<Walk> = fanouts.into_iter().map(Walk::new).collect();
        let mut done = Done::default();
        let limit = (self.settings.page / walks.len()).max(500);
        self.fill(&mut walks, limit).await?;
        while !walks.is_empty() && !progress.stopping() {
            let round = Round::cut(&mut walks);
            let people = round.pushes.people.iter();
            let people: Vec<UserId> = people.map(|(user, _)| user.clone()).collect();
            // Their records and the next pages are fetched while this one is pushed.
            let (pushed, users, ()) = futures::try_join!(
                self.stacks.push(day, self.settings.day_cap, &round.pushes),
                self.directory.users(&people),
                self.fill(&mut walks, limit)
            )?;
            crash::point("after-push");
            let joins = self.joins(&walks, &round, users);
            if !joins.is_empty() {
                self.joiner.join(joins).await?;
                crash::point("after-join");
            }
            progress.advance(round.pushes.people.len() as u64);
            done.bad_stacks.note(round.bad_stacks(day, &pushed));
            round.count(&mut walks, &pushed);
            done += self.save(&mut walks).await?;
        }
        Ok(done)
    }

    /// Who of this page gets its events in batches, or each at once, and how.
    fn joins(&self, walks: &[Walk], round: &Round, users: Vec<Option<User>>) -> Vec<Join> {
        let mut items: Vec<Option<Arc<[Item]>>> = vec![None; walks.len()];
        let mut joins = Vec::new();
        for ((_, list), user) in round.pushes.people.iter().zip(users) {
            // Of whom nothing is known, no address is known either.
            let Some(user) = user else { continue };
            for (walk, _) in &round.origins[*list] {
                let fanout = &walks[*walk].fanout;
                let Some(policy) = self.batched(&user, fanout) else {
                    continue;
                };
                let items = items[*walk].get_or_insert_with(|| brings(fanout));
                joins.push(Join {
                    seat: SeatId {
                        user: user.id.clone(),
                        key: fanout.batch_key(&self.policies),
                    },
                    items: Arc::clone(items),
                    policy,
                });
            }
        }
        joins
    }

    /// How a person's batches of this fan-out's type gather, if they get it so.
    fn batched(&self, user: &User, fanout: &Fanout) -> Option<BatchPolicy> {
        match user.route(&fanout.kind, fanout.at, &self.policies) {
            Route::Immediate => Some(BatchPolicy::IMMEDIATE),
            Route::Batch => Some(user.batch_policy(&fanout.kind, &self.policies)),
            Route::Never | Route::Digest => None,
        }
    }

    /// Fetches a page for every walk that has run out of people and has more.
    async fn fill(&self, walks: &mut [Walk], limit: usize) -> Result<()> {
        let hungry = walks
            .iter_mut()
            .filter(|walk| walk.people.is_empty() && !walk.exhausted);
        futures::future::try_join_all(hungry.map(|walk| walk.fetch(&self.directory, limit)))
            .await?;
        Ok(())
    }

    /// Saves all cursors; lets go of walks that are finished, or that somebody else has taken over.
    async fn save(&self, walks: &mut Vec<Walk>) -> Result<Done> {
        let until: DateTime<Utc> = self.clock.now() + self.settings.lease;
        let progress: Vec<(Id, Progress)> = walks
            .iter()
            .map(|walk| (walk.fanout.id, walk.progress()))
            .collect();
        let saved = self
            .journal
            .save_fanouts(&self.owner, until, &progress)
            .await?;
        let mut done = Done::default();
        let mut held = saved.into_iter();
        walks.retain_mut(|walk| {
            let held = held.next().unwrap_or(false);
            if held {
                done.counts += std::mem::take(&mut walk.unsaved);
                done.fanouts += u64::from(walk.finished());
            }
            held && !walk.finished()
        });
        Ok(done)
    }
}

/// What a fan-out brings to a batch.
fn brings(fanout: &Fanout) -> Arc<[Item]> {
    let item = |o: &_| Item {
        i: fanout.id,
        t: fanout.kind.clone(),
        o: Clone::clone(o),
    };
    fanout.objects.iter().map(item).collect()
}

/// A fan-out on its way through its audience.
struct Walk {
    fanout: Fanout,
    /// People fetched and not yet served, ascending.
    people: Vec<UserId>,
    /// Where the next page begins.
    next: Option<UserId>,
    exhausted: bool,
    /// Everybody up to here is served.
    cursor: Option<UserId>,
    /// What was counted since the last save.
    unsaved: Counts,
}

impl Walk {
    fn new(fanout: Fanout) -> Self {
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
    async fn fetch(&mut self, directory: &Arc<dyn Directory>, limit: usize) -> Result<()> {
        while self.people.is_empty() && !self.exhausted {
            let Page { people, next } =
                audience::page(directory, &self.fanout.audience, self.next.as_ref(), limit).await?;
            self.people = people;
            self.exhausted = next.is_none();
            self.next = next;
        }
        Ok(())
    }

    fn finished(&self) -> bool {
        self.exhausted && self.people.is_empty()
    }

    fn progress(&self) -> Progress {
        Progress {
            cursor: self.cursor.clone(),
            counts: self.fanout.progress.counts,
            done: self.finished(),
        }
    }
}

/// What is pushed between two saves: everybody up to where all walks know their people.
struct Round {
    pushes: Pushes,
    /// For each list, which walks its entries come from: (walk, entries).
    origins: Vec<Vec<(usize, usize)>>,
    /// People served, by walk.
    served: Vec<u64>,
    frontier: Option<UserId>,
}

impl Round {
    /// Takes off every walk the people up to the frontier, merged per person.
    fn cut(walks: &mut [Walk]) -> Self {
        let frontier = walks
            .iter()
            .filter(|walk| !walk.exhausted)
            .filter_map(|walk| walk.people.last())
            .min()
            .cloned();
        let taken: Vec<Vec<UserId>> = walks
            .iter_mut()
            .map(|walk| walk.take_until(frontier.as_ref()))
            .collect();
        let served = taken.iter().map(|people| people.len() as u64).collect();
        let mut lists = Lists {
            walks,
            pushes: Pushes::default(),
            origins: Vec::new(),
            known: HashMap::new(),
        };
        let mut heads: Vec<std::iter::Peekable<std::vec::IntoIter<UserId>>> = taken
            .into_iter()
            .map(|people| people.into_iter().peekable())
            .collect();
        let mut who: Vec<usize> = Vec::with_capacity(heads.len());
        while let Some(user) = heads
            .iter_mut()
            .filter_map(|head| head.peek())
            .min()
            .cloned()
        {
            who.clear();
            for (index, head) in heads.iter_mut().enumerate() {
                if head.next_if(|next| *next == user).is_some() {
                    who.push(index);
                }
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
    fn bad_stacks(&self, day: Day, pushed: &Pushed) -> Vec<BadStack> {
        let bad = |(person, reason): &(usize, Defect)| BadStack {
            user: self.pushes.people[*person].0.clone(),
            day,
            reason: *reason,
        };
        pushed.bad.iter().map(bad).collect()
    }

    /// Notes on every walk what the push came to.
    fn count(self, walks: &mut [Walk], pushed: &Pushed) {
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

/// The distinct lists of entries of a round: one for every combination of walks that share a person.
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
