//! Counts recent outcomes, as stored in a note.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

/// Counts are discarded if no outcome was added for this time: a week for weekly digests, plus a
/// day for late runs.
const LATELY: TimeDelta = TimeDelta::days(8);
/// The tolerated difference between clocks.
pub(super) const SKEW: TimeDelta = TimeDelta::minutes(2);

/// Recent outcomes of emails and calls.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Lately {
    pub sent: u64,
    pub failed: u64,
    /// Consecutive calls with an unknown outcome.
    pub astray: u32,
    /// When the last outcome was added.
    pub at: Option<DateTime<Utc>>,
}

impl Lately {
    pub(super) fn read(note: Option<&str>) -> Self {
        note.and_then(|note| serde_json::from_str(note).ok())
            .unwrap_or_default()
    }

    /// Returns what remains after a pause: only whether the outcome of the last call is unknown.
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
