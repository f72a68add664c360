//! The notes by which all processes share pauses, waits and recent outcomes.
//!
//! The names of all these notes but one start with [`PAUSE`], so one read returns them. Changes are
//! compare-and-set, so no count is lost. Start with [`change_note`].

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use crate::domain::Pause;
use crate::engine::Result;
use crate::store::{NoteFilter, Notes};

/// Name of the note with the pause, and the prefix of all these notes but [`RESUMED`].
pub(super) const PAUSE: &str = "pause";
/// Name of an account's note with its wait; the account's name follows.
pub(super) const WAIT: &str = "pause-until:";
/// Name of an account's note with its recent outcomes; the account's name follows.
pub(super) const OUTCOMES: &str = "pause-ended:";
/// Name of the note with the time of the last resume.
pub(super) const RESUMED: &str = "resumed";

/// Counts are discarded if no outcome was added for this time: a week for weekly digests, plus a
/// day for late runs.
const OUTCOMES_EXPIRE_AFTER: TimeDelta = TimeDelta::days(8);
/// The tolerated difference between clocks.
const CLOCK_SKEW: TimeDelta = TimeDelta::minutes(2);

/// Recent outcomes of emails. The note of an account stores those of all processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct RecentOutcomes {
    pub sent: u64,
    pub failed: u64,
    /// Consecutive calls with an unknown outcome.
    #[serde(default)]
    pub lost: u32,
    /// Whether a call got a definite answer before these lost ones.
    #[serde(skip)]
    pub lost_streak_broken: bool,
    /// When the last outcome was added.
    pub at: Option<DateTime<Utc>>,
}

impl RecentOutcomes {
    /// Parses a note. Returns no outcomes if it is missing, unreadable, too old or from the future.
    pub(super) fn read(note: Option<&str>, now: DateTime<Utc>) -> Self {
        let is_recent =
            |at: DateTime<Utc>| now - at <= OUTCOMES_EXPIRE_AFTER && at - now <= CLOCK_SKEW;
        let outcomes: Option<Self> = note.and_then(|note| serde_json::from_str(note).ok());
        outcomes.filter(|outcomes| outcomes.at.is_some_and(is_recent)).unwrap_or_default()
    }
}

/// A wait: no process calls the account before `until`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct AccountWait {
    pub at: DateTime<Utc>,
    pub until: DateTime<Utc>,
}

impl AccountWait {
    /// Returns when the wait of this note ends; `None` if it is over or a fast clock wrote it.
    pub(super) fn end(note: &str, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let Self { at, until } = serde_json::from_str(note).ok()?;
        (at <= now + CLOCK_SKEW && until > now).then_some(until)
    }
}

impl Pause {
    /// Returns the current pause, if there is one.
    pub async fn current(notes: &dyn Notes) -> Result<Option<Self>> {
        Ok(notes.note(PAUSE).await?.map(Self::read))
    }

    /// Parses a note. An unreadable note pauses sending as well.
    pub(super) fn read(note: String) -> Self {
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
        for prefix in [OUTCOMES, WAIT] {
            for (name, _) in notes.notes(NoteFilter::Prefix(prefix)).await? {
                change_note(notes, &name, |_| None).await?;
            }
        }
        change_note(notes, PAUSE, |_| None).await?;
        Ok(pause)
    }
}

pub(super) fn to_json(value: &impl Serialize) -> String {
    serde_json::to_string(value).expect("notes consist of texts, numbers and times")
}

/// Replaces a note by what `change` makes of it; `None` means no note. If another process changes
/// the note first, this reads it again.
pub(super) async fn change_note(
    notes: &dyn Notes,
    name: &str,
    mut change: impl FnMut(Option<&str>) -> Option<String> + Send,
) -> Result<()> {
    loop {
        let old = notes.note(name).await?;
        let new = change(old.as_deref());
        if new == old || notes.swap_note(name, old.as_deref(), new.as_deref()).await? {
            return Ok(());
        }
    }
}
