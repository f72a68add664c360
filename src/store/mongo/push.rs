//! Appends entries to the stacks of one day, with many users per command. See [`Push::run`].
//!
//! Any process may send a statement again; its filter enforces the cap. Short lists use
//! `$addToSet`. A long list would need too many comparisons, so it is appended, and only if the
//! stack has no entries of its fan-outs. Other stacks are read one by one, and get their missing
//! entries.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use bson::raw::{CStr, CString, RawArrayBuf, cstr};
use bson::{Bson, RawBson, RawDocumentBuf, doc, rawdoc};

use super::Mongo;
use super::bulk::{BulkOutcome, CommandKind, STATEMENTS, WEIGHT, defect};
use super::grouped_updates::{TOGETHER, among};
use super::reads::{at_once, document};
use crate::domain::{Day, Defect, Entry, Event, Id, StackId};
use crate::store::entry::{StackDocument, event_document, object_id};
use crate::store::{Pushed, Pushes, Result};

/// The number of stacks that are read one by one at the same time.
const READS: usize = 8;
/// The number of write batches in flight.
const WRITES: usize = 2;
/// The maximum length of a short list. Comparing it with the stack costs less than finding out
/// whether the stack has entries of its fan-outs.
const SHORT: usize = 4;

/// A push in progress.
pub(super) struct Push<'a> {
    store: &'a Mongo,
    day: Day,
    collection: String,
    cap: usize,
    pushes: &'a Pushes,
    /// The statement for each list.
    lists: Vec<Statement>,
    /// Whether most users of the last write batch had no stack yet. Then stacks are inserted first,
    /// which costs the server a tenth of an upsert.
    mostly_new: AtomicBool,
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
        let mostly_new = store.known_days().get(&day) == Some(&true);
        Ok(Self {
            store,
            day,
            collection: day.collection(),
            cap,
            pushes,
            lists: lists.collect(),
            mostly_new: AtomicBool::new(mostly_new),
            bad: Mutex::default(),
        })
    }

    pub(super) async fn run(&self) -> Result<Pushed> {
        let all = (0..self.pushes.people.len()).filter(|item| !self.events(*item).is_empty());
        let (fitting, mut left): (Vec<usize>, Vec<usize>) =
            all.partition(|item| self.list(*item).fits);
        let mut refused = Vec::new();
        let batches: Vec<&[usize]> = fitting.chunks(STATEMENTS).collect();
        let push = |batch: usize| self.push_batch(batches[batch]);
        at_once(WRITES, 0..batches.len(), push, |part| refused.extend(part)).await?;
        // Most of these collided with another process that was creating the same stack. By now it
        // exists.
        left.extend(self.add(refused, |item| self.list(item)).await?.0);
        if let Some(mostly_new) = self.store.known_days().get_mut(&self.day) {
            *mostly_new = self.mostly_new.load(Ordering::Relaxed);
        }
        left.sort_unstable();
        self.one_by_one(left).await
    }

    fn user(&self, item: usize) -> &str {
        self.pushes.people[item].0.as_str()
    }

    fn events(&self, item: usize) -> &[Event] {
        &self.pushes.lists[self.pushes.people[item].1]
    }

    fn list(&self, item: usize) -> &Statement {
        &self.lists[self.pushes.people[item].1]
    }

    /// Pushes whole lists to these users, and returns the users who did not get them. Either
    /// another process created the stack at the same moment, or the stack does not match the
    /// filter.
    async fn push_batch(&self, people: &[usize]) -> Result<Vec<usize>> {
        let is_insert = self.mostly_new.load(Ordering::Relaxed);
        let mut existing = people.to_vec();
        if is_insert {
            let insert = |item| self.list(item).insert(self.user(item));
            let (store, name) = (self.store, &self.collection);
            let inserted = store.bulk(CommandKind::Insert, name, existing, insert);
            existing = self.refused(inserted.await?)?;
        }
        let failed = existing.len();
        existing = self.add_together(existing).await?;
        let (refused, created) = self.add(existing, |item| self.list(item)).await?;
        // If more than a third of the inserts fail, they cost more than the others save.
        let mostly_new = match is_insert {
            true => failed * 3 <= people.len(),
            false => created * 3 >= people.len() * 2,
        };
        self.mostly_new.store(mostly_new, Ordering::Relaxed);
        Ok(refused)
    }

    /// Adds to stacks with one statement for many users, if few other stacks lie between theirs.
    /// Returns the users who did not get their list.
    ///
    /// Such a statement names a range of ids, because `$in` alone reads the whole clustered
    /// collection on MongoDB 6.0.
    async fn add_together(&self, people: Vec<usize>) -> Result<Vec<usize>> {
        let mut groups = BTreeMap::<usize, Vec<usize>>::new();
        for item in people {
            let list = self.pushes.people[item].1;
            groups.entry(list).or_default().push(item);
        }
        let mut left = Vec::new();
        for (list, group) in groups {
            left.extend(self.add_to_group(&self.lists[list], group).await?);
        }
        left.sort_unstable();
        Ok(left)
    }

    /// Adds a list to these users' stacks. Returns the users whose stacks lack entries.
    async fn add_to_group(&self, list: &Statement, mut group: Vec<usize>) -> Result<Vec<usize>> {
        group.sort_by_key(|item| self.user(*item));
        let users: Vec<&str> = group.iter().map(|item| self.user(*item)).collect();
        let size = WEIGHT / (self.cap * list.count).max(1) as u64;
        let size = size.clamp(1, TOGETHER as u64) as usize;
        let add = |part: &[&str]| {
            let weight = list.weight * part.len() as u64;
            (list.statement(among(part), cstr!("multi")), weight)
        };
        let (store, name) = (self.store, &self.collection);
        let Some(outcome) = store.update_together(name, &users, size, add).await? else {
            return Ok(group);
        };
        if outcome.refused.is_empty() && outcome.n == group.len() as u64 {
            return Ok(Vec::new());
        }
        // Some stacks are missing, full or unreadable, or a reply was lost.
        let mut stored = HashSet::new();
        for part in users.chunks(size) {
            let entries = rawdoc! {"$all": list.entries.clone()};
            let complete = document(&rawdoc! {"_id": among(part), "events": entries});
            let complete = complete.expect("valid BSON");
            stored.extend(store.find(name, complete).ids().await?);
        }
        group.retain(|item| !stored.contains(&Bson::from(self.user(*item))));
        Ok(group)
    }

    /// Adds to these users' stacks and creates missing ones. Returns the users whose statements
    /// failed on an existing stack, and the number of created stacks.
    async fn add<'s>(
        &self,
        people: Vec<usize>,
        statement: impl Fn(usize) -> &'s Statement + Send + Sync,
    ) -> Result<(Vec<usize>, usize)> {
        let add = |item: usize| statement(item).add(self.user(item));
        let outcome = self.store.bulk(CommandKind::Update, &self.collection, people, add);
        let outcome = outcome.await?;
        let created = outcome.created;
        Ok((self.refused(outcome)?, created))
    }

    /// Returns the items whose statements failed on an existing stack. A document that cannot take
    /// entries affects only its owner: it is recorded, and reported as full.
    fn refused(&self, mut outcome: BulkOutcome) -> Result<Vec<usize>> {
        outcome.refused.retain(|refused| {
            let defect = defect(&refused.failure);
            self.bad().extend(defect.map(|defect| (refused.item, defect)));
            defect.is_none()
        });
        let refused = outcome.duplicates()?.into_iter();
        Ok(refused.map(|refused| refused.item).collect())
    }

    fn bad(&self) -> MutexGuard<'_, BTreeMap<usize, Defect>> {
        self.bad.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Reads each of these stacks and adds its missing entries while there is room, until none is
    /// left to add. Concurrent pushes cause more rounds. It ends, because a stack only grows up to
    /// the cap.
    async fn one_by_one(&self, mut people: Vec<usize>) -> Result<Pushed> {
        let mut capped = Vec::new();
        while !people.is_empty() {
            let mut additions = BTreeMap::new();
            let plan = |item: usize| self.plan(item);
            at_once(READS, people, plan, |(item, plan)| {
                if !plan.add.is_empty() {
                    additions.insert(item, Statement::at(plan.length, &plan.add));
                } else if !plan.capped.is_empty() {
                    capped.push((item, plan.capped));
                }
            })
            .await?;
            people = additions.keys().copied().collect();
            // A duplicate means that the stack grew since it was read. The next round sees that.
            self.add(people.clone(), |item| &additions[&item]).await?;
            let bad = self.bad();
            people.retain(|item| !bad.contains_key(item));
        }
        let bad: Vec<(usize, Defect)> = self.bad().iter().map(|bad| (*bad.0, *bad.1)).collect();
        let all = |item: usize| (0..self.events(item).len()).collect();
        capped.extend(bad.iter().map(|(item, _)| (*item, all(*item))));
        capped.sort_unstable();
        Ok(Pushed { capped, bad })
    }

    /// Reads a user's stack, which has a text `_id`, and plans what to add.
    async fn plan(&self, item: usize) -> Result<(usize, Plan)> {
        let own = doc! {"_id": self.user(item)};
        let found = self.store.find(&self.collection, own).raw().await?;
        let (mut entries, mut defect) = (Vec::new(), None);
        if let Some(found) = found.first() {
            let stack = StackDocument::read(found.as_bytes()).ok().flatten();
            let stack = stack.map(|stack| stack.stack(StackId::of(self.day)));
            (entries, defect) = stack
                .map_or((entries, Some(Defect::Unreadable)), |stack| (stack.entries, stack.defect));
        }
        if let Some(defect @ (Defect::NoList | Defect::Unreadable)) = defect {
            self.bad().insert(item, defect);
            return Ok((item, Plan::default()));
        }
        Ok((item, Plan::of(self.events(item), &entries, self.cap)))
    }
}

