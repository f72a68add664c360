//! Forgets what nobody needs any more: deliveries and batches that were settled long ago, and what
//! a crash left of events that were never accepted, marks of feeds that are long over, and events
//! that nobody is told any more, with what was taken back of them.
//!
//! The rule: a little at a time, so that nobody waits for it; and never what a promise rests on:
//! the shortest time that can be configured is longer than a window and a period. What nobody knows
//! the end of stays.

use std::sync::{Arc, Mutex, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use crate::context::Context;
use crate::engine::Result;
use crate::store::Forgettable;
use crate::wire::round::Forgotten;

/// How many of each are removed in one step.
const STEP: usize = 1_000;
/// No event is accepted that is older, however long the window is configured to be: so nobody is
/// about to accept one of before then. Nor is anything in a feed.
const LONGEST_WINDOW: TimeDelta = TimeDelta::days(62);
/// How many events, whose audiences may be long.
const EVENTS: usize = 50;
/// How long it rests once there was nothing more.
const REST: TimeDelta = TimeDelta::hours(1);

/// Removes what was settled longer ago than `delivery.keep`, a little in each step.
pub struct Cleaner {
    pub(crate) context: Arc<Context>,
    /// Nothing is looked for before then.
    rests: Mutex<Option<DateTime<Utc>>>,
}

impl Cleaner {
    /// A cleaner that does not rest yet: its first step looks for work at once.
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            rests: Mutex::default(),
        }
    }

    /// Forgets a little of what is old enough, unless it rests.
    pub async fn step(&self) -> Result<Forgotten> {
        let now = self.context.clock.now();
        let rests = *self.rests.lock().unwrap_or_else(PoisonError::into_inner);
        if rests.is_some_and(|until| now < until) {
            return Ok(Forgotten::default());
        }
        let before = now - self.context.config.delivery.keep;
        let forget = |what, before| {
            let limit = if what == Forgettable::Events {
                EVENTS
            } else {
                STEP
            };
            self.context.store.forget(what, before, limit)
        };
        let forgotten = Forgotten {
            deliveries: forget(Forgettable::Deliveries, before).await?,
            batches: forget(Forgettable::Batches, before).await?,
        };
        let before = before.min(now - LONGEST_WINDOW);
        let unaccepted = forget(Forgettable::Unaccepted, before).await?;
        // Nobody is told any more of what happened before then.
        let before = before.min(now - self.context.config.digest.max_age - TimeDelta::days(1));
        let inboxes = forget(Forgettable::Inboxes, before).await?;
        let events = forget(Forgettable::Events, before).await?;
        let retractions = forget(Forgettable::Retractions, before).await?;
        let most = forgotten.deliveries.max(forgotten.batches);
        let most = most.max(unaccepted).max(inboxes).max(retractions);
        // One that left something may have left several parts, which are counted.
        let more = most >= STEP as u64 || events >= EVENTS as u64;
        let rests = (!more).then(|| now + REST);
        *self.rests.lock().unwrap_or_else(PoisonError::into_inner) = rests;
        Ok(forgotten)
    }
}
