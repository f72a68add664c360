//! Limits the calls of this process at one account: their rate, their concurrency, and waits.
//!
//! Calls start evenly. One runs at a time at first, and more as the provider accepts emails. While
//! the provider accepts nothing, the wait doubles, up to ten minutes. The account also counts
//! outcomes until they are shared with other processes. Start with [`ProviderAccount`].

use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use serde::{Deserialize, Serialize};
use sha2::{Digest as _, Sha256};
use tokio::sync::{Notify, watch};

use crate::domain::BrandName;
use crate::email::Mailer;

/// A provider account, with the limits that all senders of this process share.
#[derive(Debug, Default)]
pub struct ProviderAccount {
    /// A short hash that identifies the account in notes.
    pub name: String,
    /// The tasks that wait for a call slot, in the order of their requests.
    queue: tokio::sync::Mutex<()>,
    /// Wakes the first of them when a call has ended.
    ended: Notify,
    rate: Option<DefaultDirectRateLimiter>,
    stop: OnceLock<watch::Receiver<bool>>,
    state: Mutex<AccountState>,
}

/// Returns the prefix of the references of all calls for this brand at the mailer's account. It
/// identifies the brand of a call later.
pub fn account_prefix(mailer: &dyn Mailer, brand: Option<&BrandName>) -> String {
    match brand {
        Some(brand) => digest_prefix(&format!("{}\0{brand}", mailer.account())),
        None => digest_prefix(&mailer.account()),
    }
}

/// Returns a short hash of the text, followed by a hyphen.
pub(in crate::engine::delivery) fn digest_prefix(text: &str) -> String {
    hex::encode(&Sha256::digest(text)[..4]) + "-"
}

/// The right to make one call at an account, until it is dropped.
pub(in crate::engine::delivery) struct CallSlot(Arc<ProviderAccount>);

impl Drop for CallSlot {
    fn drop(&mut self) {
        self.0.state().running -= 1;
        self.0.ended.notify_one();
    }
}

impl ProviderAccount {
    /// Creates an account with this limit of calls per second; `None` for no limit.
    pub fn new(name: String, calls_per_second: Option<NonZeroU32>) -> Self {
        // No burst: on top of the rate, it would exceed the limit of a provider that counts by the
        // second.
        let quota = |rate| Quota::per_second(rate).allow_burst(NonZeroU32::MIN);
        Self {
            name,
            rate: calls_per_second.map(|rate| RateLimiter::direct(quota(rate))),
            ..Self::default()
        }
    }

    /// Waits until fewer than `width` calls run, and counts one more.
    pub(in crate::engine::delivery) async fn slot(
        self: &Arc<Self>,
        width: impl Fn() -> usize,
    ) -> CallSlot {
        let _first = self.queue.lock().await;
        loop {
            let width = width();
            if self.state().start_call(width) {
                return CallSlot(self.clone());
            }
            self.ended.notified().await;
        }
    }

    /// Waits until the rate limit permits one more call.
    pub(in crate::engine::delivery) async fn wait_for_rate(&self) {
        if let Some(rate) = &self.rate {
            rate.until_ready().await;
        }
    }

    /// Returns the limits known so far.
    pub(in crate::engine::delivery) fn state(&self) -> MutexGuard<'_, AccountState> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Sets the shutdown signal. Only the first call has an effect.
    pub fn end_with(&self, stop: watch::Receiver<bool>) {
        drop(self.stop.set(stop));
    }

    /// Returns whether the process is shutting down, so that no new call may start.
    pub(super) fn is_ending(&self) -> bool {
        self.stop.get().is_some_and(|stop| *stop.borrow())
    }
}

/// Recent outcomes of emails and calls, as stored in a note.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(in crate::engine::delivery) struct RecentOutcomes {
    pub sent: u64,
    pub failed: u64,
    /// Consecutive calls with an unknown outcome.
    #[serde(rename = "astray")]
    pub lost: u32,
    /// When the last outcome was added.
    pub at: Option<DateTime<Utc>>,
}

/// What the outcomes of a call mean for the calls after it.
#[derive(Debug, Default)]
pub(in crate::engine::delivery) struct CallSummary {
    /// The longest wait that the provider named.
    pub after: Option<Duration>,
    /// Whether no email is known to be accepted, and none is known to be at fault.
    pub none_accepted: bool,
    /// Whether every email was deferred for its recipient or its content. That is no sign of how
    /// much the provider accepts.
    pub all_deferred: bool,
}

