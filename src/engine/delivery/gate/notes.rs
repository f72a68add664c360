//! Shares pauses, waits and recent outcomes between all processes, in notes.
//!
//! A wait that one process receives applies to all, also to later ones such as hourly cron jobs.
//! The notes share a prefix, so one read before each call returns them all. Changes are
//! compare-and-set, so no count is lost. Notes from a fast clock are ignored. Start with
//! [`Gate::before_call`].

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::super::retry::Decisions;
use super::account::RecentOutcomes;
use super::{Gate, GateState};
use crate::domain::{DeliveryState, Pause, ReportCounts, Share};
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

/// Sending pauses after this number of consecutive calls whose outcomes are unknown and cannot be
/// resolved.
const LOST_CALLS: u32 = 3;
/// At this multiple of `delivery.stop_after`, the counts are halved, so that recent outcomes weigh
/// more.
const REMEMBERED: u64 = 4;
/// Counts are discarded if no outcome was added for this time: a week for weekly digests, plus a
/// day for late runs.
const RECENT: TimeDelta = TimeDelta::days(8);
/// The tolerated difference between clocks.
const SKEW: TimeDelta = TimeDelta::minutes(2);
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

impl RecentOutcomes {
    fn read(note: Option<&str>) -> Self {
        note.and_then(|note| serde_json::from_str(note).ok())
            .unwrap_or_default()
    }

    /// Returns what remains after a pause: only whether the outcome of the last call is unknown.
    fn after_pause(&self) -> Self {
        Self {
            lost: self.lost.min(1),
            at: self.at,
            ..Self::default()
        }
    }

