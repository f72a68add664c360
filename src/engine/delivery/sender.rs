//! Takes each delivery through its steps: claim, build, send, record the outcome.
//!
//! A row is leased, and durably `sending` with the call's reference, before the provider receives
//! the email. It stays open until its markers are written (P2 to P5). Each brand has a sender with
//! its theme, provider and limits; rows of an unconfigured brand wait. Start with
//! [`Sender::process_leased`]; [`resolve`] handles calls without an answer.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use futures::FutureExt;
use futures::future::join_all;

use super::compose::Compose;
use super::ledger::{Ledger, RunTally};
use super::outcomes::RetryPolicy;
use super::throttle::{Throttle, ThrottleState};
use crate::context::Context;
use crate::domain::{BrandName, Delivery, DeliveryId, DeliveryState};
use crate::email::Mailer;
use crate::engine::{Progress, Result};
use crate::store::RowsToLease;
use crate::wire::run_report::EarlyEnd;

mod calls;
mod resolve;

/// How often to look for deliveries that other workers settled, and for a request to stop.
const CHECK_INTERVAL: TimeDelta = TimeDelta::seconds(1);
/// The most rows in one read.
const ROWS_PER_READ: usize = 1_000;

/// Sends the emails of deliveries and closes the rows.
#[derive(Clone)]
pub struct Sender {
    /// Builds the emails.
    pub compose: Compose,
    /// Permits each call.
    pub throttle: Throttle,
    /// Writes the outcomes.
    pub ledger: Ledger,
    /// Decides what an outcome means for its row.
    pub retry: RetryPolicy,
    pub(crate) mailer: Arc<dyn Mailer>,
    pub(crate) context: Arc<Context>,
}

impl Sender {
    /// Sends what `compose` builds, with the default's identity unless a brand has its own. All
    /// senders of a process share the limits of their accounts.
    pub fn new(compose: Compose) -> Self {
        Self::with_tally(compose, RunTally::default())
    }

    fn with_tally(compose: Compose, tally: RunTally) -> Self {
        let (context, identity) = (compose.context.clone(), &compose.identity);
        Self {
            throttle: Throttle {
                context: context.clone(),
                account_prefix: identity.account_prefix.clone(),
                account: identity.account.clone(),
            },
            retry: RetryPolicy {
                settings: context.config.delivery,
                certainty: identity.mailer.resolution(),
            },
            mailer: identity.mailer.clone(),
            ledger: Ledger { context: context.clone(), tally },
            context,
            compose,
        }
    }

    /// Returns this sender with an empty tally, for a new run.
    #[must_use]
    pub fn with_new_tally(&self) -> Self {
        Self::new(self.compose.clone())
    }

    /// Returns the sender for this brand; `None` if the brand is not configured.
    fn sender_for(&self, brand: Option<&BrandName>) -> Option<Self> {
        if brand == self.compose.brand.as_ref() {
            return Some(self.clone());
        }
        let compose = self.compose.for_brand(brand)?;
        Some(Self::with_tally(compose, self.ledger.tally.clone()))
    }

    /// Returns whether work on new rows of any brand may start.
    pub async fn throttle_state(&self) -> Result<ThrottleState> {
        let mut state = self.throttle.current_state().await?;
        for brand in self.compose.identities.brands.keys() {
            let (ThrottleState::ClosedUntil(earliest), Some(sender)) =
                (&state, self.sender_for(Some(brand)))
            else {
                break;
            };
            state = match sender.throttle.current_state().await? {
                ThrottleState::ClosedUntil(until) => {
                    ThrottleState::ClosedUntil(until.min(*earliest))
                }
                state => state,
            };
        }
        Ok(state)
    }

    /// Claims open rows without a lease and processes them, until none can be claimed (`Open`) or
    /// no email may be sent.
    pub async fn drain(&self) -> Result<ThrottleState> {
        loop {
            let state = self.throttle_state().await?;
            if state != ThrottleState::Open {
                return Ok(state);
            }
            let (now, limit) = (self.context.clock.now(), self.throttle.settings().chunk);
            let rows = self.ledger.claim(&RowsToLease::Claimable(now, limit), now).await?;
            if rows.is_empty() {
                return Ok(state);
            }
            self.process_leased(rows).boxed().await?;
        }
    }

    /// Processes rows that this worker has leased, as far as is possible now. Renews their leases
    /// meanwhile.
    pub async fn process_leased(&self, rows: Vec<Delivery>) -> Result<()> {
        self.ledger.tally.record_started(&rows);
        let ids: Vec<DeliveryId> = rows.iter().map(|row| row.id.clone()).collect();
        self.ledger.renew_while(&ids, self.process(rows).boxed()).await
    }