/// What this process knows about an account.
#[derive(Debug, Default)]
pub(in crate::engine::delivery) struct AccountState {
    /// No call starts before this time.
    pub closed_until: Option<DateTime<Utc>>,
    /// The value of `closed_until` that was shared with all processes.
    pub shared_wait: Option<DateTime<Utc>>,
    /// No work starts before this time, because of `delivery.mails_per_hour`.
    pub paced_until: Option<DateTime<Utc>>,
    /// Outcomes that are not shared with other processes yet.
    pub unshared: RecentOutcomes,
    /// Whether the outcome of the last call of any process is unknown, by the shared note.
    pub noted_lost: bool,
    /// Whether the outcome of this process's last call is unknown.
    lost: bool,
    /// The most emails to check together: as many as can be sent while the checks are fresh. `None`
    /// while all could be sent.
    pub portion: Option<usize>,
    /// The number of calls that run or are about to start.
    running: usize,
    /// Consecutive calls without an accepted email.
    fruitless: u32,
    /// Calls that may run in addition to the first, and productive calls since the last increase.
    /// Calls of only deferred emails do not count.
    wider: usize,
    fruitful: u32,
    /// When the provider last gave a definite answer.
    answered: Option<DateTime<Utc>>,
    /// When the reports from the provider were last checked.
    pub reports_checked: Option<DateTime<Utc>>,
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

impl AccountState {
    /// Returns the time before which no call may start, if it is in the future.
    pub(super) fn closed(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.closed_until.filter(|until| *until > now)
    }

    /// Blocks calls until this time.
    pub(in crate::engine::delivery) fn close(&mut self, until: DateTime<Utc>) {
        self.closed_until = self.closed_until.max(Some(until));
    }

    /// Ends the shared wait, whose note is missing because an operator deleted it. `before` is
    /// `shared_wait` before the notes were read: a wait shared later may be missing from that read.
    pub(super) fn end_deleted_wait(&mut self, before: Option<DateTime<Utc>>) {
        let was_shared = before.is_some() && self.shared_wait == before;
        if was_shared && self.closed_until == before {
            (self.closed_until, self.shared_wait) = (None, None);
        }
    }

    /// Updates the limits after a call.
    ///
    /// If the provider named a wait, or accepted nothing in [`IN_A_ROW`] calls, no call starts
    /// before the wait is over.
    pub(in crate::engine::delivery) fn record_call(
        &mut self,
        call: &CallSummary,
        retry_after: TimeDelta,
        now: DateTime<Utc>,
    ) {
        if call.none_accepted {
            self.fruitless += 1;
            (self.wider, self.fruitful) = (0, 0);
        } else {
            self.fruitless = 0;
            self.answered = Some(now);
            self.fruitful += u32::from(!call.all_deferred);
            if self.fruitful == WIDEN_AFTER {
                self.fruitful = 0;
                self.wider += 1;
            }
        }
        let theirs = call.after;
        let theirs = theirs.and_then(|after| TimeDelta::from_std(after).ok());
        let ours = self.fruitless.checked_sub(IN_A_ROW);
        let ours = ours.map(|more| (retry_after * (1 << more.min(16))).min(LONGEST));
        if let Some(wait) = theirs.max(ours) {
            self.close(now + wait);
        }
    }

    /// Counts one more running call, if fewer than `width` run.
    fn start_call(&mut self, width: usize) -> bool {
        let may_start = self.running < width;
        self.running += usize::from(may_start);
        may_start
    }

    /// Returns how many calls may run at a time, from one to `most`. It is one at first, and after
    /// a call without an accepted email.
    pub(in crate::engine::delivery) fn width(&mut self, most: usize) -> usize {
        self.wider = self.wider.min(most - 1);
        self.wider + 1
    }

    /// Records that `sent` of `checked` emails were sent while their checks were fresh.
    pub(in crate::engine::delivery) fn record_portion(&mut self, sent: usize, checked: usize) {
        self.portion = match sent {
            _ if sent == checked => self.portion.map(|portion| portion.max(2 * checked)),
            // The checks themselves took too long, so fewer emails are checked next time.
            0 => Some((checked / 2).max(1)),
            _ => Some(sent),
        };
    }

    /// Returns whether the provider gave no definite answer within [`PROVEN`]. Another server, such
    /// as a gateway, may be answering in its place.
    pub(in crate::engine::delivery) fn is_unproven(&self, now: DateTime<Utc>) -> bool {
        self.answered.is_none_or(|at| now - at > PROVEN)
    }

    /// Returns whether the outcome of the last call is unknown. Then the next call should contain a
    /// single email.
    pub(in crate::engine::delivery) fn last_is_lost(&self) -> bool {
        self.lost || self.noted_lost
    }

    /// Counts outcomes. Returns the outcomes to share now, if any.
    ///
    /// Failures, unknown outcomes, and the first definite answer after one are shared at once.
    /// Otherwise, outcomes are shared after `often` sent emails.
    pub(super) fn count(
        &mut self,
        outcomes: RecentOutcomes,
        answered: bool,
        often: u32,
    ) -> Option<RecentOutcomes> {
        let is_first_answer = answered && self.last_is_lost();
        let unshared = &mut self.unshared;
        unshared.sent += outcomes.sent;
        unshared.failed += outcomes.failed;
        unshared.lost += outcomes.lost;
        let shares = is_first_answer
            || unshared.failed > 0
            || unshared.lost > 0
            || unshared.sent >= u64::from(often);
        self.lost = outcomes.lost > 0 || self.lost && !answered;
        shares.then(|| std::mem::take(unshared))
    }
}

#[cfg(test)]
#[path = "account_tests.rs"]
mod tests;
