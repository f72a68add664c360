//! Reports the server's version, topology and time, and counts records and outstanding work.
//!
//! It only uses commands that every user may run (`hello`, `buildInfo`), on the primary.
//! Outstanding work is counted from indexes alone and up to a limit, so monitoring stays cheap
//! while a backlog grows.

use std::time::Instant;

use async_trait::async_trait;
use bson::{Document, RawBsonRef, doc};
use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt, TryStreamExt};

use super::feedback::not_lifted;
use super::journal::PENDING;
use super::{ACCUMULATORS, BATCHES, DELIVERIES, FANOUTS, Mongo, SUPPRESSIONS, date};
use crate::domain::{BatchState, DeliveryState};
use crate::store::{
    CountedRecords, DatabaseStatus, Diagnostics, Engine, OutstandingWork, Result, Topology,
    WaitingItems,
};

const MAX_COUNTS_IN_FLIGHT: usize = 2;

impl Mongo {
    async fn hello(&self) -> Result<Document> {
        let hello = self.run(&self.admin(), doc! {"hello": 1}, &[]).await?;
        Ok(hello.unwrap_or_default())
    }

    async fn count_one(&self, what: CountedRecords) -> Result<u64> {
        let in_state = |state: &str| doc! {"state": state};
        let (collection, filter) = match what {
            CountedRecords::Stacks(day) => return self.count_stacks(day).await,
            CountedRecords::Batches(BatchState::Open) => {
                (ACCUMULATORS, doc! {"open.id": {"$exists": true}})
            }
            CountedRecords::Suppressions(reason) => {
                let mut filter = not_lifted();
                filter.insert("reason", reason.as_str());
                (SUPPRESSIONS, filter)
            }
            CountedRecords::Fanouts(state) => (FANOUTS, in_state(state.as_str())),
            CountedRecords::Batches(state) => (BATCHES, in_state(state.as_str())),
            CountedRecords::Deliveries(state) => (DELIVERIES, in_state(state.as_str())),
        };
        let mut count = self.count_matching(collection, filter, None).await?;
        if what == CountedRecords::Batches(BatchState::Closing) {
            // A batch that has ended is in its accumulator for a moment, until it is filed.
            let ended = self.find(ACCUMULATORS, doc! {"ended.id": {"$exists": true}});
            for accumulator in ended.fields(doc! {"ended.id": 1}).raw().await? {
                let ended = accumulator.get_array("ended");
                count += ended.map_or(0, |ended| ended.into_iter().count()) as u64;
            }
        }
        Ok(count)
    }

    /// Returns the number of matches up to a limit, and the lowest time in this field.
    async fn pile(
        &self,
        collection: &str,
        filter: Document,
        time_field: &str,
        limit: u64,
    ) -> Result<WaitingItems> {
        let projection = doc! {time_field: 1, "_id": i32::from(time_field == "_id")};
        let earliest = self.find(collection, filter.clone()).sort(doc! {time_field: 1}).limit(1);
        let read = earliest.fields(projection).raw();
        let count = self.count_matching(collection, filter, Some(limit));
        let (found, count) = futures::try_join!(read, count)?;
        let since = found.first().and_then(|raw| time_of(raw.get(time_field).ok()??));
        Ok(WaitingItems { count, since })
    }

    /// Returns whether the client is connected to a router, as in a sharded cluster.
    pub(super) async fn is_routed(&self) -> Result<bool> {
        let detect = || async { Ok(topology(&self.hello().await?) == Topology::Sharded) };
        self.0.is_routed.get_or_try_init(detect).await.copied()
    }
}

#[async_trait]
impl Diagnostics for Mongo {
    async fn condition(&self) -> Result<DatabaseStatus> {
        let hello = self.hello().await?;
        let read_at = Instant::now();
        let build = self.run(&self.admin(), doc! {"buildInfo": 1}, &[]).await?.unwrap_or_default();
        let (schema, missing_indexes) = futures::join!(self.schema(), self.missing_indexes());
        let version = build.get_str("version").unwrap_or("unknown").to_owned();
        Ok(DatabaseStatus {
            engine: Engine::Mongo(version, topology(&hello)),
            server_time: server_time(&hello),
            time_since_read: read_at.elapsed(),
            schema,
            missing_indexes,
        })
    }

    async fn outstanding(&self, now: DateTime<Utc>, limit: u64) -> Result<OutstandingWork> {
        let pile = |collection, filter, since| self.pile(collection, filter, since, limit);
        let rows =
            |state: DeliveryState| pile(DELIVERIES, doc! {"state": state.as_str()}, "created");
        let open = doc! {"open.id": {"$exists": true}};
        Ok(OutstandingWork {
            fanouts: pile(FANOUTS, doc! {"state": PENDING}, "_id").await?,
            batches_open: self.count_matching(ACCUMULATORS, open, Some(limit)).await?,
            batches_due: pile(ACCUMULATORS, doc! {"due": {"$lte": date(now)}}, "due").await?,
            pending: rows(DeliveryState::Pending).await?,
            sending: rows(DeliveryState::Sending).await?,
            unknown: rows(DeliveryState::Unknown).await?,
        })
    }

    async fn count(&self, what: &[CountedRecords]) -> Result<Vec<u64>> {
        let counts: Vec<_> = what.iter().map(|what| self.count_one(*what)).collect();
        stream::iter(counts).buffered(MAX_COUNTS_IN_FLIGHT).try_collect().await
    }
}

/// Returns the server's time, which a proxy may omit.
fn server_time(hello: &Document) -> Option<DateTime<Utc>> {
    let at = hello.get_datetime("localTime").ok()?;
    DateTime::from_timestamp_millis(at.timestamp_millis())
}

fn topology(hello: &Document) -> Topology {
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Topology::Sharded;
    }
    match (hello.get_str("setName"), hello.get_array("hosts")) {
        (Ok(_), Ok(hosts)) => Topology::ReplicaSet(hosts.len()),
        (Ok(_), Err(_)) => Topology::ReplicaSet(1),
        (Err(_), _) => Topology::Standalone,
    }
}

/// Returns the time in a value. The id of a fan-out contains the time of its event.
fn time_of(value: RawBsonRef<'_>) -> Option<DateTime<Utc>> {
    let at = match value {
        RawBsonRef::ObjectId(id) => id.timestamp(),
        RawBsonRef::DateTime(at) => at,
        _ => return None,
    };
    DateTime::from_timestamp_millis(at.timestamp_millis())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_topology_is_read_from_the_hello_reply() {
        for (hello, expected) in [
            (doc! {"ok": 1}, Topology::Standalone),
            (
                doc! {"setName": "rs0", "hosts": ["a:27017", "b:27017", "c:27017"]},
                Topology::ReplicaSet(3),
            ),
            (doc! {"msg": "isdbgrid"}, Topology::Sharded),
        ] {
            assert_eq!(topology(&hello), expected, "{hello}");
        }
    }

    #[test]
    fn a_hello_reply_may_omit_the_time() {
        let date = bson::DateTime::from_millis(5);
        let time = DateTime::from_timestamp_millis(5);
        assert_eq!(server_time(&doc! {"ok": 1, "localTime": date}), time);
        assert_eq!(server_time(&doc! {"ok": 1}), None);
    }
}
