//! Pushing: entries onto the stacks of one day, as many people a command as the server likes.
//!
//! The rule: any statement may be sent again, by anybody, and costs in proportion to what it adds.
//! A short list is added as whole values with `$addToSet`. A long one would be compared with all
//! that stands, entry by entry, so it is appended where nothing of its fan-outs stands yet. The cap
//! is a filter too. Whom a filter leaves out is looked at alone, and what is missing is appended if
//! the stack is still as long as it was seen. While most people have no stack yet, stacks are
//! inserted, which costs the server a tenth of an upsert; whoever has one is then pushed to.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::doc;
use mongodb::options::FindOptions;

use super::append::{Plan, Statement};
use super::bulk::{Outcome, STATEMENTS, Verb};
use super::decode::RawStack;
use super::encode::Writer;
use super::stacks::defect;
use super::{Known, Mongo, at_once};
use crate::domain::{Day, Defect, Stack, StackId, UserId};
use crate::store::{Pushed, Pushes, Result};

/// How many stacks are looked at one by one at the same time.
const LOOKS: usize = 8;
/// How many waves are on their way at the same time.
const WAVES: usize = 2;

/// One push on its way.
pub(super) struct Push<'a> {
    doing: String,
    store: &'a Mongo,
    day: Day,
    cap: usize,
    pushes: &'a Pushes,
    /// Adding each of the lists.
    lists: Vec<Statement>,
    /// Whether most people had no stack yet, when we last saw.
    fresh: AtomicBool,
    /// Whose document cannot take entries, whatever we do.
    bad: Mutex<BTreeMap<usize, Defect>>,
}

impl<'a> Push<'a> {
    /// Makes everything ready, the day as well.
    pub(super) async fn new(
        store: &'a Mongo,
        day: Day,
        cap: usize,
        pushes: &'a Pushes,
    ) -> Result<Self> {
        store.create_day(day).await?;
        let lists = pushes.lists.iter().map(|list| Statement::new(list, cap));
        let fresh = store.known(day).is_some_and(|known| known.fresh);
        Ok(Self {
            doing: format!("pushing onto the stacks of {day}"),
            store,
            day,
            cap,
            pushes,
            lists: lists.collect(),
            fresh: AtomicBool::new(fresh),
            bad: Mutex::default(),
        })
    }

    pub(super) async fn run(&self) -> Result<Pushed> {
        let everybody = (0..self.pushes.people.len())
            .filter(|item| !self.pushes.lists[self.pushes.people[*item].1].is_empty());
        let (whole, mut left): (Vec<usize>, Vec<usize>) =
            everybody.partition(|item| self.list(*item).fits);
        let mut refused = Vec::new();
        let waves: Vec<&[usize]> = whole.chunks(STATEMENTS).collect();
        let wave = |wave: usize| self.wave(waves[wave]);
        at_once(WAVES, 0..waves.len(), wave, |part| refused.extend(part)).await?;
        if !refused.is_empty() {
            // Most of these met somebody who was creating the same stack: that is over now.
            refused.sort_unstable();
            left.extend(self.add(&refused, |item| self.list(item)).await?.0);
        }
        if let Some(known) = self.store.known(self.day) {
            let fresh = self.fresh.load(Ordering::Relaxed);
            self.store.note(self.day, Known { fresh, ..known });
        }
        left.sort_unstable();
        self.one_by_one(left).await
    }

    fn list(&self, item: usize) -> &Statement {
        &self.lists[self.pushes.people[item].1]
    }

    /// Pushes these people's whole lists, and tells for whom that could not be done: somebody else
    /// created the stack at the same moment, or it has no room for the whole list.
    async fn wave(&self, people: &[usize]) -> Result<Vec<usize>> {
        let inserted;
        let standing = if self.fresh.load(Ordering::Relaxed) {
            inserted = self.insert(people).await?;
            // Up to a third: beyond that, finding out is dearer than what it saves.
            let fresh = inserted.len() * 3 <= people.len();
            self.fresh.store(fresh, Ordering::Relaxed);
            &inserted[..]
        } else {
            people
        };
        if standing.is_empty() {
            return Ok(Vec::new());
        }
        let (refused, created) = self.add(standing, |item| self.list(item)).await?;
        if standing.len() == people.len() {
            let fresh = created * 3 >= people.len() * 2;
            self.fresh.store(fresh, Ordering::Relaxed);
        }
        Ok(refused)
    }

    /// Gives these people a stack that holds their list, and tells who had one.
    async fn insert(&self, people: &[usize]) -> Result<Vec<usize>> {
        let encode = |writer: &mut Writer, item: usize| {
            writer.text("_id", self.pushes.people[item].0.as_str());
            writer.encoded_array("events", &self.list(item).entries);
        };
        let weigh = |item: usize| self.list(item).count as u64;
        self.refused(self.send(Verb::Insert, people, weigh, encode).await?)
    }

