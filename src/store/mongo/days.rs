//! Lists, drops, exports and restores whole days. Exports, imports and removes other records.
//!
//! A day is exported and restored exactly as it is. To drop a day, its collection is renamed,
//! compared, and dropped or renamed back. Writers cannot reach the renamed collection; new entries
//! for the day create a new one. After a crash, `fix_day` renames it back. Each attempt has its own
//! name, so a slow one cannot drop another's.

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Bson, Document, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, doc, rawdoc};
use chrono::{DateTime, Utc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};

use super::batches::accumulator_id;
use super::bulk::{CommandKind, RejectedStatement, Update};
use super::journal::{DONE, part_id, parts_of};
use super::patience::{DUPLICATE, NAMESPACE_EXISTS, NAMESPACE_NOT_FOUND};
use super::reads::{at_once, id_of};
use super::users::revised;
use super::{
    AUDIENCES, BATCHES, DELIVERIES, FANOUTS, INBOXES, Mongo, RETRACTIONS, date, objects, oid,
};
use crate::domain::day::COLLECTION_PREFIX;
use crate::domain::{Day, DeliveryState, Id};
use crate::store::day_lines::{merge, owner_of};
use crate::store::record::batch::AccumulatorRecord;
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::small::InboxRecord;
use crate::store::record::values::{As, Oid};
use crate::store::record::{Record, read_bson, write_bson};
use crate::store::record_lines::{NO_REVISION, RecordSource};
use crate::store::{
    AnyRecord, DaySum, Days, Error, Export, Forgettable, Meeting, RecordKind, RecordPage, Result,
    Summing, extjson,
};

/// The largest document to import. MongoDB's limit is 16 MiB for it and the rest of the command.
const LARGEST: usize = (16 << 20) - (64 << 10);
/// Documents per chunk of an export.
const CHUNK: u32 = 1_000;
/// How often to restore a document again after a concurrent write.
const TRIES: usize = 100;
/// The number of documents that are compared at the same time.
const COMPARED: usize = 8;
/// MongoDB 6.0 reports a duplicate with this error code if the `_id` is a number with a fraction in
/// a clustered collection.
const DUPLICATE_FRACTION: i32 = 50810;
/// The name prefix of a day that is being dropped. A suffix identifies the attempt.
const LEAVING: &str = "leaving_";

/// Returns a pattern for the names of this day's renamed collections.
fn leaving(day: Day) -> String {
    format!("^{LEAVING}{}_[0-9a-f]{{24}}$", day.collection())
}

#[async_trait]
impl Days for Mongo {
    async fn days(&self) -> Result<Vec<Day>> {
        // Includes days whose drop was interrupted.
        let pattern = format!("^({LEAVING})?{COLLECTION_PREFIX}[0-9]{{8}}(_[0-9a-f]{{24}})?$");
        let names = self.collections(&pattern).await?;
        let day = |name: &String| {
            let name = name.strip_prefix(LEAVING).unwrap_or(name);
            Day::of_collection(name.get(..COLLECTION_PREFIX.len() + 8)?)
        };
        let mut days: Vec<Day> = names.iter().filter_map(day).collect();
        days.sort_unstable();
        days.dedup();
        Ok(days)
    }

    async fn fix_day(&self, day: Day) -> Result<()> {
        for renamed in self.collections(&leaving(day)).await? {
            self.rename_back(day, &renamed).await?;
        }
        Ok(())
    }

    async fn drop_day(&self, day: Day, sum: &DaySum) -> Result<bool> {
        let name = day.collection();
        let renamed = format!("{LEAVING}{name}_{}", ObjectId::new());
        self.known_days().remove(&day);
        // If the name is in use or the source is missing, an earlier attempt may have succeeded.
        if self.rename(&name, &renamed).await? == Err(NAMESPACE_NOT_FOUND)
            && self.collections(&format!("^{renamed}$")).await?.is_empty()
        {
            return Ok(sum.stacks == 0);
        }
        let mut summing = Summing::default();
        let mut chunks = self.all_of(renamed.clone());
        while let Some(chunk) = chunks.try_next().await? {
            lines(&chunk).for_each(|line| summing.add(&line));
        }
        drop(chunks);
        if summing.end() != *sum {
            self.rename_back(day, &renamed).await?;
            return Ok(false);
        }
        self.drop_collection(&renamed).await?;
        Ok(true)
    }

