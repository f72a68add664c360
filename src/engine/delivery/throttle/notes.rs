//! Shares pauses, waits and recent outcomes between all processes, in notes.
//!
//! A wait that one process receives applies to all, also to later ones such as hourly cron jobs.
//! The notes share a prefix, so one read before each call returns them all. Changes are
//! compare-and-set, so no count is lost. Notes from a fast clock are ignored. Start with
//! [`Throttle::before_call`].

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::super::retry::Decisions;
use super::{RecentOutcomes, Throttle, ThrottleState};
use crate::domain::{DeliveryState, Pause, Share};
use crate::engine::Result;
use crate::store::{NoteFilter, Notes};

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
        if new == read
            || notes
                .swap_note(name, read.as_deref(), new.as_deref())
                .await?
        {
            return Ok(());
        }
    }
}

/// Returns when the wait of this note ends; `None` if it is over or a fast clock wrote it.
fn closed_by(note: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
    let Closed { at, until } = serde_json::from_str(note).ok()?;
    (at <= now + SKEW && until > now).then_some(until)
}

impl Throttle {
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
    pub(in crate::engine::delivery) async fn close(&self, until: DateTime<Utc>) -> Result<()> {
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

    /// Counts outcomes. Pauses sending after too many failures.
    ///
    /// Other processes learn of failures at once, and of sent emails after `delivery.stop_after`.
    pub(in crate::engine::delivery) async fn watch(&self, concluded: &Decisions) -> Result<()> {
        let count = |state| {
            let ended = concluded.settlements.iter();
            ended.filter(|end| end.state == state).count() as u64
        };
        let outcomes = {
            let unshared = &mut self.account.state().unshared;
            unshared.sent += count(DeliveryState::Sent);
            unshared.failed += count(DeliveryState::Failed).saturating_sub(concluded.excused);
            *unshared
        };
        let often = u64::from(self.settings().stop_after);
        match outcomes.failed > 0 || outcomes.sent >= often {
            true => self.share_all().await,
            false => Ok(()),
        }
    }

    /// Shares the outcomes of this process, see [`Self::share`].
    pub(in crate::engine::delivery) async fn share_all(&self) -> Result<()> {
        self.share(None).await
    }

    /// Adds the outcomes that this process has not shared yet to the account's note. Pauses sending
    /// if too many emails failed, or too many calls in a row have an unknown outcome. `why` says
    /// what happened to the last call.
    pub(in crate::engine::delivery) async fn share(&self, why: Option<&str>) -> Result<()> {
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
            let (all, option) = (sent + failed, "delivery.stop_share");
            stop = self.excess(failed, all, settings.stop_share, "failed", option);
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

    /// Returns the reason to pause sending if this part of the last emails exceeds the share.
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
            format!("{part} of the last {all} mails {what}, more than {option} of {share}")
        })
    }

    /// Pauses all processes. If they are paused already, the first reason stays.
    pub(in crate::engine::delivery) async fn pause(&self, reason: String) -> Result<()> {
        let pause = Pause {
            at: self.context.clock.now(),
            reason,
            by: self.context.owner.clone(),
        };
        let note = json(&pause).unwrap_or(pause.reason);
        let store = &self.context.store;
        store.swap_note(PAUSE, None, Some(&note)).await?;
        Ok(())
    }

    /// Pauses all processes if too many of the last day's emails bounced or were reported as spam.
    /// Checks this at most every 30 seconds.
    pub(in crate::engine::delivery) async fn check_reports(&self) -> Result<()> {
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
            (
                counts.complained,
                complaints,
                complained,
                "delivery.stop_complaints",
            ),
            (bounced, bounces, words, "delivery.stop_bounces"),
        ] {
            let excess = self.excess(part, counts.sent, share, what, option);
            if let Some(reason) = excess.filter(|_| part >= FEW) {
                return self.pause(reason).await;
            }
        }
        Ok(())
    }
}