    fn add(&mut self, more: &Self, now: DateTime<Utc>) {
        let is_old = |at: DateTime<Utc>| now - at > RECENT || at - now > SKEW;
        if self.at.is_some_and(is_old) {
            *self = Self::default();
        }
        self.sent += more.sent;
        self.failed += more.failed;
        self.lost += more.lost;
        self.at = Some(now);
    }
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
        for (name, _) in notes.notes(NoteFilter::Prefix(ENDED)).await? {
            // If the outcome of the last call is unknown, the next call still contains one email.
            let rest = |note: Option<&str>| json(&RecentOutcomes::read(note).after_pause());
            change_note(notes, &name, rest).await?;
        }
        for (name, _) in notes.notes(NoteFilter::Prefix(CLOSED)).await? {
            change_note(notes, &name, |_| None).await?;
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

impl Gate {
    /// Returns whether a call may start now, by the notes and the limits of this process.
    pub(in crate::engine::delivery) async fn before_call(&self) -> Result<GateState> {
        if self.account.is_ending() {
            return Ok(GateState::Stopping);
        }
        let now = self.context.clock.now();
        let shared_before = self.account.state().shared_wait;
        let notes = self.context.store.notes(NoteFilter::Prefix(PAUSE)).await?;
        let mut notes: BTreeMap<String, String> = notes.into_iter().collect();
        let mut state = self.account.state();
        if let Some(pause) = notes.remove(PAUSE) {
            // Outcomes before a pause do not count after it.
            state.unshared = RecentOutcomes::default();
            return Ok(GateState::Paused(Pause::read(pause)));
        }
        let wait = notes.get(&self.name_of(CLOSED));
        if wait.is_none() {
            state.end_deleted_wait(shared_before);
        }
        let recent = notes.get(&self.name_of(ENDED)).map(String::as_str);
        state.noted_lost = RecentOutcomes::read(recent).lost > 0;
        let until = wait.and_then(|note| closed_by(note, now));
        let closed = state.closed(now).max(until);
        Ok(closed.map_or(GateState::Open, GateState::ClosedUntil))
    }

    /// Returns the name of this account's note.
    fn name_of(&self, note: &str) -> String {
        format!("{note}{}", self.account.name)
    }

    /// Shares the current wait with all processes, if there is one.
    pub(in crate::engine::delivery) async fn share_wait(&self) -> Result<()> {
        let now = self.context.clock.now();
        let Some(until) = self.account.state().closed(now) else {
            return Ok(());
        };
        let closed = json(&Closed { at: now, until });
        let longest = |note: Option<&str>| {
            let known = note.and_then(|note| closed_by(note, now));
            match known.is_some_and(|known| known >= until) {
                true => note.map(str::to_owned),
                false => closed.clone(),
            }
        };
        change_note(&*self.context.store, &self.name_of(CLOSED), longest).await?;
        self.account.state().shared_wait = Some(until);
        Ok(())
    }

    /// Counts the outcomes of a call. Pauses sending after too many failures, or after too many
    /// consecutive calls with unknown outcomes.
    pub(in crate::engine::delivery) async fn watch(&self, concluded: &Decisions) -> Result<()> {
        let count = |state| {
            let ended = concluded.settlements.iter();
            ended.filter(|end| end.state == state).count() as u64
        };
        let outcomes = RecentOutcomes {
            sent: count(DeliveryState::Sent),
            failed: count(DeliveryState::Failed).saturating_sub(concluded.excused),
            lost: concluded.lost.is_some().into(),
            at: None,
        };
        // A definite answer ends the sequence of unknown calls.
        let answered = concluded.answered && outcomes.lost == 0;
        let often = self.settings.stop_after;
        let shared = self.account.state().count(outcomes, answered, often);
        match shared {
            Some(outcomes) => {
                let why = concluded.lost.as_deref();
                self.share(outcomes, answered, why).await
            }
            None => Ok(()),
        }
    }

    /// Shares the outcomes that this process has counted and not shared yet.
    pub(in crate::engine::delivery) async fn share_all(&self) -> Result<()> {
        let outcomes = std::mem::take(&mut self.account.state().unshared);
        match outcomes == RecentOutcomes::default() {
            true => Ok(()),
            false => self.share(outcomes, false, None).await,
        }
    }

    /// Adds outcomes to the account's note, and pauses sending if they are too many. `lost` is why
    /// the last call's outcome is unknown.
    async fn share(
        &self,
        outcomes: RecentOutcomes,
        answered: bool,
        lost: Option<&str>,
    ) -> Result<()> {
        let (now, mut stop) = (self.context.clock.now(), None);
        let most = u64::from(self.settings.stop_after).saturating_mul(REMEMBERED);
        let add = |note: Option<&str>| {
            let mut recent = RecentOutcomes::read(note);
            recent.add(&outcomes, now);
            if answered {
                recent.lost = 0;
            }
            stop = self.too_much(&recent, lost);
            if stop.is_some() {
                recent = recent.after_pause();
            } else if recent.sent + recent.failed >= most {
                recent.sent /= 2;
                recent.failed /= 2;
            }
            json(&recent)
        };
        change_note(&*self.context.store, &self.name_of(ENDED), add).await?;
        match stop {
            Some(reason) => self.pause(reason).await,
            None => Ok(()),
        }
    }

    /// Returns the reason to pause sending, if there is one.
    fn too_much(&self, recent: &RecentOutcomes, lost: Option<&str>) -> Option<String> {
        let settings = &self.settings;
        if let Some(why) = lost.filter(|_| recent.lost >= LOST_CALLS) {
            let calls = recent.lost;
            return Some(format!(
                "the outcomes of the last {calls} calls in a row are unknown ({why})"
            ));
        }
        let (failed, all) = (recent.failed, recent.sent + recent.failed);
        self.excess(
            failed,
            all,
            settings.stop_share,
            "failed",
            "delivery.stop_share",
        )
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
        let enough = all >= u64::from(self.settings.stop_after);
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
        match self.alarm(&store.report_counts(since).await?) {
            Some(reason) => self.pause(reason).await,
            None => Ok(()),
        }
    }

    /// Returns the reason to pause sending, if there is one.
    fn alarm(&self, counts: &ReportCounts) -> Option<String> {
        let (settings, all) = (&self.settings, counts.sent);
        let passed = |part: u64, share: Share, what: &str, option: &str| {
            let excess = self.excess(part, all, share, what, option);
            excess.filter(|_| part >= FEW)
        };
        let (complained, share) = (counts.complained, settings.stop_complaints);
        let what = "were complained of";
        passed(complained, share, what, "delivery.stop_complaints").or_else(|| {
            let what = match counts.refused {
                0 => "bounced",
                _ => "bounced or were refused",
            };
            let (bounced, share) = (counts.bounced + counts.refused, settings.stop_bounces);
            passed(bounced, share, what, "delivery.stop_bounces")
        })
    }
}
