//! Runs the background work: fan-outs, batches, deliveries, digests and cleanup.
//!
//! Each part of a round is a step that tests can run without sleeping. The loops around the parts
//! run concurrently, stop between steps on request, and then release leases. Start with
//! [`Worker::run`].

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, DurationRound, TimeDelta, Utc};
use futures::FutureExt;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::archive::expired_records::Cleaner;
use super::batches::BatchService;
use super::delivery::{Sender, ThrottleState};
use super::digest::DigestService;
use super::fanout::FanOutService;
use super::{Progress, Result};
use crate::context::Context;
use crate::domain::coordination::DIGEST_SCAN_LEASE;
use crate::domain::name::named_enum;
use crate::domain::schedule::SCAN_INTERVAL;
use crate::store::LeasesToEnd;
use crate::wire::run_report::{DigestReport, EarlyEnd, Round, Tally};
use crate::wire::status::{DigestActivity, WorkerActivity};

/// The background work, in single rounds or in loops.
pub struct Worker {
    /// Fans out accepted events.
    pub fanouts: FanOutService,
    /// Ends batches that are due.
    pub batches: BatchService,
    /// Removes expired records.
    pub cleaner: Cleaner,
    /// Sends due digests. Its sender also sends all other emails.
    pub digests: DigestService,
    pub(crate) context: Arc<Context>,
}

named_enum! {
    /// A part of the background work, with a loop of its own. Metrics contain its name.
    WorkerPart("part of the work") {
        /// Fans out accepted events.
        FanningOut = "fan_out",
        /// Ends due batches, sends pending emails, and removes expired records.
        SendingEmails = "mail",
        /// Sends due digests.
        Digests = "digest",
    }
}

/// Copies the counts of its sender into `counts` when it is dropped, so that a round that is cut
/// off has them too.
struct CountedSender<'a> {
    sender: Sender,
    counts: &'a mut Tally,
}

impl Drop for CountedSender<'_> {
    fn drop(&mut self) {
        *self.counts = self.sender.ledger.tally.snapshot();
    }
}

type OnRound<'a> = dyn Fn(WorkerPart, Result<Round>) + Send + Sync + 'a;

/// Stops long work when the worker shuts down.
impl Progress for watch::Receiver<bool> {
    fn should_stop(&self) -> bool {
        *self.borrow()
    }
}

impl Worker {
    /// Does all work that is due, once. If fanning out fails, emails are still sent, and the result
    /// contains the error. `last_tick` is the last one that this worker has handled, or left to
    /// another worker.
    pub async fn round(
        &self,
        last_tick: &mut Option<DateTime<Utc>>,
        progress: &dyn Progress,
    ) -> Result<Round> {
        let mut round = Round::default();
        self.round_into(&mut round, last_tick, progress).await?;
        Ok(round)
    }

    /// Does the same, and reports into `round`. If the round fails or is dropped, `round` has the
    /// counts so far, except those of an unfinished fan-out, drain of batches or cleanup.
    pub async fn round_into(
        &self,
        round: &mut Round,
        last_tick: &mut Option<DateTime<Utc>>,
        progress: &dyn Progress,
    ) -> Result<()> {
        if let Err(error) = self.fan_out(round, TimeDelta::zero(), progress).await {
            round.fan_out_error = Some(Arc::new(error));
        }
        self.send_emails(round, progress).await?;
        if round.paused.is_none() {
            self.send_digests(round, last_tick, progress).await?;
        }
        Ok(())
    }

    async fn fan_out(
        &self,
        round: &mut Round,
        linger: TimeDelta,
        progress: &dyn Progress,
    ) -> Result<()> {
        round.fanouts = self.fanouts.drain_within(linger, progress).await?;
        Ok(())
    }

