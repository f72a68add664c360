//! Decides whether a provider call may start now.
//!
//! All processes share pauses, waits and recent outcomes as [`notes`], which also apply to the next
//! hourly cron job. Rates and concurrent calls are limited in each process. Start with
//! [`Throttle::current_state`].

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex, MutexGuard, OnceLock};
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use governor::{DefaultDirectRateLimiter, Quota, RateLimiter};
use sha2::{Digest as _, Sha256};
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio::time::Instant;

use self::notes::{
    AccountWait, OUTCOMES, PAUSE, RESUMED, RecentOutcomes, WAIT, change_note, to_json,
};
use crate::context::Context;
use crate::domain::delivery::Settlement;
use crate::domain::{BrandName, DeliveryState, Pause, SendSettings, Share};
use crate::email::{Mailer, SendPermit, SendPermitState};
use crate::engine::Result;
use crate::mutex::lock;
use crate::store::NoteFilter;
use crate::wire::run_report::EarlyEnd;

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

/// The meaning of a call's outcomes for the calls after it.
#[derive(Debug, Default)]
pub(super) struct CallSummary {
    /// Whether the provider gave a definite answer.
    pub has_answer: bool,
    /// The longest wait that the provider named.
    pub wait: Option<Duration>,
    /// Why the outcome of the call is unknown, if it cannot be resolved.
    pub lost_reason: Option<String>,
}

/// What this process knows about an account.
#[derive(Debug, Default)]
pub(super) struct AccountState {
    /// Outcomes that are not shared with other processes yet.
    unshared: RecentOutcomes,
    /// The most emails to check together: as many as can be sent while the checks are fresh. `None`
    /// while all could be sent.
    pub check_size: Option<usize>,
    /// When the provider last gave a definite answer. `None` after a call without one.
    last_answer_at: Option<DateTime<Utc>>,
    /// Consecutive calls without an answer that accepts or rejects an email.
    unanswered_calls: u32,
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
    pub fn end_reason(&self) -> Option<EarlyEnd> {
        match self {
            Self::Open | Self::ClosedUntil(_) => None,
            Self::Paused(pause) => Some(EarlyEnd::Paused(pause.clone())),
            Self::Stopping => Some(EarlyEnd::Stopped),
        }
    }

    /// Returns why an email is deferred in this state, and until when if that is known.
    pub(super) fn deferral(&self) -> (String, Option<DateTime<Utc>>) {
        match self {
            Self::Open => ("it waits".into(), None),
            Self::ClosedUntil(until) => ("the provider may not be called yet".into(), Some(*until)),
            Self::Paused(pause) => (format!("sending is paused: {}", pause.reason), None),
            Self::Stopping => ("the worker that leased it stopped".into(), None),
        }
    }
}

/// After this number of consecutive calls without an answer, the provider is at fault and not the
/// emails.
const UNANSWERED_CALLS_TO_WAIT: u32 = 3;
/// How long the provider counts as reachable after a definite answer.
const ANSWER_PROVES_FOR: TimeDelta = TimeDelta::minutes(1);
/// The longest wait between calls to a provider that accepts nothing.
const MAX_WAIT: TimeDelta = TimeDelta::minutes(10);

/// The longest time between the checks of an email and the start of its call (P6, P7).
pub(super) const MAX_CHECK_AGE: TimeDelta = TimeDelta::seconds(2);

/// At this multiple of `delivery.stop_after`, the counts are halved, so that recent outcomes weigh
/// more.
const HALVE_AT: u64 = 4;
/// Sending pauses after this number of consecutive calls whose outcomes are unknown and cannot be
/// resolved.
const LOST_CALLS_TO_PAUSE: u32 = 3;
/// The age of the emails whose bounces and spam reports count.
const REPORT_WINDOW: TimeDelta = TimeDelta::days(1);
/// Fewer bounces or spam reports than this never pause sending.
const MIN_REPORTS: u64 = 5;
/// The interval between checks of the provider's reports.
const REPORT_CHECK_INTERVAL: TimeDelta = TimeDelta::seconds(30);

