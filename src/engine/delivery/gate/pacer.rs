//! What holds the calls of this process back: how many are begun in a second, how many the provider
//! keeps up with, until when it wants none, and how mails ended that the others do not know yet.
//!
//! The rule: calls are begun evenly, one at a time at first, and more at a time as they are taken;
//! a provider that takes nothing is left alone for longer and longer.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use governor::clock::Clock;
use governor::middleware::NoOpMiddleware;
use governor::nanos::Nanos;
use governor::state::{InMemoryState, NotKeyed};
use governor::{Quota, RateLimiter};
use tokio::sync::{OwnedMutexGuard, watch};
use tokio::time::Instant;

use super::super::retry::Verdicts;
use super::lately::Lately;

/// What holds the calls of this process back, and whose turn it is to make some: one part of it at
/// a time, or there would be more calls under way than the provider keeps up with.
#[derive(Debug, Default)]
pub struct Pacer {
    known: Mutex<Known>,
    turn: Arc<tokio::sync::Mutex<()>>,
    stop: OnceLock<Stop>,
    rate: Option<Rate>,
}

/// Whose calls may be under way: others wait for their turn until all clones of this are dropped.
#[derive(Debug, Clone)]
pub struct Turn {
    _kept: Arc<OwnedMutexGuard<()>>,
}

/// Turns true when the process is to end.
type Stop = watch::Receiver<bool>;

/// So many calls a second.
#[derive(Debug)]
struct Rate {
    calls: RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Nanos>>,
    clock: Ticks,
}

/// The time since the pacer was made, which nobody puts back, on tokio's clock.
#[derive(Debug, Clone, Copy)]
struct Ticks(Instant);

impl Clock for Ticks {
    type Instant = Nanos;

    fn now(&self) -> Nanos {
        self.0.elapsed().into()
    }
}

#[derive(Debug, Default)]
struct Known {
    /// Until when nothing is sent.
    closed: Option<DateTime<Utc>>,
    /// Which of that all processes know.
    told: Option<DateTime<Utc>>,
    /// Until when the operator's limit lets nothing be begun.
    paced: Option<DateTime<Utc>>,
    /// How often that was asked for; makes each asking another owner of the lease.
    asked: u64,
    /// Calls in a row of which nothing is known to be taken.
    fruitless: u32,
    /// Calls that may be under way at a time on top of the first, and how many were taken since
    /// there was one more. A call of deferred emails does not count.
    wider: usize,
    fruitful: u32,
    /// How many emails leave before their checks are too old, where not all did.
    reach: Option<usize>,
    /// When the provider last gave a definite answer.
    answered: Option<DateTime<Utc>>,
    /// How mails ended that is not told to the others yet.
    untold: Lately,
    /// Whether nobody can tell what became of the last call, of this process or another.
    astray: bool,
    /// How often mails were counted.
    counted: u64,
    /// When it was last asked what is reported of the mails.
    echoed: Option<DateTime<Utc>>,
    /// When it was last checked whether any reports arrive.
    silence_checked: Option<DateTime<Utc>>,
}

/// What a process knew before it looked at what all know.
#[derive(Debug, Clone, Copy)]
pub(super) struct BeforeLook {
    told: Option<DateTime<Utc>>,
    counted: u64,
}

/// So many calls in a row of which nothing is known to be taken are the provider's fault, not the
/// mails'.
const IN_A_ROW: u32 = 3;
/// After so many calls in a row of which something was taken, one more may be under way.
const WIDEN_AFTER: u32 = 10;
/// After so long without a call, the next one begins a run.
const PROVEN: TimeDelta = TimeDelta::minutes(1);
/// A provider that takes nothing is tried at least this often.
const LONGEST: TimeDelta = TimeDelta::minutes(10);
/// How often it is asked what is reported of the mails.
const ASK_REPORTS: TimeDelta = TimeDelta::seconds(30);

impl Pacer {
    /// At most so many calls are begun in a second; without a number, as many as there are.
    pub fn new(calls_per_second: Option<NonZeroU32>) -> Self {
        let rate = |per_second| {
            let clock = Ticks(Instant::now());
            // One at a time: a burst on top of the rate would be more than a provider that counts
            // by the second takes.
            let quota = Quota::per_second(per_second).allow_burst(NonZeroU32::MIN);
            let calls = RateLimiter::direct_with_clock(quota, clock);
            Rate { calls, clock }
        };
        Self {
            rate: calls_per_second.map(rate),
            ..Self::default()
        }
    }

