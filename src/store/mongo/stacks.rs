//! Appends the markers of emailed events to day collections, and reads the stacks of given users or
//! of all. [`super::push`] appends events.
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

use super::bulk::{BulkOutcome, CommandKind};
use super::grouped_updates::{TOGETHER, among};
use super::patience::{NAMESPACE_EXISTS, is_too_slow};
use super::push::Push;
use super::reads::at_once;
use super::{Mongo, oid};
use crate::domain::{
    BadStack, ChangeNotice, Day, DaySet, Id, IdForm, Stack, StackId, UserId, UserStacks,
};
use crate::store::entry::{NewEntry, StackDocument, new_entries, object_id};
use crate::store::{Days, NewMarker, Pushed, Pushes, Result, Stacks};

/// The number of users from which one command for each day costs less than one for each user, and
/// one update for many users less than one for each.
const MANY: usize = 16;
/// The number of single users that are looked up at the same time.
const AT_ONCE: usize = 8;
/// The number of days on which many users are looked up at the same time.
const DAYS_AT_ONCE: usize = 4;
/// Users per command.
const IDS: usize = 1_000;
/// Documents per batch. The server also ends a batch at 16 MB.
const BATCH: u32 = 500;
/// The average number of entries per user above which a chunk ends early.
const ENTRIES_EACH: usize = 50;
/// The number of days whose stacks are marked at the same time.
const MARKED_AT_ONCE: usize = 2;

#[async_trait]
impl Stacks for Mongo {
    async fn catch_up(&self) -> Result<()> {
        self.caught_up().await
    }

    async fn push(&self, day: Day, cap: usize, pushes: &Pushes) -> Result<Pushed> {
        if pushes.people.is_empty() {
            return Ok(Pushed::default());
        }
        let pushed = Push::new(self, day, cap, pushes).await?.run().await?;
        let people = pushes.people.iter().map(|(user, _)| user.as_str());
        self.notify(ChangeNotice::people(people)).await;
        Ok(pushed)
    }

    fn scan(
        &self,
        window: DaySet,
        after: Option<UserId>,
        chunk: usize,
    ) -> BoxStream<'_, Result<Vec<UserStacks>>> {
        let start = move || {
            let forms = [IdForm::ObjectId, IdForm::Text];
            let stacks = window.days().flat_map(move |day| forms.map(|form| StackId { day, form }));
            stacks.filter_map(|id| self.source(id, after.as_ref())).collect()
        };
        // Nothing is read before the stream is polled.
        let sources = stream::once(async move { Result::Ok(start()) });
        sources
            .map_ok(move |sources: Vec<Source>| {
                stream::try_unfold(sources, move |mut sources| async move {
                    let people = take(&mut sources, chunk.max(1)).await?;
                    Ok((!people.is_empty()).then_some((people, sources)))
                })
            })
            .try_flatten()
            .boxed()
    }

    async fn windows(&self, window: DaySet, users: &[UserId]) -> Result<Vec<UserStacks>> {
        let mut days: Vec<Day> = window.days().collect();
        let mut found = Vec::new();
        if users.len() < MANY {
            let read = |user: usize| self.look_up(&days, &users[user]);
            at_once(AT_ONCE, 0..users.len(), read, |part| found.extend(part)).await?;
        } else {
            // A lookup on a day without a collection costs as much as any other.
            let existing = self.days().await?;
            days.retain(|day| existing.contains(day));
            let chunks = users.chunks(IDS);
            let parts = chunks.flat_map(|chunk| days.iter().map(move |day| (*day, chunk)));
            let parts: Vec<(Day, &[UserId])> = parts.collect();
            let read = |n: usize| self.look_up_all(parts[n]);
            let collect = |part| found.extend(part);
            at_once(DAYS_AT_ONCE, 0..parts.len(), read, collect).await?;
        }
        Ok(by_person(users, found))
    }

    async fn write_markers(&self, markers: &[NewMarker]) -> Result<Vec<BadStack>> {
        let mut entries: Vec<NewEntry<'_>> = markers.iter().flat_map(new_entries).collect();
        entries.sort_by_key(|entry| entry.stack);
        let days: Vec<_> = entries.chunk_by(|a, b| a.stack.day == b.stack.day).collect();
        let mut bad = Vec::new();
        let mark = |day: usize| self.mark_day(days[day]);
        at_once(MARKED_AT_ONCE, 0..days.len(), mark, |part| bad.extend(part)).await?;
        Ok(bad)
    }
}

