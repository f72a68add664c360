//! Reads documents, such that reads reflect all data this process has seen, and after
//! [`Mongo::caught_up`] every acknowledged write.
//!
//! Read concern "majority" does not guarantee current data: after an election, both the old and the
//! new primary may return old data. So every read carries the highest cluster time seen, and a
//! server that lags behind it waits or fails. See decision 11.

use std::collections::HashSet;

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use mongodb::options::FindOptions;
use mongodb::raw_batch_cursor::{RawBatch, SessionRawBatchCursor};
use mongodb::{ClientSession, Collection};

use super::bulk::Update;
use super::patience::LastFailure;
use super::{CATCH_UPS, Mongo};
use crate::store::record::{Record, read_bson, shown_id};
use crate::store::{Error, Result};

/// How often a cursor may be reopened without returning anything new.
const REOPENED: u32 = 5;

/// A piece ends with the document that reaches this size. Decoded, documents take about as much
/// memory as on the wire.
const PIECE: usize = 1 << 20;

/// `_id`s per batch.
const IDS: u32 = 10_000;

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
        let written = reply.get_document("opTime");
        let written = written.and_then(|written| written.get_timestamp("ts"));
        if let Ok(time) = written.or_else(|_| reply.get_timestamp("operationTime")) {
            self.raise_floor(time);
        }
    }

    /// Starts a session for a read that reflects all data seen so far.
    pub(super) async fn session(&self) -> std::result::Result<ClientSession, LastFailure> {
        let session = self.0.client.start_session().causal_consistency(true);
        let mut session = session.await?;
        if let Some(time) = self.floor() {
            session.advance_operation_time(time);
        }
        Ok(session)
    }

    fn note_read(&self, session: &ClientSession) {
        if let Some(time) = session.operation_time() {
            self.raise_floor(time);
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
        self.patiently(&doing, || async {
            let mut session = self.session().await?;
            let aggregate = match &collection {
                Some(collection) => collection.aggregate(pipeline.clone()),
                None => self.0.db.aggregate(pipeline.clone()),
            };
            let aggregate = aggregate.max_time(self.time_limit());
            let aggregate = aggregate.with_type::<RawDocumentBuf>();
            let mut found = aggregate.session(&mut session).await?;
            let all = found.stream(&mut session).try_collect().await?;
            self.note_read(&session);
            Ok(all)
        })
        .await
    }

    /// Counts the matching documents by reading them, or entries of an index, up to a limit.
    pub(super) async fn count_matching(
        &self,
        collection: &str,
        filter: Document,
        most: Option<u64>,
    ) -> Result<u64> {
        let mut pipeline = vec![doc! {"$match": filter}];
        pipeline.extend(most.map(|most| doc! {"$limit": most as i64}));
        pipeline.push(doc! {"$group": {"_id": Bson::Null, "n": {"$sum": 1_i64}}});
        let counted = self.aggregate(Some(collection), pipeline).await?;
        let count = counted.first().and_then(|counted| counted.get_i64("n").ok());
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
        let stored = self.find(collection, filter).fields(doc! {field: 1});
        let stored = stored.raw().await?;
        let stored = stored.iter().filter_map(|raw| document(raw));
        let keys = stored.filter_map(|mut one| Some((one.remove("_id")?, one.remove(field)?)));
        let keys: HashSet<(Bson, Bson)> = keys.collect();
        let key = |(id, revision): (&Bson, &Bson)| (id.clone(), revision.clone());
        let is_stored = |record| keys.contains(&key(record));
        Ok(records.into_iter().map(is_stored).collect())
    }

    /// Lists the collections that match a filter, as the primary knows them.
    pub(super) async fn find_collections(&self, filter: Document) -> Result<Vec<Document>> {
        let mut list = doc! {"listCollections": 1, "filter": filter};
        if let Some(time) = self.floor() {
            let concern = doc! {"level": "local", "afterClusterTime": Bson::Timestamp(time)};
            list.insert("readConcern", concern);
        }
        self.patiently("listing collections", || async {
            let listed = self.0.db.run_cursor_command(list.clone()).await?;
            Ok(listed.try_collect().await?)
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

    pub(super) fn limit(mut self, most: usize) -> Self {
        self.options.limit = Some(i64::try_from(most).unwrap_or(i64::MAX));
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
            .patiently(&doing, || async {
                let mut session = store.session().await?;
                let find = self.collection.find(self.filter.clone());
                let find = find.with_options(options.clone());
                let mut found = find.session(&mut session).await?;
                let all = found.stream(&mut session).try_collect().await?;
                if options.read_concern.is_none() {
                    store.note_read(&session);
                }
                Ok(all)
            })
            .await
    }

    /// Returns the records. Skips documents that are not valid BSON; a valid document that is not a
    /// valid record is an error.
    pub(super) async fn records<R: Record>(self) -> Result<Vec<R::Value>> {
        records::<R>(&self.raw().await?)
    }

    /// Returns the readable `_id`s.
    pub(super) async fn ids(self) -> Result<Vec<Bson>> {
        let found = self.raw_ids().await?;
        Ok(found.iter().filter_map(|raw| id_of(raw)).collect())
    }

    /// Returns at most `limit` values that `read` finds in `_id`s, and skips the others. Fewer than
    /// `limit` are the last ones.
    pub(super) async fn readable<T>(
        self,
        limit: usize,
        read: impl Fn(&RawDocument) -> Option<T>,
    ) -> Result<Vec<T>> {
        let mut most = limit;
        loop {
            let found = self.clone().limit(most).raw_ids().await?;
            let mut values: Vec<T> = found.iter().filter_map(|raw| read(raw)).collect();
            if values.len() >= limit || found.len() < most {
                if let Some(skipped) = found.iter().find(|raw| read(raw).is_none()) {
                    let (id, collection) = (shown_id(skipped), self.collection.name());
                    tracing::warn!(id, collection, "documents with an unreadable id are skipped");
                }
                values.truncate(limit);
                return Ok(values);
            }
            most = most.saturating_mul(2);
        }
    }

    /// Returns the documents with no other field than their `_id`.
    async fn raw_ids(self) -> Result<Vec<RawDocumentBuf>> {
        let mut find = self.fields(doc! {"_id": 1});
        find.options.batch_size = Some(IDS);
        find.raw().await
    }
}

/// Returns the `_id` of a document.
pub(super) fn id_of(raw: &RawDocument) -> Option<Bson> {
    Bson::try_from(raw.get("_id").ok()??).ok()
}

impl Mongo {
    /// Reads the matching documents one after another, in the order of their `_id`s, and streams
    /// the results in pieces. A lost cursor is reopened after the last document. A condition on
    /// `_id` must be a range of one type.
    pub(super) fn documents<T: Send + 'static>(
        &self,
        collection: String,
        filter: Document,
        batch_size: u32,
        read: impl Fn(&RawDocument) -> T + Send + Sync + 'static,
    ) -> BoxStream<'static, Result<Vec<T>>> {
        let cursor = Resuming {
            store: self.clone(),
            collection,
            batch_size,
            filter,
            last: None,
            cursor: None,
            batch: None,
            reopened: 0,
        };
        let next = |(mut cursor, read): (Resuming, _)| async move {
            let piece = cursor.next(&read).await?;
            Ok(piece.map(|piece| (piece, (cursor, read))))
        };
        stream::try_unfold((cursor, read), next).boxed()
    }
}

struct Resuming {
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

impl Resuming {
    async fn next<T>(&mut self, read: &impl Fn(&RawDocument) -> T) -> Result<Option<Vec<T>>> {
        let limit = self.store.0.options.attempt;
        loop {
            let piece = self.piece(read)?;
            if !piece.is_empty() {
                return Ok(Some(piece));
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
                Ok(Err(error)) => LastFailure::from(error),
                Err(_) => LastFailure::silent(limit),
            };
            self.reopened += 1;
            if !failure.passing || self.reopened > REOPENED {
                return Err(Error::database(self.doing(), failure));
            }
        }
    }

    /// Reads the next documents of the batch. Returns none at its end.
    fn piece<T>(&mut self, read: &impl Fn(&RawDocument) -> T) -> Result<Vec<T>> {
        let corrupt = || Error::corrupt(format!("a batch of {}", self.collection), "no BSON");
        let Some((batch, count)) = &mut self.batch else {
            return Ok(Vec::new());
        };
        let documents = batch.doc_slices().map_err(|_| corrupt())?.into_iter();
        let (mut piece, mut last, mut size) = (Vec::new(), None, 0);
        for document in documents.skip(*count) {
            let document = document.ok().and_then(|document| document.as_document());
            let document = document.ok_or_else(corrupt)?;
            piece.push(read(document));
            (last, size) = (Some(document), size + document.as_bytes().len());
            if size >= PIECE {
                break;
            }
        }
        if let Some(last) = last {
            (self.last, self.reopened) = (Some(last.to_owned()), 0);
        }
        *count += piece.len();
        Ok(piece)
    }

    fn doing(&self) -> String {
        format!("reading {}", self.collection)
    }

    async fn open(&mut self) -> Result<BoxStream<'static, mongodb::error::Result<RawBatch>>> {
        let documents = self.store.collection(&self.collection);
        let mut rest = self.filter.clone();
        if let Some(last) = &self.last {
            let id = id_of(last);
            let id = id.ok_or_else(|| Error::corrupt(self.doing(), "an _id cannot be compared"))?;
            match rest.get_document_mut("_id") {
                Ok(range) => range.insert("$gt", id),
                // `$gt` alone compares values of one type only. In `$expr`, it compares all, but
                // gives no bounds on a clustered collection, so the server reads all of it.
                Err(_) => rest.insert("$expr", doc! {"$gt": ["$_id", {"$literal": id}]}),
            };
        }
        self.store
            .patiently(&self.doing(), || async {
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
pub(super) fn document(raw: &RawDocument) -> Option<Document> {
    let document = Document::try_from(raw);
    let reported = document.inspect_err(|error| {
        tracing::warn!(%error, "a document cannot be read, and is skipped");
    });
    reported.ok()
}

/// Decodes records, see [`Find::records`].
pub(super) fn records<R: Record>(found: &[RawDocumentBuf]) -> Result<Vec<R::Value>> {
    let read = |raw: &RawDocumentBuf| match read_bson::<R>(raw) {
        Err(error) => document(raw).map(|_| Err(error)),
        read => Some(read),
    };
    found.iter().filter_map(read).collect()
}

/// Calls `ask` for each item, at most `limit` at a time, and passes on the results as they arrive.
pub(super) async fn at_once<T, F: Future<Output = Result<T>>>(
    limit: usize,
    items: impl IntoIterator<Item = usize>,
    ask: impl Fn(usize) -> F,
    mut answer: impl FnMut(T),
) -> Result<()> {
    let mut answers = stream::iter(items).map(ask).buffer_unordered(limit);
    while let Some(part) = answers.next().await {
        answer(part?);
    }
    Ok(())
}
