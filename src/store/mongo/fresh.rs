//! How new a read is: as new as everything this process has seen or been told, and, after
//! [`Mongo::caught_up`], as everything that was acknowledged to anybody.
//!
//! The rule: read concern "majority" says that what is read stays; it does not say that it is the
//! latest. A new primary answers from what it knew as a secondary until it has learned what a
//! majority has, and an old one that does not know of the new one goes on answering. So every read
//! here carries the highest cluster time that this process has met (`afterClusterTime`), and a
//! server that has not come so far waits, or fails as if it were away. Every answer raises that
//! time. See decision 11.

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
    /// Raises what reads show to everything that was acknowledged to anybody before this was
    /// called.
    ///
    /// Only who is the primary can have a write of its own acknowledged by a majority, and whatever
    /// a majority acknowledged before is older than that write. One that changes nothing would not
    /// do: an old primary could acknowledge it alone.
    pub(super) async fn caught_up(&self) -> Result<()> {
        let write = Write {
            q: doc! {"_id": "all"},
            u: doc! {"$inc": {"n": 1_i64}},
            upsert: true,
        };
        let doing = "catching up with what others wrote";
        self.upsert(doing, CATCH_UPS, [write]).await
    }

    /// What a write was answered that a majority acknowledged: reads after it show it. A server
    /// says when the write was; a router only says how far the server had come.
    pub(super) fn heard(&self, reply: &Document) {
        let written = reply.get_document("opTime");
        let written = written.and_then(|written| written.get_timestamp("ts"));
        if let Ok(time) = written.or_else(|_| reply.get_timestamp("operationTime")) {
            self.0.floor.raise(time);
        }
    }

    /// For a read that shows all that was met so far.
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

    /// All that is found.
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

    /// The same for a find that asks for the latest there is, whether a majority has it or not:
    /// others need not wait for that.
    pub(super) async fn latest_of<T: DeserializeOwned + Send + Sync>(
        &self,
        find: Find<'_, T>,
    ) -> std::result::Result<Vec<T>, Failure> {
        let mut session = self.session().await?;
        let mut found = find.session(&mut session).await?;
        Ok(found.stream(&mut session).try_collect().await?)
    }

    /// All that an aggregation comes to.
    pub(super) async fn all_from<T: DeserializeOwned + Send + Sync>(
        &self,
        collection: &Collection<T>,
        pipeline: Vec<Document>,
    ) -> std::result::Result<Vec<T>, Failure> {
        self.all_that(collection.aggregate(pipeline)).await
    }

    /// All that an aggregation comes to, of a collection or of none.
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

    /// How many documents are found.
    pub(super) async fn count_of(
        &self,
        count: CountDocuments<'_>,
    ) -> std::result::Result<u64, Failure> {
        let mut session = self.session().await?;
        let found = count.session(&mut session).await?;
        self.met(&session);
        Ok(found)
    }

    /// Which values are found.
    pub(super) async fn values_of(
        &self,
        distinct: Distinct<'_>,
    ) -> std::result::Result<Vec<Bson>, Failure> {
        let mut session = self.session().await?;
        let found = distinct.session(&mut session).await?;
        self.met(&session);
        Ok(found)
    }

    /// What is found, as it comes over the wire.
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

    /// What is found, and what is written from then on, for a find that asks for the latest there
    /// is. How far the server has come says nothing of what a majority has.
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

    /// The collections whose names are these, as the primary knows them.
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