/// Returns the statement that appends an entry.
fn appending(entry: &NewEntry<'_>) -> RawDocumentBuf {
    let id = match (entry.stack.form, entry.user.legacy()) {
        (IdForm::ObjectId, Some(id)) => RawBson::from(object_id(id)),
        _ => RawBson::from(entry.user.as_str()),
    };
    let add = rawdoc! {"$addToSet": {"events": entry.document.clone()}};
    rawdoc! {"q": {"_id": id}, "u": add}
}

impl Mongo {
    /// Appends markers to the stacks of one day. Returns the stacks that could not take one.
    async fn mark_day(&self, entries: &[NewEntry<'_>]) -> Result<Vec<BadStack>> {
        let day = entries[0].stack.day;
        let name = day.collection();
        let entries = self.mark_together(&name, entries).await?;
        let statements = entries.iter().map(|entry| appending(entry));
        let outcome = self.write(CommandKind::Update, &name, statements).await?;
        let bad = outcome.defects()?.into_iter().map(|(item, reason)| {
            let user = entries[item].user.clone();
            BadStack { user, day, reason }
        });
        Ok(bad.collect())
    }

    /// Appends equal entries with one statement for many users, if few other stacks lie between
    /// theirs. Returns the other entries. As in [`super::push`], this costs the server less.
    async fn mark_together<'e>(
        &self,
        name: &str,
        entries: &'e [NewEntry<'e>],
    ) -> Result<Vec<&'e NewEntry<'e>>> {
        let (mut groups, mut left) = (HashMap::<&[u8], Vec<usize>>::new(), Vec::new());
        for (index, entry) in entries.iter().enumerate() {
            match entry.stack.form {
                IdForm::Text => groups.entry(entry.document.as_bytes()).or_default().push(index),
                IdForm::ObjectId => left.push(index),
            }
        }
        // In the order of the request, so that a user's entries keep it.
        let mut groups: Vec<Vec<usize>> = groups.into_values().collect();
        groups.sort_unstable();
        for mut group in groups {
            group.sort_by_key(|index| entries[*index].user);
            let users = group.iter().map(|index| entries[*index].user.as_str());
            let users: Vec<&str> = users.collect();
            let document = &entries[group[0]].document;
            let mark = |part: &[&str]| {
                let add = rawdoc! {"$addToSet": {"events": document.clone()}};
                let update = rawdoc! {"q": {"_id": among(part)}, "u": add, "multi": true};
                (update, 1)
            };
            let Some(outcome) = self.update_together(name, &users, TOGETHER, mark).await? else {
                left.extend(group);
                continue;
            };
            // Statements of single users show whose stack it is.
            for (part, _) in outcome.defects()? {
                left.extend(group.chunks(TOGETHER).nth(part).unwrap_or_default());
            }
        }
        left.sort_unstable();
        Ok(left.into_iter().map(|index| &entries[index]).collect())
    }

    /// Creates a clustered day collection before the first write to it. An existing one keeps its
    /// layout: older writers created ordinary ones.
    pub(super) async fn create_day(&self, day: Day) -> Result<()> {
        if self.known_days().contains_key(&day) {
            return Ok(());
        }
        let create = doc! {
            "create": day.collection(),
            "clusteredIndex": {"key": {"_id": 1}, "unique": true},
            "writeConcern": {"w": "majority"},
        };
        let created = self.run(&self.0.db, create, &[NAMESPACE_EXISTS]).await?;
        self.known_days().insert(day, created.is_ok());
        Ok(())
    }
}

impl Mongo {
    /// Reads a user's stacks of these days with one command.
    async fn look_up(&self, days: &[Day], user: &UserId) -> Result<Vec<(UserId, Stack)>> {
        let mut branches = branches(days, user);
        let Some((first, mut pipeline)) = branches.next() else {
            return Ok(Vec::new());
        };
        pipeline.extend(branches.map(|(coll, pipeline)| {
            doc! {"$unionWith": {"coll": coll, "pipeline": pipeline}}
        }));
        let documents = self.aggregate(Some(&first), pipeline).await?;
        let day = |stack: &StackDocument<'_>| days.get(stack.number("day")? as usize).copied();
        let read = |document: &RawDocumentBuf| stack_of(document, day);
        Ok(documents.iter().filter_map(read).collect())
    }