/// Returns the prefix of the references of all calls for this brand at the mailer's account. It
/// identifies the brand of a call later.
pub fn account_prefix(mailer: &dyn Mailer, brand: Option<&BrandName>) -> String {
    match brand {
        Some(brand) => hash_prefix(&format!("{}\0{brand}", mailer.account_id())),
        None => hash_prefix(&mailer.account_id()),
    }
}

/// Returns a short hash of the text, followed by a hyphen.
pub(super) fn hash_prefix(text: &str) -> String {
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

    /// Locks and returns what this process knows about the account.
    pub(super) fn state(&self) -> MutexGuard<'_, AccountState> {
        lock(&self.state)
    }

    /// Sets the shutdown signal. Only the first call has an effect.
    pub fn set_shutdown_signal(&self, stop: watch::Receiver<bool>) {
        drop(self.stop.set(stop));
    }

    /// Returns whether the process is shutting down, so that no new call may start.
    pub(crate) fn is_shutting_down(&self) -> bool {
        self.stop.get().is_some_and(|stop| *stop.borrow())
    }
}

impl AccountState {
    /// Counts a call that the provider saw as answered or lost. Returns how long no call may start.
    ///
    /// There is a wait if the provider named one, or gave no answer in
    /// [`UNANSWERED_CALLS_TO_WAIT`] calls. Then it doubles with each further call.
    fn record_call(
        &mut self,
        call: &CallSummary,
        retry_after: TimeDelta,
        now: DateTime<Utc>,
    ) -> Option<TimeDelta> {
        self.unshared.lost += u32::from(call.lost_reason.is_some());
        if call.has_answer {
            (self.last_answer_at, self.unanswered_calls) = (Some(now), 0);
            (self.unshared.lost_streak_broken, self.unshared.lost) = (true, 0);
        } else {
            (self.last_answer_at, self.unanswered_calls) = (None, self.unanswered_calls + 1);
        }
        let requested = call.wait.and_then(|wait| TimeDelta::from_std(wait).ok());
        let doublings = self.unanswered_calls.checked_sub(UNANSWERED_CALLS_TO_WAIT);
        let own = doublings.map(|doublings| (retry_after * (1 << doublings.min(16))).min(MAX_WAIT));
        requested.max(own)
    }

    /// Returns whether the last call got a definite answer. Otherwise the provider may be down.
    pub(super) fn has_answered(&self) -> bool {
        self.last_answer_at.is_some()
    }

    /// Returns whether the last call got a definite answer, less than [`ANSWER_PROVES_FOR`] ago.
    /// Otherwise another server, such as a gateway, may answer in the provider's place.
    pub(super) fn is_proven(&self, now: DateTime<Utc>) -> bool {
        self.last_answer_at.is_some_and(|at| now - at <= ANSWER_PROVES_FOR)
    }

    /// Adapts the number of emails to check together: `sent` of `checked` emails were sent while
    /// their checks were fresh.
    pub(super) fn adapt_check_size(&mut self, sent: usize, checked: usize) {
        self.check_size = match sent {
            _ if sent == checked => self.check_size.map(|size| size.max(2 * checked)),
            // The checks themselves took too long, so fewer emails are checked next time.
            0 => Some((checked / 2).max(1)),
            _ => Some(sent),
        };
    }
}

impl Throttle {
    /// Returns limits, lease durations and the shares of failures that pause sending.
    pub(super) fn settings(&self) -> &SendSettings {
        &self.context.config.delivery
    }

    /// Checks that a call may start now. Returns the reason and the wait if it may not.
    pub(super) async fn before_send(
        &self,
        permit: &SendPermit,
    ) -> Result<(), (String, Option<DateTime<Utc>>)> {
        if let Some(reason) = permit.withheld_reason() {
            return Err((reason, None));
        }
        match self.current_state().await {
            Ok(ThrottleState::Open) => Ok(()),
            Ok(state) => Err(state.deferral()),
            Err(error) => Err((format!("pauses and waits could not be read: {error}"), None)),
        }
    }

