//! Appends the markers of emailed events to day collections, and reads the stacks of given users or
//! of all. [`super::append_events`] appends events.
//!
//! On MongoDB 6.0, `$in` on the `_id` of a clustered collection reads all of it. So each user is
//! looked up by equality: a few users with one command each, many with one command per day. If they
//! own much of a day, its range is read. One cursor per day and form of `_id` reads all users.

use std::collections::{HashMap, HashSet};

use async_trait::async_trait;
use bson::{Bson, Document, RawBson, RawDocument, RawDocumentBuf, doc, rawdoc};
use futures::channel::mpsc;
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::append_events::Push;
use super::bulk::{BulkOutcome, CommandKind};
use super::grouped_updates::{RECORDS_PER_STATEMENT, id_condition};
use super::patience::{NAMESPACE_EXISTS, is_too_slow};
use super::reads::run_concurrently;
use super::{Mongo, oid};
use crate::domain::{
    ChangeNotice, Day, DaySet, DefectiveStack, Id, IdForm, Stack, StackId, UserId, UserStacks,
};
use crate::store::entry::{NewEntry, StackDocument, entries_of_marker, object_id};
use crate::store::{Days, NewMarker, PushOutcome, PushRequest, Result, Stacks};

/// The number of users from which a command for all of them costs less than one for each.
const MIN_GROUP: usize = 16;
/// Reads a range only if at most this many stacks lie in it per requested user.
const MAX_READ_PER_REQUESTED: usize = 3;
const MAX_USER_READS_IN_FLIGHT: usize = 8;
const MAX_DAY_READS_IN_FLIGHT: usize = 4;
const MAX_DAY_WRITES_IN_FLIGHT: usize = 2;
const USERS_PER_COMMAND: usize = 1_000;
/// The server also ends a batch at 16 MB.
const DOCUMENTS_PER_BATCH: u32 = 500;
/// A chunk of a scan ends early if its users have more entries than this on average.
const MAX_MEAN_ENTRIES: usize = 50;

#[async_trait]
impl Stacks for Mongo {
    async fn catch_up(&self) -> Result<()> {
        self.caught_up().await
    }

    async fn push(&self, day: Day, cap: usize, pushes: &PushRequest) -> Result<PushOutcome> {
        if pushes.users.is_empty() {
            return Ok(PushOutcome::default());
        }
        let pushed = Push::new(self, day, cap, pushes).await?.run().await?;
        let users = pushes.users.iter().map(|(user, _)| user.as_str());
        self.notify(ChangeNotice::users(users)).await;
        Ok(pushed)
    }