    fn export(&self, which: Export) -> BoxStream<'_, Result<RecordPage>> {
        match which {
            Export::Records(kind) => {
                let batches = self.all_of(kind.as_str().to_owned());
                let pages = batches.map_ok(|batch| stream::iter(split(batch)).map(Ok::<_, Error>));
                pages.try_flatten().and_then(move |batch| self.page_of(kind, batch)).boxed()
            }
            Export::Day(day) => {
                let page = |chunk: Vec<RawDocumentBuf>| RecordPage {
                    lines: lines(&chunk).collect(),
                    bad: Vec::new(),
                };
                self.all_of(day.collection()).map_ok(page).boxed()
            }
        }
    }

    async fn import_records(&self, kind: RecordKind, lines: &[String]) -> Result<()> {
        let records = lines.iter().map(|line| AnyRecord::read(kind, line));
        let records: Vec<AnyRecord> = records.collect::<Result<_>>()?;
        let statements = records.iter().map(|record| {
            let u = document(record)?;
            let id = match record {
                AnyRecord::Accumulator(accumulator) => Some(accumulator_id(&accumulator.id).into()),
                _ => id_of(&u),
            };
            Ok(Update::upsert(doc! {"_id": id}, u))
        });
        let statements: Vec<_> = statements.collect::<Result<_>>()?;
        self.upsert(kind.as_str(), statements).await
    }

    async fn restore_day(&self, day: Day, stacks: &[String], meeting: Meeting) -> Result<()> {
        let unreadable = |error| Error::corrupt(format!("a line of {day}"), error);
        let mut documents: Vec<RawDocumentBuf> = Vec::with_capacity(stacks.len());
        for line in stacks {
            let document = extjson::from_line(line).map_err(unreadable)?;
            id_of(&document).ok_or_else(|| unreadable("it has no _id".into()))?;
            documents.push(document);
        }
        self.create_day(day).await?;
        let stored = self.insert_into(day, &documents).await?;
        let merge = |item: usize| self.merge_stored(day, &documents[item], meeting);
        at_once(COMPARED, stored, merge, drop).await
    }

    async fn forget(&self, what: Forgettable, before: DateTime<Utc>, limit: usize) -> Result<u64> {
        let (first_id, date) = (oid(Id::at(before, [0; 8])), date(before));
        let is_settled = doc! {
            "state": {"$ne": DeliveryState::Unknown.as_str()}, "slot": {"$exists": false},
        };
        let (collection, time, end, mut old) = match what {
            Forgettable::Events => (FANOUTS, "_id", first_id, doc! {"state": DONE}),
            Forgettable::Retractions => (RETRACTIONS, "at", first_id, doc! {}),
            Forgettable::Batches => (BATCHES, "settled", date, doc! {}),
            Forgettable::Deliveries => (DELIVERIES, "settled", date, is_settled),
            Forgettable::Inboxes => (INBOXES, "changed", date, doc! {}),
        };
        old.insert(time, doc! {"$lt": &end});
        let earliest = self.find(collection, old.clone()).sort(doc! {time: 1});
        let ids = earliest.limit(limit).ids().await?;
        if !ids.is_empty() {
            // A record that was found to be old is deleted only if it is still old.
            let these = doc! {"$and": [{"_id": {"$in": &ids}}, old]};
            self.delete_matching(collection, these).await?;
        }
        if what == Forgettable::Events {
            let is_last = ids.len() < limit;
            self.forget_parts(&ids, is_last.then_some(&end)).await?;
        }
        Ok(ids.len() as u64)
    }
}

impl Mongo {
    async fn page_of(
        &self,
        kind: RecordKind,
        documents: Vec<RawDocumentBuf>,
    ) -> Result<RecordPage> {
        let mut page = RecordPage::default();
        for raw in documents {
            let read = match kind {
                RecordKind::Fanouts => self.whole_fanout(&raw).await.map(AnyRecord::from),
                kind => read_record(kind, &raw),
            };
            match read {
                Ok(record) => page.push(&record)?,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => page.bad.push(error.to_string()),
            }
        }
        Ok(page)
    }

    /// Removes the parts of the audiences of these removed fan-outs. With an `end`, also removes
    /// the parts before `end` that are older than all fan-outs: a process that crashed left them.
    async fn forget_parts(&self, removed: &[Bson], end: Option<&Bson>) -> Result<()> {
        let of_removed = removed
            .iter()
            .map(|id| doc! {"_id": {"$gte": part_id(id, 0), "$lte": part_id(id, i32::MAX)}});
        let mut parts: Vec<Document> = of_removed.collect();
        if let Some(end) = end {
            let remaining = self.find(FANOUTS, doc! {"_id": {"$lt": end}});
            let oldest = remaining.sort(doc! {"_id": 1}).limit(1).ids().await?;
            let oldest = oldest.first().unwrap_or(end);
            parts.push(doc! {"_id": {"$lt": part_id(oldest, 0)}});
        }
        if !parts.is_empty() {
            self.delete_matching(AUDIENCES, doc! {"$or": parts}).await?;
        }
        Ok(())
    }

