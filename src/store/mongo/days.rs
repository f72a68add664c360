//! Lists, drops, exports and restores whole days.
//!
//! A day is exported and restored exactly as it is. To drop a day, its collection is renamed,
//! compared, and dropped or renamed back. Writers cannot reach the renamed collection; new entries
//! for the day create a new one. After a crash, `fix_day` renames it back. Each attempt has its own
//! name, so a slow one cannot drop another's.

use async_trait::async_trait;
use bson::oid::ObjectId;
use bson::{Document, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, doc, rawdoc};
use chrono::{DateTime, Utc};
use futures::stream::BoxStream;
use futures::{StreamExt, TryStreamExt};

use super::Mongo;
use super::bulk::{CommandKind, RejectedStatement, Update};
use super::patience::{DUPLICATE, NAMESPACE_EXISTS, NAMESPACE_NOT_FOUND};
use super::reads::{id_of, run_concurrently};
use crate::domain::Day;
use crate::domain::day::COLLECTION_PREFIX;
use crate::store::day_lines::{merge, owner_of};
use crate::store::{
    Checksum, ChecksumBuilder, Days, Error, ExpiringRecords, ExportPart, MergePolicy, RecordKind,
    RecordPage, Result, extjson,
};

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
            ExportPart::Records(kind) => self.export_records(kind),
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
        self.import_lines(kind, lines).await
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
        self.delete_expired(what, before, limit).await
    }
}

impl Mongo {
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
