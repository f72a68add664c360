//! Decides whether a provider call may start now.
//!
//! All processes share pauses, waits and recent outcomes as notes, also with hourly cron jobs. One
//! read before each call returns all notes, because their names share a prefix. Changes are
//! compare-and-set, so no count is lost. Start with [`Throttle::before_call`].
//! Long because it decides the limits of one process and those of all processes.

use std::collections::BTreeMap;
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
use crate::domain::delivery::Settlement;
use crate::domain::{BrandName, DeliveryState, Pause, Sending, Share};
use crate::email::{Mailer, Permit, PermitState};
use crate::engine::Result;
use crate::store::{NoteFilter, Notes};
use crate::wire::run_report::Ended;

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
    pub fn why_ended(&self) -> Option<Ended> {
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

/// Name of the note with the pause, and the prefix of all these notes but [`RESUMED`].
const PAUSE: &str = "pause";
/// Name of an account's note with its wait; the account's name follows.
const CLOSED: &str = "pause-until:";
/// Name of an account's note with its recent outcomes; the account's name follows.
const ENDED: &str = "pause-ended:";
/// Name of the note with the time of the last resume.
const RESUMED: &str = "resumed";

/// At this multiple of `delivery.stop_after`, the counts are halved, so that recent outcomes weigh
/// more.
const REMEMBERED: u64 = 4;
/// Counts are discarded if no outcome was added for this time: a week for weekly digests, plus a
/// day for late runs.
const RECENT: TimeDelta = TimeDelta::days(8);
/// The tolerated difference between clocks.
const SKEW: TimeDelta = TimeDelta::minutes(2);
/// Sending pauses after this number of consecutive calls whose outcomes are unknown and cannot be
/// resolved.
const LOST_CALLS: u32 = 3;
/// The age of the emails whose bounces and spam reports count.
const REPORTED: TimeDelta = TimeDelta::days(1);
/// Fewer bounces or spam reports than this never pause sending.
const FEW: u64 = 5;
/// The interval between checks of the provider's reports.
const CHECK_REPORTS: TimeDelta = TimeDelta::seconds(30);

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
    pub fn set_shutdown_signal(&self, stop: watch::Receiver<bool>) {
        drop(self.stop.set(stop));
    }

    /// Returns whether the process is shutting down, so that no new call may start.
    pub(crate) fn is_ending(&self) -> bool {
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
    ) -> Result<(), (String, Option<DateTime<Utc>>)> {
        if let Some(reason) = permit.withheld() {
            return Err((reason, None));
        }
        match self.before_call().await {
            Ok(ThrottleState::Open) => Ok(()),
            Ok(state) => Err(state.deferral()),
            Err(error) => {
                let reason = format!("the store does not say whether it may be sent: {error}");
                Err((reason, None))
            }
        }
    }

    /// Returns the permit to send a call that was first made at `tried`. The leases of its rows are
    /// about to be renewed.
    ///
    /// The permit ends half a lease from now, so the clocks of several machines may differ. It also
    /// ends one lease after `tried`, because [`super::outcomes`] relies on that. It checks the wall
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

    /// Returns whether a call may start now, by the notes and the state of this process.
    pub async fn before_call(&self) -> Result<ThrottleState> {
        if self.account.is_ending() {
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
        let wait = notes.get(&self.name_of(CLOSED));
        let until = wait.and_then(|note| closed_by(note, now));
        Ok(until.map_or(ThrottleState::Open, ThrottleState::ClosedUntil))
    }

    /// Returns the name of this account's note.
    fn name_of(&self, note: &str) -> String {
        format!("{note}{}", self.account.name)
    }

    /// Lets no process call the account before `until`.
    pub(super) async fn close(&self, until: DateTime<Utc>) -> Result<()> {
        let now = self.context.clock.now();
        let closed = json(&Closed { at: now, until });
        let longest = |note: Option<&str>| {
            let known = note.and_then(|note| closed_by(note, now));
            match known.is_some_and(|known| known >= until) {
                true => note.map(str::to_owned),
                false => closed.clone(),
            }
        };
        change_note(&*self.context.store, &self.name_of(CLOSED), longest).await
    }

    /// Counts outcomes, without `excused` failures. Pauses sending after too many failures.
    ///
    /// Other processes learn of failures at once, and of sent emails after `delivery.stop_after`.
    pub(super) async fn watch(&self, settled: &[Settlement], excused: u64) -> Result<()> {
        let count = |state| {
            let ended = settled.iter();
            ended.filter(|end| end.state == state).count() as u64
        };
        let outcomes = {
            let unshared = &mut self.account.state().unshared;
            unshared.sent += count(DeliveryState::Sent);
            unshared.failed += count(DeliveryState::Failed).saturating_sub(excused);
            *unshared
        };
        let often = u64::from(self.settings().stop_after);
        match outcomes.failed > 0 || outcomes.sent >= often {
            true => self.share(None).await,
            false => Ok(()),
        }
    }

    /// Adds the outcomes that this process has not shared yet to the account's note. Pauses sending
    /// if too many emails failed, or too many calls in a row have an unknown outcome. `why` says
    /// what happened to the last call.
    pub(super) async fn share(&self, why: Option<&str>) -> Result<()> {
        let outcomes = std::mem::take(&mut self.account.state().unshared);
        if outcomes == RecentOutcomes::default() {
            return Ok(());
        }
        let (now, settings, mut stop) = (self.context.clock.now(), self.settings(), None);
        let most = u64::from(settings.stop_after).saturating_mul(REMEMBERED);
        let is_recent = |at: DateTime<Utc>| now - at <= RECENT && at - now <= SKEW;
        let add = |note: Option<&str>| {
            let recent: Option<RecentOutcomes> =
                note.and_then(|note| serde_json::from_str(note).ok());
            let recent = recent.filter(|recent| recent.at.is_some_and(is_recent));
            let recent = recent.unwrap_or_default();
            let (sent, failed) = (recent.sent + outcomes.sent, recent.failed + outcomes.failed);
            let before = if outcomes.answered { 0 } else { recent.lost };
            let lost = before.saturating_add(outcomes.lost);
            let (all, share) = (sent + failed, settings.stop_share);
            stop = self.excess(failed, all, share, "failed", "stop_share");
            if lost >= LOST_CALLS {
                let why = why.unwrap_or("no answer");
                stop = Some(format!(
                    "the outcomes of the last {lost} calls in a row are unknown ({why})"
                ));
            }
            let share = if all >= most { 2 } else { 1 };
            let recent = RecentOutcomes {
                sent: sent / share,
                failed: failed / share,
                lost,
                answered: false,
                at: Some(now),
            };
            // After the pause, only new outcomes count.
            json(&recent).filter(|_| stop.is_none())
        };
        change_note(&*self.context.store, &self.name_of(ENDED), add).await?;
        match stop {
            Some(reason) => self.pause(reason).await,
            None => Ok(()),
        }
    }

    /// Returns the reason to pause sending if this part of the last emails exceeds the share, which
    /// an option of the section `[delivery]` sets.
    fn excess(
        &self,
        part: u64,
        all: u64,
        share: Share,
        what: &str,
        option: &str,
    ) -> Option<String> {
        let enough = all >= u64::from(self.settings().stop_after);
        (enough && share.is_passed_by(part, all)).then(|| {
            format!(
                "{part} of the last {all} emails {what}, more than delivery.{option} of {share}"
            )
        })
    }

    /// Pauses all processes. If they are paused already, the first reason stays.
    pub(super) async fn pause(&self, reason: String) -> Result<()> {
        let pause = Pause { at: self.context.clock.now(), reason, by: self.context.owner.clone() };
        let note = json(&pause).unwrap_or(pause.reason);
        let store = &self.context.store;
        store.swap_note(PAUSE, None, Some(&note)).await?;
        Ok(())
    }

    /// Pauses all processes if too many of the last day's emails bounced or were reported as spam.
    /// Checks this at most every 30 seconds.
    pub(super) async fn check_reports(&self) -> Result<()> {
        let (now, store) = (self.context.clock.now(), &self.context.store);
        let is_recent = |last: DateTime<Utc>| now - last < CHECK_REPORTS;
        {
            let mut account = self.account.state();
            if account.reports_checked.is_some_and(is_recent) {
                return Ok(());
            }
            account.reports_checked = Some(now);
        }
        let resumed = store.note(RESUMED).await?;
        let resumed = resumed.and_then(|at| at.parse::<DateTime<Utc>>().ok());
        // A future time comes from a fast clock. No report before it would count.
        let resumed = resumed.filter(|at| *at <= now);
        let since = (now - REPORTED).max(resumed.unwrap_or(DateTime::UNIX_EPOCH));
        let (counts, settings) = (store.report_counts(since).await?, self.settings());
        let bounced = counts.bounced + counts.refused;
        let words = match counts.refused {
            0 => "bounced",
            _ => "bounced or were refused",
        };
        let (complaints, bounces) = (settings.stop_complaints, settings.stop_bounces);
        let complained = "were complained of";
        for (part, share, what, option) in [
            (counts.complained, complaints, complained, "stop_complaints"),
            (bounced, bounces, words, "stop_bounces"),
        ] {
            let excess = self.excess(part, counts.sent, share, what, option);
            if let Some(reason) = excess.filter(|_| part >= FEW) {
                return self.pause(reason).await;
            }
        }
        Ok(())
    }
}

/// A wait: no process calls the account before `until`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Closed {
    at: DateTime<Utc>,
    until: DateTime<Utc>,
}