    /// Adds to these people's stacks, creating them as needed; tells whose have no room, or were
    /// being created by somebody else, and how many were created.
    async fn add<'s>(
        &self,
        people: &[usize],
        statement: impl Fn(usize) -> &'s Statement + Send + Sync,
    ) -> Result<(Vec<usize>, usize)> {
        let encode = |writer: &mut Writer, item: usize| {
            let statement = statement(item);
            writer.document("q");
            writer.text("_id", self.pushes.people[item].0.as_str());
            writer.fields(&statement.condition);
            writer.close();
            writer.encoded("u", &statement.update);
            writer.flag("upsert", true);
        };
        let weigh = |item: usize| statement(item).weight;
        let outcome = self.send(Verb::Update, people, weigh, encode).await?;
        let created = outcome.created;
        Ok((self.refused(outcome)?, created))
    }

    async fn send(
        &self,
        verb: Verb,
        people: &[usize],
        weigh: impl Fn(usize) -> u64 + Send,
        encode: impl Fn(&mut Writer, usize) + Send,
    ) -> Result<Outcome> {
        let targets = vec![(self.day.collection(), people.to_vec())];
        self.store
            .bulk_weighed(&self.doing, verb, targets, weigh, encode)
            .await
    }

    /// Whose statements met a stack that stands. A document that takes no entries spoils its
    /// owner's day only: it is noted, and reported as full.
    fn refused(&self, mut outcome: Outcome) -> Result<Vec<usize>> {
        outcome.refused.retain(|refused| {
            let defect = defect(&refused.failure);
            defect.is_none_or(|defect| {
                self.note_bad(refused.item, defect);
                false
            })
        });
        let refused = outcome.duplicates(&self.doing)?;
        Ok(refused.into_iter().map(|refused| refused.item).collect())
    }

    fn bad(&self) -> MutexGuard<'_, BTreeMap<usize, Defect>> {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_bad(&self, item: usize, defect: Defect) {
        self.bad().insert(item, defect);
    }

    /// Looks at each of these stacks, adds what is missing as far as there is room, and looks again
    /// until nothing is left to add. Others may push meanwhile: then a look more is needed, and as
    /// a stack can only grow up to the cap, it ends.
    async fn one_by_one(&self, mut people: Vec<usize>) -> Result<Pushed> {
        let mut capped = Vec::new();
        while !people.is_empty() {
            let look = |item: usize| self.look(item);
            let mut additions = Vec::new();
            at_once(LOOKS, people, look, |(item, plan)| {
                if !plan.add.is_empty() {
                    additions.push((item, Statement::at(plan.length, &plan.add)));
                } else if !plan.capped.is_empty() {
                    capped.push((item, plan.capped));
                }
            })
            .await?;
            additions.sort_unstable_by_key(|(item, _)| *item);
            people = additions.iter().map(|(item, _)| *item).collect();
            let addition = |item| {
                let place = additions.binary_search_by_key(&item, |(item, _)| *item);
                &additions[place.expect("every item has an addition")].1
            };
            // A duplicate here is a stack that grew since we looked: the next look tells.
            self.add(&people, addition).await?;
            let bad = self.bad();
            people.retain(|item| !bad.contains_key(item));
        }
        let bad: Vec<(usize, Defect)> = self.bad().iter().map(|bad| (*bad.0, *bad.1)).collect();
        let all = |item: usize| (0..self.pushes.lists[self.pushes.people[item].1].len()).collect();
        capped.extend(bad.iter().map(|(item, _)| (*item, all(*item))));
        capped.sort_unstable();
        Ok(Pushed { capped, bad })
    }

    /// Finds out what is still to be done for one person.
    async fn look(&self, item: usize) -> Result<(usize, Plan)> {
        let (user, list) = &self.pushes.people[item];
        let stack = self.store.stack(self.day, user).await?;
        if let Some(defect @ (Defect::NoList | Defect::Unreadable)) = stack.defect {
            self.note_bad(item, defect);
            return Ok((item, Plan::default()));
        }
        let plan = Plan::of(&self.pushes.lists[*list], &stack.entries, self.cap);
        Ok((item, plan))
    }
}

impl Mongo {
    /// What stands on the stack that we write to.
    async fn stack(&self, day: Day, user: &UserId) -> Result<Stack> {
        let id = StackId::of(day);
        let doing = format!("reading a stack of {day}");
        let (own, options) = (doc! {"_id": user.as_str()}, FindOptions::default());
        let found = self
            .find_raw(&doing, &day.collection(), &own, options)
            .await?;
        let found = found.first().map(|found| RawStack::read(found.as_bytes()));
        Ok(match found {
            None => Stack::new(id, Vec::new()),
            Some(Ok(Some(stack))) => stack.stack(id),
            Some(Ok(None) | Err(_)) => Stack {
                defect: Some(Defect::Unreadable),
                ..Stack::new(id, Vec::new())
            },
        })
    }
}
