//! The loops that keep everything moving: fan-outs, batches that end, deliveries that wait, digests
//! that fall due.
//!
//! The rule: each part of a round is a step that tests can drain without sleeping; the loops around
//! them are thin, go on side by side, stop between steps when asked to, and give up their leases
//! when they do.

pub mod activity;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use futures::FutureExt;
use tokio::sync::watch;

use super::archive::clean::Cleaner;
use super::batches::Closer;
use super::delivery::{GateState, Step};
use super::digest::Digests;
use super::fanout::Fanouts;
use super::{Result, Watcher};
use crate::context::Context;
use crate::domain::Lease;
use crate::domain::lease::{DIGEST_SCAN, TICK};
use crate::store::Waits;
use crate::wire::digest::{Ended, Report};
use crate::wire::round::Round;

/// Everything that goes on by itself, a round at a time or in loops.
pub struct Worker {
    /// Fans out accepted events.
    pub fanouts: Fanouts,
    /// Ends batches that are due.
    pub closer: Closer,
    /// Forgets what was settled long ago.
    pub cleaner: Cleaner,
    /// Mails digests that are due; its sender mails all that waits.
    pub digests: Digests,
    pub(crate) context: Arc<Context>,
}

/// A part of a round, which goes on by itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Accepted events are fanned out.
    FanningOut,
    /// Batches that are due end, mails that wait leave, and what is old is removed.
    Mailing,
    /// Digests that are due are mailed.
    Digests,
}

impl Part {
    /// The name of the part in metrics.
    pub fn name(self) -> &'static str {
        match self {
            Self::FanningOut => "fan_out",
            Self::Mailing => "mail",
            Self::Digests => "digest",
        }
    }
}

type OnRound<'a> = dyn Fn(Part, Result<Round>) + Send + Sync + 'a;

/// Work that ends when the worker is asked to stop.
pub struct UntilStopped<'a>(pub &'a watch::Receiver<bool>);

impl Watcher for UntilStopped<'_> {
    fn advance(&self, _: u64) {}
    fn total(&self, _: u64) {}
    fn stopping(&self) -> bool {
        *self.0.borrow()
    }
}

impl Worker {
    /// Everything there is to do now, once; what fails to be fanned out keeps no mail from
    /// leaving, and is told. `scanned` is the last tick whose due digests this worker looked for.
    pub async fn round(
        &self,
        scanned: &mut Option<DateTime<Utc>>,
        progress: &dyn Watcher,
    ) -> Result<Round> {
        let fanned_out = self.fan_out(TimeDelta::zero(), progress).await;
        let mut round = self.mail(progress).await?;
        if round.paused.is_none() {
            let digests = self.digest(scanned, progress).await?;
            round.digests = digests.digests;
            round.paused = digests.paused;
        }
        match fanned_out {
            Ok(fanned_out) => round.fanouts = fanned_out.fanouts,
            Err(error) => round.not_fanned_out = Some(Arc::new(error)),
        }
        Ok(round)
    }

    /// Fans out what was accepted.
    async fn fan_out(&self, linger: TimeDelta, progress: &dyn Watcher) -> Result<Round> {
        Ok(Round {
            fanouts: self.fanouts.drain_within(linger, progress).await?,
            ..Round::default()
        })
    }

    /// Ends what is due of batches, mails what waits, forgets a little.
    async fn mail(&self, progress: &dyn Watcher) -> Result<Round> {
        let batches = self.closer.drain(progress).await?;
        let sender = self.digests.sender.anew();
        let paused = match sender.drain().await? {
            Step::Held(GateState::Paused(pause)) => Some(pause),
            _ => None,
        };
        Ok(Round {
            batches,
            mails: sender.ledger.tally.so_far(),
            forgotten: self.cleaner.step().await?,
            paused,
            ..Round::default()
        })
    }

    /// Mails the digests that are due, once a tick.
    async fn digest(
        &self,
        scanned: &mut Option<DateTime<Utc>>,
        progress: &dyn Watcher,
    ) -> Result<Round> {
        // Nobody is looked for whose mail could not leave.
        if let GateState::Paused(pause) = self.digests.sender.gate.before_chunk().await? {
            return Ok(Round {
                paused: Some(pause),
                ..Round::default()
            });
        }
        let digests = self.due_digests(scanned, progress).await?;
        let ended = digests.as_ref().and_then(|report| report.ended.as_ref());
        let paused = match ended {
            Some(Ended::Paused(pause)) => Some(pause.clone()),
            _ => None,
        };
        if paused.is_some() {
            // Whoever was held back is looked for again.
            *scanned = None;
        }
        Ok(Round {
            digests,
            paused,
            ..Round::default()
        })
    }

    /// Looks for due digests once a tick, whoever of all workers comes first. The lease only saves
    /// work: the ledger is what keeps a digest from being mailed twice.
    async fn due_digests(
        &self,
        scanned: &mut Option<DateTime<Utc>>,
        progress: &dyn Watcher,
    ) -> Result<Option<Report>> {
        let now = self.context.clock.now();
        let tick = now.duration_trunc(TICK).unwrap_or(now);
        // A clock that was put back begins a tick anew.
        if *scanned == Some(tick) {
            return Ok(None);
        }
        let lease = Lease {
            owner: self.context.owner.clone(),
            until: tick + TICK,
        };
        let report = if self.context.store.lease(DIGEST_SCAN, &lease, now).await? {
            Some(self.digests.tick(progress).await?)
        } else {
            None
        };
        *scanned = Some(tick);
        Ok(report)
    }

    /// Works until `stop` turns true; then gives up all leases. Fanning out, mailing and digests go
    /// on side by side: none waits for another to come to its end, or is stopped by its failure. A
    /// part of a round that fails is reported and tried again after a rest.
    pub async fn run(
        &self,
        stop: watch::Receiver<bool>,
        on_round: impl Fn(Part, Result<Round>) + Send + Sync,
    ) -> Result<()> {
        let go_on = |part| self.go_on(part, stop.clone(), &on_round).boxed();
        let (fanning_out, mailing) = (go_on(Part::FanningOut), go_on(Part::Mailing));
        futures::join!(fanning_out, mailing, go_on(Part::Digests));
        self.release().await
    }

    async fn go_on(&self, part: Part, mut stop: watch::Receiver<bool>, on_round: &OnRound<'_>) {
        let (asked, mut scanned) = (stop.clone(), None);
        let progress = UntilStopped(&asked);
        while !progress.stopping() {
            let round = match part {
                Part::FanningOut => {
                    self.fan_out(self.context.config.fanout.linger, &progress)
                        .await
                }
                Part::Mailing => self.mail(&progress).await,
                Part::Digests => self.digest(&mut scanned, &progress).await,
            };
            let busy = round.as_ref().is_ok_and(|round| !round.idle());
            on_round(part, round);
            if !busy {
                self.rest(&mut stop).await;
            }
        }
    }

    /// Rests a while, or until it is asked to stop.
    async fn rest(&self, stop: &mut watch::Receiver<bool>) {
        let rest = self
            .context
            .config
            .worker_idle
            .to_std()
            .unwrap_or(Duration::from_millis(500));
        // Whoever asked it to stop may be gone by then: that is asking as well.
        let _ = tokio::time::timeout(rest, stop.wait_for(|stop| *stop)).await;
    }

    /// Gives up all leases, so that others can go on at once.
    pub async fn release(&self) -> Result<()> {
        let owner = &self.context.owner;
        self.context.store.release_fanouts(owner).await?;
        self.context.store.release(&Waits::Held(owner)).await?;
        Ok(self.context.store.unlease(DIGEST_SCAN, owner).await?)
    }
}
