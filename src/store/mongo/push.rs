//! Appends entries to the stacks of one day, with many users per command. See [`Push::run`].
//!
//! Any process may send a statement again; its filter enforces the cap. Short lists use
//! `$addToSet`. A long list would need too many comparisons, so it is appended, and only if the
//! stack has no entries of its fan-outs. Other stacks are read one by one, and get their missing
//! entries.

use std::collections::{BTreeMap, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::{Bson, Document, doc};
use mongodb::options::FindOptions;

use super::append::{Plan, SHORT, Statement};
use super::bulk::{Outcome, Verb, WEIGHT, defect, encode};
use super::decode::RawStack;
use super::encode::{STATEMENTS, Writer};
use super::neighbors::{MANY, TOGETHER, between};
use super::values::{oid, put};
use super::{Known, Layout, Mongo, at_once};
use crate::domain::{Day, Defect, Event, Stack, StackId, UserId};
use crate::store::{Error, Pushed, Pushes, Result};

/// The number of stacks that are read one by one at the same time.
const LOOKS: usize = 8;
/// The number of write batches in flight.
const WAVES: usize = 2;

/// A push in progress.
pub(super) struct Push<'a> {
    doing: String,
    store: &'a Mongo,
    day: Day,
    cap: usize,
    pushes: &'a Pushes,
    /// The statement for each list.
    lists: Vec<Statement>,
    /// Whether most users of the last write batch had no stack yet. Then stacks are inserted first,
    /// which costs the server a tenth of an upsert.
    mostly_new: AtomicBool,
    /// Whether nearly all of them had a stack with room. Then users with adjacent ids share
    /// statements, see [`super::neighbors`].
    mostly_standing: AtomicBool,
    /// Users, by index, whose documents cannot take entries.
    bad: Mutex<BTreeMap<usize, Defect>>,
}

impl<'a> Push<'a> {
    /// Creates the day if necessary, and encodes the statements.
    pub(super) async fn new(
        store: &'a Mongo,
        day: Day,
        cap: usize,
        pushes: &'a Pushes,
    ) -> Result<Self> {
        store.create_day(day).await?;
        let lists = pushes.lists.iter().map(|list| Statement::new(list, cap));
        let known = store.known(day);
        let mostly_new = known.is_some_and(|known| known.mostly_new);
        let mostly_standing = known.is_some_and(|known| known.mostly_standing);
        Ok(Self {
            doing: format!("pushing onto the stacks of {day}"),
            store,
            day,
            cap,
            pushes,
            lists: lists.collect(),
            mostly_new: AtomicBool::new(mostly_new),
            mostly_standing: AtomicBool::new(mostly_standing),
            bad: Mutex::default(),
        })
    }

    pub(super) async fn run(&self) -> Result<Pushed> {
        let everybody = (0..self.pushes.people.len())
            .filter(|item| !self.pushes.lists[self.pushes.people[*item].1].is_empty());
        let (fitting, mut left): (Vec<usize>, Vec<usize>) =
            everybody.partition(|item| self.list(*item).fits);
        let mut refused = Vec::new();
        let waves: Vec<&[usize]> = fitting.chunks(STATEMENTS).collect();
        let wave = |wave: usize| self.wave(waves[wave]);
        at_once(WAVES, 0..waves.len(), wave, |part| refused.extend(part)).await?;
        if !refused.is_empty() {
            // Most of these collided with another process that was creating the same stack. By now
            // it exists.
            refused.sort_unstable();
            left.extend(self.add(&refused, |item| self.list(item)).await?.0);
        }
        if let Some(known) = self.store.known(self.day) {
            let known = Known {
                mostly_new: self.mostly_new.load(Ordering::Relaxed),
                mostly_standing: self.mostly_standing.load(Ordering::Relaxed),
                ..known
            };
            self.store.note(self.day, known);
        }
        left.sort_unstable();
        self.one_by_one(left).await
    }

    fn list(&self, item: usize) -> &Statement {
        &self.lists[self.pushes.people[item].1]
    }

