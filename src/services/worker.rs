//! The loops that keep everything moving: fan-outs, batches that end, deliveries that wait, digests that fall due.
//!
//! The rule: each round is a step that tests can drain without sleeping; the loop around it is thin, stops between steps when asked
//! to, and gives up its leases when it does.

use std::sync::Arc;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use tokio::sync::watch;

use super::batches::{Closed, Closer};
use super::clean::{Cleaner, Forgotten};
use super::deliver::{Account, Ended, Pause, Road, Step, Tally};
use super::digest::{Digests, Report, Request};
use super::fanout::{Done, Fanouts};
use super::{Progress, Result};
use crate::domain::Lease;
use crate::store::{Deliveries, Journal, Leases};

pub struct Worker {
    pub fanouts: Fanouts,
    pub closer: Closer,
    pub cleaner: Cleaner,
    pub digests: Digests,
    pub journal: Arc<dyn Journal>,
    pub deliveries: Arc<dyn Deliveries>,
    pub leases: Arc<dyn Leases>,
    pub idle: TimeDelta,
}

/// What a round did.
#[derive(Debug, Clone, Default, serde::Serialize)]
pub struct Round {
    pub fanouts: Done,
    /// Batches that have ended.
    pub batches: Closed,
    pub left_over: Tally,
    pub digests: Option<Report>,
    pub forgotten: Forgotten,
    /// Why no mail leaves, if none may.
    pub paused: Option<Pause>,
}

impl Round {
    pub fn idle(&self) -> bool {
        self.fanouts.fanouts == 0
            && self.batches == Closed::default()
            && self.forgotten == Forgotten::default()
            && self.left_over.settled() == 0
            && self.digests.is_none()
    }
}

/// Work that ends when the worker is asked to stop.
struct UntilStopped<'a>(&'a watch::Receiver<bool>);

impl Progress for UntilStopped<'_> {
    fn advance(&self, _: u64) {}
    fn total(&self, _: u64) {}
    fn stopping(&self) -> bool {
        *self.0.borrow()
    }
}

/// Digests fall due on whole local hours, and time zones differ by quarters of an hour.
const TICK: TimeDelta = TimeDelta::minutes(15);

impl Worker {
    /// Everything there is to do now, once. `scanned` is the last tick whose due digests this worker looked for.
    pub async fn round(
        &self,
        scanned: &mut Option<DateTime<Utc>>,
        progress: &dyn Progress,
    ) -> Result<Round> {
        let fanouts = self.fanouts.drain(progress).await?;
        let batches = self.closer.drain(progress).await?;
        let mut account = Account::default();
        let paused = match self.digests.deliver.drain(&mut account).await? {
            Step::Held(Road::Paused(pause)) => Some(pause),
            _ => None,
        };
        let mut round = Round {
            fanouts,
            batches,
            left_over: account.tally(),
            digests: None,
            forgotten: self.cleaner.step().await?,
            paused,
        };
        if round.paused.is_none() {
            round.digests = self.due_digests(scanned, progress).await?;
        }
        if let Some(Ended::Paused(pause)) = round
            .digests
            .as_ref()
            .and_then(|report| report.ended.as_ref())
        {
            round.paused = Some(pause.clone());
            // Whoever was held back is looked for again.
            *scanned = None;
        }
        Ok(round)
    }

    /// Looks for due digests once a tick, whoever of all workers comes first. The lease only saves work: the ledger is what keeps
    /// a digest from being mailed twice.
    async fn due_digests(
        &self,
        scanned: &mut Option<DateTime<Utc>>,
        progress: &dyn Progress,
    ) -> Result<Option<Report>> {
        let now = self.digests.deliver.clock.now();
        let tick = now.duration_trunc(TICK).unwrap_or(now);
        if scanned.is_some_and(|last| last >= tick) {
            return Ok(None);
        }
        let lease = Lease {
            owner: self.fanouts.owner.clone(),
            until: tick + TICK,
        };
        let report = if self.leases.lease("digest-scan", &lease, now).await? {
            Some(self.digests.run(&Request::default(), progress).await?)
        } else {
            None
        };
        *scanned = Some(tick);
        Ok(report)
    }

    /// Rounds until `stop` turns true; then gives up all leases. A round that fails is reported to `failed` and tried again after a rest.
    pub async fn run(
        &self,
        mut stop: watch::Receiver<bool>,
        on_round: impl Fn(Result<Round>),
    ) -> Result<()> {
        let mut scanned = None;
        let rest = self
            .idle
            .to_std()
            .unwrap_or(std::time::Duration::from_millis(500));
        while !*stop.borrow() {
            let round = self.round(&mut scanned, &UntilStopped(&stop)).await;
            let busy = round.as_ref().is_ok_and(|round| !round.idle());
            on_round(round);
            if !busy {
                tokio::select! {
                    () = tokio::time::sleep(rest) => {}
                    changed = stop.changed() => if changed.is_err() { break },
                }
            }
        }
        self.release().await
    }

    /// Gives up all leases, so that others can go on at once.
    pub async fn release(&self) -> Result<()> {
        let owner = &self.fanouts.owner;
        self.journal.release_fanouts(owner).await?;
        self.deliveries.release(owner).await?;
        Ok(self.leases.unlease("digest-scan", owner).await?)
    }
}
