//! Appends entries to the stacks of one day, with many users per command. See [`Push::run`].
//!
//! Every statement can be repeated. Its filter rejects a stack that has no room for the whole list.
//! Short lists use `$addToSet`. A long list would need too many comparisons, so it is appended, and
//! only if the stack has no entries of its fan-outs. Other stacks are read one by one, and get
//! their missing entries.

use std::collections::{BTreeMap, BTreeSet, HashSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

use bson::raw::{CStr, CString, RawArrayBuf, cstr};
use bson::{Bson, RawBson, RawDocumentBuf, doc, rawdoc};

use super::Mongo;
use super::bulk::{BulkOutcome, CommandKind, MAX_STATEMENTS, MAX_WEIGHT, defect};
use super::grouped_updates::{RECORDS_PER_STATEMENT, id_condition};
use super::reads::{decode, run_concurrently};
use crate::domain::{Day, Defect, Entry, Event, Id, StackId};
use crate::mutex::lock;
use crate::store::entry::{StackDocument, event_document, object_id};
use crate::store::{PushOutcome, PushRequest, Result};

/// The number of stacks that are read one by one at the same time.
const MAX_READS_IN_FLIGHT: usize = 8;
const MAX_BATCHES_IN_FLIGHT: usize = 2;
/// The maximum length of a short list. Comparing it with the stack costs less than finding out
/// whether the stack has entries of its fan-outs.
const MAX_SHORT_LIST: usize = 4;

/// A push in progress. Users are identified by their index in the [`PushRequest`].
pub(super) struct Push<'a> {
    store: &'a Mongo,
    day: Day,
    collection: String,
    cap: usize,
    pushes: &'a PushRequest,
    /// The statement for each list.
    statements: Vec<Statement>,
    /// Whether most users of the last write batch had no stack yet. Then stacks are inserted first,
    /// which costs the server a tenth of an upsert.
    is_mostly_new: AtomicBool,
    /// The users whose documents cannot take entries.
    defects: Mutex<BTreeMap<usize, Defect>>,
}

impl<'a> Push<'a> {
    /// Creates the day if necessary, and encodes the statements.
    pub(super) async fn new(
        store: &'a Mongo,
        day: Day,
        cap: usize,
        pushes: &'a PushRequest,
    ) -> Result<Self> {
        store.create_day(day).await?;
        let is_mostly_new = store.known_days().get(&day) == Some(&true);
        Ok(Self {
            store,
            day,
            collection: day.collection_name(),
            cap,
            pushes,
            statements: pushes.lists.iter().map(|list| Statement::new(list, cap)).collect(),
            is_mostly_new: AtomicBool::new(is_mostly_new),
            defects: Mutex::default(),
        })
    }

    /// Pushes whole lists in batches. Then reads the stacks that have no room for them, and adds
    /// the entries that fit.
    pub(super) async fn run(&self) -> Result<PushOutcome> {
        let users = (0..self.pushes.users.len()).filter(|user| !self.events(*user).is_empty());
        let (fitting, mut remaining): (Vec<usize>, Vec<usize>) =
            users.partition(|user| self.statement(*user).can_fit);
        let mut rejected = Vec::new();
        let batches: Vec<&[usize]> = fitting.chunks(MAX_STATEMENTS).collect();
        let push = |index: usize| self.push_batch(batches[index]);
        let collect = |users: Vec<usize>| rejected.extend(users);
        run_concurrently(MAX_BATCHES_IN_FLIGHT, 0..batches.len(), push, collect).await?;
        // Most of these collided with another process that was creating the same stack. By now it
        // exists.
        remaining.extend(self.upsert(rejected, |user| self.statement(user)).await?.0);
        if let Some(is_mostly_new) = self.store.known_days().get_mut(&self.day) {
            *is_mostly_new = self.is_mostly_new.load(Ordering::Relaxed);
        }
        remaining.sort_unstable();
        self.push_one_by_one(remaining).await
    }

    fn user_id(&self, user: usize) -> &str {
        self.pushes.users[user].0.as_str()
    }