    fn scan(
        &self,
        window: DaySet,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<UserStacks>>> {
        // Nothing is read before the stream is polled.
        stream::once(async move { self.start_sources(&window, after.as_ref()) })
            .flat_map(move |sources| {
                stream::try_unfold(sources, move |mut sources| async move {
                    let users = next_chunk(&mut sources, chunk.max(1)).await?;
                    Result::Ok((!users.is_empty()).then_some((users, sources)))
                })
            })
            .boxed()
    }

    async fn windows(&self, window: DaySet, users: &[UserId]) -> Result<Vec<UserStacks>> {
        let mut days: Vec<Day> = window.days().collect();
        let mut stacks: Vec<(UserId, Stack)> = Vec::new();
        if users.len() < MIN_GROUP {
            let read = |index: usize| self.read_user(&days, &users[index]);
            let collect = |found| stacks.extend(found);
            run_concurrently(MAX_USER_READS_IN_FLIGHT, 0..users.len(), read, collect).await?;
        } else {
            // A read of a day without a collection costs as much as any other.
            let existing = self.days().await?;
            days.retain(|day| existing.contains(day));
            let chunks = users.chunks(USERS_PER_COMMAND);
            let requests: Vec<(Day, &[UserId])> =
                chunks.flat_map(|chunk| days.iter().map(move |day| (*day, chunk))).collect();
            let read = |index: usize| self.read_day(requests[index].0, requests[index].1);
            let collect = |found| stacks.extend(found);
            run_concurrently(MAX_DAY_READS_IN_FLIGHT, 0..requests.len(), read, collect).await?;
        }
        Ok(group_by_user(users, stacks))
    }

    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<DefectiveStack>> {
        let mut entries: Vec<NewEntry<'_>> = markers.iter().flat_map(entries_of_marker).collect();
        entries.sort_by_key(|entry| entry.stack);
        let days: Vec<_> = entries.chunk_by(|a, b| a.stack.day == b.stack.day).collect();
        let mut defective = Vec::new();
        let write = |index: usize| self.write_day_markers(days[index]);
        let collect = |found| defective.extend(found);
        run_concurrently(MAX_DAY_WRITES_IN_FLIGHT, 0..days.len(), write, collect).await?;
        Ok(defective)
    }
}

/// Returns the statement that appends an entry.
fn append_statement(entry: &NewEntry<'_>) -> RawDocumentBuf {
    let id = match (entry.stack.form, entry.user.to_object_id()) {
        (IdForm::ObjectId, Some(id)) => RawBson::from(object_id(id)),
        _ => RawBson::from(entry.user.as_str()),
    };
    let add = rawdoc! {"$addToSet": {"events": entry.document.clone()}};
    rawdoc! {"q": {"_id": id}, "u": add}
}

impl Mongo {
    /// Appends markers to the stacks of one day. Returns the stacks that could not take one.
    async fn write_day_markers(&self, entries: &[NewEntry<'_>]) -> Result<Vec<DefectiveStack>> {
        let day = entries[0].stack.day;
        let name = day.collection_name();
        let remaining = self.write_shared_markers(&name, entries).await?;
        let statements = remaining.iter().map(|entry| append_statement(entry));
        let outcome = self.write(CommandKind::Update, &name, statements).await?;
        let defective = outcome.defects()?.into_iter().map(|(index, reason)| {
            let user = remaining[index].user.clone();
            DefectiveStack { user, day, reason }
        });
        Ok(defective.collect())
    }

    /// Appends equal entries with one statement for many users, if few other stacks lie between
    /// theirs. Returns the other entries. As in [`super::append_events`], this costs the server
    /// less.
    async fn write_shared_markers<'e>(
        &self,
        collection: &str,
        entries: &'e [NewEntry<'e>],
    ) -> Result<Vec<&'e NewEntry<'e>>> {
        let (mut groups, mut remaining) = (HashMap::<&[u8], Vec<usize>>::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            match entry.stack.form {
                IdForm::Text => groups.entry(entry.document.as_bytes()).or_default().push(index),
                IdForm::ObjectId => remaining.push(index),
            }
        }
        // In the order of the request, so that a user's entries keep it.
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        groups.sort_unstable();
        for mut group in groups {
            group.sort_by_key(|index| entries[*index].user);
            let users: Vec<&str> =
                group.iter().map(|index| entries[*index].user.as_str()).collect();
            let document = &entries[group[0]].document;
            let statement = |users: &[&str]| {
                let add = rawdoc! {"$addToSet": {"events": document.clone()}};
                let update = rawdoc! {"q": {"_id": id_condition(users)}, "u": add, "multi": true};
                (update, 1)
            };
            let size = RECORDS_PER_STATEMENT;
            let Some(outcome) = self.update_dense(collection, &users, size, statement).await?
            else {
                remaining.extend(group);
                continue;
            };
            // A shared statement does not say whose stack is defective. Retry its users one by one.
            for (index, _) in outcome.defects()? {
                remaining.extend(group.chunks(size).nth(index).unwrap_or_default());
            }
        }
        remaining.sort_unstable();
        Ok(remaining.into_iter().map(|index| &entries[index]).collect())
    }

