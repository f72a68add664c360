//! Holds what is in hand: leases go on while somebody waits, and nothing leaves once others may
//! have it.
//!
//! The rule (P2): a lease is extended while the work it is for goes on, never instead of it. A
//! process that stood still finds out by the clock, by both clocks, before anything goes out: half
//! a lease after it last had the store's word it has no leave any more, so that clocks of several
//! machines need not agree to the second. Whoever takes over counts on it ([`Deliver::believed`]).

use std::pin::pin;
use std::time::Duration;

use chrono::{DateTime, Utc};
use futures::future::{Either, select};
use tokio::time::{Instant, sleep};

use super::Deliver;
use crate::domain::{Delivery, DeliveryId};
use crate::mail::{Leave, Standing};
use crate::services::Result;

impl Deliver {
    /// Extends the leases of rows; says which are still ours.
    pub(super) async fn hold(&self, ids: &[DeliveryId]) -> Result<Vec<bool>> {
        let until = self.clock.now() + self.settings.lease;
        Ok(self.deliveries.hold(&self.owner, until, ids).await?)
    }

    /// Waits for what may take long, and extends the leases of these rows meanwhile; neither waits
    /// for the other.
    pub(super) async fn holding<T>(&self, ids: &[DeliveryId], work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match select(work.as_mut(), pin!(sleep(self.third_of_lease()))).await {
                Either::Left((done, _)) => return done,
                Either::Right(_) => {}
            }
            // What the provider says is worth waiting for, even where the store is away at the
            // moment.
            match select(work.as_mut(), pin!(self.hold(ids))).await {
                Either::Left((done, held)) => {
                    drop(held.await);
                    return done;
                }
                Either::Right((held, _)) => drop(held),
            }
        }
    }

    pub(super) fn third_of_lease(&self) -> Duration {
        (self.settings.lease / 3).to_std().unwrap_or_default()
    }

    /// Those of the rows whose leases could be extended.
    pub(super) async fn still_ours(&self, rows: Vec<Delivery>) -> Result<Vec<Delivery>> {
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        let held = self.hold(&ids).await?;
        Ok(rows
            .into_iter()
            .zip(held)
            .filter_map(|(row, held)| held.then_some(row))
            .collect())
    }

    /// Leave to hand over mails of a call that is first made at `tried`, and whose lease is about
    /// to begin anew.
    pub(super) fn leave(&self, tried: DateTime<Utc>) -> Leave {
        let (now, lease) = (self.clock.now(), self.settings.lease);
        let until = (now + lease / 2).min(tried + lease);
        let (begun, span) = (Instant::now(), (until - now).to_std().unwrap_or_default());
        let (clock, traffic) = (self.clock.clone(), self.traffic.clone());
        Leave::new(move || {
            if clock.now() >= until || begun.elapsed() >= span {
                Standing::Over
            } else if traffic.ending() {
                Standing::Ending
            } else {
                Standing::Given
            }
        })
    }
}
