//! Reads documents, such that reads reflect all data this process has seen, and after
//! [`Mongo::caught_up`] every acknowledged write.
//!
//! Read concern "majority" does not guarantee current data: after an election, both the old and the
//! new primary may return old data. So every read carries the highest cluster time seen, and a
//! server that lags behind it waits or fails. See decision 11.

use std::collections::{HashMap, HashSet};
use std::hash::Hash;

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use mongodb::options::FindOptions;
use mongodb::raw_batch_cursor::{RawBatch, SessionRawBatchCursor};
use mongodb::{ClientSession, Collection};

use super::bulk::Update;
use super::patience::AttemptFailure;
use super::{CATCH_UPS, Mongo};
use crate::store::record::{Record, format_id, read_bson};
use crate::store::{Error, Result};

/// How often a cursor may be reopened without returning anything new.
const MAX_REOPENED: u32 = 5;

/// A chunk ends with the document that reaches this size in bytes. Decoded, documents take about as
/// much memory as on the wire.
const CHUNK_BYTES: usize = 1 << 20;

const IDS_PER_BATCH: u32 = 10_000;

impl Mongo {
    /// Makes later reads reflect every write that was acknowledged to any client before this call.
    ///
    /// Only the current primary can get its own write acknowledged by a majority, and every earlier
    /// acknowledged write precedes that write. The write has to change something: an old primary
    /// could acknowledge a write without effect on its own.
    pub(super) async fn caught_up(&self) -> Result<()> {
        let count = Update::upsert(doc! {"_id": "all"}, doc! {"$inc": {"n": 1_i64}});
        self.upsert(CATCH_UPS, [count]).await
    }

    /// Takes the cluster time from the reply to a majority write, so that later reads reflect the
    /// write. A server reports the time of the write; a router only reports the server's latest
    /// time.
    pub(super) fn note_write(&self, reply: &Document) {
        let write_time = reply.get_document("opTime").and_then(|time| time.get_timestamp("ts"));
        if let Ok(time) = write_time.or_else(|_| reply.get_timestamp("operationTime")) {
            self.raise_min_cluster_time(time);
        }
    }

    /// Starts a session for a read that reflects all data seen so far.
    pub(super) async fn session(&self) -> std::result::Result<ClientSession, AttemptFailure> {
        let mut session = self.0.client.start_session().causal_consistency(true).await?;
        if let Some(time) = self.min_cluster_time() {
            session.advance_operation_time(time);
        }
        Ok(session)
    }

    fn note_read(&self, session: &ClientSession) {
        if let Some(time) = session.operation_time() {
            self.raise_min_cluster_time(time);
        }
    }