    /// Ends due batches, sends pending emails, and removes some expired records.
    async fn send_emails(&self, round: &mut Round, progress: &dyn Progress) -> Result<()> {
        round.batches = self.batches.drain(progress).await?;
        let sender = self.digests.sender.with_new_tally();
        let sending = CountedSender { sender, counts: &mut round.emails };
        if let ThrottleState::Paused(pause) = sending.sender.drain().await? {
            round.paused = Some(pause);
        }
        round.deleted = self.cleaner.step().await?;
        Ok(())
    }

    /// Sends due digests, at most once per tick.
    async fn send_digests(
        &self,
        round: &mut Round,
        last_tick: &mut Option<DateTime<Utc>>,
        progress: &dyn Progress,
    ) -> Result<()> {
        // While sending is paused, there is no need to look for due digests.
        if let ThrottleState::Paused(pause) = self.digests.sender.throttle.current_state().await? {
            round.paused = Some(pause);
            return Ok(());
        }
        self.tick(round, last_tick, progress).await?;
        let ended = round.digests.as_ref().and_then(|report| report.ended.as_ref());
        if let Some(EarlyEnd::Paused(pause)) = ended {
            round.paused = Some(pause.clone());
            // Look again for the users whose digests were not sent.
            *last_tick = None;
        }
        Ok(())
    }

    /// Looks for due digests, once per tick among all workers. The lease only saves work: the id of
    /// a delivery prevents a second email.
    async fn tick(
        &self,
        round: &mut Round,
        last_tick: &mut Option<DateTime<Utc>>,
        progress: &dyn Progress,
    ) -> Result<()> {
        let now = self.context.clock.now();
        let tick = now.duration_trunc(SCAN_INTERVAL).unwrap_or(now);
        // A clock that was set back starts an earlier tick.
        if *last_tick == Some(tick) {
            return Ok(());
        }
        let lease = self.context.lease_until(tick + SCAN_INTERVAL);
        if self.context.store.lease(DIGEST_SCAN_LEASE, &lease, now).await? {
            let report = round.digests.insert(DigestReport::default());
            self.digests.tick(report, progress).await?;
        }
        *last_tick = Some(tick);
        Ok(())
    }

    /// Works until `stop` becomes true, then releases leases. The parts run concurrently and do not
    /// wait for each other. A part that fails is reported and retried after a rest.
    pub async fn run(
        &self,
        stop: watch::Receiver<bool>,
        on_round: impl Fn(WorkerPart, Result<Round>) + Send + Sync,
    ) -> Result<()> {
        let repeat = |part| self.repeat(part, stop.clone(), &on_round).boxed();
        futures::join!(
            repeat(WorkerPart::FanningOut),
            repeat(WorkerPart::SendingEmails),
            repeat(WorkerPart::Digests)
        );
        self.release_leases().await
    }

    async fn repeat(
        &self,
        part: WorkerPart,
        mut stop: watch::Receiver<bool>,
        on_round: &OnRound<'_>,
    ) {
        let (progress, mut last_tick) = (stop.clone(), None);
        let linger = self.context.config.fanout.linger;
        while !progress.should_stop() {
            let mut round = Round::default();
            let result = match part {
                WorkerPart::FanningOut => self.fan_out(&mut round, linger, &progress).await,
                WorkerPart::SendingEmails => self.send_emails(&mut round, &progress).await,
                WorkerPart::Digests => {
                    self.send_digests(&mut round, &mut last_tick, &progress).await
                }
            };
            let is_busy = result.is_ok() && !round.is_idle();
            on_round(part, result.map(|()| round));
            if !is_busy {
                self.rest(&mut stop).await;
            }
        }
    }

    /// Waits for `idle`, or until `stop` becomes true.
    async fn rest(&self, stop: &mut watch::Receiver<bool>) {
        let idle = self.context.config.worker_idle.to_std();
        let rest = idle.unwrap_or(Duration::from_millis(500));
        // An error means that the sender of `stop` is gone. That ends the wait as well.
        let _ = tokio::time::timeout(rest, stop.wait_for(|stop| *stop)).await;
    }