impl Pause {
    /// Returns the current pause, if there is one.
    pub async fn current(notes: &dyn Notes) -> Result<Option<Self>> {
        Ok(notes.note(PAUSE).await?.map(Self::read))
    }

    /// Parses a note. An unreadable note pauses sending as well.
    fn read(note: String) -> Self {
        serde_json::from_str(&note).unwrap_or_else(|_| Self {
            at: DateTime::UNIX_EPOCH,
            reason: note,
            by: "unknown".into(),
        })
    }

    /// Ends the pause and returns it. Outcomes before a resume do not count after it. All waits
    /// end, because an operator may have settled the cause with the provider, which otherwise asks
    /// for a wait again.
    pub async fn lift(notes: &dyn Notes, now: DateTime<Utc>) -> Result<Option<Self>> {
        let pause = Self::current(notes).await?;
        change_note(notes, RESUMED, |_| Some(now.to_rfc3339())).await?;
        for kind in [ENDED, CLOSED] {
            for (name, _) in notes.notes(NoteFilter::Prefix(kind)).await? {
                change_note(notes, &name, |_| None).await?;
            }
        }
        change_note(notes, PAUSE, |_| None).await?;
        Ok(pause)
    }
}

fn json(value: &impl Serialize) -> Option<String> {
    serde_json::to_string(value).ok()
}

/// Replaces a note by what `change` makes of it; `None` means no note. If another process changes
/// the note first, this reads it again.
async fn change_note(
    notes: &dyn Notes,
    name: &str,
    mut change: impl FnMut(Option<&str>) -> Option<String> + Send,
) -> Result<()> {
    loop {
        let read = notes.note(name).await?;
        let new = change(read.as_deref());
        if new == read || notes.swap_note(name, read.as_deref(), new.as_deref()).await? {
            return Ok(());
        }
    }
}

/// Returns when the wait of this note ends; `None` if it is over or a fast clock wrote it.
fn closed_by(note: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let Closed { at, until } = serde_json::from_str(note).ok()?;
    (at <= now + SKEW && until > now).then_some(until)
}

#[cfg(test)]
#[path = "throttle_tests.rs"]
mod tests;