    /// Creates a clustered day collection before the first write to it. An existing one keeps its
    /// layout: older writers created ordinary ones.
    pub(super) async fn create_day(&self, day: Day) -> Result<()> {
        if self.known_days().contains_key(&day) {
            return Ok(());
        }
        let create = doc! {
            "create": day.collection_name(),
            "clusteredIndex": {"key": {"_id": 1}, "unique": true},
            "writeConcern": {"w": "majority"},
        };
        let created = self.run(&self.0.db, create, &[NAMESPACE_EXISTS]).await?;
        self.known_days().insert(day, created.is_ok());
        Ok(())
    }

    /// Reads a user's stacks of these days with one command.
    async fn read_user(&self, days: &[Day], user: &UserId) -> Result<Vec<(UserId, Stack)>> {
        let mut branches = branches(days, user);
        let Some((first, mut pipeline)) = branches.next() else {
            return Ok(Vec::new());
        };
        pipeline.extend(branches.map(|(coll, pipeline)| {
            doc! {"$unionWith": {"coll": coll, "pipeline": pipeline}}
        }));
        let documents = self.aggregate(Some(&first), pipeline).await?;
        let day = |stack: &StackDocument<'_>| days.get(stack.number("day")? as usize).copied();
        Ok(documents.iter().filter_map(|document| read_stack(document, day)).collect())
    }

    /// Reads the stacks of these users of one day.
    async fn read_day(&self, day: Day, users: &[UserId]) -> Result<Vec<(UserId, Stack)>> {
        let has_legacy = self.has_legacy(day, users).await?;
        if !has_legacy && let Some(stacks) = self.read_range(day, users).await? {
            return Ok(stacks);
        }
        // An id may start with `$`, which would make it a field path here.
        let ids: Vec<Document> = users
            .iter()
            .flat_map(spellings)
            .filter(|id| has_legacy || matches!(id, Bson::String(_)))
            .map(|id| doc! {"_id": {"$literal": id}})
            .collect();
        let same_id = doc! {
            "from": day.collection_name(), "localField": "_id", "foreignField": "_id", "as": "stack",
        };
        let pipeline = vec![
            doc! {"$documents": ids},
            doc! {"$lookup": same_id},
            doc! {"$unwind": "$stack"},
            doc! {"$replaceRoot": {"newRoot": "$stack"}},
        ];
        let documents = self.aggregate(None, pipeline).await?;
        Ok(documents.iter().filter_map(|document| read_stack(document, |_| Some(day))).collect())
    }

    /// Reads the stacks of these users as a range of the day, which costs the server less than
    /// looking them up. Returns `None` if they own less than a third of the stacks in the range. A
    /// sample from the middle shows that sooner.
    async fn read_range(&self, day: Day, users: &[UserId]) -> Result<Option<Vec<(UserId, Stack)>>> {
        let mut sorted: Vec<&str> = users.iter().map(UserId::as_str).collect();
        sorted.sort_unstable();
        let name = day.collection_name();
        if sorted.len() < MIN_GROUP || !self.is_dense(&name, middle_sample(&sorted)).await? {
            return Ok(None);
        }
        let max = MAX_READ_PER_REQUESTED * users.len();
        let documents = self.find(&name, range(&sorted)).limit(max + 1).raw().await?;
        if documents.len() > max {
            return Ok(None);
        }
        let requested: HashSet<&UserId> = users.iter().collect();
        let stacks = documents.iter().filter_map(|document| read_stack(document, |_| Some(day)));
        Ok(Some(stacks.filter(|(user, _)| requested.contains(user)).collect()))
    }