    /// Releases the leases on fan-outs, deliveries and the digest scan, so that other workers can
    /// continue at once. Other leases expire.
    pub async fn release_leases(&self) -> Result<()> {
        let owner = &self.context.owner;
        let digest_scan = LeasesToEnd::Lease { name: DIGEST_SCAN_LEASE, owner };
        for leases in [LeasesToEnd::Fanouts(owner), LeasesToEnd::Deliveries(owner), digest_scan] {
            self.context.store.release(&leases).await?;
        }
        Ok(())
    }
}

/// Time between two heartbeats of a worker.
pub const HEARTBEAT_INTERVAL: TimeDelta = TimeDelta::seconds(10);
/// Time after which a worker without a heartbeat counts as dead.
const HEARTBEAT_TIMEOUT: TimeDelta = TimeDelta::seconds(60);

const WORKER_NOTE: &str = "activity-worker";
const DIGEST_NOTE: &str = "activity-digest";

/// Records that a worker runs, and when digests last ran, for `status`.
///
/// All workers share one note, and write it every [`HEARTBEAT_INTERVAL`]. After
/// [`HEARTBEAT_TIMEOUT`] without a write, no worker counts as running.
pub struct Activity {
    pub(crate) context: Arc<Context>,
}

#[derive(Serialize, Deserialize)]
struct Heartbeat {
    at: DateTime<Utc>,
    owner: String,
    stopped: bool,
}

impl Heartbeat {
    fn is_alive(&self, now: DateTime<Utc>) -> bool {
        !self.stopped && now - self.at < HEARTBEAT_TIMEOUT
    }
}

impl Activity {
    /// Records that this process works now, or that it has stopped. A stop is not recorded while
    /// another worker is alive.
    pub async fn record_heartbeat(&self, stopped: bool) -> Result<()> {
        let note = self.context.store.note(WORKER_NOTE).await?;
        let last: Option<Heartbeat> = note.as_deref().and_then(parse);
        let (at, owner) = (self.context.clock.now(), self.context.owner.clone());
        let is_other_alive = last.is_some_and(|last| last.owner != owner && last.is_alive(at));
        if stopped && is_other_alive {
            return Ok(());
        }
        self.write(WORKER_NOTE, note.as_deref(), &Heartbeat { at, owner, stopped }).await
    }

    /// Records a run of digests.
    pub async fn record_digests(&self, run: &DigestActivity) -> Result<()> {
        let note = self.context.store.note(DIGEST_NOTE).await?;
        self.write(DIGEST_NOTE, note.as_deref(), run).await
    }

    /// Replaces a note, unless another process has changed it since. That text is as recent.
    async fn write(&self, name: &str, old: Option<&str>, value: &impl Serialize) -> Result<()> {
        let text = serde_json::to_string(value).unwrap_or_default();
        self.context.store.swap_note(name, old, Some(&text)).await?;
        Ok(())
    }

    /// Returns when a worker was last active and whether one runs; `None` if none ever did.
    pub async fn worker(&self) -> Result<Option<WorkerActivity>> {
        let note = self.context.store.note(WORKER_NOTE).await?;
        let last: Option<Heartbeat> = note.as_deref().and_then(parse);
        let now = self.context.clock.now();
        Ok(last
            .map(|last| WorkerActivity { is_running: last.is_alive(now), last_heartbeat: last.at }))
    }

    /// Returns the last run of digests; `None` if there was none.
    pub async fn digests(&self) -> Result<Option<DigestActivity>> {
        Ok(self.context.store.note(DIGEST_NOTE).await?.as_deref().and_then(parse))
    }
}

/// Returns `None` for a note that another version wrote in another form. The next one replaces it.
fn parse<T: for<'de> Deserialize<'de>>(text: &str) -> Option<T> {
    serde_json::from_str(text).ok()
}