    /// Reads the stacks of these users of one day.
    async fn look_up_all(&self, (day, people): (Day, &[UserId])) -> Result<Vec<(UserId, Stack)>> {
        let legacy = self.has_legacy(day, people).await?;
        if !legacy && let Some(found) = self.read_range(day, people).await? {
            return Ok(found);
        }
        let ids = people.iter().flat_map(spellings);
        let ids = ids.filter(|id| legacy || matches!(id, Bson::String(_)));
        // An id may start with `$`, which would make it a field path here.
        let ids: Vec<Document> = ids.map(|id| doc! {"_id": {"$literal": id}}).collect();
        let same = doc! {
            "from": day.collection(), "localField": "_id", "foreignField": "_id", "as": "stack",
        };
        let pipeline = vec![
            doc! {"$documents": ids},
            doc! {"$lookup": same},
            doc! {"$unwind": "$stack"},
            doc! {"$replaceRoot": {"newRoot": "$stack"}},
        ];
        let documents = self.aggregate(None, pipeline).await?;
        let read = |document: &RawDocumentBuf| stack_of(document, |_| Some(day));
        Ok(documents.iter().filter_map(read).collect())
    }

    /// Reads the stacks of these users as a range of the day, which costs the server less than
    /// looking them up. Returns `None` if they own less than a third of the stacks in the range. A
    /// sample from the middle shows that sooner.
    async fn read_range(
        &self,
        day: Day,
        people: &[UserId],
    ) -> Result<Option<Vec<(UserId, Stack)>>> {
        let mut sorted: Vec<&str> = people.iter().map(UserId::as_str).collect();
        sorted.sort_unstable();
        let name = day.collection();
        if sorted.len() < MANY || !self.own_range(&name, middle(&sorted)).await? {
            return Ok(None);
        }
        let most = OWN * people.len();
        let found = self.find(&name, range(&sorted)).limit(most + 1).raw();
        let found = found.await?;
        if found.len() > most {
            return Ok(None);
        }
        let requested: HashSet<&UserId> = people.iter().collect();
        let read = found.iter().filter_map(|one| stack_of(one, |_| Some(day)));
        Ok(Some(read.filter(|(user, _)| requested.contains(user)).collect()))
    }

    /// Updates the stacks of these sorted users with one statement for each `size` of them. Such a
    /// statement costs the server less than one for each user. Returns `None` if single statements
    /// are needed: the users own too few of the stacks between them, or the server was too slow.
    ///
    /// First samples the middle of the users, which costs less. A router would send the statements
    /// to all shards, so it gets none.
    pub(super) async fn update_together(
        &self,
        day: &str,
        sorted: &[&str],
        size: usize,
        statement: impl Fn(&[&str]) -> (RawDocumentBuf, u64) + Send,
    ) -> Result<Option<BulkOutcome>> {
        if sorted.len() < MANY
            || self.is_routed().await?
            || !self.own_range(day, middle(sorted)).await?
            || !self.own_range(day, sorted).await?
        {
            return Ok(None);
        }
        let parts: Vec<&[&str]> = sorted.chunks(size).collect();
        let all = (0..parts.len()).collect();
        let statement = move |part: usize| statement(parts[part]);
        match self.bulk(CommandKind::Update, day, all, statement).await {
            // A shared statement cannot be split.
            Err(error) if is_too_slow(&error) => Ok(None),
            outcome => outcome.map(Some),
        }
    }

    /// Returns whether these sorted users own at least a third of the stacks between them.
    async fn own_range(&self, day: &str, sorted: &[&str]) -> Result<bool> {
        let most = (OWN * sorted.len()) as u64;
        let count = self.count_matching(day, range(sorted), Some(most + 1));
        Ok(count.await? <= most)
    }

    /// Returns whether any stack of this day has an ObjectId as `_id`, if one of these users could
    /// have such a stack. This saves lookups: one that finds nothing costs as much as any other.
    /// ObjectIds sort after all text.
    async fn has_legacy(&self, day: Day, people: &[UserId]) -> Result<bool> {
        if people.iter().all(|user| user.legacy().is_none()) {
            return Ok(false);
        }
        let filter = doc! {"_id": {"$gte": oid(Id::from_bytes([0; 12]))}};
        let found = self.find(&day.collection(), filter).limit(1).ids();
        Ok(!found.await?.is_empty())
    }
}

/// The most stacks that are read in a range, for each requested one.
const OWN: usize = 3;

/// Returns the users in the middle of these, which are at least [`MANY`].
fn middle<'a, 'u>(sorted: &'a [&'u str]) -> &'a [&'u str] {
    let start = (sorted.len() - MANY) / 2;
    &sorted[start..start + MANY]
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
            let own = doc! {"$match": {"_id": {"$eq": id}}};
            let day_is = doc! {"$set": {"day": index as i32}};
            (day.collection(), vec![own, day_is])
        };
        spellings(user).map(branch)
    })
}

