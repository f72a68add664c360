//! Defers batches that are due in their user's quiet hours (P7).
//!
//! The user's record is read just before a batch closes, so changes made while it was open count. A
//! deferral that has ended is not repeated, even if the closer is late. Batches that an operator
//! closes are not deferred, nor are those whose kept events include a mandatory one.

use std::collections::HashMap;
use std::sync::Arc;

use chrono::{DateTime, Utc};

use crate::context::Context;
use crate::domain::batch::Accumulator;
use crate::domain::{Batch, BatchState, User, UserId};
use crate::store::Result;

/// Defers batches to the end of their users' quiet hours.
#[derive(Clone)]
pub struct QuietHours {
    context: Arc<Context>,
}

impl QuietHours {
    /// The quiet hours of all users.
    pub fn new(context: Arc<Context>) -> Self {
        Self { context }
    }

    /// Defers the open batches that are due now and whose users have quiet hours.
    pub(super) async fn defer(
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
                accumulator.defer(until);
            }
        }
        Ok(())
    }

    /// Returns when the quiet hours end in which these open batches would close, in the order of
    /// the request. `None` for a batch that would close outside quiet hours.
    pub async fn held(
        &self,
        batches: &[Batch],
        now: DateTime<Utc>,
    ) -> Result<Vec<Option<DateTime<Utc>>>> {
        let open = |batch: &&Batch| batch.state == BatchState::Open;
        let people = self.people(whose(batches.iter().filter(open))).await?;
        let held = |batch: &Batch| {
            let user = people.get(&batch.user).filter(|_| open(&batch))?;
            let deferred = || (batch.deferred && batch.closes_at > now).then_some(batch.closes_at);
            self.until(user, batch, now).or_else(deferred)
        };
        Ok(batches.iter().map(held).collect())
    }

    /// Returns when the quiet hours end for which a batch has to wait, if it has to.
    fn until(&self, user: &User, batch: &Batch, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        // A waiting lead is emailed at once, even if the rest is deferred.
        let kinds = batch.contents.items.iter().map(|item| &item.t);
        let at = batch.asks_quiet_hours_at(now);
        let until = user.quiet_until(
            kinds,
            at,
            self.context.config.digest.schedule.tz,
            &self.context.policies,
        );
        until.filter(|until| *until > now)
    }

    /// Returns the records of the users who have quiet hours.
    async fn people(&self, ids: Vec<UserId>) -> Result<HashMap<UserId, User>> {
        if ids.is_empty() {
            return Ok(HashMap::new());
        }
        let found = self.context.store.users(&ids).await?.into_iter().flatten();
        let quiet = found.filter(|user| user.quiet.is_some());
        Ok(quiet.map(|user| (user.id.clone(), user)).collect())
    }
}

/// Returns the users of these batches, each once.
fn whose<'a>(batches: impl Iterator<Item = &'a Batch>) -> Vec<UserId> {
    let mut ids: Vec<UserId> = batches.map(|batch| batch.user.clone()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}
