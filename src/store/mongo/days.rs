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
use super::journal::{DONE, part_count, part_id};
use super::patience::{DUPLICATE, NAMESPACE_EXISTS, NAMESPACE_NOT_FOUND};
use super::reads::{id_of, run_concurrently};
use super::users::encode_user;
use super::{
    AUDIENCES, BATCHES, DELIVERIES, FANOUTS, INBOXES, Mongo, RETRACTIONS, date, objects, oid,
};
use crate::domain::day::COLLECTION_PREFIX;
use crate::domain::{Day, DeliveryState, Id};
use crate::store::day_lines::{merge, owner_of};
use crate::store::record::batch::AccumulatorRecord;
use crate::store::record::delivery::DeliveryRecord;
use crate::store::record::small::InboxRecord;
use crate::store::record::values::{StoredForm, StoredId};
use crate::store::record::{Record, read_bson, write_bson};
use crate::store::record_lines::{NO_REVISION, RecordSource};
use crate::store::{
    AnyRecord, Checksum, ChecksumBuilder, Days, Error, ExpiringRecords, ExportPart, MergePolicy,
    RecordKind, RecordPage, Result, extjson,
};

/// The maximum size of a document to import. MongoDB's limit is 16 MiB for it and the rest of the
/// command.
const MAX_IMPORTED_BYTES: usize = (16 << 20) - (64 << 10);
/// For reading whole collections.
const DOCUMENTS_PER_CHUNK: u32 = 1_000;
/// How often to try to merge a document while other processes write to it.
const MAX_MERGE_ATTEMPTS: usize = 100;
const MAX_MERGES_IN_FLIGHT: usize = 8;
/// MongoDB 6.0 reports a duplicate with this error code if the `_id` is a number with a fraction in
/// a clustered collection.
const DUPLICATE_FRACTION: i32 = 50810;
/// The name prefix of a day that is being dropped. A suffix identifies the attempt.
const DROP_PREFIX: &str = "leaving_";

/// Returns a pattern for the names of this day's renamed collections.
fn renamed_pattern(day: Day) -> String {
    format!("^{DROP_PREFIX}{}_[0-9a-f]{{24}}$", day.collection_name())
}

#[async_trait]
impl Days for Mongo {
    async fn days(&self) -> Result<Vec<Day>> {
        // Includes days whose drop was interrupted.
        let pattern = format!("^({DROP_PREFIX})?{COLLECTION_PREFIX}[0-9]{{8}}(_[0-9a-f]{{24}})?$");
        let names = self.collection_names(&pattern).await?;
        let day = |name: &String| {
            let original = name.strip_prefix(DROP_PREFIX).unwrap_or(name);
            Day::from_collection(original.get(..COLLECTION_PREFIX.len() + 8)?)
        };
        let mut days: Vec<Day> = names.iter().filter_map(day).collect();
        days.sort_unstable();
        days.dedup();
        Ok(days)
    }

    async fn fix_day(&self, day: Day) -> Result<()> {
        for renamed in self.collection_names(&renamed_pattern(day)).await? {
            self.rename_back(day, &renamed).await?;
        }
        Ok(())
    }

    async fn drop_day(&self, day: Day, sum: &Checksum) -> Result<bool> {
        let name = day.collection_name();
        let renamed = format!("{DROP_PREFIX}{name}_{}", ObjectId::new());
        self.known_days().remove(&day);
        // If the name is in use or the source is missing, an earlier attempt may have succeeded.
        if self.rename(&name, &renamed).await? == Err(NAMESPACE_NOT_FOUND)
            && self.collection_names(&format!("^{renamed}$")).await?.is_empty()
        {
            return Ok(sum.records == 0);
        }
        let mut summing = ChecksumBuilder::default();
        let mut chunks = self.all_documents(renamed.clone());
        while let Some(chunk) = chunks.try_next().await? {
            lines(&chunk).for_each(|line| summing.add(&line));
        }
        drop(chunks);
        if summing.finish() != *sum {
            self.rename_back(day, &renamed).await?;
            return Ok(false);
        }
        self.drop_collection(&renamed).await?;
        Ok(true)
    }

