//! Removes expired records of all kinds that [`Forgettable`] lists.
//!
//! Each step removes a few, so that other work is not blocked. Guarantees do not depend on removed
//! records: the shortest retention is longer than a window and a digest period. Deliveries with an
//! unknown outcome stay. Start with [`Cleaner::step`].

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use crate::context::Context;
use crate::engine::Result;
use crate::store::Forgettable;
use crate::wire::run_report::Forgotten;

/// The most records of each kind that a step removes.
const STEP: usize = 1_000;
/// The longest window that can be configured. Older events are not accepted and not in any feed.
const LONGEST_WINDOW: TimeDelta = TimeDelta::days(62);
/// The most events that a step removes. Their audiences may be large.
const EVENTS: usize = 50;
/// The rest after a step that left nothing to remove.
const REST: TimeDelta = TimeDelta::hours(1);

/// Removes expired records, a few per step.
pub struct Cleaner {
    pub(crate) context: Arc<Context>,
    /// The end of the current rest.
    rests: Mutex<Option<DateTime<Utc>>>,
}

impl Cleaner {
    /// Creates a cleaner whose first step looks for work at once.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context, rests: Mutex::default() }
    }

    /// Removes some expired records, unless the cleaner rests.
    pub async fn step(&self) -> Result<Forgotten> {
        let now = self.context.clock.now();
        let rests = *self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        if rests.is_some_and(|until| now < until) {
            return Ok(Forgotten::default());
        }
        let kept = now - self.context.config.delivery.keep;
        let window = kept.min(now - LONGEST_WINDOW);
        // Events from before this time are not emailed any more.
        let old = window.min(now - self.context.config.digest.max_age - TimeDelta::days(1));
        let forget = |what, before, limit| self.context.store.forget(what, before, limit);
        let forgotten = Forgotten {
            deliveries: forget(Forgettable::Deliveries, kept, STEP).await?,
            batches: forget(Forgettable::Batches, kept, STEP).await?,
        };
        let inboxes = forget(Forgettable::Inboxes, old, STEP).await?;
        let events = forget(Forgettable::Events, old, EVENTS).await?;
        let retractions = forget(Forgettable::Retractions, old, STEP).await?;
        let most = forgotten.deliveries.max(forgotten.batches);
        let most = most.max(inboxes).max(retractions);
        let more = most >= STEP as u64 || events >= EVENTS as u64;
        let rests = (!more).then(|| now + REST);
        *self.rests.lock().unwrap_or_else(PoisonError::into_inner) = rests;
        Ok(forgotten)
    }
}