    async fn process(&self, rows: Vec<Delivery>) -> Result<()> {
        let (settled, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.state.is_settled());
        let (sending, mut pending): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.state == DeliveryState::Sending);
        // Markers first: they need no provider.
        let unclosed: Vec<_> = settled.iter().map(|row| (row, row.state)).collect();
        self.ledger.close(&unclosed).await?;
        self.resolve_each(sending).boxed().await?;
        pending.sort_unstable_by(|a, b| a.user.cmp(&b.user));
        self.send_each(pending).boxed().await
    }

    /// Builds and sends pending rows, each through its brand's sender. Brands work concurrently, so
    /// none waits for the provider of another.
    async fn send_each(&self, rows: Vec<Delivery>) -> Result<()> {
        let brands = if self.compose.identities.brands.is_empty() {
            vec![None; rows.len()]
        } else {
            self.compose.brands_of(&rows).await?
        };
        let mut groups: BTreeMap<Option<BrandName>, Vec<Delivery>> = BTreeMap::new();
        for (row, brand) in rows.into_iter().zip(brands) {
            groups.entry(brand).or_default().push(row);
        }
        if groups.is_empty() {
            return self.throttle.publish_outcomes(None).await;
        }
        let sends = groups.into_iter().map(|(brand, rows)| {
            // For an unknown brand, this sender defers the rows.
            let sender = self.sender_for(brand.as_ref()).unwrap_or_else(|| self.clone());
            async move { sender.send(rows).await }.boxed()
        });
        // Let all brands finish, even if one fails.
        join_all(sends).await.into_iter().collect()
    }

    /// Resolves calls with unknown outcomes, each through the sender that made it. Another task of
    /// this process may still make these calls, so this waits for the account's calls to end.
    async fn resolve_each(&self, rows: Vec<Delivery>) -> Result<()> {
        let mut groups: BTreeMap<Option<&BrandName>, Vec<Delivery>> = BTreeMap::new();
        for row in rows {
            let call = row.attempts.call.as_deref().unwrap_or_default();
            let brand = self.compose.identities.brand_of_call(call);
            groups.entry(brand).or_default().push(row);
        }
        for (brand, rows) in groups {
            if let Some(sender) = self.sender_for(brand) {
                let _slot = sender.throttle.account.slot(true).await;
                sender.resolve(rows).boxed().await?;
            }
        }
        Ok(())
    }

    /// Processes claimable rows until no delivery of the tally is unsettled. Then returns `None`,
    /// otherwise why it ended: a pause, a request to stop, or nothing was settled for `patience`.
    ///
    /// Deliveries that other workers settle count with their outcome. Those that remain at the end
    /// stay in the ledger for the next run and count as deferred.
    pub async fn process_until_settled(
        &self,
        patience: TimeDelta,
        progress: &dyn Progress,
    ) -> Result<Option<EarlyEnd>> {
        let tally = &self.ledger.tally;
        let (mut settled, mut moved) = (tally.settled(), self.context.clock.now());
        loop {
            let state = self.drain().await?;
            let next = self.refresh_tally().await?;
            if let Some(ended) = state.end_reason() {
                return Ok(Some(ended));
            }
            let now = self.context.clock.now();
            if tally.settled() > settled {
                (settled, moved) = (tally.settled(), now);
            }
            let Some(mut next) = next else {
                return Ok(None);
            };
            if let ThrottleState::ClosedUntil(until) = state {
                next = next.max(until);
            }
            if now >= moved + patience {
                return Ok(Some(EarlyEnd::Patience));
            }
            if !self.sleep_until(next.min(moved + patience), progress).await {
                return Ok(Some(EarlyEnd::Stopped));
            }
        }
    }

    /// Waits until emails may be sent. Returns `None` as soon as they may, otherwise why it gave
    /// up.
    pub async fn wait_until_open(
        &self,
        patience: TimeDelta,
        progress: &dyn Progress,
    ) -> Result<Option<EarlyEnd>> {
        let end = self.context.clock.now() + patience;
        loop {
            let state = self.throttle_state().await?;
            let ThrottleState::ClosedUntil(until) = state else {
                return Ok(state.end_reason());
            };
            if self.context.clock.now() >= end {
                return Ok(Some(EarlyEnd::Patience));
            }
            if !self.sleep_until(until.min(end), progress).await {
                return Ok(Some(EarlyEnd::Stopped));
            }
        }
    }

    /// Counts the deliveries that other workers have settled. Returns when to check the unsettled
    /// ones again; `None` if there are none.
    async fn refresh_tally(&self) -> Result<Option<DateTime<Utc>>> {
        let (tally, waiting) = (&self.ledger.tally, self.ledger.tally.waiting());
        // The more deliveries are read, the longer is the wait.
        let reads = 1 + waiting.len() / ROWS_PER_READ;
        let soon = self.context.clock.now() + CHECK_INTERVAL * reads as i32;
        let mut next_check = None;
        for ids in waiting.chunks(ROWS_PER_READ) {
            let rows = self.context.store.deliveries(ids).await?;
            let rows: Vec<Delivery> = rows.into_iter().flatten().collect();
            tally.record_started(&rows);
            for row in rows.iter().filter(|row| !row.state.is_settled()) {
                let not_before = row.attempts.not_before.filter(|_| row.lease.is_none());
                // The holder of a leased row may finish at any moment.
                let check = not_before.map_or(soon, |not_before| not_before.max(soon));
                next_check = Some(next_check.map_or(check, |next| check.min(next)));
            }
        }
        Ok(next_check)
    }

    /// Sleeps until `until`. Returns `false` as soon as the watcher asks to stop.
    async fn sleep_until(&self, until: DateTime<Utc>, progress: &dyn Progress) -> bool {
        loop {
            if progress.should_stop() {
                return false;
            }
            let wait = until - self.context.clock.now();
            if wait <= TimeDelta::zero() {
                return true;
            }
            self.context.clock.sleep(wait.min(CHECK_INTERVAL)).await;
        }
    }
}
