//! Decides whether a provider call may start now.
//!
//! No process sends while the provider asks for a wait or while sending is paused ([`notes`]). Each
//! call waits for a slot of its account and for the rate limit, then reads the shared state again
//! just before it starts.

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use crate::context::Context;
use crate::domain::{BrandName, Pause, Sending};
use crate::email::{Mailer, Permit, PermitState};
use crate::wire::run_report::Ended;

mod notes;

/// Decides whether calls may start at one provider account, for one brand.
#[derive(Clone)]
pub struct Throttle {
    pub(crate) context: Arc<Context>,
    /// Prefix of the references of all calls for this brand at the mailer's account.
    pub account_prefix: String,
    /// The provider account, which several brands may share.
    pub(crate) account: Arc<ProviderAccount>,
}

/// A provider account, with the limits that all senders of this process share.
#[derive(Debug)]
pub struct ProviderAccount {
    /// A short hash that identifies the account in notes.
    pub name: String,
    /// The most calls that run at a time.
    in_flight: u32,
    /// Requests are granted in their order.
    slots: Arc<Semaphore>,
    rate: Option<DefaultDirectRateLimiter>,
    stop: OnceLock<watch::Receiver<bool>>,
    state: Mutex<AccountState>,
}

/// Recent outcomes of emails. The note of an account stores those of all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
struct RecentOutcomes {
    sent: u64,
    failed: u64,
    /// Consecutive calls with an unknown outcome.
    #[serde(default)]
    lost: u32,
    /// Whether a call got a definite answer before these lost ones.
    #[serde(skip)]
    answered: bool,
    /// When the last outcome was added.
    at: Option<DateTime<Utc>>,
}

/// The meaning of a call's outcomes for the calls after it.
#[derive(Debug, Default)]
pub(super) struct CallSummary {
    /// Whether the provider gave a definite answer.
    pub answered: bool,
    /// The longest wait that the provider named.
    pub after: Option<Duration>,
    /// Why the outcome of the call is unknown, if it cannot be resolved.
    pub lost: Option<String>,
}

/// What this process knows about an account.
#[derive(Debug, Default)]
pub(super) struct AccountState {
    /// Outcomes that are not shared with other processes yet.
    unshared: RecentOutcomes,
    /// The most emails to check together: as many as can be sent while the checks are fresh. `None`
    /// while all could be sent.
    pub portion: Option<usize>,
    /// When the provider last gave a definite answer. `None` after a call without one.
    answered: Option<DateTime<Utc>>,
    /// Consecutive calls without an answer that accepts or rejects an email.
    fruitless: u32,
    /// When the reports from the provider were last checked.
    reports_checked: Option<DateTime<Utc>>,
}

/// Whether calls may start.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ThrottleState {
    /// A call may start now.
    Open,
    /// No call may start before this time, because of the provider.
    ClosedUntil(DateTime<Utc>),
    /// No call may start until an operator resumes.
    Paused(Pause),
    /// This process is shutting down and starts no more calls.
    Stopping,
}

impl ThrottleState {
    /// Returns why a run ends in this state; `None` if it can wait or go on.
    pub fn ended(&self) -> Option<Ended> {
        match self {
            Self::Open | Self::ClosedUntil(_) => None,
            Self::Paused(pause) => Some(Ended::Paused(pause.clone())),
            Self::Stopping => Some(Ended::Stopped),
        }
    }

    /// Returns why an email is deferred in this state, and until when if that is known.
    pub(super) fn deferral(&self) -> (String, Option<DateTime<Utc>>) {
        match self {
            Self::Open => ("it waits".into(), None),
            Self::ClosedUntil(until) => ("it waits for its turn".into(), Some(*until)),
            Self::Paused(pause) => (format!("sending is paused: {}", pause.reason), None),
            Self::Stopping => ("the process that held it ended".into(), None),
        }
    }
}

/// After this number of consecutive calls without an answer, the provider is at fault and not the
/// emails.
const IN_A_ROW: u32 = 3;
/// How long the provider counts as reachable after a definite answer.
const PROVEN: TimeDelta = TimeDelta::minutes(1);
/// The longest wait between calls to a provider that accepts nothing.
const LONGEST: TimeDelta = TimeDelta::minutes(10);

/// The longest time between the checks of an email and the start of its call (P6, P7).
pub(super) const FRESH: TimeDelta = TimeDelta::seconds(2);

/// Returns the prefix of the references of all calls for this brand at the mailer's account. It
/// identifies the brand of a call later.
pub fn account_prefix(mailer: &dyn Mailer, brand: Option<&BrandName>) -> String {
    match brand {
        Some(brand) => digest_prefix(&format!("{}\0{brand}", mailer.account())),
        None => digest_prefix(&mailer.account()),
    }
}

/// Returns a short hash of the text, followed by a hyphen.
pub(super) fn digest_prefix(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..4]) + "-"
}

impl ProviderAccount {
    /// Creates an account with these limits of calls at a time and per second; `None` for no limit
    /// per second.
    pub fn new(name: String, in_flight: usize, calls_per_second: Option<NonZeroU32>) -> Self {
        // No burst: on top of the rate, it would exceed the limit of a provider that counts by the
        // second.
        let quota = |rate| Quota::per_second(rate).allow_burst(NonZeroU32::MIN);
        Self {
            name,
            in_flight: u32::try_from(in_flight).unwrap_or(u32::MAX),
            slots: Arc::new(Semaphore::new(in_flight)),
            rate: calls_per_second.map(|rate| RateLimiter::direct(quota(rate))),
            stop: OnceLock::new(),
            state: Mutex::default(),
        }
    }