    fn export(&self, which: ExportPart) -> BoxStream<'_, Result<RecordPage>> {
        match which {
            ExportPart::Records(kind) => {
                let chunks = self.all_documents(kind.as_str().to_owned());
                let pages = chunks.map_ok(|chunk| stream::iter(split(chunk)).map(Ok::<_, Error>));
                pages.try_flatten().and_then(move |page| self.record_page(kind, page)).boxed()
            }
            ExportPart::Day(day) => {
                let page = |chunk: Vec<RawDocumentBuf>| RecordPage {
                    lines: lines(&chunk).collect(),
                    unreadable: Vec::new(),
                };
                self.all_documents(day.collection_name()).map_ok(page).boxed()
            }
        }
    }

    async fn import_records(&self, kind: RecordKind, lines: &[String]) -> Result<()> {
        let records: Vec<AnyRecord> =
            lines.iter().map(|line| AnyRecord::from_line(kind, line)).collect::<Result<_>>()?;
        let statement = |record: &AnyRecord| {
            let document = encode_record(record)?;
            let id = match record {
                AnyRecord::Accumulator(accumulator) => Some(accumulator_id(&accumulator.id).into()),
                _ => id_of(&document),
            };
            Ok(Update::upsert(doc! {"_id": id}, document))
        };
        let statements: Vec<_> = records.iter().map(statement).collect::<Result<_>>()?;
        self.upsert(kind.as_str(), statements).await
    }

    async fn restore_day(&self, day: Day, stacks: &[String], policy: MergePolicy) -> Result<()> {
        let unreadable = |error| Error::corrupt(format!("a line of {day}"), error);
        let mut documents: Vec<RawDocumentBuf> = Vec::with_capacity(stacks.len());
        for line in stacks {
            let document = extjson::from_line(line).map_err(unreadable)?;
            id_of(&document).ok_or_else(|| unreadable("it has no _id".into()))?;
            documents.push(document);
        }
        self.create_day(day).await?;
        let stored = self.insert_into(day, &documents).await?;
        let merge = |index: usize| self.merge_stored(day, &documents[index], policy);
        run_concurrently(MAX_MERGES_IN_FLIGHT, stored, merge, drop).await
    }

    async fn forget(
        &self,
        what: ExpiringRecords,
        before: DateTime<Utc>,
        limit: usize,
    ) -> Result<u64> {
        let (end_id, end_date) = (oid(Id::at(before, [0; 8])), date(before));
        let is_settled = doc! {
            "state": {"$ne": DeliveryState::Unknown.as_str()}, "slot": {"$exists": false},
        };
        let (collection, time_field, end, mut is_old) = match what {
            ExpiringRecords::Events => (FANOUTS, "_id", end_id, doc! {"state": DONE}),
            ExpiringRecords::Retractions => (RETRACTIONS, "at", end_id, doc! {}),
            ExpiringRecords::Batches => (BATCHES, "settled", end_date, doc! {}),
            ExpiringRecords::Deliveries => (DELIVERIES, "settled", end_date, is_settled),
            ExpiringRecords::Inboxes => (INBOXES, "changed", end_date, doc! {}),
        };
        is_old.insert(time_field, doc! {"$lt": &end});
        let oldest = self.find(collection, is_old.clone()).sort(doc! {time_field: 1}).limit(limit);
        let ids = oldest.ids().await?;
        if !ids.is_empty() {
            // A record that was found to be old is deleted only if it is still old.
            let still_old = doc! {"$and": [{"_id": {"$in": &ids}}, is_old]};
            self.delete_matching(collection, still_old).await?;
        }
        if what == ExpiringRecords::Events {
            let is_last = ids.len() < limit;
            self.delete_audience_parts(&ids, is_last.then_some(&end)).await?;
        }
        Ok(ids.len() as u64)
    }
}

