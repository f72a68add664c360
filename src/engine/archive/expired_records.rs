//! Removes expired records of all kinds that [`ExpiringRecords`] lists.
//!
//! Each step removes a few, so that other work is not blocked. Guarantees do not depend on removed
//! records: the shortest retention is longer than a window and a digest period. Deliveries with an
//! unknown outcome stay. Start with [`Cleaner::step`].

use std::sync::{Arc, Mutex};

use chrono::{DateTime, TimeDelta, Utc};

use crate::context::Context;
use crate::engine::Result;
use crate::mutex::lock;
use crate::store::ExpiringRecords;
use crate::wire::run_report::DeletedRecords;

/// The most records of each kind that a step removes.
const RECORDS_PER_STEP: usize = 1_000;
/// The longest window that can be configured. Older events are not accepted and not in any feed.
const LONGEST_WINDOW: TimeDelta = TimeDelta::days(62);
/// The most events that a step removes. Their audiences may be large.
const EVENTS_PER_STEP: usize = 50;
/// The rest after a step that left nothing to remove.
const REST: TimeDelta = TimeDelta::hours(1);

/// Removes expired records, a few per step.
pub struct Cleaner {
    pub(crate) context: Arc<Context>,
    /// The end of the current rest.
    rest_until: Mutex<Option<DateTime<Utc>>>,
}

impl Cleaner {
    /// Creates a cleaner whose first step looks for work at once.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, rest_until: Mutex::default() }
    }

    /// Removes some expired records, unless the cleaner rests.
    pub async fn step(&self) -> Result<DeletedRecords> {
        let now = self.context.clock.now();
        if lock(&self.rest_until).is_some_and(|until| now < until) {
            return Ok(DeletedRecords::default());
        }
        let config = &self.context.config;
        let kept_from = now - config.delivery.keep;
        // Events from before this time are not emailed any more.
        let oldest_event = kept_from
            .min(now - LONGEST_WINDOW)
            .min(now - config.digest.max_age - TimeDelta::days(1));
        let forget = |what, before, limit| self.context.store.forget(what, before, limit);
        let forgotten = DeletedRecords {
            deliveries: forget(ExpiringRecords::Deliveries, kept_from, RECORDS_PER_STEP).await?,
            batches: forget(ExpiringRecords::Batches, kept_from, RECORDS_PER_STEP).await?,
        };
        let inboxes = forget(ExpiringRecords::Inboxes, oldest_event, RECORDS_PER_STEP).await?;
        let events = forget(ExpiringRecords::Events, oldest_event, EVENTS_PER_STEP).await?;
        let retractions =
            forget(ExpiringRecords::Retractions, oldest_event, RECORDS_PER_STEP).await?;
        let most_records =
            forgotten.deliveries.max(forgotten.batches).max(inboxes).max(retractions);
        let has_more = most_records >= RECORDS_PER_STEP as u64 || events >= EVENTS_PER_STEP as u64;
        *lock(&self.rest_until) = (!has_more).then(|| now + REST);
        Ok(forgotten)
    }
}