    fn events(&self, user: usize) -> &[Event] {
        &self.pushes.lists[self.pushes.users[user].1]
    }

    fn statement(&self, user: usize) -> &Statement {
        &self.statements[self.pushes.users[user].1]
    }

    /// Pushes whole lists to these users, and returns the users who did not get them. Either
    /// another process created the stack at the same moment, or the stack does not match the
    /// filter.
    async fn push_batch(&self, users: &[usize]) -> Result<Vec<usize>> {
        let inserts_first = self.is_mostly_new.load(Ordering::Relaxed);
        let mut existing = users.to_vec();
        if inserts_first {
            let insert = |user| self.statement(user).insert(self.user_id(user));
            let (store, name) = (self.store, &self.collection);
            let outcome = store.send_all(CommandKind::Insert, name, existing, insert).await?;
            existing = self.rejected_users(outcome)?;
        }
        let failed = existing.len();
        existing = self.push_to_groups(existing).await?;
        let (rejected, created) = self.upsert(existing, |user| self.statement(user)).await?;
        // If more than a third of the inserts fail, they cost more than the others save.
        let is_mostly_new =
            if inserts_first { failed * 3 <= users.len() } else { created * 3 >= users.len() * 2 };
        self.is_mostly_new.store(is_mostly_new, Ordering::Relaxed);
        Ok(rejected)
    }

    /// Adds to stacks with one statement for many users, if few other stacks lie between theirs.
    /// Returns the users who did not get their list.
    ///
    /// Such a statement names a range of ids, because `$in` alone reads the whole clustered
    /// collection on MongoDB 6.0.
    async fn push_to_groups(&self, users: Vec<usize>) -> Result<Vec<usize>> {
        let mut users_by_list = BTreeMap::<usize, Vec<usize>>::new();
        for user in users {
            users_by_list.entry(self.pushes.users[user].1).or_default().push(user);
        }
        let mut remaining = Vec::new();
        for (list, users) in users_by_list {
            remaining.extend(self.push_to_group(&self.statements[list], users).await?);
        }
        remaining.sort_unstable();
        Ok(remaining)
    }

    /// Adds a list to these users' stacks. Returns the users whose stacks lack entries.
    async fn push_to_group(
        &self,
        statement: &Statement,
        mut users: Vec<usize>,
    ) -> Result<Vec<usize>> {
        users.sort_by_key(|user| self.user_id(*user));
        let ids: Vec<&str> = users.iter().map(|user| self.user_id(*user)).collect();
        let max_size = MAX_WEIGHT / (self.cap * statement.count).max(1) as u64;
        let size = max_size.clamp(1, RECORDS_PER_STATEMENT as u64) as usize;
        let update = |ids: &[&str]| {
            let weight = statement.weight * ids.len() as u64;
            (statement.update_statement(id_condition(ids), cstr!("multi")), weight)
        };
        let (store, name) = (self.store, &self.collection);
        let Some(outcome) = store.update_dense(name, &ids, size, update).await? else {
            return Ok(users);
        };
        if outcome.rejected.is_empty() && outcome.n == users.len() as u64 {
            return Ok(Vec::new());
        }
        // Some stacks are missing, full or unreadable, or a reply was lost.
        let mut complete = HashSet::new();
        for chunk in ids.chunks(size) {
            let entries = rawdoc! {"$all": statement.entries.clone()};
            let filter = decode(&rawdoc! {"_id": id_condition(chunk), "events": entries});
            complete.extend(store.find(name, filter.expect("valid BSON")).ids().await?);
        }
        users.retain(|user| !complete.contains(&Bson::from(self.user_id(*user))));
        Ok(users)
    }