    /// Updates the stacks of these sorted users with one statement for each `size` of them. Such a
    /// statement costs the server less than one for each user. Returns `None` if single statements
    /// are needed: the users own too few of the stacks between them, or the server was too slow.
    ///
    /// First samples the middle of the users, which costs less. A router would send the statements
    /// to all shards, so it gets none.
    pub(super) async fn update_dense(
        &self,
        collection: &str,
        sorted: &[&str],
        size: usize,
        statement: impl Fn(&[&str]) -> (RawDocumentBuf, u64) + Send,
    ) -> Result<Option<BulkOutcome>> {
        if sorted.len() < MIN_GROUP
            || self.is_routed().await?
            || !self.is_dense(collection, middle_sample(sorted)).await?
            || !self.is_dense(collection, sorted).await?
        {
            return Ok(None);
        }
        let chunks: Vec<&[&str]> = sorted.chunks(size).collect();
        let indices = (0..chunks.len()).collect();
        let statement = move |index: usize| statement(chunks[index]);
        match self.send_all(CommandKind::Update, collection, indices, statement).await {
            // A shared statement cannot be split.
            Err(error) if is_too_slow(&error) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Returns whether these sorted users own at least a third of the stacks between them.
    async fn is_dense(&self, collection: &str, sorted: &[&str]) -> Result<bool> {
        let max = (MAX_READ_PER_REQUESTED * sorted.len()) as u64;
        Ok(self.count_matching(collection, range(sorted), Some(max + 1)).await? <= max)
    }

    /// Returns whether any stack of this day has an ObjectId as `_id`, if one of these users could
    /// have such a stack. This saves lookups: one that finds nothing costs as much as any other.
    /// ObjectIds sort after all text.
    async fn has_legacy(&self, day: Day, users: &[UserId]) -> Result<bool> {
        if users.iter().all(|user| user.to_object_id().is_none()) {
            return Ok(false);
        }
        let filter = doc! {"_id": {"$gte": oid(Id::from_bytes([0; 12]))}};
        Ok(!self.find(&day.collection_name(), filter).limit(1).ids().await?.is_empty())
    }

    /// Starts to read all stacks of the window.
    fn start_sources(&self, window: &DaySet, after: Option<&UserId>) -> Vec<StackSource> {
        let forms = [IdForm::ObjectId, IdForm::Text];
        let ids = window.days().flat_map(|day| forms.map(|form| StackId { day, form }));
        ids.filter_map(|id| self.start_source(id, after)).collect()
    }

    /// Starts to read the stacks of one day and form. `None` if no document can match.
    fn start_source(
        &self,
        StackId { day, form }: StackId,
        after: Option<&UserId>,
    ) -> Option<StackSource> {
        let filter = after_filter(after, form)?;
        let read = move |document: &RawDocument| read_stack(document, |_| Some(day));
        let chunks = self
            .documents(day.collection_name(), filter, DOCUMENTS_PER_BATCH, read)
            .map_ok(|chunk| chunk.into_iter().flatten().collect());
        // The task ends at the end of the data, at an error, or when the receiver is dropped.
        let (sender, receiver) = mpsc::channel(0);
        tokio::spawn(chunks.map(Ok).forward(sender));
        Some(StackSource { stacks: Vec::new().into_iter(), chunks: receiver })
    }
}

/// Returns [`MIN_GROUP`] of these users from the middle. There must be at least as many.
fn middle_sample<'a, 'u>(sorted: &'a [&'u str]) -> &'a [&'u str] {
    let start = (sorted.len() - MIN_GROUP) / 2;
    &sorted[start..start + MIN_GROUP]
}

/// Returns the filter for the stacks from the first of these sorted users to the last.
fn range(sorted: &[&str]) -> Document {
    let (first, last) = (sorted[0], sorted[sorted.len() - 1]);
    doc! {"_id": {"$gte": first, "$lte": last}}
}

/// Returns pipelines that read a user's stack of each day and add the index of the day.
fn branches(days: &[Day], user: &UserId) -> impl Iterator<Item = (String, Vec<Document>)> {
    days.iter().enumerate().flat_map(|(index, day)| {
        let branch = move |id: Bson| {
            let select = doc! {"$match": {"_id": {"$eq": id}}};
            let add_day = doc! {"$set": {"day": index as i32}};
            (day.collection_name(), vec![select, add_day])
        };
        spellings(user).map(branch)
    })
}