/// The statement that adds a list. It is encoded once for all users who get the list.
struct Statement {
    /// The filter on the stack, besides its `_id`.
    condition: RawDocumentBuf,
    /// Whether the list fits under the cap at all.
    fits: bool,
    /// The weight of the statement, see [`super::bulk`].
    weight: u64,
    update: RawDocumentBuf,
    /// The entries that it adds, and their number.
    entries: RawArrayBuf,
    count: usize,
}

impl Statement {
    /// Adds a whole list if there is room for it. Applies to any user, and can be repeated.
    fn new(list: &[Event], cap: usize) -> Self {
        let count = list.len();
        let is_short = count <= SHORT || list.iter().any(|event| event.i.is_none());
        let mut condition = rawdoc! {};
        exists(&mut condition, cap.saturating_sub(count), false);
        if !is_short {
            let ids: BTreeSet<Id> = list.iter().filter_map(|event| event.i).collect();
            let ids = RawArrayBuf::from_iter(ids.into_iter().map(object_id));
            condition.append(cstr!("events.i"), rawdoc! {"$nin": ids});
        }
        // The entries that the server moves or compares if the stack has reached the cap.
        let (operator, weight) = match is_short {
            true => (cstr!("$addToSet"), cap * count),
            false => (cstr!("$push"), cap + count),
        };
        let fits = count <= cap;
        Self { fits, ..Self::of(condition, operator, list, weight) }
    }