    /// Counts by reading the documents: the server's metadata may be wrong after a crash.
    pub(super) async fn count_stacks(&self, day: Day) -> Result<u64> {
        let mut names = self.collections(&leaving(day)).await?;
        names.push(day.collection());
        let mut stacks = 0;
        for name in names {
            stacks += self.count_matching(&name, doc! {}, None).await?;
        }
        Ok(stacks)
    }

    /// Inserts documents into a day. Returns the items whose `_id` is already stored.
    pub(super) async fn insert_into(
        &self,
        day: Day,
        documents: &[RawDocumentBuf],
    ) -> Result<Vec<usize>> {
        let name = day.collection();
        let inserted = self.write(CommandKind::Insert, &name, documents).await?;
        let is_stored = |refused: &RejectedStatement| {
            matches!(refused.failure.code, Some(DUPLICATE | DUPLICATE_FRACTION))
        };
        let stored = inserted.only(is_stored)?.into_iter();
        Ok(stored.map(|refused| refused.item).collect())
    }

    /// Restores a document whose `_id` is already stored. Both must be equal, or each entry is
    /// appended once (see [`merge`]).
    async fn merge_stored(
        &self,
        day: Day,
        document: &RawDocumentBuf,
        meeting: Meeting,
    ) -> Result<()> {
        let (name, id) = (day.collection(), id_of(document));
        // Other writers may append meanwhile, but rarely to an old day.
        for _ in 0..TRIES {
            let found = self.find(&name, doc! {"_id": {"$eq": &id}}).raw().await?;
            let Some(stored) = found.first() else {
                // Another process removed it after the insert was rejected.
                self.create_day(day).await?;
                let documents = std::slice::from_ref(document);
                if self.insert_into(day, documents).await?.is_empty() {
                    return Ok(());
                }
                continue;
            };
            let new = merge(day, stored, document, meeting)?;
            if new.is_empty() {
                return Ok(());
            }
            // Appends if the stack still has this length.
            let length = stored.get_array("events");
            let length = length.map_or(0, |events| events.into_iter().count() as i32);
            let q = doc! {"_id": {"$eq": &id}, "events": {"$size": length}};
            let new = RawArrayBuf::from_iter(new);
            let append = Update::new(q, rawdoc! {"$push": {"events": {"$each": new}}});
            let appended = self.write(CommandKind::Update, &name, [append]).await?;
            // If the command was sent twice, the next comparison shows whether it took effect.
            let is_first = !appended.resent;
            if appended.complete()? == 1 && is_first {
                return Ok(());
            }
        }
        let what = format!("the stack of {} on {day}", owner_of(document));
        Err(Error::Conflict(what))
    }

    /// Renames a collection back. If the day has a new collection by now, the old entries go before
    /// the new ones, document by document. It can be repeated after a crash: each entry is added
    /// only once.
    async fn rename_back(&self, day: Day, renamed: &str) -> Result<()> {
        self.known_days().remove(&day);
        if self.rename(renamed, &day.collection()).await? != Err(NAMESPACE_EXISTS) {
            return Ok(());
        }
        let (name, mut chunks) = (day.collection(), self.all_of(renamed.to_owned()));
        while let Some(documents) = chunks.try_next().await? {
            let stored = self.insert_into(day, &documents).await?;
            let statements = stored.iter().map(|item| put_before(&documents[*item]));
            let updated = self.write(CommandKind::Update, &name, statements);
            updated.await?.complete()?;
        }
        drop(chunks);
        self.drop_collection(renamed).await
    }

    /// Renames a collection. Returns the error code if there is none, or the new name is in use.
    pub(super) async fn rename(
        &self,
        from: &str,
        to: &str,
    ) -> Result<std::result::Result<(), i32>> {
        let db = self.0.db.name();
        let rename = doc! {
            "renameCollection": format!("{db}.{from}"),
            "to": format!("{db}.{to}"),
            "writeConcern": {"w": "majority"},
        };
        let expected = [NAMESPACE_NOT_FOUND, NAMESPACE_EXISTS];
        let renamed = self.run(&self.admin(), rename, &expected).await?;
        Ok(renamed.map(drop))
    }