    /// Waits until a call may run. If it is to run `alone`, no other call runs meanwhile.
    pub(super) async fn slot(&self, alone: bool) -> OwnedSemaphorePermit {
        let slots = if alone { self.in_flight } else { 1 };
        let slot = self.slots.clone().acquire_many_owned(slots).await;
        slot.expect("nothing closes the semaphore")
    }

    /// Waits until the rate limit permits one more call.
    pub(super) async fn wait_for_rate(&self) {
        if let Some(rate) = &self.rate {
            rate.until_ready().await;
        }
    }

    /// Returns the limits known so far.
    pub(super) fn state(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the shutdown signal. Only the first call has an effect.
    pub fn end_with(&self, stop: watch::Receiver<bool>) {
        drop(self.stop.set(stop));
    }

    /// Returns whether the process is shutting down, so that no new call may start.
    fn is_ending(&self) -> bool {
        self.stop.get().is_some_and(|stop| *stop.borrow())
    }
}

impl AccountState {
    /// Updates the limits after a call that the provider saw. Returns how long no call may start.
    ///
    /// There is a wait if the provider named one, or gave no answer in [`IN_A_ROW`] calls. Then it
    /// doubles with each further call.
    pub(super) fn record_call(
        &mut self,
        call: &CallSummary,
        retry_after: TimeDelta,
        now: DateTime<Utc>,
    ) -> Option<TimeDelta> {
        self.unshared.lost += u32::from(call.lost.is_some());
        if call.answered {
            (self.answered, self.fruitless) = (Some(now), 0);
            (self.unshared.answered, self.unshared.lost) = (true, 0);
        } else {
            (self.answered, self.fruitless) = (None, self.fruitless + 1);
        }
        let theirs = call.after;
        let theirs = theirs.and_then(|after| TimeDelta::from_std(after).ok());
        let ours = self.fruitless.checked_sub(IN_A_ROW);
        let ours = ours.map(|more| (retry_after * (1 << more.min(16))).min(LONGEST));
        theirs.max(ours)
    }

    /// Returns whether the last call got a definite answer. Otherwise the provider may be down.
    pub(super) fn has_answered(&self) -> bool {
        self.answered.is_some()
    }

    /// Returns whether the last call got a definite answer, less than [`PROVEN`] ago. Otherwise
    /// another server, such as a gateway, may answer in the provider's place.
    pub(super) fn is_proven(&self, now: DateTime<Utc>) -> bool {
        self.answered.is_some_and(|at| now - at <= PROVEN)
    }

    /// Records that `sent` of `checked` emails were sent while their checks were fresh.
    pub(super) fn record_portion(&mut self, sent: usize, checked: usize) {
        self.portion = match sent {
            _ if sent == checked => self.portion.map(|portion| portion.max(2 * checked)),
            // The checks themselves took too long, so fewer emails are checked next time.
            0 => Some((checked / 2).max(1)),
            _ => Some(sent),
        };
    }
}

impl Throttle {
    /// Returns limits, lease durations and the shares of failures that pause sending.
    pub(super) fn settings(&self) -> &Sending {
        &self.context.config.delivery
    }

    /// Checks that a call may start now. Returns the reason and the wait if it may not.
    pub(super) async fn before_send(
        &self,
        permit: &Permit,
    ) -> std::result::Result<(), (String, Option<DateTime<Utc>>)> {
        if let Some(reason) = permit.withheld() {
            return Err((reason, None));
        }
        match self.before_call().await {
            Ok(ThrottleState::Open) => Ok(()),
            Ok(state) => Err(state.deferral()),
            Err(error) => {
                let reason = format!("the store does not say whether it may leave: {error}");
                Err((reason, None))
            }
        }
    }

    /// Returns the permit to send a call that was first made at `tried`. The leases of its rows are
    /// about to be renewed.
    ///
    /// The permit ends half a lease from now, so the clocks of several machines may differ. It also
    /// ends one lease after `tried`, because [`super::retry`] relies on that. It checks the wall
    /// clock and the monotonic clock, so a process that was suspended notices it.
    pub(super) fn send_permit(&self, tried: DateTime<Utc>) -> Permit {
        let (now, lease) = (self.context.clock.now(), self.settings().lease);
        let until = (now + lease / 2).min(tried + lease);
        let (begun, span) = (Instant::now(), (until - now).to_std().unwrap_or_default());
        let (clock, account) = (self.context.clock.clone(), self.account.clone());
        Permit::new(move || {
            if clock.now() >= until || begun.elapsed() >= span {
                PermitState::Over
            } else if account.is_ending() {
                PermitState::Ending
            } else {
                PermitState::Given
            }
        })
    }

    /// Returns the same permit, which also becomes stale [`FRESH`] after the checks.
    pub(super) fn fresh_permit(&self, permit: Permit, checked: DateTime<Utc>) -> Permit {
        let clock = self.context.clock.clone();
        Permit::new(move || match permit.state() {
            PermitState::Given if clock.now() - checked > FRESH => PermitState::Stale,
            state => state,
        })
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