    /// Adds to these users' stacks and creates missing ones. Returns the users whose statements
    /// failed on an existing stack, and the number of created stacks.
    async fn upsert<'s>(
        &self,
        users: Vec<usize>,
        statement: impl Fn(usize) -> &'s Statement + Send + Sync,
    ) -> Result<(Vec<usize>, usize)> {
        let upsert = |user: usize| statement(user).upsert(self.user_id(user));
        let (store, name) = (self.store, &self.collection);
        let outcome = store.send_all(CommandKind::Update, name, users, upsert).await?;
        let created = outcome.created;
        Ok((self.rejected_users(outcome)?, created))
    }

    /// Returns the users whose statements failed on an existing stack. A document that cannot take
    /// entries affects only its owner: it is recorded, and reported as full.
    fn rejected_users(&self, mut outcome: BulkOutcome) -> Result<Vec<usize>> {
        outcome.rejected.retain(|rejected| {
            let defect = defect(&rejected.failure);
            lock(&self.defects).extend(defect.map(|defect| (rejected.item, defect)));
            defect.is_none()
        });
        Ok(outcome.duplicates()?.into_iter().map(|rejected| rejected.item).collect())
    }

    /// Reads each of these stacks and adds its missing entries while there is room, until none is
    /// left to add. Concurrent pushes cause more rounds. It ends, because a stack only grows up to
    /// the cap.
    async fn push_one_by_one(&self, mut users: Vec<usize>) -> Result<PushOutcome> {
        let mut capped = Vec::new();
        while !users.is_empty() {
            let mut additions = BTreeMap::new();
            let plan = |user: usize| self.plan(user);
            run_concurrently(MAX_READS_IN_FLIGHT, users, plan, |(user, plan)| {
                if !plan.add.is_empty() {
                    additions.insert(user, Statement::append_at(plan.length, &plan.add));
                } else if !plan.capped.is_empty() {
                    capped.push((user, plan.capped));
                }
            })
            .await?;
            users = additions.keys().copied().collect();
            // A duplicate means that the stack grew since it was read. The next round sees that.
            self.upsert(users.clone(), |user| &additions[&user]).await?;
            let defects = lock(&self.defects);
            users.retain(|user| !defects.contains_key(user));
        }
        let bad: Vec<(usize, Defect)> =
            lock(&self.defects).iter().map(|(user, defect)| (*user, *defect)).collect();
        capped.extend(bad.iter().map(|(user, _)| (*user, (0..self.events(*user).len()).collect())));
        capped.sort_unstable();
        Ok(PushOutcome { capped, defects: bad })
    }

    /// Reads a user's stack, which has a text `_id`, and plans what to add.
    async fn plan(&self, user: usize) -> Result<(usize, Plan)> {
        let by_id = doc! {"_id": self.user_id(user)};
        let found = self.store.find(&self.collection, by_id).raw().await?;
        let (entries, defect) = match found.first().map(|raw| StackDocument::read(raw.as_bytes())) {
            None => (Vec::new(), None),
            Some(Ok(Some(document))) => {
                let stack = document.stack(StackId::for_day(self.day));
                (stack.entries, stack.defect)
            }
            Some(_) => (Vec::new(), Some(Defect::Unreadable)),
        };
        if let Some(defect @ (Defect::NoList | Defect::Unreadable)) = defect {
            lock(&self.defects).insert(user, defect);
            return Ok((user, Plan::default()));
        }
        Ok((user, Plan::new(self.events(user), &entries, self.cap)))
    }
}

