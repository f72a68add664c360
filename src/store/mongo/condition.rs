//! Reports the server's version, topology and time, and counts documents.
//!
//! It only uses commands that every user may run (`hello`, `buildInfo`), on the primary.

use async_trait::async_trait;
use bson::{Document, doc};
use chrono::{DateTime, Utc};
use futures::stream::{self, StreamExt, TryStreamExt};
use mongodb::options::FindOptions;

use super::journal::{DONE, PENDING};
use super::suppressions::not_lifted;
use super::{ACCUMULATORS, BATCHES, DELIVERIES, FANOUTS, Mongo, SUPPRESSIONS};
use crate::domain::{BatchState, FanoutState};
use crate::store::{Counted, Diagnostics, Engine, Outstanding, Result, Schema, Server, Topology};

/// The number of counts that run at the same time.
const COUNTED: usize = 2;

impl Mongo {
    async fn tell(&self, doing: &str, command: &str) -> Result<Document> {
        self.patiently(doing, || {
            let db = self.0.client.database("admin");
            let command = doc! {command: 1};
            async move { Ok(db.run_command(command).await?) }
        })
        .await
    }

    async fn count_of_one(&self, what: Counted) -> Result<u64> {
        let in_state = |state: &str| doc! {"state": state};
        let (collection, filter) = match what {
            Counted::Stacks(day) => return self.count_stacks(day).await,
            Counted::Batches(BatchState::Open) => {
                (ACCUMULATORS, doc! {"open.id": {"$exists": true}})
            }
            Counted::Suppressions(reason) => {
                let mut of_reason = not_lifted();
                of_reason.insert("reason", reason.as_str());
                (SUPPRESSIONS, of_reason)
            }
            Counted::Fanouts(FanoutState::Pending) => (FANOUTS, in_state(PENDING)),
            Counted::Fanouts(FanoutState::Done) => (FANOUTS, in_state(DONE)),
            Counted::Batches(state) => (BATCHES, in_state(state.as_str())),
            Counted::Deliveries(state) => (DELIVERIES, in_state(state.as_str())),
        };
        let doing = format!("counting {collection}");
        let mut count = self.matching(&doing, collection, &filter).await?;
        if what == Counted::Batches(BatchState::Closing) {
            count += self.ended_batches().await?;
        }
        Ok(count)
    }

    /// Counts batches that have ended and are not filed yet, a state that lasts a moment.
    async fn ended_batches(&self) -> Result<u64> {
        let options = FindOptions::builder().projection(doc! {"ended.id": 1});
        let ended = doc! {"ended.id": {"$exists": true}};
        let doing = "counting batches";
        let found = self.find_all(doing, ACCUMULATORS, &ended, options.build());
        let found = found.await?;
        let ended = |accumulator: &Document| accumulator.get_array("ended").map_or(0, Vec::len);
        Ok(found.iter().map(ended).sum::<usize>() as u64)
    }
}

impl Mongo {
    /// Returns whether the client is connected to a router, as in a sharded cluster.
    pub(super) async fn is_routed(&self) -> Result<bool> {
        let ask = || async {
            let hello = self.tell("greeting the server", "hello").await?;
            Ok(topology(&hello) == Topology::Sharded)
        };
        self.0.routed.get_or_try_init(ask).await.copied()
    }
}

#[async_trait]
impl Diagnostics for Mongo {
    async fn server(&self) -> Result<Server> {
        let hello = self.tell("greeting the server", "hello").await?;
        let built = self.tell("asking for the version", "buildInfo").await?;
        let version = built.get_str("version").unwrap_or("unknown").to_owned();
        Ok(Server {
            engine: Engine::Mongo {
                version,
                topology: topology(&hello),
            },
            time: time(&hello),
        })
    }

    async fn schema(&self) -> Result<Schema> {
        Mongo::schema(self).await
    }

    async fn missing_indexes(&self) -> Result<Vec<String>> {
        self.missing().await
    }

    async fn outstanding(&self, now: DateTime<Utc>, most: u64) -> Result<Outstanding> {
        self.all_outstanding(now, most).await
    }

    async fn count(&self, what: &[Counted]) -> Result<Vec<u64>> {
        let counts: Vec<_> = what.iter().map(|what| self.count_of_one(*what)).collect();
        stream::iter(counts).buffered(COUNTED).try_collect().await
    }
}

/// Returns the server's time, which a proxy may omit.
fn time(hello: &Document) -> Option<DateTime<Utc>> {
    let at = hello.get_datetime("localTime").ok()?;
    DateTime::from_timestamp_millis(at.timestamp_millis())
}

fn topology(hello: &Document) -> Topology {
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        return Topology::Sharded;
    }
    match (hello.get_str("setName"), hello.get_array("hosts")) {
        (Ok(_), Ok(hosts)) => Topology::ReplicaSet {
            members: hosts.len(),
        },
        (Ok(_), Err(_)) => Topology::ReplicaSet { members: 1 },
        (Err(_), _) => Topology::Standalone,
    }
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
                Topology::ReplicaSet { members: 3 },
            ),
            (doc! {"msg": "isdbgrid"}, Topology::Sharded),
        ] {
            assert_eq!(topology(&hello), expected, "{hello}");
        }
    }

    #[test]
    fn a_hello_reply_may_omit_the_time() {
        let date = bson::DateTime::from_millis(5);
        assert_eq!(
            time(&doc! {"ok": 1, "localTime": date}),
            DateTime::from_timestamp_millis(5)
        );
        assert_eq!(time(&doc! {"ok": 1}), None);
    }
}
