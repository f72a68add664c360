//! The backlog of days that have left the window: which days have one, its counts, and the note
//! about such a day.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::day::{Day, DaySet};
use super::timed_id::Id;

/// The size of a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct PendingCounts {
    /// Users with at least one event in the backlog.
    #[serde(rename = "people")]
    pub users: u64,
    /// Events in the backlogs of all these users.
    pub events: u64,
}

impl PendingCounts {
    /// Adds a user with this number of events. A user without events does not count.
    pub fn add(&mut self, events: u64) {
        self.users += u64::from(events > 0);
        self.events += events;
    }

    /// Returns whether there are no events.
    pub fn is_zero(&self) -> bool {
        self.events == 0
    }

    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self { users: self.users + other.users, events: self.events + other.events }
    }

    /// Returns the difference, with zero as the least.
    pub fn saturating_sub(self, other: Self) -> Self {
        Self {
            users: self.users.saturating_sub(other.users),
            events: self.events.saturating_sub(other.events),
        }
    }
}

impl std::ops::AddAssign for PendingCounts {
    fn add_assign(&mut self, other: Self) {
        *self = self.plus(other);
    }
}

/// The events of a day that digests should include but have not included yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Events of users who may be emailed: their next digest includes them.
    pub mailable: PendingCounts,
    /// Events of users who may not be emailed at the moment, such as suppressed or unconfirmed
    /// users. They are included once the user may be emailed again.
    pub blocked: PendingCounts,
}

impl Backlog {
    /// Returns the sum of both parts. A user with events in both counts twice.
    pub fn total(self) -> PendingCounts {
        self.mailable.plus(self.blocked)
    }
}

/// The note about a day that has left the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayNote {
    /// Distinguishes notes with equal content.
    pub id: Id,
    /// When the note was written.
    pub at: DateTime<Utc>,
    /// The part of the backlog that can be emailed, at the last full scan of the day. `None` if the
    /// day has changed since or was not scanned.
    #[serde(default, alias = "owed", skip_serializing_if = "Option::is_none")]
    pub mailable: Option<PendingCounts>,
    /// The same for users who may not be emailed; `None` in notes of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<PendingCounts>,
    /// The events that expired, because they were older than `digest.max_age`.
    #[serde(default, rename = "given_up", skip_serializing_if = "PendingCounts::is_zero")]
    pub expired: PendingCounts,
    /// The part of `expired` whose users could not be emailed when it expired.
    #[serde(default, rename = "given_up_blocked", skip_serializing_if = "PendingCounts::is_zero")]
    pub expired_blocked: PendingCounts,
}

impl DayNote {
    /// The prefix of the names of notes. The day follows.
    pub const PREFIX: &str = "day:";

    /// Returns the name of the day's note, such as `day:20140422`.
    pub fn note_name(day: Day) -> String {
        format!("{}{day}", Self::PREFIX)
    }

    /// Returns the day of a note; `None` if the name is not that of a day's note.
    pub fn day_of_note(name: &str) -> Option<Day> {
        name.strip_prefix(Self::PREFIX)?.parse().ok()
    }

    /// Parses a stored note. `None` if it is unreadable, so that the day is scanned again.
    pub fn parse(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns whether the last full scan found no backlog that can be emailed.
    pub fn has_no_mailable(&self) -> bool {
        self.mailable.is_some_and(|counts| counts.is_zero())
    }

    /// Returns whether all of the backlog, if any, is of users who may not be emailed. Older
    /// versions did not count those.
    pub fn has_only_blocked(&self) -> bool {
        self.has_no_mailable() && self.blocked.is_none_or(|counts| !counts.is_zero())
    }

    /// Returns whether no event is left that could expire.
    pub fn has_nothing_to_expire(&self) -> bool {
        self.has_no_mailable() && self.blocked.is_none_or(|counts| counts.is_zero())
    }
}

/// The days from which digests include events: the window and the backlog before it.
#[derive(Debug, Clone)]
pub struct DigestDays {
    /// The days that feeds show.
    pub window: DaySet,
    /// The first day whose events are still emailed.
    pub first: Day,
}

impl DigestDays {
    /// Returns the days at `now`. `window_back` is in days before today.
    pub fn at(now: DateTime<Utc>, window_back: u32, max_age: TimeDelta) -> Self {
        let window = DaySet::ending(Day::of(now), window_back);
        let first = Day::of(now - max_age).min(window.first());
        Self { window, first }
    }

    /// Returns whether the day has left the window but is not too old to be emailed.
    pub fn is_backlog(&self, day: Day) -> bool {
        self.first <= day && day < self.window.first()
    }

    /// Returns whether the day is older than `digest.max_age`, so that its backlog expires.
    pub fn is_expired(&self, day: Day) -> bool {
        day < self.first
    }
}

#[cfg(test)]
#[path = "backlog_tests.rs"]
mod tests;