/// The statement that adds a list. It is encoded once for all users who get the list.
struct Statement {
    /// The filter on the stack, besides its `_id`.
    condition: RawDocumentBuf,
    /// Whether the list fits under the cap at all.
    can_fit: bool,
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
        let uses_add_to_set =
            count <= MAX_SHORT_LIST || list.iter().any(|event| event.fanout_id.is_none());
        let mut condition = rawdoc! {};
        require_entry(&mut condition, cap.saturating_sub(count), false);
        // The weight is the number of entries that the server moves or compares if the stack has
        // reached the cap.
        let (operator, weight) = if uses_add_to_set {
            (cstr!("$addToSet"), cap * count)
        } else {
            let fanouts: BTreeSet<Id> = list.iter().filter_map(|event| event.fanout_id).collect();
            let ids = RawArrayBuf::from_iter(fanouts.into_iter().map(object_id));
            condition.append(cstr!("events.i"), rawdoc! {"$nin": ids});
            (cstr!("$push"), cap + count)
        };
        Self { can_fit: count <= cap, ..Self::encode(condition, operator, list, weight) }
    }

    /// Appends to a stack of exactly this length. A missing stack has length 0.
    fn append_at(length: usize, list: &[Event]) -> Self {
        let mut condition = rawdoc! {};
        require_entry(&mut condition, length, false);
        if length > 0 {
            require_entry(&mut condition, length - 1, true);
        }
        Self::encode(condition, cstr!("$push"), list, length + list.len())
    }

    fn encode(condition: RawDocumentBuf, operator: &CStr, list: &[Event], weight: usize) -> Self {
        let entries = RawArrayBuf::from_iter(list.iter().map(event_document));
        let mut update = rawdoc! {};
        update.append(operator, rawdoc! {"events": {"$each": entries.clone()}});
        Self { condition, can_fit: true, weight: weight as u64, update, entries, count: list.len() }
    }

    /// Returns the document that creates a user's stack, and its weight.
    fn insert(&self, user: &str) -> (RawDocumentBuf, u64) {
        let mut stack = rawdoc! {"_id": user};
        stack.append(cstr!("events"), &self.entries);
        (stack, self.count as u64)
    }

    /// Returns the statement that adds the list to a user's stack, and its weight.
    fn upsert(&self, user: &str) -> (RawDocumentBuf, u64) {
        (self.update_statement(user, cstr!("upsert")), self.weight)
    }

    /// Returns an update statement for the stacks that match this `_id`, with an option.
    fn update_statement(&self, id: impl Into<RawBson>, option: &CStr) -> RawDocumentBuf {
        let mut q = rawdoc! {"_id": id};
        for (field, value) in self.condition.iter().flatten() {
            q.append(field, value);
        }
        let mut statement = rawdoc! {"q": q};
        statement.append(option, true);
        statement.append(cstr!("u"), &self.update);
        statement
    }
}

/// Requires that a stack has an entry at this position, or has none.
fn require_entry(condition: &mut RawDocumentBuf, position: usize, exists: bool) {
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
    fn new(list: &[Event], entries: &[Entry], cap: usize) -> Self {
        let events = entries.iter().filter_map(|entry| match entry {
            Entry::Event(event) => Some(event),
            _ => None,
        });
        let stored: HashSet<&Event> = events.collect();
        let mut missing = list.iter().enumerate().filter(|(_, event)| !stored.contains(event));
        let length = entries.len();
        let fitting = missing.by_ref().take(cap.saturating_sub(length));
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
            kind: EventType::stored("T"),
            object: ObjectId::stored(o),
            fanout_id: Some(Id::from_bytes([1; 12])),
        }
    }

    #[test]
    fn missing_entries_are_appended_in_list_order_up_to_the_cap() {
        let list = ["a", "b", "c", "d"].map(event);
        let existing = [Entry::Other, Entry::Event(event("b"))];
        let plan = Plan::new(&list, &existing, 4);
        assert_eq!(plan.add, [event("a"), event("c")]);
        assert_eq!(plan.capped, [3]);
        let full = Plan::new(&list, &existing, 2);
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
        assert!(Statement::new(&list, 3).can_fit && !Statement::new(&list, 2).can_fit);
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
        assert_eq!(Statement::new(&list[..MAX_SHORT_LIST], 1_000).weight, 4_000);
    }

    #[test]
    fn missing_entries_are_appended_if_the_stack_length_is_unchanged() {
        let list = ["a"].map(event);
        let none = r#"{ "events.0": { "$exists": false } }"#;
        assert_eq!(condition(&Statement::append_at(0, &list)), none);
        let some = r#"{ "events.7": { "$exists": false }, "events.6": { "$exists": true } }"#;
        assert_eq!(condition(&Statement::append_at(7, &list)), some);
    }
}
