//! How the store itself is: what it runs on, what it lacks, how much it holds, what time it thinks
//! it is.
//!
//! The rule: facts, and no opinion of them; who judges is [`crate::operate::doctor`]. Nothing is
//! changed by asking.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::{BatchState, Day, DeliveryState, FanoutState, Reason};

/// What the store runs on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Engine {
    /// A MongoDB server, or several.
    Mongo {
        /// Such as 6.0.5.
        version: String,
        /// How its servers stand together.
        topology: Topology,
    },
    /// A file of SQLite's.
    Sqlite {
        /// Of the library that is compiled in, such as 3.45.0.
        version: String,
        /// How it keeps what is being written: `wal` lets readers and a writer work at once.
        journal: String,
    },
}

/// How a MongoDB is laid out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Topology {
    /// One server that replicates to nobody.
    Standalone,
    /// So many members that hold data and can be asked.
    ReplicaSet {
        /// Those that a server names as `hosts`; 1 where it names none.
        members: usize,
    },
    /// Routers in front of shards.
    Sharded,
}

/// How what is kept is laid out: each version of the program knows one layout by its number, and
/// brings an earlier one up to date.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
pub struct Schema {
    /// The store's.
    pub version: u32,
    /// This program's.
    pub known: u32,
    /// What bringing it up to date will do, step by step; empty if it is.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pub steps: Vec<String>,
}

/// What the store runs on, and its clock.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Server {
    /// What it runs on.
    pub engine: Engine,
    /// What time it has; `None` where it has no clock of its own, or does not say.
    pub time: Option<DateTime<Utc>>,
}

/// What can be counted.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Counted {
    /// The documents of this day. Costs a reading of them.
    Stacks(Day),
    /// Fan-outs of the journal in this state.
    Fanouts(FanoutState),
    /// Batches in this state, on their accumulators or filed.
    Batches(BatchState),
    /// Rows of the ledger in this state.
    Deliveries(DeliveryState),
    /// Addresses that are suppressed for this reason.
    Suppressions(Reason),
}

/// Some things that wait.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Pile {
    /// How many.
    pub count: u64,
    /// Since when the first of them has.
    pub since: Option<DateTime<Utc>>,
}

/// What is still to be done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Outstanding {
    /// Fan-outs that are pending, by when their events happened.
    pub fanouts: Pile,
    /// Batches that gather.
    pub batches_open: u64,
    /// Accumulators that are due, whoever holds them, by when they fell due.
    pub batches_due: Pile,
    /// Rows of the ledger that are `pending`, by when they were opened.
    pub pending: Pile,
    /// Those that are `sending`.
    pub sending: Pile,
    /// Those that are `unknown`.
    pub unknown: Pile,
    /// Named leases that somebody holds.
    pub leases: u64,
}

/// What can be found out of a store by whoever looks after it.
#[async_trait]
pub trait Diagnostics: Send + Sync {
    /// What it runs on, and what time it has.
    async fn server(&self) -> Result<Server>;

    /// Which schema it has.
    async fn schema(&self) -> Result<Schema>;

    /// How many there are of each of these, in the order asked; exact. Each costs what there is of
    /// it.
    async fn count(&self, what: &[Counted]) -> Result<Vec<u64>>;

    /// What is still to be done at `now`; of each, at most `most` are counted. By indexes alone: it
    /// costs what it counts, however much was done before.
    async fn outstanding(&self, now: DateTime<Utc>, most: u64) -> Result<Outstanding>;

    /// The indexes that verbs rely on and that are not there, by collection and fields; none in a
    /// store that is as it should be.
    async fn missing_indexes(&self) -> Result<Vec<String>>;
}