    /// Returns the names of the collections that match a pattern, without views.
    async fn collections(&self, pattern: &str) -> Result<Vec<String>> {
        let filter = doc! {"name": {"$regex": pattern}, "type": {"$ne": "view"}};
        let listed = self.find_collections(filter).await?;
        let name = |listed: &Document| listed.get_str("name").ok().map(str::to_owned);
        Ok(listed.iter().filter_map(name).collect())
    }

    pub(super) async fn drop_collection(&self, name: &str) -> Result<()> {
        let drop = doc! {"drop": name, "writeConcern": {"w": "majority"}};
        self.run(&self.0.db, drop, &[NAMESPACE_NOT_FOUND]).await.map(|_| ())
    }

    /// Streams all documents of a collection.
    pub(super) fn all_of(
        &self,
        collection: String,
    ) -> BoxStream<'static, Result<Vec<RawDocumentBuf>>> {
        self.documents(collection, doc! {}, CHUNK, RawDocument::to_owned)
    }
}

/// Returns a statement that puts the entries of this document before the stored ones, unless the
/// stored ones already start with them.
fn put_before(document: &RawDocumentBuf) -> RawDocumentBuf {
    let id = document.get("_id").ok().flatten().map(RawBson::from);
    let mut merged =
        vec![RawBson::from(rawdoc! {"$literal": document.clone()}), RawBson::from("$$ROOT")];
    let ours = document.get_array("events");
    if let Some((ours, count)) = ours.ok().map(|ours| (ours.to_owned(), ours.into_iter().count()))
        && count > 0
    {
        let ours = rawdoc! {"$literal": ours};
        let stored = rawdoc! {"$ifNull": ["$events", []]};
        let events = rawdoc! {"$cond": {
            "if": {"$eq": [{"$slice": [stored.clone(), count as i32]}, ours.clone()]},
            "then": "$events",
            "else": {"$concatArrays": [ours, stored]},
        }};
        merged.push(RawBson::from(rawdoc! {"events": events}));
    }
    let merged = RawArrayBuf::from_iter(merged);
    rawdoc! {
        "q": {"_id": {"$eq": id.unwrap_or(RawBson::Null)}},
        "u": [{"$replaceWith": {"$mergeObjects": merged}}],
    }
}

fn lines(documents: &[RawDocumentBuf]) -> impl Iterator<Item = String> {
    documents.iter().map(|document| extjson::to_line(document))
}

/// Splits a batch into pages. A fan-out with parts is alone, because its parts may be long.
fn split(batch: Vec<RawDocumentBuf>) -> Vec<Vec<RawDocumentBuf>> {
    match batch.iter().any(|raw| parts_of(raw).is_some()) {
        true => batch.into_iter().map(|one| vec![one]).collect(),
        false => vec![batch],
    }
}

fn read_record(kind: RecordKind, raw: &RawDocument) -> Result<AnyRecord> {
    match kind {
        RecordKind::Objects => Ok(objects::object_of(raw)?.into()),
        RecordKind::Retractions => Ok(objects::read_retraction(raw)?.into()),
        kind => AnyRecord::read_from(kind, raw),
    }
}

impl RecordSource for &RawDocument {
    fn read<R: Record>(self) -> Result<R::Value> {
        read_bson::<R>(self)
    }
}

fn document(record: &AnyRecord) -> Result<RawDocumentBuf> {
    let doing = "importing records";
    match record {
        AnyRecord::User(user) => Ok(revised(user)?.0),
        AnyRecord::Object(object) => objects::record_of(object),
        AnyRecord::Inbox(inbox) => {
            let mut record = InboxRecord::from_value(inbox);
            record.revision = Some(Oid(NO_REVISION));
            write_bson(doing, &record)
        }
        AnyRecord::Retraction(one) => Ok(objects::retraction_document(one)),
        AnyRecord::Accumulator(accumulator) => {
            write_bson(doing, &AccumulatorRecord::document(accumulator, NO_REVISION))
        }
        AnyRecord::Delivery(delivery) => write_bson(doing, &DeliveryRecord::document(delivery)),
        AnyRecord::Fanout(fanout) => {
            let document = write_bson(doing, record)?;
            match document.as_bytes().len() > LARGEST {
                true => Err(Error::Unsupported(format!(
                    "event {} names more users than fit into one document; wait until the \
                     version that accepted it has pushed it to all of them, and export again",
                    fanout.id
                ))),
                false => Ok(document),
            }
        }
        record => write_bson(doing, record),
    }
}