/// Returns the possible spellings of a user's `_id`: as an ObjectId if it can be one, and as text.
fn spellings(user: &UserId) -> impl Iterator<Item = Bson> + use<> {
    let legacy = user.legacy().map(oid).into_iter();
    legacy.chain([Bson::String(user.to_string())])
}

/// Returns `None` if the document has no readable owner.
fn stack_of(
    document: &RawDocument,
    day: impl Fn(&StackDocument<'_>) -> Option<Day>,
) -> Option<(UserId, Stack)> {
    let stack = StackDocument::read(document.as_bytes()).ok()??;
    let (day, form) = (day(&stack)?, stack.form);
    let read = stack.stack(StackId { day, form });
    Some((stack.user, read))
}

/// Returns the stacks of each user, in the order of the users.
fn by_person(people: &[UserId], found: Vec<(UserId, Stack)>) -> Vec<UserStacks> {
    let mut by_user: HashMap<UserId, Vec<Stack>> = HashMap::new();
    for (user, stack) in found {
        by_user.entry(user).or_default().push(stack);
    }
    let person = |user: &UserId| {
        let mut stacks = by_user.remove(user).unwrap_or_default();
        stacks.sort_by_key(|stack| stack.id);
        let user = user.clone();
        UserStacks { user, stacks }
    };
    people.iter().map(person).collect()
}

/// Returns the filter for documents of this form after a user, by the text of the ids. `None` if
/// no document can match.
fn filter(after: Option<&UserId>, form: IdForm) -> Option<Document> {
    let id = match (form, after) {
        (IdForm::Text, None) => doc! {"$gte": ""},
        (IdForm::Text, Some(user)) => doc! {"$gt": user.as_str()},
        (IdForm::ObjectId, None) => doc! {"$gte": oid(Id::from_bytes([0; 12]))},
        (IdForm::ObjectId, Some(user)) => doc! {"$gte": oid(Id::first_after(user.as_str())?)},
    };
    Some(doc! {"_id": id})
}

/// The stacks of one day and form, in the order of the users.
struct Source {
    ready: std::vec::IntoIter<(UserId, Stack)>,
    /// Pieces that were read ahead.
    ahead: mpsc::Receiver<Result<Vec<(UserId, Stack)>>>,
}

impl Source {
    /// Waits until a stack is ready or none is left.
    async fn fill(&mut self) -> Result<()> {
        while self.ready.as_slice().is_empty() {
            match self.ahead.next().await {
                Some(piece) => self.ready = piece?.into_iter(),
                None => break,
            }
        }
        Ok(())
    }

    fn user(&self) -> Option<&UserId> {
        self.ready.as_slice().first().map(|(user, _)| user)
    }
}

impl Mongo {
    /// Starts to read the stacks of one day and form. `None` if no document can match.
    fn source(&self, StackId { day, form }: StackId, after: Option<&UserId>) -> Option<Source> {
        let read = move |document: &RawDocument| stack_of(document, |_| Some(day));
        let pieces = self.documents(day.collection(), filter(after, form)?, BATCH, read);
        let pieces = pieces.map_ok(|piece| piece.into_iter().flatten().collect());
        // The task ends at the end of the data, at an error, or when the receiver is dropped.
        let (give, ahead) = mpsc::channel(0);
        tokio::spawn(pieces.map(Ok).forward(give));
        let ready = Vec::new().into_iter();
        Some(Source { ready, ahead })
    }
}

/// Returns the next users from all sources, at most `chunk`.
async fn take(sources: &mut [Source], chunk: usize) -> Result<Vec<UserStacks>> {
    let mut people = Vec::with_capacity(chunk.min(10_000));
    let mut entries = 0;
    while people.len() < chunk && entries < chunk.saturating_mul(ENTRIES_EACH) {
        for source in &mut *sources {
            source.fill().await?;
        }
        let Some(user) = sources.iter().filter_map(Source::user).min().cloned() else {
            break;
        };
        let mut stacks: Vec<Stack> = Vec::new();
        for source in &mut *sources {
            if source.user() == Some(&user) {
                stacks.extend(source.ready.next().map(|(_, stack)| stack));
            }
        }
        entries += stacks.iter().map(|one| one.entries.len()).sum::<usize>();
        people.push(UserStacks { user, stacks });
    }
    Ok(people)
}