impl Mongo {
    async fn record_page(
        &self,
        kind: RecordKind,
        documents: Vec<RawDocumentBuf>,
    ) -> Result<RecordPage> {
        let mut page = RecordPage::default();
        for raw in documents {
            let record = match kind {
                RecordKind::Fanouts => self.read_fanout(&raw).await.map(AnyRecord::from),
                kind => read_record(kind, &raw),
            };
            match record {
                Ok(record) => page.push(&record)?,
                Err(error) if error.is_outage() => return Err(error),
                Err(error) => page.unreadable.push(error.to_string()),
            }
        }
        Ok(page)
    }

    /// Removes the parts of the audiences of these removed fan-outs. With an `end`, also removes
    /// the parts before `end` that are older than all fan-outs: a process that crashed left them.
    async fn delete_audience_parts(&self, removed: &[Bson], end: Option<&Bson>) -> Result<()> {
        let parts_of =
            |id: &Bson| doc! {"_id": {"$gte": part_id(id, 0), "$lte": part_id(id, i32::MAX)}};
        let mut parts: Vec<Document> = removed.iter().map(parts_of).collect();
        if let Some(end) = end {
            let remaining = self.find(FANOUTS, doc! {"_id": {"$lt": end}});
            let ids = remaining.sort(doc! {"_id": 1}).limit(1).ids().await?;
            let oldest = ids.first().unwrap_or(end);
            parts.push(doc! {"_id": {"$lt": part_id(oldest, 0)}});
        }
        if !parts.is_empty() {
            self.delete_matching(AUDIENCES, doc! {"$or": parts}).await?;
        }
        Ok(())
    }

    /// Counts by reading the documents: the server's metadata may be wrong after a crash.
    pub(super) async fn count_stacks(&self, day: Day) -> Result<u64> {
        let mut names = self.collection_names(&renamed_pattern(day)).await?;
        names.push(day.collection_name());
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
        let name = day.collection_name();
        let inserted = self.write(CommandKind::Insert, &name, documents).await?;
        let is_stored = |rejected: &RejectedStatement| {
            matches!(rejected.failure.code, Some(DUPLICATE | DUPLICATE_FRACTION))
        };
        Ok(inserted.rejected_if(is_stored)?.into_iter().map(|rejected| rejected.item).collect())
    }

