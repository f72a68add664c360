//! The interface for diagnostics: the database server, its schema, its indexes and its record
//! counts.
//!
//! It reports facts and changes nothing; [`crate::operate::doctor`] judges them.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::{BatchState, Day, DeliveryState, FanoutState, Reason};

/// The database engine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// One or more MongoDB servers.
    Mongo {
        /// Version, such as 6.0.5.
        version: String,
        /// Deployment type.
        topology: Topology,
    },
    /// A SQLite file.
    Sqlite {
        /// Version of the library that is compiled in, such as 3.45.0.
        version: String,
        /// Journal mode. `wal` lets readers and a writer work at the same time.
        journal: String,
    },
}

/// The deployment type of MongoDB.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One server without replication.
    Standalone,
    /// A replica set.
    ReplicaSet {
        /// Number of members with data, which a server lists as `hosts`; 1 if it lists none.
        members: usize,
    },
    /// A sharded cluster behind routers.
    Sharded,
}

/// The version of the database schema. Each program version has one schema and upgrades older ones.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Schema {
    /// Version of the store.
    pub version: u32,
    /// Version of this program.
    pub known: u32,
    /// Steps that an upgrade will take; empty if the store is up to date.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
}

/// The database server and its clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// Engine.
    pub engine: Engine,
    /// Clock of the server; `None` if it has none or does not report it.
    pub time: Option<DateTime<Utc>>,
}

/// Records that can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// Documents of this day. Reads all of them.
    Stacks(Day),
    /// Fan-outs in this state.
    Fanouts(FanoutState),
    /// Batches in this state. A batch that has ended in an accumulator counts as closing until it
    /// is filed.
    Batches(BatchState),
    /// Ledger rows in this state.
    Deliveries(DeliveryState),
    /// Addresses that are suppressed for this reason.
    Suppressions(Reason),
}

/// A number of waiting items.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pile {
    /// Number of items.
    pub count: u64,
    /// Time since which the first item has been waiting.
    pub since: Option<DateTime<Utc>>,
}

/// The work that is still to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Pending fan-outs, by the time of their events.
    pub fanouts: Pile,
    /// Open batches.
    pub batches_open: u64,
    /// Due accumulators, leased or not, by due time.
    pub batches_due: Pile,
    /// `pending` ledger rows, by the time at which they were opened.
    pub pending: Pile,
    /// `sending` ledger rows.
    pub sending: Pile,
    /// `unknown` ledger rows.
    pub unknown: Pile,
    /// Named leases in force.
    pub leases: u64,
}

/// Diagnostics for operators.
#[async_trait]
pub trait Diagnostics: Send + Sync {
    /// Returns the database engine and its clock.
    async fn server(&self) -> Result<Server>;

    /// Returns the schema version.
    async fn schema(&self) -> Result<Schema>;

    /// Counts these records exactly, in the order of the request. The cost is proportional to each
    /// count.
    async fn count(&self, what: &[Counted]) -> Result<Vec<u64>>;

    /// Returns the work to be done at `now`, counting at most `most` items of each kind. Uses
    /// indexes only, so the cost depends on the counts and not on the size of the history.
    async fn outstanding(&self, now: DateTime<Utc>, most: u64) -> Result<Outstanding>;

    /// Returns the missing indexes that methods rely on, by collection and fields; empty in a
    /// healthy store.
    async fn missing_indexes(&self) -> Result<Vec<String>>;
}
