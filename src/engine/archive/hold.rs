//! One day has one owner at a time.
//!
//! The rule: whoever archives or restores a day has the lease `day:<day>` for as long as the work
//! goes on, and stops when it is lost. Work and lease go on side by side: neither waits for the
//! other.

use std::pin::pin;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::{Either, select};

use super::Archive;
use crate::domain::{Day, Lease};
use crate::engine::{Error, Result};

/// How long a day belongs to a process that died. Living ones extend their lease every 20 seconds.
const LEASE: TimeDelta = TimeDelta::minutes(1);

impl Archive {
    /// Does the work under the day's lease; nothing if somebody else has it.
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

    /// Extends the lease until that cannot be done any more; says why.
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

    /// Whoever was suspended finds out here that somebody else has the day.
    pub(super) async fn still_ours(&self, day: Day) -> Result<()> {
        if self.take(&name(day), self.context.clock.now()).await? {
            Ok(())
        } else {
            Err(lost(day))
        }
    }

    /// The moment at which a lease that is held now ends at the latest, unless its owner extends
    /// it.
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

/// The lease of a day.
pub(crate) fn name(day: Day) -> String {
    format!("day:{day}")
}

fn lost(day: Day) -> Error {
    Error::Conflict(format!(
        "{day} was taken over by another process; it stands"
    ))
}
