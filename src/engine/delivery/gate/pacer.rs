//! Limits the calls of this process at one account: their rate, their concurrency, and waits.
//!
//! Calls start evenly. One runs at a time at first, and more as the provider accepts emails. While
//! the provider accepts nothing, the wait doubles, up to ten minutes. The pacer also counts
//! outcomes until they are shared with other processes. Start with [`Pacer`].

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

/// Limits the calls at one account. Only one task at a time may make calls; otherwise their number
/// would exceed what the provider accepts.
#[derive(Debug, Default)]
pub struct Pacer {
    known: Mutex<Known>,
    turn: Arc<tokio::sync::Mutex<()>>,
    stop: OnceLock<Stop>,
    rate: Option<Rate>,
}

/// The exclusive right to make calls at an account. It ends when all clones are dropped.
#[derive(Debug, Clone)]
pub struct Turn {
    _kept: Arc<OwnedMutexGuard<()>>,
}

/// Becomes true when the process shuts down.
type Stop = watch::Receiver<bool>;

/// The limit of calls per second.
#[derive(Debug)]
struct Rate {
    calls: RateLimiter<NotKeyed, InMemoryState, Ticks, NoOpMiddleware<Nanos>>,
    clock: Ticks,
}

/// The time since the pacer was created, on tokio's monotonic clock.
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
    /// No call starts before this time.
    closed: Option<DateTime<Utc>>,
    /// The value of `closed` that was shared with all processes.
    told: Option<DateTime<Utc>>,
    /// No work starts before this time, because of `delivery.mails_per_hour`.
    paced: Option<DateTime<Utc>>,
    /// The number of requests for that limit. It makes each request a different owner of the lease.
    asked: u64,
    /// Consecutive calls without an accepted email.
    fruitless: u32,
    /// Calls that may run in addition to the first, and productive calls since the last increase.
    /// Calls of only deferred emails do not count.
    wider: usize,
    fruitful: u32,
    /// The number of emails that can be sent before their checks become stale; `None` while all
    /// could be sent.
    reach: Option<usize>,
    /// When the provider last gave a definite answer.
    answered: Option<DateTime<Utc>>,
    /// Outcomes that are not shared with other processes yet.
    untold: Lately,
    /// Whether the outcome of the last call, by any process, is unknown.
    astray: bool,
    /// The number of calls to [`Pacer::count`], to detect changes during a read.
    counted: u64,
    /// When the reports from the provider were last checked.
    echoed: Option<DateTime<Utc>>,
    /// When the absence of reports was last checked.
    silence_checked: Option<DateTime<Utc>>,
}

/// The state before a read of the shared notes.
#[derive(Debug, Clone, Copy)]
pub(super) struct BeforeLook {
    told: Option<DateTime<Utc>>,
    counted: u64,
}

/// After this number of consecutive calls without an accepted email, the provider is at fault and
/// not the emails.
const IN_A_ROW: u32 = 3;
/// The number of productive calls after which one more may run at a time.
const WIDEN_AFTER: u32 = 10;
/// How long the provider counts as reachable after a definite answer.
const PROVEN: TimeDelta = TimeDelta::minutes(1);
/// The longest wait between calls to a provider that accepts nothing.
const LONGEST: TimeDelta = TimeDelta::minutes(10);
/// The interval between checks of the provider's reports.
const ASK_REPORTS: TimeDelta = TimeDelta::seconds(30);

impl Pacer {
    /// Creates a pacer with this limit of calls per second; `None` for no limit.
    pub fn new(calls_per_second: Option<NonZeroU32>) -> Self {
        let rate = |per_second| {
            let clock = Ticks(Instant::now());
            // No burst: on top of the rate, it would exceed the limit of a provider that counts by
            // the second.
            let quota = Quota::per_second(per_second).allow_burst(NonZeroU32::MIN);
            let calls = RateLimiter::direct_with_clock(quota, clock);
            Rate { calls, clock }
        };
        Self {
            rate: calls_per_second.map(rate),
            ..Self::default()
        }
    }

    /// Uses one call of the rate limit. Returns the time to wait if none is left now.
    pub(super) fn too_soon(&self) -> Option<Duration> {
        let Rate { calls, clock } = self.rate.as_ref()?;
        let not_until = calls.check().err()?;
        Some(not_until.wait_time_from(clock.now()))
    }

    fn known(&self) -> MutexGuard<'_, Known> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for the exclusive right to make calls. Tasks get it in the order in which they asked.
    pub(super) async fn turn(&self) -> Turn {
        Turn {
            _kept: Arc::new(Arc::clone(&self.turn).lock_owned().await),
        }
    }

    /// Sets the shutdown signal. Only the first call has an effect.
    pub fn end_with(&self, stop: Stop) {
        drop(self.stop.set(stop));
    }

    /// Returns whether the process is shutting down, so that no new call may start.
    pub(super) fn ending(&self) -> bool {
        self.stop.get().is_some_and(|stop| *stop.borrow())
    }

    /// Returns the time before which no call may start, if it is in the future.
    pub(super) fn closed(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().closed.filter(|until| *until > now)
    }

