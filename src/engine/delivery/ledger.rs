//! What becomes of rows in hand is written here, and nowhere else: claimed, handed over, held, let
//! go, settled, closed.
//!
//! The rule (P2, P4): a lease is extended while the work it is for goes on, never instead of it. A
//! row is closed once its markers stand. Of a digest that was taken they are written first, so that
//! it is settled and closed in one; all others are settled first, as what nobody saw the end of is
//! to be noted before anything else. What is written is also counted, in the run's [`RunTally`].
//! Rows that nobody has in hand are opened, corrected and released by those who find what is due,
//! and by an operator's commands.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use futures::future::{Either, select};
use tokio::time::{sleep, timeout};

use super::retry::Verdicts;
use super::tally::{Concluded, RunTally};
use crate::context::Context;
use crate::domain::delivery::{Handover, Settlement, Transition};
use crate::domain::{Delivery, DeliveryId, DeliveryState};
use crate::engine::{Result, crash};
use crate::store::Claim;

mod close;
mod suppress;

/// How long stacks are waited for, at most, before it is noted what became of mails: who dies by
/// then leaves mails in doubt.
const PROMPTLY: Duration = Duration::from_secs(5);

/// Writes what becomes of rows.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    /// What the run has taken in hand, and what became of it.
    pub tally: RunTally,
}

impl Ledger {
    /// The ledger as this process writes it.
    pub fn new(context: Arc<Context>) -> Self {
        Self {
            context,
            tally: RunTally::default(),
        }
    }

    /// Returns how long a row stays leased after its lease was extended.
    pub(crate) fn lease(&self) -> TimeDelta {
        self.context.config.delivery.lease
    }

    /// Leases open rows to this process, from now on.
    pub(super) async fn claim(
        &self,
        which: &Claim<'_>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Delivery>> {
        let claimed = self
            .context
            .store
            .claim(&self.context.owner, now + self.lease(), which);
        Ok(claimed.await?)
    }

    /// These rows as they are now, whoever has them in hand.
    pub(super) async fn rows(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        Ok(self.context.store.deliveries(ids).await?)
    }

    /// Notes of rows that are ours that they are `sending`, in a call first made at `tried`, before
    /// the provider hears of it; says which were noted.
    pub(super) async fn hand_over(
        &self,
        handovers: impl Iterator<Item = Handover>,
        tried: DateTime<Utc>,
    ) -> Result<Vec<bool>> {
        let until = self.context.clock.now() + self.lease();
        let transitions: Vec<Transition> = handovers.map(Transition::HandOver).collect();
        let noted = self
            .context
            .store
            .advance(&self.context.owner, tried, until, &transitions);
        Ok(noted.await?)
    }

    /// Extends the leases of rows; says which are still ours.
    pub(super) async fn hold(&self, ids: &[DeliveryId]) -> Result<Vec<bool>> {
        self.advance(ids.iter().cloned().map(Transition::Hold).collect())
            .await
    }

    /// Makes these transitions of rows that are ours; says which were made.
    pub(super) async fn advance(&self, transitions: Vec<Transition>) -> Result<Vec<bool>> {
        let now = self.context.clock.now();
        let until = now + self.lease();
        let made = self
            .context
            .store
            .advance(&self.context.owner, now, until, &transitions);
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
        (self.lease() / 3).to_std().unwrap_or_default()
    }

    /// How long the stacks may take before it is noted what became of mails.
    fn promptly(&self) -> Duration {
        self.third_of_lease().min(PROMPTLY)
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

    /// Lets go of those that wait; marks, settles and closes the others, digests that were taken in
    /// this order, all else settled first. Counts and answers what was done. What is settled must
    /// be among `rows`, as its markers are written from there: a settlement of any other is not
    /// made, and its row stays as it is.
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
            self.tally.conclude(&[], &deferred);
        }
        if verdicts.settlements.is_empty() {
            return Ok(Concluded {
                deferred,
                ..Concluded::default()
            });
        }
        let of: HashMap<&DeliveryId, &Delivery> = rows.iter().map(|row| (&row.id, *row)).collect();
        let (rows, settlements): (Vec<&Delivery>, Vec<Settlement>) = verdicts
            .settlements
            .into_iter()
            .filter_map(|end| Some((*of.get(&end.id)?, end)))
            .unzip();
        crash::point("before-settle");
        let ends = rows.iter().copied().zip(&settlements);
        // Where markers could not be written, what became of the mails is noted all the same.
        let (marked, unmarked) = match timeout(self.promptly(), self.mark_taken(ends)).await {
            Ok(Ok(marked)) => (marked, None),
            Ok(Err(error)) => (HashSet::new(), Some(error)),
            // They are marked again once it is noted, which must not wait for stacks.
            Err(_) => (HashSet::new(), None),
        };
        let end = |end: &Settlement| match marked.contains(&end.id) {
            true => Transition::Conclude(end.clone()),
            false => Transition::Settle(end.clone()),
        };
        let done = self.advance(settlements.iter().map(end).collect()).await?;
        crash::point("after-settle");
        let settled: Vec<(&Delivery, Settlement)> = rows
            .into_iter()
            .zip(settlements)
            .zip(done)
            .filter_map(|(end, done)| done.then_some(end))
            .collect();
        let undeliverable = verdicts.undeliverable;
        let excused = |(row, end): &&(&Delivery, Settlement)| {
            let of_address = || undeliverable.iter().any(|lost| lost.delivery == end.id);
            end.state == DeliveryState::Failed && (row.reopened > 0 || of_address())
        };
        let excused = settled.iter().filter(excused).count() as u64;
        let (rows, settled): (Vec<&Delivery>, Vec<Settlement>) = settled.into_iter().unzip();
        self.tally.conclude(&settled, &[]);
        let states = settled.iter().map(|end| end.state);
        let open = rows.into_iter().zip(states);
        let open = open.filter(|(row, _)| !marked.contains(&row.id));
        match unmarked {
            Some(error) => return Err(error),
            None => self.close(open).await?,
        }
        Ok(Concluded {
            excused,
            settled,
            deferred,
            ..Concluded::default()
        })
    }
}