    /// Selects the documents of a collection that match a filter.
    pub(super) fn find(&self, collection: &str, filter: Document) -> Find<'_> {
        Find {
            store: self,
            collection: self.0.db.collection(collection),
            filter,
            options: FindOptions::default(),
        }
    }

    /// Selects the documents with these `_id`s, in any order. Not for days: on MongoDB 6.0, `$in`
    /// reads the whole clustered collection.
    pub(super) fn find_by_id(
        &self,
        collection: &str,
        ids: impl IntoIterator<Item: Into<Bson>>,
    ) -> Find<'_> {
        let ids: Vec<Bson> = ids.into_iter().map(Into::into).collect();
        let limit = if ids.is_empty() { 0 } else { usize::MAX };
        self.find(collection, doc! {"_id": {"$in": ids}}).limit(limit)
    }

    /// Returns the results of an aggregation on a collection, or on the database if none is given.
    /// For results that fit into memory.
    pub(super) async fn aggregate(
        &self,
        collection: Option<&str>,
        pipeline: Vec<Document>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let doing = format!("reading {}", collection.unwrap_or("stacks"));
        let collection = collection.map(|name| self.collection(name));
        self.retry(&doing, || async {
            let mut session = self.session().await?;
            let aggregate = match &collection {
                Some(collection) => collection.aggregate(pipeline.clone()),
                None => self.0.db.aggregate(pipeline.clone()),
            };
            let mut cursor = aggregate
                .max_time(self.time_limit())
                .with_type::<RawDocumentBuf>()
                .session(&mut session)
                .await?;
            let documents = cursor.stream(&mut session).try_collect().await?;
            self.note_read(&session);
            Ok(documents)
        })
        .await
    }

    /// Counts the matching documents by reading them, or entries of an index, up to a limit.
    pub(super) async fn count_matching(
        &self,
        collection: &str,
        filter: Document,
        limit: Option<u64>,
    ) -> Result<u64> {
        let mut pipeline = vec![doc! {"$match": filter}];
        pipeline.extend(limit.map(|limit| doc! {"$limit": limit as i64}));
        pipeline.push(doc! {"$group": {"_id": Bson::Null, "n": {"$sum": 1_i64}}});
        let groups = self.aggregate(Some(collection), pipeline).await?;
        let count = groups.first().and_then(|group| group.get_i64("n").ok());
        Ok(count.unwrap_or_default() as u64)
    }

    /// Returns whether each of these records is stored under this revision.
    pub(super) async fn are_stored(
        &self,
        collection: &str,
        field: &str,
        records: Vec<(&Bson, &Bson)>,
    ) -> Result<Vec<bool>> {
        let (ids, revisions): (Vec<&Bson>, Vec<&Bson>) = records.iter().copied().unzip();
        let filter = doc! {"_id": {"$in": ids}, field: {"$in": revisions}};
        let found = self.find(collection, filter).fields(doc! {field: 1}).raw().await?;
        let stored: HashSet<(Bson, Bson)> = found
            .iter()
            .filter_map(|raw| decode(raw))
            .filter_map(|mut record| Some((record.remove("_id")?, record.remove(field)?)))
            .collect();
        let is_stored =
            |(id, revision): (&Bson, &Bson)| stored.contains(&(id.clone(), revision.clone()));
        Ok(records.into_iter().map(is_stored).collect())
    }

    /// Lists the collections that match a filter, as the primary knows them.
    pub(super) async fn find_collections(&self, filter: Document) -> Result<Vec<Document>> {
        let mut list = doc! {"listCollections": 1, "filter": filter};
        if let Some(time) = self.min_cluster_time() {
            let concern = doc! {"level": "local", "afterClusterTime": Bson::Timestamp(time)};
            list.insert("readConcern", concern);
        }
        self.retry("listing collections", || async {
            let cursor = self.0.db.run_cursor_command(list.clone()).await?;
            Ok(cursor.try_collect().await?)
        })
        .await
    }
}

/// A query. It waits until the server has all data that this process has seen.
#[derive(Clone)]
pub(super) struct Find<'a> {
    pub store: &'a Mongo,
    pub collection: Collection<RawDocumentBuf>,
    pub filter: Document,
    pub options: FindOptions,
}

impl Find<'_> {
    pub(super) fn sort(mut self, order: Document) -> Self {
        self.options.sort = Some(order);
        self
    }

    pub(super) fn limit(mut self, limit: usize) -> Self {
        self.options.limit = Some(i64::try_from(limit).unwrap_or(i64::MAX));
        self
    }

    pub(super) fn fields(mut self, projection: Document) -> Self {
        self.options.projection = Some(projection);
        self
    }

    /// Returns all documents, undecoded, so that unreadable ones are included. A limit of 0 returns
    /// none, although the server treats it as no limit.
    ///
    /// A read with a read concern of its own does not raise the cluster time, because later reads
    /// need not wait until a majority has the data.
    pub(super) async fn raw(self) -> Result<Vec<RawDocumentBuf>> {
        let (store, mut options) = (self.store, self.options);
        if options.limit == Some(0) {
            return Ok(Vec::new());
        }
        options.max_time = Some(store.time_limit());
        let doing = format!("reading {}", self.collection.name());
        store
            .retry(&doing, || async {
                let mut session = store.session().await?;
                let find = self.collection.find(self.filter.clone()).with_options(options.clone());
                let mut cursor = find.session(&mut session).await?;
                let documents = cursor.stream(&mut session).try_collect().await?;
                if options.read_concern.is_none() {
                    store.note_read(&session);
                }
                Ok(documents)
            })
            .await
    }

    /// Returns the records. Skips documents that are not valid BSON; a valid document that is not a
    /// valid record is an error.
    pub(super) async fn records<R: Record>(self) -> Result<Vec<R::Value>> {
        read_records::<R>(&self.raw().await?)
    }

    /// Returns the readable `_id`s.
    pub(super) async fn ids(self) -> Result<Vec<Bson>> {
        Ok(self.raw_ids().await?.iter().filter_map(|raw| id_of(raw)).collect())
    }

    /// Returns up to `limit` values that `read` returns for documents with only their `_id`. Skips
    /// unreadable ones. If it returns fewer than `limit`, there are no more.
    pub(super) async fn readable_ids<T>(
        self,
        limit: usize,
        read: impl Fn(&RawDocument) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut read_limit = limit;
        loop {
            let found = self.clone().limit(read_limit).raw_ids().await?;
            let mut values: Vec<T> = found.iter().filter_map(|raw| read(raw)).collect();
            if values.len() >= limit || found.len() < read_limit {
                if let Some(skipped) = found.iter().find(|raw| read(raw).is_none()) {
                    let (id, collection) = (format_id(skipped), self.collection.name());
                    tracing::warn!(id, collection, "documents with an unreadable id are skipped");
                }
                values.truncate(limit);
                return Ok(values);
            }
            read_limit = read_limit.saturating_mul(2);
        }
    }

    /// Returns the documents with no other field than their `_id`.
    async fn raw_ids(self) -> Result<Vec<RawDocumentBuf>> {
        let mut find = self.fields(doc! {"_id": 1});
        find.options.batch_size = Some(IDS_PER_BATCH);
        find.raw().await
    }
}

