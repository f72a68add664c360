//! Makes reads reflect all data this process has seen, and after [`Mongo::caught_up`] every
//! acknowledged write.
//!
//! Read concern "majority" does not guarantee current data: after an election, both the old and the
//! new primary may return old data. So every read carries the highest cluster time seen, and a
//! server that lags behind it waits or fails. See decision 11.

use bson::{Bson, Document, doc};
use futures::stream::{self, BoxStream};
use futures::{StreamExt, TryStreamExt};
use mongodb::action::{Aggregate, CountDocuments, Distinct, Find};
use mongodb::raw_batch_cursor::{RawBatch, SessionRawBatchCursor};
use mongodb::{ClientSession, Collection, SessionCursor};
use serde::de::DeserializeOwned;

use super::bulk::Write;
use super::patience::{Failure, limit};
use super::{CATCH_UPS, Mongo};
use crate::store::Result;

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
    pub(super) fn heard(&self, reply: &Document) {
        let written = reply.get_document("opTime");
        let written = written.and_then(|written| written.get_timestamp("ts"));
        if let Ok(time) = written.or_else(|_| reply.get_timestamp("operationTime")) {
            self.0.floor.raise(time);
        }
    }

    /// Starts a session for a read that reflects all data seen so far.
    async fn session(&self) -> std::result::Result<ClientSession, Failure> {
        let mut session = self
            .0
            .client
            .start_session()
            .causal_consistency(true)
            .await?;
        if let Some(time) = self.0.floor.time() {
            session.advance_operation_time(time);
        }
        Ok(session)
    }

    fn met(&self, session: &ClientSession) {
        if let Some(time) = session.operation_time() {
            self.0.floor.raise(time);
        }
    }

    /// Returns all results of a query.
    pub(super) async fn all_of<T: DeserializeOwned + Send + Sync>(
        &self,
        find: Find<'_, T>,
    ) -> std::result::Result<Vec<T>, Failure> {
        let mut session = self.session().await?;
        let mut found = find.session(&mut session).await?;
        let all = found.stream(&mut session).try_collect().await?;
        self.met(&session);
        Ok(all)
    }

    /// Returns all results of a query with read concern "local". It does not raise the cluster
    /// time, because later reads need not wait until a majority has the data.
    pub(super) async fn latest_of<T: DeserializeOwned + Send + Sync>(
        &self,
        find: Find<'_, T>,
    ) -> std::result::Result<Vec<T>, Failure> {
        let mut session = self.session().await?;
        let mut found = find.session(&mut session).await?;
        Ok(found.stream(&mut session).try_collect().await?)
    }

    /// Returns all results of an aggregation on a collection.
    pub(super) async fn all_from<T: DeserializeOwned + Send + Sync>(
        &self,
        collection: &Collection<T>,
        pipeline: Vec<Document>,
    ) -> std::result::Result<Vec<T>, Failure> {
        self.all_that(collection.aggregate(pipeline)).await
    }

    /// Returns all results of an aggregation on a collection or on the database.
    pub(super) async fn all_that<T: DeserializeOwned + Send + Sync>(
        &self,
        aggregate: Aggregate<'_>,
    ) -> std::result::Result<Vec<T>, Failure> {
        let mut session = self.session().await?;
        let limit = limit(self.0.options.attempt);
        let aggregate = aggregate.max_time(limit).with_type::<T>();
        let mut found = aggregate.session(&mut session).await?;
        let all = found.stream(&mut session).try_collect().await?;
        self.met(&session);
        Ok(all)
    }

    pub(super) async fn count_of(
        &self,
        count: CountDocuments<'_>,
    ) -> std::result::Result<u64, Failure> {
        let mut session = self.session().await?;
        let found = count.session(&mut session).await?;
        self.met(&session);
        Ok(found)
    }

    pub(super) async fn values_of(
        &self,
        distinct: Distinct<'_>,
    ) -> std::result::Result<Vec<Bson>, Failure> {
        let mut session = self.session().await?;
        let found = distinct.session(&mut session).await?;
        self.met(&session);
        Ok(found)
    }

    /// Returns a query's results as raw batches.
    pub(super) async fn batches_of<T: Send + Sync>(
        &self,
        find: Find<'_, T>,
    ) -> std::result::Result<BoxStream<'static, mongodb::error::Result<RawBatch>>, Failure> {
        let mut session = self.session().await?;
        let cursor = find.session(&mut session).batch().await?;
        self.met(&session);
        let next = |(mut cursor, mut session): (SessionRawBatchCursor, ClientSession)| async move {
            let batch = cursor.stream(&mut session).next().await.transpose()?;
            Ok(batch.map(|batch| (batch, (cursor, session))))
        };
        Ok(stream::try_unfold((cursor, session), next).boxed())
    }

    /// Returns the results of a query with read concern "local", then documents as they are
    /// written. It does not raise the cluster time, because the server's time says nothing about a
    /// majority.
    pub(super) async fn followed<T: DeserializeOwned + Send + Sync + 'static>(
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
    pub(super) async fn listed(
        &self,
        filter: Document,
    ) -> std::result::Result<Vec<Document>, Failure> {
        let mut list = doc! {"listCollections": 1, "filter": filter};
        if let Some(time) = self.0.floor.time() {
            let concern = doc! {"level": "local", "afterClusterTime": Bson::Timestamp(time)};
            list.insert("readConcern", concern);
        }
        let listed = self.0.db.run_cursor_command(list).await?;
        Ok(listed.try_collect().await?)
    }
}
