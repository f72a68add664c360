//! Quiet hours hold what would close.
//!
//! The rule (P7): they are asked of the person's record just before a batch closes, so those count
//! that were chosen while it was open; what a person closes by hand, or an operator, closes. A
//! batch that keeps anything mandatory is not held, its lead aside, which leaves at once.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use crate::domain::batch::Accumulator;
use crate::domain::{Batch, BatchState, Policies, User, UserId};
use crate::store::{Directory, Result};

/// Knows whose batches wait until when.
#[derive(Clone)]
pub struct QuietHours {
    directory: Arc<dyn Directory>,
    policies: Arc<Policies>,
    /// Of people who chose none.
    tz: Tz,
}

impl QuietHours {
    /// Those of these people; the zone is that of whoever chose none.
    pub fn new(directory: Arc<dyn Directory>, policies: Arc<Policies>, tz: Tz) -> Self {
        Self {
            directory,
            policies,
            tz,
        }
    }

    /// Holds what would close by now of people whose hours are quiet.
    pub(super) async fn hold(
        &self,
        accumulators: &mut [Accumulator],
        now: DateTime<Utc>,
    ) -> Result<()> {
        let closing = accumulators.iter().filter_map(|one| one.closing(now));
        let people = self.people(whose(closing)).await?;
        for accumulator in accumulators {
            let until = accumulator.closing(now).and_then(|batch| {
                let user = people.get(&batch.user)?;
                self.until(user, batch, now)
            });
            if let Some(until) = until {
                accumulator.hold(until);
            }
        }
        Ok(())
    }

    /// When the quiet hours end in which these open batches would close, in their order; `None`
    /// where they would close in none.
    pub async fn held(
        &self,
        batches: &[Batch],
        now: DateTime<Utc>,
    ) -> Result<Vec<Option<DateTime<Utc>>>> {
        let open = |batch: &&Batch| batch.state == BatchState::Open;
        let people = self.people(whose(batches.iter().filter(open))).await?;
        let held = |batch: &Batch| {
            let user = people.get(&batch.user).filter(|_| open(&batch))?;
            let until = self.until(user, batch, batch.closes_at.max(now));
            // One that was held closes when they end.
            let before = batch.closes_at - TimeDelta::milliseconds(1);
            let was_held = || self.until(user, batch, before);
            until.or_else(|| was_held().filter(|until| *until == batch.closes_at))
        };
        Ok(batches.iter().map(held).collect())
    }

    fn until(&self, user: &User, batch: &Batch, at: DateTime<Utc>) -> Option<DateTime<Utc>> {
        // A lead that waits leaves at once, whatever holds the rest.
        let kinds = batch.contents.items.iter().map(|item| &item.t);
        user.quiet_until(kinds, at, self.tz, &self.policies)
    }

    /// The records of those of these people who have quiet hours.
    async fn people(&self, ids: Vec<UserId>) -> Result<HashMap<UserId, User>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let found = self.directory.users(&ids).await?.into_iter().flatten();
        let quiet = found.filter(|user| user.quiet.is_some());
        Ok(quiet.map(|user| (user.id.clone(), user)).collect())
    }
}

/// Whose batches these are, each once.
fn whose<'a>(batches: impl Iterator<Item = &'a Batch>) -> Vec<UserId> {
    let mut ids: Vec<UserId> = batches.map(|batch| batch.user.clone()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
