//! The interface for removing old records.
//!
//! Each call removes a limited number of records, so that it does not block other work.
//! [`crate::engine::archive::clean`] decides how long records are kept.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;

/// Records that expire.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Forgettable {
    /// Closed ledger rows, by the time they were settled. Rows of unknown outcome stay, because an
    /// operator has to decide about them.
    Deliveries,
    /// Filed batches, by the time they were settled.
    Batches,
    /// Parts of events that were never accepted because their writer crashed. Events of that time
    /// are no longer accepted. The limit counts events, the result counts parts, and there is no
    /// order.
    Unaccepted,
    /// Inboxes, by the time of the last mark.
    Inboxes,
    /// Journaled events whose fan-out is done, by the time of the event, with their details and
    /// audiences. Their keys become free.
    Events,
    /// Retractions, by the moment up to which they apply.
    Retractions,
}

/// Removes old records.
#[async_trait]
pub trait Retention: Send + Sync {
    /// Removes records from before this moment, the oldest first, at most `limit`. Returns how many
    /// were removed.
    async fn forget(&self, what: Forgettable, before: DateTime<Utc>, limit: usize) -> Result<u64>;
}