/// Returns the `_id` of a document.
pub(super) fn id_of(raw: &RawDocument) -> Option<Bson> {
    Bson::try_from(raw.get("_id").ok()??).ok()
}

impl Mongo {
    /// Reads the matching documents one after another, in the order of their `_id`s, and streams
    /// the results in chunks. A lost cursor is reopened after the last document. A condition on
    /// `_id` must be a range of one type.
    pub(super) fn documents<T: Send + 'static>(
        &self,
        collection: String,
        filter: Document,
        batch_size: u32,
        read: impl Fn(&RawDocument) -> T + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<Vec<T>>> {
        let cursor = ResumingCursor {
            store: self.clone(),
            collection,
            batch_size,
            filter,
            last: None,
            cursor: None,
            batch: None,
            reopened: 0,
        };
        let next = |(mut cursor, read): (ResumingCursor, _)| async move {
            let chunk = cursor.next_chunk(&read).await?;
            Ok(chunk.map(|chunk| (chunk, (cursor, read))))
        };
        stream::try_unfold((cursor, read), next).boxed()
    }
}

struct ResumingCursor {
    store: Mongo,
    collection: String,
    batch_size: u32,
    filter: Document,
    /// The last document that was read.
    last: Option<RawDocumentBuf>,
    cursor: Option<BoxStream<'static, mongodb::error::Result<RawBatch>>>,
    /// The current batch, and how many of its documents were read.
    batch: Option<(RawBatch, usize)>,
    /// The number of times the cursor was reopened since it last returned a document.
    reopened: u32,
}

impl ResumingCursor {
    async fn next_chunk<T>(&mut self, read: &impl Fn(&RawDocument) -> T) -> Result<Option<Vec<T>>> {
        let limit = self.store.0.options.attempt_timeout;
        loop {
            let chunk = self.read_batch(read)?;
            if !chunk.is_empty() {
                return Ok(Some(chunk));
            }
            let mut cursor = match self.cursor.take() {
                Some(cursor) => cursor,
                None => self.open().await?,
            };
            let failure = match tokio::time::timeout(limit, cursor.try_next()).await {
                Ok(Ok(None)) => return Ok(None),
                Ok(Ok(Some(batch))) => {
                    (self.cursor, self.batch) = (Some(cursor), Some((batch, 0)));
                    continue;
                }
                Ok(Err(error)) => AttemptFailure::from(error),
                Err(_) => AttemptFailure::timeout(limit),
            };
            self.reopened += 1;
            if !failure.is_transient || self.reopened > MAX_REOPENED {
                return Err(Error::database(self.doing(), failure));
            }
        }
    }