    /// Pushes whole lists to these users, and returns the users who did not get them. Either
    /// another process created the stack at the same moment, or the stack does not match the
    /// filter.
    async fn wave(&self, people: &[usize]) -> Result<Vec<usize>> {
        let inserted;
        let standing = if self.mostly_new.load(Ordering::Relaxed) {
            inserted = self.insert(people).await?;
            // Above a third, failed inserts cost more than the successful ones save.
            let mostly_new = inserted.len() * 3 <= people.len();
            self.mostly_new.store(mostly_new, Ordering::Relaxed);
            &inserted[..]
        } else {
            people
        };
        let alone = match self.mostly_standing.load(Ordering::Relaxed) {
            true => &self.add_to_neighbors(standing).await?,
            false => standing,
        };
        let (mut refused, mut created) = (Vec::new(), 0);
        if !alone.is_empty() {
            (refused, created) = self.add(alone, |item| self.list(item)).await?;
        }
        if standing.len() == people.len() {
            let mostly_new = created * 3 >= people.len() * 2;
            self.mostly_new.store(mostly_new, Ordering::Relaxed);
        }
        // Above a twentieth, finding the users that shared statements missed costs more than they
        // save.
        let mostly_standing = (created + refused.len()) * 20 <= standing.len();
        self.mostly_standing
            .store(mostly_standing, Ordering::Relaxed);
        Ok(refused)
    }

    /// Adds to users who get the same list and have adjacent ids, with few statements. Returns the
    /// users who still need a statement of their own.
    async fn add_to_neighbors(&self, people: &[usize]) -> Result<Vec<usize>> {
        let Some(known) = self.store.known(self.day) else {
            return Ok(people.to_vec());
        };
        let mut same: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for item in people {
            let list = self.pushes.people[*item].1;
            same.entry(list).or_default().push(*item);
        }
        let (mut left, mut parts) = (Vec::new(), Vec::new());
        for (list, group) in same {
            // A statement must not weigh more than a whole command may.
            let most = (WEIGHT / self.lists[list].weight.max(1)) as usize;
            let most = most.min(TOGETHER);
            let pays = group.len() >= MANY && most >= MANY && !self.store.is_routed().await?;
            if pays && self.is_close(&group, known.layout).await? {
                parts.extend(group.chunks(most).map(<[usize]>::to_vec));
            } else {
                left.extend(group);
            }
        }
        if !parts.is_empty() {
            left.extend(self.add_between(&parts).await?);
            left.sort_unstable();
        }
        Ok(left)
    }

    fn ids(&self, people: &[usize]) -> Vec<Bson> {
        let id = |item: &usize| Bson::from(self.pushes.people[*item].0.as_str());
        people.iter().map(id).collect()
    }

    /// An ordinary collection looks up each id, however far apart they are. If the day was
    /// recreated as a clustered one, the statement is slow but correct.
    async fn is_close(&self, people: &[usize], layout: Layout) -> Result<bool> {
        match layout {
            Layout::Ordinary => Ok(true),
            Layout::Clustered => {
                let (name, ids) = (self.day.collection(), self.ids(people));
                self.store.stand_close(&self.doing, &name, &ids).await
            }
        }
    }

    /// Adds to each group with one statement. Returns the users whose stacks lack some of the
    /// entries.
    async fn add_between(&self, parts: &[Vec<usize>]) -> Result<Vec<usize>> {
        let queries = parts.iter().map(|people| between(&self.ids(people)));
        let queries = encode(&self.doing, queries)?;
        let write = |writer: &mut Writer, part: usize| {
            let statement = self.list(parts[part][0]);
            writer.document("q");
            writer.fields(queries[part].as_bytes());
            writer.fields(&statement.condition);
            writer.close();
            writer.encoded("u", &statement.update);
            writer.flag("multi", true);
        };
        let weigh = |part: usize| self.list(parts[part][0]).weight * parts[part].len() as u64;
        let targets = vec![(self.day.collection(), (0..parts.len()).collect())];
        let written = self
            .store
            .bulk_weighed(&self.doing, Verb::Update, targets, weigh, write);
        let outcome = written.await?;
        for refused in &outcome.refused {
            // A document that cannot take entries ends its whole statement.
            if defect(&refused.failure).is_none() {
                return Err(Error::database(&self.doing, refused.failure.clone()));
            }
        }
        let all = parts.iter().map(Vec::len).sum::<usize>() as u64;
        if outcome.refused.is_empty() && outcome.n == all {
            return Ok(Vec::new());
        }
        // Some stacks are missing or full, or a repeated statement found its own entries.
        let mut left = Vec::new();
        for part in parts {
            left.extend(self.without_all(part).await?);
        }
        Ok(left)
    }

