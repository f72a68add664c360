//! What all processes know of the provider: until when it wants no calls, and how mails have ended
//! lately.
//!
//! The rule: what one process hears holds for all, and for those that come after it, as a cron line
//! makes a process each hour. It is kept in notes that stand beside the pause ([`super::pause`]),
//! so that one read before each call tells everything. A note is changed from what was read, so
//! nobody's count is lost. What a machine with a wrong clock writes is not believed.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::super::tally::Concluded;
use super::lately::{Lately, SKEW};
use super::{Gate, GateState, Pause};
use crate::domain::DeliveryState;
use crate::engine::Result;
use crate::store::Notes;

/// What all of these notes begin with, the pause among them.
pub(super) const NOTES: &str = "pause";
/// Until when nobody makes a call; behind it stands the account, where it is a brand's own.
const CLOSED: &str = "pause-until";
/// How mails have ended lately; behind it stands the account, where it is a brand's own, with what
/// became of its calls alone.
pub(super) const ENDED: &str = "pause-ended";
/// So many calls in a row of which nobody can tell what became of them stop everything, where
/// nobody can be asked.
const ASTRAY: u32 = 3;
/// Past so many times the fewest outcomes that count, older ones count half.
const REMEMBERED: u64 = 4;

/// Nobody makes a call before then.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
struct Closed {
    at: DateTime<Utc>,
    until: DateTime<Utc>,
    /// Whose account it is about: the beginning of its calls' references.
    account: String,
}

impl Gate {
    /// Whether anything may be handed over at this moment, by what all processes know.
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

    /// The note that says so of this account.
    fn closed(&self) -> String {
        match self.account.is_default {
            true => CLOSED.to_owned(),
            false => format!("{CLOSED}:{}", self.account.name),
        }
    }

    /// The note that says how many calls in a row went astray at this account.
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

    /// Tells all processes how long nobody makes a call, if anything was heard of that.
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
        loop {
            let standing = self.context.store.note(&self.closed()).await?;
            let known = standing
                .as_deref()
                .and_then(|note| self.closed_by(note, now));
            if known.is_some_and(|known| known >= until)
                || self
                    .context
                    .store
                    .swap_note(&self.closed(), standing.as_deref(), Some(&note))
                    .await?
            {
                self.pacer.told(until);
                return Ok(());
            }
        }
    }

    /// Counts how mails of a call ended; too many failures, or too many calls in a row of which
    /// nobody can tell, stop everything.
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
        // Answered: whatever went astray before, somebody is there.
        let answered = concluded.answered && heard.astray == 0;
        let Some(heard) = self.pacer.count(heard, answered, self.settings.stop_after) else {
            return Ok(());
        };
        self.tell(heard, answered, concluded.astray.as_deref())
            .await
    }

    /// Adds what this process has counted and not told yet.
    pub(in crate::engine::delivery) async fn tell_all(&self) -> Result<()> {
        match self.pacer.untold() {
            Some(heard) => self.tell(heard, false, None).await,
            None => Ok(()),
        }
    }

    /// How mails ended counts for all together; calls in a row are each account's own.
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
        loop {
            let standing = self.context.store.note(name).await?;
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
            if self
                .context
                .store
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

    /// Why everything should stop, if it should.
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

/// Lets calls be made again before the provider wanted any: whoever resumes may have settled that
/// with it. It says so again if not.
pub(super) async fn open(notes: &dyn Notes) -> Result<()> {
    for (name, _) in notes.notes(CLOSED).await? {
        drop_note(notes, &name).await?;
    }
    Ok(())
}

/// Forgets a note, whatever it says.
pub(super) async fn drop_note(notes: &dyn Notes, name: &str) -> Result<()> {
    // Once: what is noted after that is news.
    while let Some(read) = notes.note(name).await? {
        if notes.swap_note(name, Some(&read), None).await? {
            break;
        }
    }
    Ok(())
}

/// Forgets how mails ended: what comes after a resume counts alone. Where calls went astray the
/// next one still risks little.
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
