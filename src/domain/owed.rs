//! The backlog of days that have left the window, and the note about each such day.
//!
//! A wanted event is emailed, or expires after `digest.max_age` and is counted (P3). A note stores
//! the backlog that the last full scan found. A change of the day resets it.
//! [`crate::engine::digest::owed`] maintains the notes.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::day::{Day, Window};
use super::id::Id;

/// The size of a backlog.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Owed {
    /// Users with at least one event in the backlog.
    pub people: u64,
    /// Events in the backlogs of all these users.
    pub events: u64,
}

impl Owed {
    /// An empty backlog.
    pub const NOTHING: Self = Self {
        people: 0,
        events: 0,
    };

    /// Adds a user with this number of events. A user without events does not count.
    pub fn add(&mut self, events: u64) {
        self.people += u64::from(events > 0);
        self.events += events;
    }

    /// Returns whether there are no events.
    pub fn is_nothing(&self) -> bool {
        self.events == 0
    }

    /// Returns the sum of both.
    pub fn plus(self, other: Self) -> Self {
        Self {
            people: self.people + other.people,
            events: self.events + other.events,
        }
    }

    /// Returns the difference, with zero as the least.
    pub fn without(self, other: Self) -> Self {
        Self {
            people: self.people.saturating_sub(other.people),
            events: self.events.saturating_sub(other.events),
        }
    }
}

impl std::ops::AddAssign for Owed {
    fn add_assign(&mut self, other: Self) {
        *self = self.plus(other);
    }
}

/// The wanted events of a day that no digest has included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Backlog {
    /// Events of users who may be emailed: their next digest includes them.
    pub owed: Owed,
    /// Events of users who may not be emailed at the moment, such as suppressed or unconfirmed
    /// users. They are included once the user may be emailed again.
    pub blocked: Owed,
}

impl Backlog {
    /// Returns the sum of both parts. A user with events in both counts twice.
    pub fn all(self) -> Owed {
        self.owed.plus(self.blocked)
    }
}

/// The note about a day that has left the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayNote {
    /// Distinguishes notes with equal content.
    pub id: Id,
    /// When the note was written.
    pub at: DateTime<Utc>,
    /// The backlog at the last full scan of the day. `None` if the day has changed since or was not
    /// scanned.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed: Option<Owed>,
    /// The same for users who may not be emailed; `None` in notes of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Owed>,
    /// The events that expired, because they were older than `digest.max_age`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<Owed>,
    /// The part of `given_up` whose users could not be emailed when it expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up_blocked: Option<Owed>,
}

impl DayNote {
    /// The prefix of the names of notes. The day follows.
    pub const PREFIX: &str = "day:";

    /// Returns the name of the day's note, such as `day:20140422`.
    pub fn name(day: Day) -> String {
        format!("{}{day}", Self::PREFIX)
    }

    /// Returns the day of a note; `None` if the name is not that of a day's note.
    pub fn day(name: &str) -> Option<Day> {
        name.strip_prefix(Self::PREFIX)?.parse().ok()
    }

    /// Parses a stored note. `None` if it is unreadable, so that the day is scanned again.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Returns whether the last full scan found no backlog that can be emailed.
    pub fn is_clear(&self) -> bool {
        self.owed.is_some_and(|owed| owed.is_nothing())
    }

    /// Returns whether the day is clear but may contain events of users who cannot be emailed.
    /// Older versions did not count those.
    pub fn is_blocked(&self) -> bool {
        self.is_clear() && self.blocked.is_none_or(|blocked| !blocked.is_nothing())
    }

    /// Returns whether nothing is left that could expire.
    pub fn is_settled(&self) -> bool {
        self.is_clear() && self.blocked.is_none_or(|blocked| blocked.is_nothing())
    }
}

/// The backlog of all days outside the window, as the last full scan found it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastLook {
    /// When a scan first found this backlog. Later scans that find the same do not change it.
    pub at: DateTime<Utc>,
    /// The backlog of all these days.
    #[serde(flatten)]
    pub owed: Owed,
    /// The same for users who may not be emailed at the moment.
    #[serde(default)]
    pub blocked: Owed,
}

/// The days from which digests include events: the window and the backlog before it.
#[derive(Debug, Clone)]
pub struct DaysRead {
    /// The days that feeds show.
    pub window: Window,
    /// The first day whose events are still emailed.
    pub first: Day,
}

impl DaysRead {
    /// Returns the days at `now`. `window_back` is in days before today.
    pub fn of(now: DateTime<Utc>, window_back: u32, max_age: TimeDelta) -> Self {
        let window = Window::ending(Day::of(now), window_back);
        let first = Day::of(now - max_age).min(window.first());
        Self { window, first }
    }

    /// Returns whether the day has left the window but is not too old to be emailed.
    pub fn is_older(&self, day: Day) -> bool {
        self.first <= day && day < self.window.first()
    }

    /// Returns whether the backlog of the day has expired.
    pub fn is_too_old(&self, day: Day) -> bool {
        day < self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_in_the_window_in_the_backlog_or_too_old() {
        let now = "2014-04-22T12:00:00Z".parse().unwrap();
        let days = DaysRead::of(now, 7, TimeDelta::days(30));
        let day = |text: &str| text.parse::<Day>().unwrap();

        for (text, older, too_old) in [
            ("20140422", false, false),
            ("20140415", false, false),
            ("20140414", true, false),
            ("20140323", true, false),
            ("20140322", false, true),
            ("20140101", false, true),
        ] {
            let found = (days.is_older(day(text)), days.is_too_old(day(text)));
            assert_eq!(found, (older, too_old), "{text}");
        }
    }

    #[test]
    fn a_window_longer_than_the_maximum_age_leaves_no_older_days() {
        let now = "2014-04-22T12:00:00Z".parse().unwrap();
        let days = DaysRead::of(now, 60, TimeDelta::days(30));

        assert_eq!(days.first, days.window.first());
    }

    #[test]
    fn a_note_round_trips_and_other_text_is_ignored() {
        let note = DayNote {
            id: Id::from_bytes([7; 12]),
            at: DateTime::UNIX_EPOCH,
            owed: Some(Owed::NOTHING),
            blocked: None,
            given_up: None,
            given_up_blocked: None,
        };

        let read = DayNote::read(&serde_json::to_string(&note).unwrap());

        assert_eq!(read.as_ref(), Some(&note));
        assert!(
            note.is_clear() && note.is_blocked(),
            "older versions counted no blocked users"
        );
        assert_eq!(DayNote::read("changed"), None);
        let name = DayNote::name("20140422".parse().unwrap());
        assert_eq!(DayNote::day(&name), "20140422".parse().ok());
        assert_eq!(DayNote::day("day:x"), None);
    }
}
