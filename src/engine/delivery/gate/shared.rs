//! Shares waits and recent outcomes of each provider account between processes, in notes.
//!
//! A wait that one process receives applies to all, also to later ones such as hourly cron jobs.
//! The notes share a prefix with the pause ([`super::pause`]), so one read before each call returns
//! them all. Changes are compare-and-set, so no count is lost. Notes from a fast clock are ignored.
//! Start with [`Gate::before_call`].

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::super::tally::Concluded;
use super::lately::{Lately, SKEW};
use super::{Gate, GateState, Pause};
use crate::domain::DeliveryState;
use crate::engine::Result;
use crate::store::Notes;

/// The prefix of all these notes. The pause has it as its name.
pub(super) const NOTES: &str = "pause";
/// Name of the note with the wait. For a brand's own account, the account's name follows.
const CLOSED: &str = "pause-until";
/// Name of the note with recent outcomes. For a brand's own account, the account's name follows,
/// and the note counts only unknown calls.
pub(super) const ENDED: &str = "pause-ended";
/// Sending pauses after this number of consecutive calls whose outcomes are unknown and cannot be
/// resolved.
const ASTRAY: u32 = 3;
/// At this multiple of `delivery.stop_after`, the counts are halved, so that recent outcomes weigh
/// more.
const REMEMBERED: u64 = 4;

/// A wait: no process calls the account before `until`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Closed {
    at: DateTime<Utc>,
    until: DateTime<Utc>,
    /// The name of the account. A note about another account is ignored.
    account: String,
}

impl Gate {
    /// Returns whether a call may start now, by the notes and the limits of this process.
    pub(in crate::engine::delivery) async fn before_call(&self) -> Result<GateState> {
        if self.pacer.ending() {
            return Ok(GateState::Stopping);
        }
        let (now, before) = (self.context.clock.now(), self.pacer.before_look());
        let (mut pause, mut lately) = (None, Lately::default());
        let (mut told, mut until) = (false, None);
        for (name, note) in self.context.store.notes(NOTES).await? {
            match name.as_str() {
                NOTES => pause = Some(Pause::read(note)),
                name if name == self.closed() => {
                    (told, until) = (true, self.closed_by(&note, now));
                }
                name if name == self.ended() => lately = Lately::read(Some(&note)),
                _ => {}
            }
        }
        if let Some(pause) = pause {
            self.pacer.forget();
            return Ok(GateState::Paused(pause));
        }
        self.pacer.looked(before, !told, lately.astray > 0);
        let closed = self.pacer.closed(now).max(until);
        Ok(closed.map_or(GateState::Open, GateState::ClosedUntil))
    }

    /// Returns the name of the note with this account's wait.
    fn closed(&self) -> String {
        match self.account.is_default {
            true => CLOSED.to_owned(),
            false => format!("{CLOSED}:{}", self.account.name),
        }
    }

    /// Returns the name of the note with this account's unknown calls.
    fn ended(&self) -> String {
        match self.account.is_default {
            true => ENDED.to_owned(),
            false => format!("{ENDED}:{}", self.account.name),
        }
    }

    fn closed_by(&self, note: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let closed: Closed = serde_json::from_str(note).ok()?;
        let counts =
            closed.account == self.account.name && closed.at <= now + SKEW && closed.until > now;
        counts.then_some(closed.until)
    }

    /// Shares the current wait with all processes, if there is one.
    pub(in crate::engine::delivery) async fn share_wait(&self) -> Result<()> {
        let now = self.context.clock.now();
        let Some(until) = self.pacer.closed(now) else {
            return Ok(());
        };
        let closed = Closed {
            at: now,
            until,
            account: self.account.name.clone(),
        };
        let note = serde_json::to_string(&closed).unwrap_or_default();
        let store = &self.context.store;
        loop {
            let standing = store.note(&self.closed()).await?;
            let known = standing
                .as_deref()
                .and_then(|note| self.closed_by(note, now));
            if known.is_some_and(|known| known >= until)
                || store
                    .swap_note(&self.closed(), standing.as_deref(), Some(&note))
                    .await?
            {
                self.pacer.told(until);
                return Ok(());
            }
        }
    }

