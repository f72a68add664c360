//! Counts recent outcomes, as stored in a note.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// Mails that ended longer ago than the last one before by this much count no more: a week, and a
/// day for who is late.
const LATELY: TimeDelta = TimeDelta::days(8);
/// Clocks may differ by so much.
pub(super) const SKEW: TimeDelta = TimeDelta::minutes(2);

/// How mails have ended lately.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lately {
    pub sent: u64,
    pub failed: u64,
    /// Calls in a row of which nobody can tell what became of them.
    pub astray: u32,
    /// When the last of them ended.
    pub at: Option<DateTime<Utc>>,
}

impl Lately {
    pub(super) fn read(note: Option<&str>) -> Self {
        note.and_then(|note| serde_json::from_str(note).ok())
            .unwrap_or_default()
    }

    /// What is left of it once everything was stopped.
    pub(super) fn rest(&self) -> Self {
        Self {
            astray: self.astray.min(1),
            at: self.at,
            ..Self::default()
        }
    }

    pub(super) fn add(&mut self, more: &Self, now: DateTime<Utc>) {
        let is_old = |at: DateTime<Utc>| now - at > LATELY || at - now > SKEW;
        if self.at.is_some_and(is_old) {
            *self = Self::default();
        }
        self.sent += more.sent;
        self.failed += more.failed;
        self.astray += more.astray;
        self.at = Some(now);
    }
}