    /// Returns the permit to send a call that was first made at `tried`. The leases of its rows are
    /// about to be renewed.
    ///
    /// The permit ends half a lease from now, so the clocks of several machines may differ. It also
    /// ends one lease after `tried`, because [`super::outcomes`] relies on that. It checks the wall
    /// clock and the monotonic clock, so a process that was suspended notices it.
    pub(super) fn send_permit(&self, tried: DateTime<Utc>) -> SendPermit {
        let (now, lease) = (self.context.clock.now(), self.settings().lease);
        let until = (now + lease / 2).min(tried + lease);
        let (start, duration) = (Instant::now(), (until - now).to_std().unwrap_or_default());
        let (clock, account) = (self.context.clock.clone(), self.account.clone());
        SendPermit::new(move || {
            if clock.now() >= until || start.elapsed() >= duration {
                SendPermitState::Lost
            } else if account.is_shutting_down() {
                SendPermitState::ShuttingDown
            } else {
                SendPermitState::Valid
            }
        })
    }

    /// Returns the same permit, which also becomes stale [`MAX_CHECK_AGE`] after the checks.
    pub(super) fn fresh_permit(&self, permit: SendPermit, checked: DateTime<Utc>) -> SendPermit {
        let clock = self.context.clock.clone();
        SendPermit::new(move || match permit.state() {
            SendPermitState::Valid if clock.now() - checked > MAX_CHECK_AGE => {
                SendPermitState::Stale
            }
            state => state,
        })
    }

    /// Returns whether a call may start now, by the notes and the state of this process. While
    /// sending is paused, discards the outcomes that were not shared yet.
    pub async fn current_state(&self) -> Result<ThrottleState> {
        if self.account.is_shutting_down() {
            return Ok(ThrottleState::Stopping);
        }
        let notes = self.context.store.notes(NoteFilter::Prefix(PAUSE)).await?;
        let mut notes: BTreeMap<String, String> = notes.into_iter().collect();
        if let Some(pause) = notes.remove(PAUSE) {
            // Outcomes before a pause do not count after it.
            self.account.state().unshared = RecentOutcomes::default();
            return Ok(ThrottleState::Paused(Pause::read(pause)));
        }
        let now = self.context.clock.now();
        let wait = notes.get(&self.name_of(WAIT));
        let until = wait.and_then(|note| AccountWait::end(note, now));
        Ok(until.map_or(ThrottleState::Open, ThrottleState::ClosedUntil))
    }

    fn name_of(&self, prefix: &str) -> String {
        format!("{prefix}{}", self.account.name)
    }

    /// Lets no process call the account before `until`. A longer wait stays.
    pub(super) async fn close_until(&self, until: DateTime<Utc>) -> Result<()> {
        let now = self.context.clock.now();
        let longest = |note: Option<&str>| {
            let stored = note.and_then(|note| AccountWait::end(note, now));
            if stored.is_some_and(|stored| stored >= until) {
                note.map(str::to_owned)
            } else {
                Some(to_json(&AccountWait { at: now, until }))
            }
        };
        change_note(&*self.context.store, &self.name_of(WAIT), longest).await
    }

    /// Records a call that the provider saw. If the call requires a wait, closes the throttle.
    pub(super) async fn record_call(&self, call: &CallSummary, now: DateTime<Utc>) -> Result<()> {
        let wait = self.account.state().record_call(call, self.settings().retry_after, now);
        let Some(wait) = wait else { return Ok(()) };
        self.close_until(now + wait).await
    }

    /// Counts outcomes, without `excused` failures. Pauses sending after too many failures.
    ///
    /// Other processes learn of failures at once, and of sent emails after `delivery.stop_after`.
    pub(super) async fn record_outcomes(&self, ends: &[Settlement], excused: u64) -> Result<()> {
        let count = |state| ends.iter().filter(|end| end.state == state).count() as u64;
        let outcomes = {
            let unshared = &mut self.account.state().unshared;
            unshared.sent += count(DeliveryState::Sent);
            unshared.failed += count(DeliveryState::Failed).saturating_sub(excused);
            *unshared
        };
        if outcomes.failed > 0 || outcomes.sent >= u64::from(self.settings().stop_after) {
            self.publish_outcomes(None).await?;
        }
        Ok(())
    }