    /// Appends to a stack of exactly this length. A missing stack has length 0.
    fn at(length: usize, list: &[Event]) -> Self {
        let mut condition = rawdoc! {};
        exists(&mut condition, length, false);
        if length > 0 {
            exists(&mut condition, length - 1, true);
        }
        Self::of(condition, cstr!("$push"), list, length + list.len())
    }

    fn of(condition: RawDocumentBuf, operator: &CStr, list: &[Event], weight: usize) -> Self {
        let entries = RawArrayBuf::from_iter(list.iter().map(event_document));
        let mut update = rawdoc! {};
        update.append(operator, rawdoc! {"events": {"$each": entries.clone()}});
        Self { condition, fits: true, weight: weight as u64, update, entries, count: list.len() }
    }

    /// Returns the document that creates a user's stack, and its weight.
    fn insert(&self, user: &str) -> (RawDocumentBuf, u64) {
        let mut stack = rawdoc! {"_id": user};
        stack.append(cstr!("events"), &self.entries);
        (stack, self.count as u64)
    }

    /// Returns the statement that adds the list to a user's stack, and its weight.
    fn add(&self, user: &str) -> (RawDocumentBuf, u64) {
        (self.statement(user, cstr!("upsert")), self.weight)
    }

    /// Returns an update statement for the stacks that match this `_id`, with an option.
    fn statement(&self, id: impl Into<RawBson>, option: &CStr) -> RawDocumentBuf {
        let mut q = rawdoc! {"_id": id};
        for (field, value) in self.condition.iter().flatten() {
            q.append(field, value);
        }
        let mut update = rawdoc! {"q": q};
        update.append(option, true);
        update.append(cstr!("u"), &self.update);
        update
    }
}

/// Requires that a stack has an entry at this position, or has none.
fn exists(condition: &mut RawDocumentBuf, position: usize, exists: bool) {
    let field = CString::try_from(format!("events.{position}"));
    condition.append(field.expect("no NUL"), rawdoc! {"$exists": exists});
}

/// The remaining work for one user.
#[derive(Debug, Default, PartialEq, Eq)]
struct Plan {
    /// The current length of the stack.
    length: usize,
    /// Missing entries that fit.
    add: Vec<Event>,
    /// Missing entries that do not fit, as indices into the list.
    capped: Vec<usize>,
}

impl Plan {
    fn of(list: &[Event], entries: &[Entry], cap: usize) -> Self {
        let events = entries.iter().filter_map(|entry| match entry {
            Entry::Event(event) => Some(event),
            _ => None,
        });
        let stored: HashSet<&Event> = events.collect();
        let all = list.iter().enumerate();
        let mut missing = all.filter(|(_, event)| !stored.contains(event));
        let length = entries.len();
        let room = cap.saturating_sub(length);
        let fitting = missing.by_ref().take(room);
        let add = fitting.map(|(_, event)| event.clone()).collect();
        let capped = missing.map(|(index, _)| index).collect();
        Self { length, add, capped }
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

    /// Returns the filter as MongoDB's shell shows it.
    fn condition(statement: &Statement) -> String {
        bson::Document::try_from(&*statement.condition).unwrap().to_string()
    }

    #[test]
    fn a_statement_needs_space_for_its_whole_list() {
        let list = ["a", "b", "c"].map(event);
        let room = |n| format!(r#"{{ "events.{n}": {{ "$exists": false }} }}"#);
        assert_eq!(condition(&Statement::new(&list, 1_000)), room(997));
        assert_eq!(condition(&Statement::new(&list, 3)), room(0));
        assert!(Statement::new(&list, 3).fits && !Statement::new(&list, 2).fits);
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