    /// Returns the number of requests for `delivery.mails_per_hour`, including this one.
    pub(super) fn asks(&self) -> u64 {
        let mut known = self.known();
        known.asked += 1;
        known.asked
    }

    /// Blocks new work until this time, because of `delivery.mails_per_hour`.
    pub(super) fn pace_until(&self, until: DateTime<Utc>) {
        self.known().paced = Some(until);
    }

    pub(super) fn paced(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().paced.filter(|until| *until > now)
    }

    /// Updates the limits after a call.
    ///
    /// If the provider named a wait, or accepted nothing in [`IN_A_ROW`] calls, no call starts
    /// before the wait is over.
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

    /// Records that this wait was shared with all processes.
    pub(super) fn told(&self, until: DateTime<Utc>) {
        self.known().told = Some(until);
    }

    /// Returns the state before a read of the shared notes, for [`Self::looked`].
    pub(super) fn before_look(&self) -> BeforeLook {
        let known = self.known();
        BeforeLook {
            told: known.told,
            counted: known.counted,
        }
    }

    /// Applies the shared notes: whether no wait is noted, and whether the outcome of the last call
    /// is unknown. Changes since `before` are newer than the notes and win.
    pub(super) fn looked(&self, before: BeforeLook, open: bool, astray: bool) {
        let mut known = self.known();
        // The wait had been shared, and an operator has deleted it.
        let let_go = open && before.told.is_some() && known.told == before.told;
        if let_go && known.told == known.closed {
            (known.closed, known.told) = (None, None);
        }
        if known.counted == before.counted {
            known.astray = astray;
        }
    }

    /// Blocks calls until this time.
    pub(in crate::engine::delivery) fn close(&self, until: DateTime<Utc>) {
        let mut known = self.known();
        known.closed = known.closed.max(Some(until));
    }

    /// Discards outcomes that are not shared yet: outcomes before a pause do not count after it.
    pub(super) fn forget(&self) {
        let mut known = self.known();
        known.untold = Lately::default();
    }

    /// Returns how many calls may run at a time, from one to `most`. It is one at first, and after
    /// a call without an accepted email.
    pub(in crate::engine::delivery) fn width(&self, most: usize) -> usize {
        let mut known = self.known();
        known.wider = known.wider.min(most - 1);
        known.wider + 1
    }

    /// Returns the most emails to check together: as many as can be sent while the checks are
    /// fresh.
    pub(in crate::engine::delivery) fn reach(&self) -> usize {
        self.known().reach.unwrap_or(usize::MAX)
    }

    /// Records that all of these emails were sent while their checks were fresh.
    pub(in crate::engine::delivery) fn reached(&self, checked: usize) {
        let mut known = self.known();
        known.reach = known.reach.map(|reach| reach.max(2 * checked));
    }

    /// Records that only `left` of `checked` emails were sent while their checks were fresh.
    pub(in crate::engine::delivery) fn fell_short(&self, left: usize, checked: usize) {
        // The checks themselves took too long, so fewer emails are checked next time.
        let reach = if left > 0 { left } else { (checked / 2).max(1) };
        self.known().reach = Some(reach);
    }

    /// Returns whether the provider gave no definite answer within [`PROVEN`]. Another server, such
    /// as a gateway, may be answering in its place.
    pub(in crate::engine::delivery) fn is_unproven(&self, now: DateTime<Utc>) -> bool {
        let answered = self.known().answered;
        answered.is_none_or(|at| now - at > PROVEN)
    }

    /// Returns whether the provider's reports are due to be checked, and starts a new interval if
    /// so.
    pub(super) fn listens(&self, now: DateTime<Utc>) -> bool {
        let mut known = self.known();
        let due = known.echoed.is_none_or(|last| now - last >= ASK_REPORTS);
        if due {
            known.echoed = Some(now);
        }
        due
    }

    /// Returns whether an hour has passed since the absence of reports was last checked. Starts a
    /// new hour if so.
    pub(super) fn may_warn(&self, now: DateTime<Utc>) -> bool {
        let mut known = self.known();
        let last = known.silence_checked;
        let due = last.is_none_or(|last| now - last >= TimeDelta::hours(1));
        if due {
            known.silence_checked = Some(now);
        }
        due
    }

    /// Counts outcomes. Returns the outcomes to share now, if any.
    ///
    /// Failures, unknown outcomes, and the first definite answer after one are shared at once.
    /// Otherwise, outcomes are shared after `often` sent emails.
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

    /// Takes the outcomes that are not shared yet; `None` if there are none.
    pub(super) fn untold(&self) -> Option<Lately> {
        let untold = std::mem::take(&mut self.known().untold);
        (untold != Lately::default()).then_some(untold)
    }

    /// Returns whether the next call should contain a single email, because the last outcome is
    /// unknown.
    pub(in crate::engine::delivery) fn probes(&self) -> bool {
        self.known().astray
    }
}

#[cfg(test)]
#[path = "pacer_tests.rs"]
mod tests;