    /// Returns those of these users, who all get the same list, whose stacks lack some of its
    /// entries. If the server takes too long, returns all of them.
    async fn without_all(&self, people: &[usize]) -> Result<Vec<usize>> {
        let list = &self.pushes.lists[self.pushes.people[people[0]].1];
        let entry = |event: &Event| {
            let mut entry = doc! {"t": event.t.as_str(), "o": event.o.as_str()};
            put(&mut entry, "i", event.i.map(oid));
            entry
        };
        let all: Vec<Document> = list.iter().map(entry).collect();
        let mut query = between(&self.ids(people));
        if list.len() > SHORT {
            // This compares each stored entry once, for a list of any length.
            let holds = doc! {"$setIsSubset": [{"$literal": all}, "$events"]};
            let is_list = doc! {"$isArray": "$events"};
            query.insert("$expr", doc! {"$cond": [is_list, holds, false]});
        } else {
            query.insert("events", doc! {"$all": all});
            // A single entry in place of a list must not match.
            query.insert("events.0", doc! {"$exists": true});
        }
        let name = self.day.collection();
        let found = self.store.ids_if_soon(&self.doing, &name, &query);
        let Some(found) = found.await? else {
            return Ok(people.to_vec());
        };
        let found: HashSet<&str> = found.iter().filter_map(Bson::as_str).collect();
        let has = |item: &usize| found.contains(self.pushes.people[*item].0.as_str());
        Ok(people.iter().copied().filter(|item| !has(item)).collect())
    }

    /// Creates stacks with these users' lists. Returns the users who already had one.
    async fn insert(&self, people: &[usize]) -> Result<Vec<usize>> {
        let encode = |writer: &mut Writer, item: usize| {
            writer.text("_id", self.pushes.people[item].0.as_str());
            writer.encoded_array("events", &self.list(item).entries);
        };
        let weigh = |item: usize| self.list(item).count as u64;
        self.refused(self.send(Verb::Insert, people, weigh, encode).await?)
    }

    /// Adds to these users' stacks and creates missing ones. Returns the number of created stacks,
    /// and the users whose statements failed on an existing stack.
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

    /// Returns the items whose statements failed on an existing stack, in ascending order, as
    /// [`super::neighbors`] needs them. A document that cannot take entries affects only its owner:
    /// it is recorded, and reported as full.
    fn refused(&self, mut outcome: Outcome) -> Result<Vec<usize>> {
        outcome.refused.retain(|refused| {
            let defect = defect(&refused.failure);
            defect.is_none_or(|defect| {
                self.note_bad(refused.item, defect);
                false
            })
        });
        let refused = outcome.duplicates(&self.doing)?.into_iter();
        let mut refused: Vec<usize> = refused.map(|refused| refused.item).collect();
        refused.sort_unstable();
        Ok(refused)
    }

    fn bad(&self) -> MutexGuard<'_, BTreeMap<usize, Defect>> {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn note_bad(&self, item: usize, defect: Defect) {
        self.bad().insert(item, defect);
    }

    /// Reads each of these stacks and adds its missing entries while there is room, until none is
    /// left to add. Concurrent pushes cause more rounds. It ends, because a stack only grows up to
    /// the cap.
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
            // A duplicate means that the stack grew since it was read. The next round sees that.
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

    /// Reads a user's stack and plans what to add.
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
    /// Reads the stack that tidings writes to, which has a text `_id`.
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
