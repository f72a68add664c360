//! What is removed once nobody needs it any more.
//!
//! The rule: the oldest first and a little at a time, so that nobody waits for it. How long
//! something is kept is for [`crate::engine::archive::clean`] to say.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;

/// What grows old.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgettable {
    /// Closed rows of the ledger, by when they were settled. Those of unknown outcome stay:
    /// somebody has to say what became of them.
    Deliveries,
    /// Filed batches, by when they were settled.
    Batches,
    /// What was written for events of before then that were never accepted, because their writer
    /// died on the way. Nobody accepts events of that time any more.
    Unaccepted,
    /// What people have seen of their feeds, by when they marked anything last.
    Inboxes,
    /// Journaled events that are fanned out, by when they happened, with what is said of them and
    /// whom they were for. Their keys are free again.
    Events,
    /// What was taken back, by up to when.
    Retractions,
}

/// What is removed once nobody needs it any more.
#[async_trait]
pub trait Retention: Send + Sync {
    /// Removes what is older than that, the oldest first, at most `limit` deliveries, batches,
    /// inboxes or events; answers how many records went.
    async fn forget(&self, what: Forgettable, before: DateTime<Utc>, limit: usize) -> Result<u64>;
}
