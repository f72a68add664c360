//! What becomes of rows is written here, and nowhere else: held, let go, settled, marked, closed.
//!
//! The rule (P2, P4): a lease is extended while the work it is for goes on, never instead of it. A
//! row is settled before its marks are written, and closed after. What is written is also counted,
//! in the run's [`Account`].

use std::collections::HashMap;
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use futures::future::{Either, select};
use tokio::time::sleep;

use super::retry::Verdicts;
use super::tally::{Account, Concluded};
use crate::clock::Clock;
use crate::domain::delivery::{Settlement, Transition};
use crate::domain::{Delivery, DeliveryId, DeliveryState};
use crate::services::{Result, crash};
use crate::store::{Batches, Deliveries, Stacks, Suppressions};

mod close;
mod suppress;

/// Writes what becomes of rows.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) deliveries: Arc<dyn Deliveries>,
    pub(crate) stacks: Arc<dyn Stacks>,
    pub(crate) batches: Arc<dyn Batches>,
    pub(crate) suppressions: Arc<dyn Suppressions>,
    pub(crate) clock: Arc<dyn Clock>,
    /// This process, as its leases name it.
    pub owner: String,
    /// How long a row is held after its lease was extended (`delivery.lease`).
    pub lease: TimeDelta,
    /// What the run has taken in hand, and what became of it.
    pub account: Account,
}

impl Ledger {
    /// Extends the leases of rows; says which are still ours.
    pub(super) async fn hold(&self, ids: &[DeliveryId]) -> Result<Vec<bool>> {
        self.advance(ids.iter().cloned().map(Transition::Hold).collect())
            .await
    }

    /// Makes these transitions of rows that are ours; says which were made.
    pub(super) async fn advance(&self, transitions: Vec<Transition>) -> Result<Vec<bool>> {
        let now = self.clock.now();
        let until = now + self.lease;
        let made = self
            .deliveries
            .advance(&self.owner, now, until, &transitions);
        Ok(made.await?)
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
        (self.lease / 3).to_std().unwrap_or_default()
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

    /// Lets go of the rows that wait; settles the others, writes their markers and closes them.
    /// Counts and answers what was done.
    pub(super) async fn conclude(
        &self,
        rows: &[&Delivery],
        verdicts: Verdicts,
    ) -> Result<Concluded> {
        let deferred = verdicts.deferrals;
        if !deferred.is_empty() {
            let deferrals = deferred.iter().cloned();
            self.advance(deferrals.map(Transition::Defer).collect())
                .await?;
            self.account.conclude(&[], &deferred);
        }
        if verdicts.settlements.is_empty() {
            return Ok(Concluded {
                deferred,
                ..Concluded::default()
            });
        }
        crash::point("before-settle");
        let settlements = verdicts.settlements.iter().cloned();
        let done = self.advance(settlements.map(Transition::Settle).collect());
        let done = done.await?;
        crash::point("after-settle");
        let settled: Vec<Settlement> = verdicts
            .settlements
            .into_iter()
            .zip(done)
            .filter_map(|(end, done)| done.then_some(end))
            .collect();
        self.account.conclude(&settled, &[]);
        let undeliverable = verdicts.undeliverable;
        let of: HashMap<&DeliveryId, &Delivery> = rows.iter().map(|row| (&row.id, *row)).collect();
        let excused = |end: &&Settlement| {
            let tried_again = of.get(&end.id).is_some_and(|row| row.reopened > 0);
            let of_address = || undeliverable.iter().any(|lost| lost.delivery == end.id);
            end.state == DeliveryState::Failed && (tried_again || of_address())
        };
        let excused = settled.iter().filter(excused).count() as u64;
        let closing = settled
            .iter()
            .filter_map(|end| Some((*of.get(&end.id)?, end.state)));
        self.close(closing).await?;
        Ok(Concluded {
            excused,
            settled,
            deferred,
            ..Concluded::default()
        })
    }
}
