//! Waits until all deliveries of a run are settled, or until waiting cannot help.
//!
//! Deliveries that other workers settle count with their outcome. Those that remain at the end stay
//! in the ledger for the next run and count as deferred. Start with [`Sender::see_through`].

use chrono::{DateTime, TimeDelta, Utc};

use super::super::gate::GateState;
use super::{Sender, Step};
use crate::engine::{Result, Watcher};
use crate::wire::digest::Ended;

/// How often to look for deliveries that other workers settled, and for a request to stop.
const LOOK: TimeDelta = TimeDelta::seconds(1);
/// The most rows that are read at once.
const AT_ONCE: usize = 1_000;

impl Sender {
    /// Processes claimable rows until no delivery of the tally is unsettled. Gives up if nothing
    /// was settled for `patience`.
    pub async fn see_through(&self, patience: TimeDelta, progress: &dyn Watcher) -> Result<Ended> {
        let tally = &self.ledger.tally;
        let (mut settled, mut moved) = (tally.settled(), self.context.clock.now());
        loop {
            let step = self.drain().await?;
            if let Step::Held(GateState::Paused(pause)) = step {
                self.look_up().await?;
                return Ok(Ended::Paused(pause));
            }
            if step == Step::Held(GateState::Stopping) {
                self.look_up().await?;
                return Ok(Ended::Stopped);
            }
            let next = self.look_up().await?;
            let now = self.context.clock.now();
            if tally.settled() > settled {
                (settled, moved) = (tally.settled(), now);
            }
            let Some(next) = next else {
                return Ok(Ended::Settled);
            };
            let next = match step {
                Step::Held(GateState::ClosedUntil(until)) => next.max(until),
                _ => next,
            };
            if now >= moved + patience {
                return Ok(Ended::Patience);
            }
            if !self.rest(next.min(moved + patience), progress).await {
                return Ok(Ended::Stopped);
            }
        }
    }

    /// Waits until emails may be sent. Returns `None` as soon as they may, otherwise why it gave
    /// up.
    pub async fn wait_for_gate(
        &self,
        patience: TimeDelta,
        progress: &dyn Watcher,
    ) -> Result<Option<Ended>> {
        let end = self.context.clock.now() + patience;
        loop {
            match self.ready().await? {
                GateState::Open => return Ok(None),
                GateState::Paused(pause) => return Ok(Some(Ended::Paused(pause))),
                GateState::Stopping => return Ok(Some(Ended::Stopped)),
                GateState::ClosedUntil(_) if self.context.clock.now() >= end => {
                    return Ok(Some(Ended::Patience));
                }
                GateState::ClosedUntil(until) => {
                    if !self.rest(until.min(end), progress).await {
                        return Ok(Some(Ended::Stopped));
                    }
                }
            }
        }
    }

    /// Counts the deliveries that others have settled. Returns when the first unsettled one may be
    /// claimable; `None` if there are none.
    async fn look_up(&self) -> Result<Option<DateTime<Utc>>> {
        let (now, tally) = (self.context.clock.now(), &self.ledger.tally);
        for ids in tally.due(now).chunks(AT_ONCE) {
            let rows = self.ledger.rows(ids).await?;
            for row in rows.iter().flatten() {
                if row.state.settled() {
                    tally.take_up(std::slice::from_ref(row));
                    continue;
                }
                let held = row.lease.as_ref().map(|lease| lease.until);
                let free = row.attempts.not_before.or(held).unwrap_or(now);
                // Its holder may finish at any moment.
                let look = if held.is_some() {
                    free.min(now + LOOK)
                } else {
                    free
                };
                tally.postpone(&row.id, look);
            }
        }
        let next = tally.next(now);
        Ok(next.map(|next| next.max(now + TimeDelta::milliseconds(50))))
    }

    /// Sleeps until `until`. Returns `false` as soon as the watcher asks to stop.
    async fn rest(&self, until: DateTime<Utc>, progress: &dyn Watcher) -> bool {
        loop {
            if progress.stopping() {
                return false;
            }
            let left = until - self.context.clock.now();
            if left <= TimeDelta::zero() {
                return true;
            }
            self.context.clock.sleep(left.min(LOOK)).await;
        }
    }
}