    /// Takes the turn of one call, or says how long to wait before that is asked again.
    pub(super) fn too_soon(&self) -> Option<Duration> {
        let Rate { calls, clock } = self.rate.as_ref()?;
        let not_until = calls.check().err()?;
        Some(not_until.wait_time_from(clock.now()))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn to make calls; others wait until this is dropped, in the order in which
    /// they came.
    pub(super) async fn turn(&self) -> Turn {
        Turn {
            _kept: Arc::new(Arc::clone(&self.turn).lock_owned().await),
        }
    }

    /// From now on mails leave only until this turns true; the first that is given counts.
    pub fn end_with(&self, stop: Stop) {
        drop(self.stop.set(stop));
    }

    /// Whether the process is to end: nothing new is begun then.
    pub(super) fn ending(&self) -> bool {
        self.stop.get().is_some_and(|stop| *stop.borrow())
    }

    /// Until when nothing is sent, if that is still to come.
    pub(super) fn closed(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().closed.filter(|until| *until > now)
    }

    /// Says how often the operator's limit was asked.
    pub(super) fn asks(&self) -> u64 {
        let mut known = self.known();
        known.asked += 1;
        known.asked
    }

    /// The operator's limit lets nothing be begun until then.
    pub(super) fn pace_until(&self, until: DateTime<Utc>) {
        self.known().paced = Some(until);
    }

    pub(super) fn paced(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().paced.filter(|until| *until > now)
    }

    /// A call was answered.
    pub(in crate::engine::delivery) fn heard(
        &self,
        verdicts: &Verdicts,
        retry_after: TimeDelta,
        now: DateTime<Utc>,
    ) {
        let mut known = self.known();
        if verdicts.none_taken {
            known.fruitless += 1;
            (known.wider, known.fruitful) = (0, 0);
        } else {
            known.fruitless = 0;
            known.answered = Some(now);
            known.fruitful += u32::from(!verdicts.all_deferred);
            if known.fruitful == WIDEN_AFTER {
                known.fruitful = 0;
                known.wider += 1;
            }
        }
        let theirs = verdicts
            .after
            .and_then(|after| TimeDelta::from_std(after).ok());
        let ours = known.fruitless.checked_sub(IN_A_ROW).map(|more| {
            let doubled = retry_after * (1 << more.min(16));
            doubled.min(LONGEST)
        });
        if let Some(wait) = theirs.max(ours) {
            known.closed = known.closed.max(Some(now + wait));
        }
    }

    /// All processes know that nothing is sent before then.
    pub(super) fn told(&self, until: DateTime<Utc>) {
        self.known().told = Some(until);
    }

    /// What is known before a look at what all processes know.
    pub(super) fn before_look(&self) -> BeforeLook {
        let known = self.known();
        BeforeLook {
            told: known.told,
            counted: known.counted,
        }
    }

    /// What all processes know: whether nobody holds calls back, and whether the last call went
    /// astray. What this process heard since the look began is newer than that.
    pub(super) fn looked(&self, before: BeforeLook, open: bool, astray: bool) {
        let mut known = self.known();
        // All processes knew until when nothing is sent, and somebody let go of it.
        let let_go = open && before.told.is_some() && known.told == before.told;
        if let_go && known.told == known.closed {
            (known.closed, known.told) = (None, None);
        }
        if known.counted == before.counted {
            known.astray = astray;
        }
    }

    /// Nothing is sent before then.
    pub(in crate::engine::delivery) fn close(&self, until: DateTime<Utc>) {
        let mut known = self.known();
        known.closed = known.closed.max(Some(until));
    }

    /// Everything is paused: what went wrong before that is not held against what follows.
    pub(super) fn forget(&self) {
        let mut known = self.known();
        known.untold = Lately::default();
    }

    /// How many calls may be under way at a time: one at first and when nothing was taken, more as
    /// the provider keeps up.
    pub(in crate::engine::delivery) fn width(&self, most: usize) -> usize {
        let mut known = self.known();
        known.wider = known.wider.min(most - 1);
        known.wider + 1
    }

    /// How many emails to check together at most: as many as leave while the checks are fresh.
    pub(in crate::engine::delivery) fn reach(&self) -> usize {
        self.known().reach.unwrap_or(usize::MAX)
    }

    /// Notes that all of these emails left while their checks were fresh.
    pub(in crate::engine::delivery) fn reached(&self, checked: usize) {
        let mut known = self.known();
        known.reach = known.reach.map(|reach| reach.max(2 * checked));
    }

    /// Notes that only `left` of `checked` emails left while their checks were fresh.
    pub(in crate::engine::delivery) fn fell_short(&self, left: usize, checked: usize) {
        // Where the checks themselves take too long, fewer are made the next time.
        let reach = if left > 0 { left } else { (checked / 2).max(1) };
        self.known().reach = Some(reach);
    }

    /// Whether the provider has given no definite answer lately: a gateway may be in its place.
    pub(in crate::engine::delivery) fn is_unproven(&self, now: DateTime<Utc>) -> bool {
        let answered = self.known().answered;
        answered.is_none_or(|at| now - at > PROVEN)
    }

    /// Whether it is time to ask what is reported of the mails; the next time is a while later.
    pub(super) fn listens(&self, now: DateTime<Utc>) -> bool {
        let mut known = self.known();
        let due = known.echoed.is_none_or(|last| now - last >= ASK_REPORTS);
        if due {
            known.echoed = Some(now);
        }
        due
    }

    /// Whether an hour has passed since it was last checked whether any reports arrive.
    pub(super) fn may_warn(&self, now: DateTime<Utc>) -> bool {
        let mut known = self.known();
        let last = known.silence_checked;
        let due = last.is_none_or(|last| now - last >= TimeDelta::hours(1));
        if due {
            known.silence_checked = Some(now);
        }
        due
    }

    /// Counts how mails ended; says what is to be told to all: at once where anything failed or
    /// went astray, or went well again, otherwise now and then.
    pub(super) fn count(&self, heard: Lately, answered: bool, often: u32) -> Option<Lately> {
        let mut known = self.known();
        known.counted += 1;
        known.untold.sent += heard.sent;
        known.untold.failed += heard.failed;
        known.untold.astray += heard.astray;
        let back = answered && known.astray;
        if heard.astray > 0 {
            known.astray = true;
        } else if answered {
            known.astray = false;
        }
        let untold = known.untold;
        let tell =
            back || untold.failed > 0 || untold.astray > 0 || untold.sent >= u64::from(often);
        tell.then(|| std::mem::take(&mut known.untold))
    }

    /// What was counted and is not told yet.
    pub(super) fn untold(&self) -> Option<Lately> {
        let untold = std::mem::take(&mut self.known().untold);
        (untold != Lately::default()).then_some(untold)
    }

    /// Whether the next call should risk little.
    pub(in crate::engine::delivery) fn probes(&self) -> bool {
        self.known().astray
    }
}

#[cfg(test)]
#[path = "pacer_tests.rs"]
mod tests;
