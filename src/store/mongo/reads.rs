//! Reads documents, such that reads reflect all data this process has seen, and after
//! [`Mongo::caught_up`] every acknowledged write.
//!
//! Read concern "majority" does not guarantee current data: after an election, both the old and the
//! new primary may return old data. So every read carries the highest cluster time seen, and a
//! server that lags behind it waits or fails. See decision 11.

use bson::{Bson, Document, RawDocument, RawDocumentBuf, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use mongodb::action::Find;
use mongodb::options::{AggregateOptions, Collation, CountOptions, FindOptions};
use mongodb::raw_batch_cursor::{RawBatch, SessionRawBatchCursor};
use mongodb::{ClientSession, Collection, SessionCursor};
use serde::de::DeserializeOwned;

use super::bulk::Write;
use super::patience::Failure;
use super::{CATCH_UPS, Mongo, ids_in_order};
use crate::store::record::{Record, read_bson};
use crate::store::{Error, Result};

/// How often a cursor may be reopened without returning anything new.
const REOPENED: u32 = 5;

impl Mongo {
    /// Makes later reads reflect every write that was acknowledged to any client before this call.
    ///
    /// Only the current primary can get its own write acknowledged by a majority, and every earlier
    /// acknowledged write precedes that write. The write has to change something: an old primary
    /// could acknowledge a write without effect on its own.
    pub(super) async fn caught_up(&self) -> Result<()> {
        let write = Write {
            q: doc! {"_id": "all"},
            u: doc! {"$inc": {"n": 1_i64}},
            upsert: true,
        };
        let doing = "catching up with what others wrote";
        self.upsert(doing, CATCH_UPS, [write]).await
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
    async fn session(&self) -> std::result::Result<ClientSession, Failure> {
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

    /// Returns all records that a query finds. For results that fit into memory.
    pub(super) async fn find_records<R: Record>(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        options: FindOptions,
    ) -> Result<Vec<R::Value>> {
        let found = self.find_raw(doing, collection, filter, options).await?;
        records::<R>(doing, &found).collect()
    }

    /// Returns the `_id`s of at most `limit` matching documents, in this order.
    pub(super) async fn find_ids(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        order: Document,
        limit: usize,
    ) -> Result<Vec<Bson>> {
        let options = ids_in_order(order, limit);
        let found = self.find_raw(doing, collection, filter, options).await?;
        let id = |record: &RawDocumentBuf| Bson::try_from(record.get("_id").ok()??).ok();
        Ok(found.iter().filter_map(id).collect())
    }

    /// Returns the documents with these `_id`s, in any order. Not for days: on MongoDB 6.0, `$in`
    /// reads the whole clustered collection.
    pub(super) async fn find_by_id(
        &self,
        doing: &str,
        collection: &str,
        ids: impl IntoIterator<Item: Into<Bson>>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let ids: Vec<Bson> = ids.into_iter().map(Into::into).collect();
        if ids.is_empty() {
            return Ok(Vec::new());
        }
        let (filter, options) = (doc! {"_id": {"$in": ids}}, FindOptions::default());
        self.find_raw(doing, collection, &filter, options).await
    }

    /// Returns the records with these `_id`s, in any order.
    pub(super) async fn records_by_id<R: Record>(
        &self,
        doing: &str,
        collection: &str,
        ids: impl IntoIterator<Item: Into<Bson>>,
    ) -> Result<Vec<R::Value>> {
        let found = self.find_by_id(doing, collection, ids).await?;
        records::<R>(doing, &found).collect()
    }

    /// Returns all documents that a query finds, undecoded, so that unreadable ones are included. A
    /// limit of 0 returns none, although the server treats it as no limit.
    pub(super) async fn find_raw(
        &self,
        doing: &str,
        collection: &str,
        filter: &Document,
        options: FindOptions,
    ) -> Result<Vec<RawDocumentBuf>> {
        let collection = self.0.db.collection(collection);
        self.find_in(doing, &collection, filter, options).await
    }

    /// Like [`Mongo::find_raw`], in any database. A read with a read concern of its own does not
    /// raise the cluster time, because later reads need not wait until a majority has the data.
    pub(super) async fn find_in(
        &self,
        doing: &str,
        collection: &Collection<RawDocumentBuf>,
        filter: &Document,
        mut options: FindOptions,
    ) -> Result<Vec<RawDocumentBuf>> {
        if options.limit == Some(0) {
            return Ok(Vec::new());
        }
        options.max_time = Some(self.time_limit());
        self.patiently(doing, || async {
            let mut session = self.session().await?;
            let find = collection
                .find(filter.clone())
                .with_options(options.clone());
            let mut found = find.session(&mut session).await?;
            let all = found.stream(&mut session).try_collect().await?;
            if options.read_concern.is_none() {
                self.note_read(&session);
            }
            Ok(all)
        })
        .await
    }

    /// Returns the results of an aggregation on a collection, or on the database if none is given.
    /// For results that fit into memory.
    pub(super) async fn aggregate(
        &self,
        doing: &str,
        collection: Option<&str>,
        pipeline: &[Document],
        collation: Option<Collation>,
    ) -> Result<Vec<RawDocumentBuf>> {
        let collection = collection.map(|name| self.collection(name));
        let mut options = AggregateOptions::default();
        (options.max_time, options.collation) = (Some(self.time_limit()), collation);
        self.patiently(doing, || async {
            let mut session = self.session().await?;
            let aggregate = match &collection {
                Some(collection) => collection.aggregate(pipeline.to_vec()),
                None => self.0.db.aggregate(pipeline.to_vec()),
            };
            let aggregate = aggregate.with_options(options.clone());
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
        doing: &str,
        collection: &str,
        filter: &Document,
        most: Option<u64>,
    ) -> Result<u64> {
        let collection = self.collection(collection);
        let mut options = CountOptions::default();
        (options.max_time, options.limit) = (Some(self.time_limit()), most);
        self.patiently(doing, || async {
            let mut session = self.session().await?;
            let count = collection.count_documents(filter.clone());
            let count = count.with_options(options.clone());
            let count = count.session(&mut session).await?;
            self.note_read(&session);
            Ok(count)
        })
        .await
    }

    /// Returns the distinct texts in a field.
    pub(super) async fn distinct_texts(
        &self,
        doing: &str,
        collection: &str,
        field: &str,
    ) -> Result<Vec<String>> {
        let collection = self.collection(collection);
        let found = self.patiently(doing, || async {
            let mut session = self.session().await?;
            let distinct = collection
                .distinct(field, doc! {})
                .max_time(self.time_limit());
            let found = distinct.session(&mut session).await?;
            self.note_read(&session);
            Ok(found)
        });
        let text = |value: &Bson| value.as_str().map(str::to_owned);
        Ok(found.await?.iter().filter_map(text).collect())
    }

    /// Returns the results of a query with read concern "local", then documents as they are
    /// written. It does not raise the cluster time, because the server's time says nothing about a
    /// majority.
    pub(super) async fn follow<T: DeserializeOwned + Send + Sync + 'static>(
        &self,
        find: Find<'_, T>,
    ) -> std::result::Result<BoxStream<'static, mongodb::error::Result<T>>, Failure> {
        let mut session = self.session().await?;
        let cursor = find.session(&mut session).await?;
        let next = |(mut cursor, mut session): (SessionCursor<T>, ClientSession)| async move {
            let found = cursor.stream(&mut session).next().await.transpose()?;
            Ok(found.map(|found| (found, (cursor, session))))
        };
        Ok(stream::try_unfold((cursor, session), next).boxed())
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

/// Reads documents in the order of their `_id`s. A lost cursor is reopened after the last document.
pub(super) struct Resuming {
    pub store: Mongo,
    pub doing: String,
    pub collection: String,
    pub batch_size: u32,
    /// A filter for the documents that were not read yet; `None` if the last `_id` cannot be
    /// compared.
    pub rest: Option<Document>,
    cursor: Option<BoxStream<'static, mongodb::error::Result<RawBatch>>>,
    /// The number of times the cursor was reopened since it last returned a document.
    reopened: u32,
}

impl Resuming {
    pub(super) fn new(
        store: Mongo,
        doing: String,
        collection: String,
        batch_size: u32,
        all: Document,
    ) -> Self {
        Self {
            store,
            doing,
            collection,
            batch_size,
            rest: Some(all),
            cursor: None,
            reopened: 0,
        }
    }

    /// Returns the next batch; `None` at the end. After it was processed, call
    /// [`Resuming::resume_at`].
    pub(super) async fn next(&mut self) -> Result<Option<RawBatch>> {
        let limit = self.store.0.options.attempt;
        loop {
            let mut cursor = match self.cursor.take() {
                Some(cursor) => cursor,
                None => self.open().await?,
            };
            let failure = match tokio::time::timeout(limit, cursor.try_next()).await {
                Ok(Ok(batch)) => {
                    self.cursor = Some(cursor);
                    return Ok(batch);
                }
                Ok(Err(error)) => Failure::from(error),
                Err(_) => Failure::silent(limit),
            };
            self.reopened += 1;
            if !failure.passing || self.rest.is_none() || self.reopened > REOPENED {
                return Err(Error::database(&self.doing, failure));
            }
        }
    }

    /// Sets the filter for the documents after those that were processed.
    pub(super) fn resume_at(&mut self, rest: Option<Document>) {
        self.rest = rest;
        self.reopened = 0;
    }

    async fn open(&mut self) -> Result<BoxStream<'static, mongodb::error::Result<RawBatch>>> {
        let documents = self.store.collection(&self.collection);
        let rest = self.rest.clone().unwrap_or_default();
        self.store
            .patiently(&self.doing, || async {
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
pub(super) fn document(doing: &str, raw: &RawDocument) -> Option<Document> {
    let document = Document::try_from(raw);
    let reported = document.inspect_err(|error| {
        tracing::warn!(doing, %error, "a document cannot be read, and is passed over");
    });
    reported.ok()
}

/// Decodes records. Skips documents that are not valid BSON; a valid document that is not a valid
/// record is an error.
pub(super) fn records<R: Record>(
    doing: &str,
    found: &[RawDocumentBuf],
) -> impl Iterator<Item = Result<R::Value>> {
    let read = move |raw: &RawDocumentBuf| match read_bson::<R>(raw) {
        Err(error) => document(doing, raw).map(|_| Err(error)),
        read => Some(read),
    };
    found.iter().filter_map(read)
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