/// Returns the possible spellings of a user's `_id`: as an ObjectId if it can be one, and as text.
fn spellings(user: &UserId) -> impl Iterator<Item = Bson> + use<> {
    let legacy = user.to_object_id().map(oid).into_iter();
    legacy.chain([Bson::String(user.to_string())])
}

/// Returns `None` if the document has no readable owner.
fn read_stack(
    document: &RawDocument,
    day: impl Fn(&StackDocument<'_>) -> Option<Day>,
) -> Option<(UserId, Stack)> {
    let stack = StackDocument::read(document.as_bytes()).ok()??;
    let id = StackId { day: day(&stack)?, form: stack.form };
    let entries = stack.stack(id);
    Some((stack.user, entries))
}

/// Returns the stacks of each user, in the order of the users.
fn group_by_user(users: &[UserId], stacks: Vec<(UserId, Stack)>) -> Vec<UserStacks> {
    let mut stacks_by_user: HashMap<UserId, Vec<Stack>> = HashMap::new();
    for (user, stack) in stacks {
        stacks_by_user.entry(user).or_default().push(stack);
    }
    let stacks_of = |user: &UserId| {
        let mut stacks = stacks_by_user.remove(user).unwrap_or_default();
        stacks.sort_by_key(|stack| stack.id);
        UserStacks { user: user.clone(), stacks }
    };
    users.iter().map(stacks_of).collect()
}

/// Returns the filter for documents of this form after a user, by the text of the ids. `None` if
/// no document can match.
fn after_filter(after: Option<&UserId>, form: IdForm) -> Option<Document> {
    let id = match (form, after) {
        (IdForm::Text, None) => doc! {"$gte": ""},
        (IdForm::Text, Some(user)) => doc! {"$gt": user.as_str()},
        (IdForm::ObjectId, None) => doc! {"$gte": oid(Id::from_bytes([0; 12]))},
        (IdForm::ObjectId, Some(user)) => doc! {"$gte": oid(Id::first_after(user.as_str())?)},
    };
    Some(doc! {"_id": id})
}

/// The stacks of one day and form, in the order of the users.
struct StackSource {
    /// The current chunk.
    stacks: std::vec::IntoIter<(UserId, Stack)>,
    /// The next chunks, which a task reads ahead.
    chunks: mpsc::Receiver<Result<Vec<(UserId, Stack)>>>,
}

impl StackSource {
    /// Waits until the current chunk has a stack, or the source ends.
    async fn fill(&mut self) -> Result<()> {
        while self.stacks.as_slice().is_empty() {
            match self.chunks.next().await {
                Some(chunk) => self.stacks = chunk?.into_iter(),
                None => break,
            }
        }
        Ok(())
    }

    /// Returns the owner of the next stack.
    fn user(&self) -> Option<&UserId> {
        self.stacks.as_slice().first().map(|(user, _)| user)
    }
}

/// Returns the next users from all sources, at most `limit`.
async fn next_chunk(sources: &mut [StackSource], limit: usize) -> Result<Vec<UserStacks>> {
    let mut users = Vec::with_capacity(limit.min(10_000));
    let mut entries = 0;
    while users.len() < limit && entries < limit.saturating_mul(MAX_MEAN_ENTRIES) {
        for source in &mut *sources {
            source.fill().await?;
        }
        let Some(user) = sources.iter().filter_map(StackSource::user).min().cloned() else {
            break;
        };
        let mut stacks: Vec<Stack> = Vec::new();
        for source in &mut *sources {
            if source.user() == Some(&user) {
                stacks.extend(source.stacks.next().map(|(_, stack)| stack));
            }
        }
        entries += stacks.iter().map(|stack| stack.entries.len()).sum::<usize>();
        users.push(UserStacks { user, stacks });
    }
    Ok(users)
}