    /// Restores a document whose `_id` is already stored. Both must be equal, or each entry is
    /// appended once (see [`merge`]).
    async fn merge_stored(
        &self,
        day: Day,
        document: &RawDocumentBuf,
        policy: MergePolicy,
    ) -> Result<()> {
        let (name, id) = (day.collection_name(), id_of(document));
        // Other writers may append meanwhile, but rarely to an old day.
        for _ in 0..MAX_MERGE_ATTEMPTS {
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
            let new = merge(day, stored, document, policy)?;
            if new.is_empty() {
                return Ok(());
            }
            // Appends if the stack still has this length.
            let events = stored.get_array("events");
            let length = events.map_or(0, |events| events.into_iter().count() as i32);
            let q = doc! {"_id": {"$eq": &id}, "events": {"$size": length}};
            let push = rawdoc! {"$push": {"events": {"$each": RawArrayBuf::from_iter(new)}}};
            let outcome = self.write(CommandKind::Update, &name, [Update::new(q, push)]).await?;
            // If the command was sent twice, the next comparison shows whether it took effect.
            let is_resent = outcome.is_resent;
            if outcome.complete()? == 1 && !is_resent {
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
        if self.rename(renamed, &day.collection_name()).await? != Err(NAMESPACE_EXISTS) {
            return Ok(());
        }
        let (name, mut chunks) = (day.collection_name(), self.all_documents(renamed.to_owned()));
        while let Some(documents) = chunks.try_next().await? {
            let stored = self.insert_into(day, &documents).await?;
            let statements = stored.iter().map(|index| prepend_statement(&documents[*index]));
            self.write(CommandKind::Update, &name, statements).await?.complete()?;
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
        Ok(self.run(&self.admin(), rename, &expected).await?.map(drop))
    }

    /// Returns the names of the collections that match a pattern, without views.
    async fn collection_names(&self, pattern: &str) -> Result<Vec<String>> {
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
    pub(super) fn all_documents(
        &self,
        collection: String,
    ) -> BoxStream<'static, Result<Vec<RawDocumentBuf>>> {
        self.documents(collection, doc! {}, DOCUMENTS_PER_CHUNK, RawDocument::to_owned)
    }
}

/// Returns a statement that puts the entries of this document before the stored ones, unless the
/// stored ones already start with them.
fn prepend_statement(document: &RawDocumentBuf) -> RawDocumentBuf {
    let id = document.get("_id").ok().flatten().map(RawBson::from);
    let mut merged =
        vec![RawBson::from(rawdoc! {"$literal": document.clone()}), RawBson::from("$$ROOT")];
    let events = document.get_array("events").ok();
    let count = events.map_or(0, |events| events.into_iter().count());
    if let Some(events) = events
        && count > 0
    {
        let ours = rawdoc! {"$literal": events.to_owned()};
        let stored = rawdoc! {"$ifNull": ["$events", []]};
        let events = rawdoc! {"$cond": {
            "if": {"$eq": [{"$slice": [stored.clone(), count as i32]}, ours.clone()]},
            "then": "$events",
            "else": {"$concatArrays": [ours, stored]},
        }};
        merged.push(RawBson::from(rawdoc! {"events": events}));
    }
    rawdoc! {
        "q": {"_id": {"$eq": id.unwrap_or(RawBson::Null)}},
        "u": [{"$replaceWith": {"$mergeObjects": RawArrayBuf::from_iter(merged)}}],
    }
}

fn lines(documents: &[RawDocumentBuf]) -> impl Iterator<Item = String> {
    documents.iter().map(|document| extjson::to_line(document))
}

/// Splits a chunk into pages of one document each if it has a fan-out with parts, because the parts
/// may be long.
fn split(chunk: Vec<RawDocumentBuf>) -> Vec<Vec<RawDocumentBuf>> {
    if chunk.iter().any(|raw| part_count(raw).is_some()) {
        chunk.into_iter().map(|raw| vec![raw]).collect()
    } else {
        vec![chunk]
    }
}

fn read_record(kind: RecordKind, raw: &RawDocument) -> Result<AnyRecord> {
    match kind {
        RecordKind::Objects => Ok(objects::read_object(raw)?.into()),
        RecordKind::Retractions => Ok(objects::read_retraction(raw)?.into()),
        kind => AnyRecord::read_from(kind, raw),
    }
}

impl RecordSource for &RawDocument {
    fn read<R: Record>(self) -> Result<R::Value> {
        read_bson::<R>(self)
    }
}

fn encode_record(record: &AnyRecord) -> Result<RawDocumentBuf> {
    let doing = "importing records";
    match record {
        AnyRecord::User(user) => Ok(encode_user(user)?.0),
        AnyRecord::Object(object) => objects::encode_object(object),
        AnyRecord::Inbox(inbox) => {
            let mut record = InboxRecord::from_value(inbox);
            record.revision = Some(StoredId(NO_REVISION));
            write_bson(doing, &record)
        }
        AnyRecord::Retraction(retraction) => Ok(objects::encode_retraction(retraction)),
        AnyRecord::Accumulator(accumulator) => {
            write_bson(doing, &AccumulatorRecord::for_document(accumulator, NO_REVISION))
        }
        AnyRecord::Delivery(delivery) => write_bson(doing, &DeliveryRecord::for_document(delivery)),
        AnyRecord::Fanout(fanout) => {
            let document = write_bson(doing, record)?;
            if document.as_bytes().len() > MAX_IMPORTED_BYTES {
                return Err(Error::Unsupported(format!(
                    "event {} names more users than fit into one document; wait until the \
                     version that accepted it has pushed it to all of them, and export again",
                    fanout.id
                )));
            }
            Ok(document)
        }
        record => write_bson(doing, record),
    }
}
