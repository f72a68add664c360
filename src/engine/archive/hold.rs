//! Ensures that only one process at a time archives or restores a day.
//!
//! The process holds the lease `day:<day>` during the work, and stops when it loses the lease. Work
//! and renewal run concurrently; neither waits for the other.

use std::pin::pin;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::{Either, select};

use super::Archive;
use crate::domain::{Day, Lease};
use crate::engine::{Error, Result};

/// How long the lease outlives a process that died. Live processes renew it every 20 seconds.
const LEASE: TimeDelta = TimeDelta::minutes(1);

impl Archive {
    /// Runs `work` under the day's lease; `None` if another process holds the lease.
    pub(super) async fn holding<T>(
        &self,
        day: Day,
        work: impl Future<Output = Result<T>> + Unpin,
    ) -> Result<Option<T>> {
        let name = name(day);
        if !self.take(&name, self.context.clock.now()).await? {
            return Ok(None);
        }
        let done = match select(work, pin!(self.keep(&name, day))).await {
            Either::Left((done, _)) => done,
            Either::Right((lost, _)) => Err(lost),
        };
        let given_up = self.context.store.unlease(&name, &self.context.owner).await;
        let done = done?;
        given_up?;
        Ok(Some(done))
    }

    /// Renews the lease until that fails. Returns the failure.
    async fn keep(&self, name: &str, day: Day) -> Error {
        let third = (LEASE / 3).to_std().unwrap_or_default();
        loop {
            tokio::time::sleep(third).await;
            match self.take(name, self.context.clock.now()).await {
                Ok(true) => {}
                Ok(false) => return lost(day),
                Err(error) => return error,
            }
        }
    }

    /// Checks that this process still holds the day, which it may have lost while suspended.
    pub(super) async fn still_ours(&self, day: Day) -> Result<()> {
        if self.take(&name(day), self.context.clock.now()).await? {
            Ok(())
        } else {
            Err(lost(day))
        }
    }

    /// Returns the latest end of a lease that another process holds now, unless it is renewed.
    pub(super) fn free_at(&self) -> DateTime<Utc> {
        self.context.clock.now() + LEASE
    }

    async fn take(&self, name: &str, now: DateTime<Utc>) -> Result<bool> {
        let lease = Lease {
            owner: self.context.owner.clone(),
            until: now + LEASE,
        };
        Ok(self.context.store.lease(name, &lease, now).await?)
    }
}

/// Returns the name of the day's lease.
pub(crate) fn name(day: Day) -> String {
    format!("day:{day}")
}

fn lost(day: Day) -> Error {
    Error::Conflict(format!(
        "{day} was taken over by another process; it stands"
    ))
}