    /// Counts the outcomes of a call. Pauses sending after too many failures, or after too many
    /// consecutive calls with unknown outcomes.
    pub(in crate::engine::delivery) async fn watch(&self, concluded: &Concluded) -> Result<()> {
        let count = |state| {
            let ended = concluded.settled.iter();
            ended.filter(|end| end.state == state).count() as u64
        };
        let failed = count(DeliveryState::Failed).saturating_sub(concluded.excused);
        let heard = Lately {
            sent: count(DeliveryState::Sent),
            failed,
            astray: concluded.astray.is_some().into(),
            at: None,
        };
        // A definite answer ends the sequence of unknown calls.
        let answered = concluded.answered && heard.astray == 0;
        let Some(heard) = self.pacer.count(heard, answered, self.settings.stop_after) else {
            return Ok(());
        };
        self.tell(heard, answered, concluded.astray.as_deref())
            .await
    }

    /// Shares the outcomes that this process has counted and not shared yet.
    pub(in crate::engine::delivery) async fn tell_all(&self) -> Result<()> {
        match self.pacer.untold() {
            Some(heard) => self.tell(heard, false, None).await,
            None => Ok(()),
        }
    }

    /// Adds outcomes to the notes. Sent and failed emails count for all accounts together, unknown
    /// calls for each account alone.
    async fn tell(&self, heard: Lately, answered: bool, astray: Option<&str>) -> Result<()> {
        let own = self.ended();
        if own == ENDED {
            return self.note(ENDED, heard, answered, astray).await;
        }
        let mails = Lately { astray: 0, ..heard };
        let calls = Lately {
            astray: heard.astray,
            ..Lately::default()
        };
        if mails.sent + mails.failed > 0 {
            self.note(ENDED, mails, false, None).await?;
        }
        if calls.astray > 0 || answered {
            self.note(&own, calls, answered, astray).await?;
        }
        Ok(())
    }

    async fn note(
        &self,
        name: &str,
        heard: Lately,
        answered: bool,
        astray: Option<&str>,
    ) -> Result<()> {
        let now = self.context.clock.now();
        let store = &self.context.store;
        loop {
            let standing = store.note(name).await?;
            let mut lately = Lately::read(standing.as_deref());
            lately.add(&heard, now);
            if answered {
                lately.astray = 0;
            }
            let stop = self.too_much(&lately, astray);
            if stop.is_some() {
                lately = lately.rest();
            } else if lately.sent + lately.failed
                >= u64::from(self.settings.stop_after).saturating_mul(REMEMBERED)
            {
                lately.sent /= 2;
                lately.failed /= 2;
            }
            let note = serde_json::to_string(&lately).unwrap_or_default();
            if store
                .swap_note(name, standing.as_deref(), Some(&note))
                .await?
            {
                return match stop {
                    Some(reason) => self.pause(&reason).await,
                    None => Ok(()),
                };
            }
        }
    }

    /// Returns the reason to pause sending, if there is one.
    fn too_much(&self, lately: &Lately, astray: Option<&str>) -> Option<String> {
        let settings = &self.settings;
        if let Some(why) = astray.filter(|_| lately.astray >= ASTRAY) {
            let calls = lately.astray;
            return Some(format!(
                "nobody can tell what became of the last {calls} calls in a row ({why})"
            ));
        }
        let (failed, all) = (lately.failed, lately.sent + lately.failed);
        let share = settings.stop_share;
        let enough = all >= u64::from(settings.stop_after);
        (enough && share.is_passed_by(failed, all)).then(|| {
            format!(
                "{failed} of the last {all} mails failed, more than delivery.stop_share of {share}"
            )
        })
    }
}

/// Deletes all waits. An operator who resumes may have settled the cause with the provider, which
/// otherwise asks for a wait again.
pub(super) async fn open(notes: &dyn Notes) -> Result<()> {
    for (name, _) in notes.notes(CLOSED).await? {
        drop_note(notes, &name).await?;
    }
    Ok(())
}

/// Deletes a note, unconditionally.
pub(super) async fn drop_note(notes: &dyn Notes, name: &str) -> Result<()> {
    // Delete it once: a note that is written after that is new.
    while let Some(read) = notes.note(name).await? {
        if notes.swap_note(name, Some(&read), None).await? {
            break;
        }
    }
    Ok(())
}

/// Resets the counts, so that outcomes before a resume do not count after it. If the outcome of the
/// last call is unknown, the next call still contains a single email.
pub(super) async fn forget(notes: &dyn Notes) -> Result<()> {
    for (name, _) in notes.notes(ENDED).await? {
        loop {
            let read = notes.note(&name).await?;
            let lately = Lately::read(read.as_deref()).rest();
            let note = serde_json::to_string(&lately).unwrap_or_default();
            if notes.swap_note(&name, read.as_deref(), Some(&note)).await? {
                break;
            }
        }
    }
    Ok(())
}