    /// Reads the next documents of the batch. Returns none at its end.
    fn read_batch<T>(&mut self, read: &impl Fn(&RawDocument) -> T) -> Result<Vec<T>> {
        let corrupt = || Error::corrupt(format!("a batch of {}", self.collection), "no BSON");
        let Some((batch, count)) = &mut self.batch else {
            return Ok(Vec::new());
        };
        let documents = batch.doc_slices().map_err(|_| corrupt())?.into_iter();
        let (mut chunk, mut last, mut size) = (Vec::new(), None, 0);
        for element in documents.skip(*count) {
            let document = element.ok().and_then(|element| element.as_document());
            let document = document.ok_or_else(corrupt)?;
            chunk.push(read(document));
            (last, size) = (Some(document), size + document.as_bytes().len());
            if size >= CHUNK_BYTES {
                break;
            }
        }
        if let Some(last) = last {
            (self.last, self.reopened) = (Some(last.to_owned()), 0);
        }
        *count += chunk.len();
        Ok(chunk)
    }

    fn doing(&self) -> String {
        format!("reading {}", self.collection)
    }

    async fn open(&mut self) -> Result<BoxStream<'static, mongodb::error::Result<RawBatch>>> {
        let documents = self.store.collection(&self.collection);
        let mut rest = self.filter.clone();
        if let Some(last) = &self.last {
            let id = id_of(last)
                .ok_or_else(|| Error::corrupt(self.doing(), "an _id cannot be compared"))?;
            match rest.get_document_mut("_id") {
                Ok(range) => range.insert("$gt", id),
                // `$gt` alone compares values of one type only. In `$expr`, it compares all, but
                // gives no bounds on a clustered collection, so the server reads all of it.
                Err(_) => rest.insert("$expr", doc! {"$gt": ["$_id", {"$literal": id}]}),
            };
        }
        self.store
            .retry(&self.doing(), || async {
                let mut session = self.store.session().await?;
                let find = documents
                    .find(rest.clone())
                    .sort(doc! {"_id": 1})
                    .batch_size(self.batch_size);
                let cursor = find.session(&mut session).batch().await?;
                self.store.note_read(&session);
                let next = |(mut cursor, mut session): (SessionRawBatchCursor, ClientSession)| async move {
                    let batch = cursor.stream(&mut session).next().await.transpose()?;
                    Ok(batch.map(|batch| (batch, (cursor, session))))
                };
                Ok(stream::try_unfold((cursor, session), next).boxed())
            })
            .await
    }
}

/// Decodes a document. One that cannot be decoded, such as one with text that is not UTF-8, is
/// skipped so that the others can still be read.
pub(super) fn decode(raw: &RawDocument) -> Option<Document> {
    Document::try_from(raw)
        .inspect_err(|error| tracing::warn!(%error, "a document cannot be read, and is skipped"))
        .ok()
}

/// Decodes records, see [`Find::records`].
pub(super) fn read_records<R: Record>(documents: &[RawDocumentBuf]) -> Result<Vec<R::Value>> {
    let read = |raw: &RawDocumentBuf| match read_bson::<R>(raw) {
        Err(error) => decode(raw).map(|_| Err(error)),
        record => Some(record),
    };
    documents.iter().filter_map(read).collect()
}

/// Returns the value with each key, in the order of the keys.
pub(super) fn in_order_of<K: Eq + Hash + Clone, V: Clone>(
    keys: &[K],
    values: impl IntoIterator<Item = V>,
    key_of: impl Fn(&V) -> &K,
) -> Vec<Option<V>> {
    let by_key: HashMap<K, V> =
        values.into_iter().map(|value| (key_of(&value).clone(), value)).collect();
    keys.iter().map(|key| by_key.get(key).cloned()).collect()
}

/// Calls `start` for each index, at most `limit` at a time, and `collect` for each result.
pub(super) async fn run_concurrently<T, F: Future<Output = Result<T>>>(
    limit: usize,
    indices: impl IntoIterator<Item = usize>,
    start: impl Fn(usize) -> F,
    mut collect: impl FnMut(T),
) -> Result<()> {
    let mut results = stream::iter(indices).map(start).buffer_unordered(limit);
    while let Some(result) = results.next().await {
        collect(result?);
    }
    Ok(())
}