    /// Adds the outcomes that this process has not shared yet to the account's note. Pauses sending
    /// if too many emails failed, or too many calls in a row have an unknown outcome. `why` says
    /// what happened to the last call.
    pub(super) async fn publish_outcomes(&self, why: Option<&str>) -> Result<()> {
        let new = std::mem::take(&mut self.account.state().unshared);
        if new == RecentOutcomes::default() {
            return Ok(());
        }
        let (now, settings, mut pause_reason) = (self.context.clock.now(), self.settings(), None);
        let max_total = u64::from(settings.stop_after).saturating_mul(HALVE_AT);
        let add = |note: Option<&str>| {
            let recent = RecentOutcomes::read(note, now);
            let (sent, failed) = (recent.sent + new.sent, recent.failed + new.failed);
            let total = sent + failed;
            let lost_before = if new.lost_streak_broken { 0 } else { recent.lost };
            let lost = lost_before.saturating_add(new.lost);
            pause_reason = if lost >= LOST_CALLS_TO_PAUSE {
                let why = why.unwrap_or("no answer");
                Some(format!("the outcomes of the last {lost} calls in a row are unknown ({why})"))
            } else {
                self.excess(failed, total, settings.stop_share, "failed", "stop_share")
            };
            if pause_reason.is_some() {
                // After the pause, only new outcomes count.
                return None;
            }
            let divisor = if total >= max_total { 2 } else { 1 };
            Some(to_json(&RecentOutcomes {
                sent: sent / divisor,
                failed: failed / divisor,
                lost,
                lost_streak_broken: false,
                at: Some(now),
            }))
        };
        change_note(&*self.context.store, &self.name_of(OUTCOMES), add).await?;
        match pause_reason {
            Some(reason) => self.pause(reason).await,
            None => Ok(()),
        }
    }

    /// Returns the reason to pause sending if this part of the last emails exceeds the share, which
    /// an option of the section `[delivery]` sets.
    fn excess(
        &self,
        part: u64,
        total: u64,
        share: Share,
        what: &str,
        option: &str,
    ) -> Option<String> {
        let has_enough = total >= u64::from(self.settings().stop_after);
        (has_enough && share.is_exceeded_by(part, total)).then(|| {
            format!(
                "{part} of the last {total} emails {what}, more than delivery.{option} of {share}"
            )
        })
    }

    /// Pauses all processes. If they are paused already, the first reason stays.
    pub(super) async fn pause(&self, reason: String) -> Result<()> {
        let pause = Pause { at: self.context.clock.now(), reason, by: self.context.owner.clone() };
        self.context.store.swap_note(PAUSE, None, Some(&to_json(&pause))).await?;
        Ok(())
    }

    /// Pauses all processes if too many of the last day's emails bounced or were reported as spam.
    /// Checks this at most every 30 seconds.
    pub(super) async fn check_reports(&self) -> Result<()> {
        let (now, store) = (self.context.clock.now(), &self.context.store);
        {
            let mut account = self.account.state();
            let is_recent = |last: DateTime<Utc>| now - last < REPORT_CHECK_INTERVAL;
            if account.reports_checked.is_some_and(is_recent) {
                return Ok(());
            }
            account.reports_checked = Some(now);
        }
        let note = store.note(RESUMED).await?;
        let resumed = note.and_then(|at| at.parse::<DateTime<Utc>>().ok());
        // A future time comes from a fast clock. No report before it would count.
        let resumed = resumed.filter(|at| *at <= now);
        let since = resumed.unwrap_or(DateTime::UNIX_EPOCH).max(now - REPORT_WINDOW);
        let (counts, settings) = (store.report_counts(since).await?, self.settings());
        let bounced_or_refused = match counts.refused {
            0 => "bounced",
            _ => "bounced or were refused",
        };
        let bounced = counts.bounced + counts.refused;
        let (spam, stop_complaints) = ("were reported as spam", settings.stop_complaints);
        for (part, share, what, option) in [
            (counts.complained, stop_complaints, spam, "stop_complaints"),
            (bounced, settings.stop_bounces, bounced_or_refused, "stop_bounces"),
        ] {
            let excess = self.excess(part, counts.sent, share, what, option);
            if let Some(reason) = excess.filter(|_| part >= MIN_REPORTS) {
                return self.pause(reason).await;
            }
        }
        Ok(())
    }
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
