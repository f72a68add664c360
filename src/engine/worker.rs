//! Runs the background work: fan-outs, batches, deliveries, digests and cleanup.
//!
//! Each part of a round is a step that tests can run without sleeping. The loops around the parts
//! run concurrently, stop between steps on request, and then release all leases. Start with
//! [`Worker::run`].

pub mod activity;

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use futures::FutureExt;
use tokio::sync::watch;

use super::archive::clean::Cleaner;
use super::batches::Closer;
use super::delivery::GateState;
use super::digest::Digests;
use super::fanout::Fanouts;
use super::{Result, Watcher};
use crate::context::Context;
use crate::domain::Lease;
use crate::domain::coordination::DIGEST_SCAN;
use crate::domain::schedule::TICK;
use crate::store::Release;
use crate::wire::digest::{Ended, Report, Round};

/// The background work, in single rounds or in loops.
pub struct Worker {
    /// Fans out accepted events.
    pub fanouts: Fanouts,
    /// Ends batches that are due.
    pub closer: Closer,
    /// Removes expired records.
    pub cleaner: Cleaner,
    /// Sends due digests. Its sender also sends all other emails.
    pub digests: Digests,
    pub(crate) context: Arc<Context>,
}

/// A part of the background work, with a loop of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Part {
    /// Fans out accepted events.
    FanningOut,
    /// Ends due batches, sends pending emails, and removes expired records.
    Mailing,
    /// Sends due digests.
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

/// Stops long work when the worker shuts down.
pub struct UntilStopped<'a>(pub &'a watch::Receiver<bool>);

impl Watcher for UntilStopped<'_> {
    fn stopping(&self) -> bool {
        *self.0.borrow()
    }
}

impl Worker {
    /// Does all work that is due, once. If fanning out fails, emails are still sent, and the result
    /// contains the error. `scanned` is the last tick for which this worker looked for due digests.
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

    async fn fan_out(&self, linger: TimeDelta, progress: &dyn Watcher) -> Result<Round> {
        Ok(Round {
            fanouts: self.fanouts.drain_within(linger, progress).await?,
            ..Round::default()
        })
    }

    /// Ends due batches, sends pending emails, and removes some expired records.
    async fn mail(&self, progress: &dyn Watcher) -> Result<Round> {
        let batches = self.closer.drain(progress).await?;
        let sender = self.digests.sender.with_new_tally();
        let paused = match sender.drain().await? {
            GateState::Paused(pause) => Some(pause),
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

    /// Sends due digests, at most once per tick.
    async fn digest(
        &self,
        scanned: &mut Option<DateTime<Utc>>,
        progress: &dyn Watcher,
    ) -> Result<Round> {
        // While sending is paused, there is no need to look for due digests.
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
            // Look again for the users whose digests were not sent.
            *scanned = None;
        }
        Ok(Round {
            digests,
            paused,
            ..Round::default()
        })
    }

    /// Looks for due digests, once per tick among all workers. The lease only saves work: the
    /// ledger prevents a second email.
    async fn due_digests(
        &self,
        scanned: &mut Option<DateTime<Utc>>,
        progress: &dyn Watcher,
    ) -> Result<Option<Report>> {
        let now = self.context.clock.now();
        let tick = now.duration_trunc(TICK).unwrap_or(now);
        // A clock that was set back starts an earlier tick.
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

    /// Works until `stop` becomes true, then releases all leases. The parts run concurrently and do
    /// not wait for each other. A part that fails is reported and retried after a rest.
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
        let (signal, mut scanned) = (stop.clone(), None);
        let progress = UntilStopped(&signal);
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

    /// Waits for `idle`, or until `stop` becomes true.
    async fn rest(&self, stop: &mut watch::Receiver<bool>) {
        let rest = self
            .context
            .config
            .worker_idle
            .to_std()
            .unwrap_or(Duration::from_millis(500));
        // An error means that the sender of `stop` is gone. That ends the wait as well.
        let _ = tokio::time::timeout(rest, stop.wait_for(|stop| *stop)).await;
    }

    /// Releases all leases, so that other workers can continue at once.
    pub async fn release(&self) -> Result<()> {
        let owner = &self.context.owner;
        let scan = Release::Lease {
            name: DIGEST_SCAN,
            owner,
        };
        for which in [Release::Fanouts(owner), Release::Deliveries(owner), scan] {
            self.context.store.release(&which).await?;
        }
        Ok(())
    }
}
