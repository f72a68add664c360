//! Writes the state of leased rows: claims, transitions, markers and closing.
//!
//! A row is closed after its markers are written (P2, P4). Accepted digests get their markers
//! first, so one update settles and closes them. All other rows are settled first, because outcomes
//! must be recorded soon. Each change is counted in the run's [`RunTally`]. Rows without a lease
//! are opened, corrected and released elsewhere. Start with [`Ledger::conclude`].

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

/// The longest time to write markers before outcomes are recorded. If the process dies first, the
/// outcomes are unknown.
const PROMPTLY: Duration = Duration::from_secs(5);

/// Writes the state of rows that this process has leased.
#[derive(Clone)]
pub struct Ledger {
    pub(crate) context: Arc<Context>,
    /// The deliveries that the run has processed, and their outcomes.
    pub tally: RunTally,
}

impl Ledger {
    /// Creates a ledger with an empty tally.
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

    /// Leases open rows to this process and returns them.
    pub(super) async fn claim(
        &self,
        which: &Claim<'_>,
        now: DateTime<Utc>,
    ) -> Result<Vec<Delivery>> {
        let store = &self.context.store;
        let claimed = store.claim(&self.context.owner, now + self.lease(), which);
        Ok(claimed.await?)
    }

    /// Returns the current rows, whether leased or not, in the order of `ids`.
    pub(super) async fn rows(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>> {
        Ok(self.context.store.deliveries(ids).await?)
    }

    /// Marks leased rows as `sending`, before the provider receives the call. `tried` is when the
    /// call is first made. Returns which rows were marked.
    pub(super) async fn hand_over(
        &self,
        handovers: impl Iterator<Item = Handover>,
        tried: DateTime<Utc>,
    ) -> Result<Vec<bool>> {
        let until = self.context.clock.now() + self.lease();
        let transitions: Vec<Transition> = handovers.map(Transition::HandOver).collect();
        let store = &self.context.store;
        let noted = store.advance(&self.context.owner, tried, until, &transitions);
        Ok(noted.await?)
    }

    /// Renews the leases of rows. Returns which are still leased to this process.
    pub(super) async fn hold(&self, ids: &[DeliveryId]) -> Result<Vec<bool>> {
        self.advance(ids.iter().cloned().map(Transition::Hold).collect())
            .await
    }

    /// Applies transitions to leased rows. Returns which were applied.
    pub(super) async fn advance(&self, transitions: Vec<Transition>) -> Result<Vec<bool>> {
        let now = self.context.clock.now();
        let until = now + self.lease();
        let store = &self.context.store;
        let made = store.advance(&self.context.owner, now, until, &transitions);
        Ok(made.await?)
    }

    /// Runs `work` and renews the leases of these rows meanwhile. Neither waits for the other.
    pub(super) async fn holding<T>(&self, ids: &[DeliveryId], work: impl Future<Output = T>) -> T {
        let mut work = pin!(work);
        loop {
            match select(work.as_mut(), pin!(sleep(self.third_of_lease()))).await {
                Either::Left((done, _)) => return done,
                Either::Right(_) => {}
            }
            // The provider's answer matters even if the leases cannot be renewed now.
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

    /// Returns how long writing markers may take before outcomes are recorded.
    fn promptly(&self) -> Duration {
        self.third_of_lease().min(PROMPTLY)
    }

    /// Renews the leases of these rows. Returns the rows that are still leased to this process.
    pub(super) async fn still_ours(&self, rows: Vec<Delivery>) -> Result<Vec<Delivery>> {
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        let held = self.hold(&ids).await?;
        Ok(rows
            .into_iter()
            .zip(held)
            .filter_map(|(row, held)| held.then_some(row))
            .collect())
    }

    /// Defers rows, or marks, settles and closes them. Counts and returns what was done.
    ///
    /// Accepted digests are marked before they are settled; all other rows are settled first.
    /// Settlements of rows that are not in `rows` are ignored, because the markers are built from
    /// these rows.
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
        // Outcomes are recorded even if the markers cannot be written.
        let (marked, unmarked) = match timeout(self.promptly(), self.mark_taken(ends)).await {
            Ok(Ok(marked)) => (marked, None),
            Ok(Err(error)) => (HashSet::new(), Some(error)),
            // Timed out: the markers are written after the outcomes are recorded.
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
            end.state == DeliveryState::Failed && (row.attempts.reopened > 0 || of_address())
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
