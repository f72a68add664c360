//! The backlog of days that have left the window, and the note about each such day.
//!
//! A wanted event is emailed, or expires after `digest.max_age` and is counted (P3). The note says
//! how much backlog the last full scan found. A change of the day resets the note.
//! [`crate::engine::digest::owed`] keeps the notes.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::day::{Day, Window};
use super::id::Id;

/// How many people are owed how many events.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Owed {
    /// People who are owed at least one event.
    pub people: u64,
    /// Events they are owed, all together.
    pub events: u64,
}

impl Owed {
    /// Nobody is owed anything.
    pub const NOTHING: Self = Self {
        people: 0,
        events: 0,
    };

    /// One more person, with so many events; nobody, if there are none.
    pub fn add(&mut self, events: u64) {
        self.people += u64::from(events > 0);
        self.events += events;
    }

    /// Whether no events are owed.
    pub fn is_nothing(&self) -> bool {
        self.events == 0
    }

    /// Both together.
    pub fn plus(self, other: Self) -> Self {
        Self {
            people: self.people + other.people,
            events: self.events + other.events,
        }
    }

    /// What is left of it without the other.
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
    /// users: their first digest after that includes them.
    pub blocked: Owed,
}

impl Backlog {
    /// Both parts together. A user with events in both counts twice.
    pub fn all(self) -> Owed {
        self.owed.plus(self.blocked)
    }
}

/// What is noted of a day that has left the window.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DayNote {
    /// Tells two notes apart that say the same.
    pub id: Id,
    /// When it was written.
    pub at: DateTime<Utc>,
    /// What was owed of it when it was last read whole; absent if it has changed since, or was not
    /// read.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owed: Option<Owed>,
    /// The same for users who may not be emailed; absent in notes of older versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub blocked: Option<Owed>,
    /// What of it was given up, as it was older than `digest.max_age`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up: Option<Owed>,
    /// The part of `given_up` whose users could not be emailed when it expired.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub given_up_blocked: Option<Owed>,
}

impl DayNote {
    /// What the note of a day is called, before the day.
    pub const PREFIX: &str = "day:";

    /// The note's name in the store: `day:20140422`.
    pub fn name(day: Day) -> String {
        format!("{}{day}", Self::PREFIX)
    }

    /// The day of a note of that name.
    pub fn day(name: &str) -> Option<Day> {
        name.strip_prefix(Self::PREFIX)?.parse().ok()
    }

    /// As it stands in the store. One that cannot be read says nothing, so its day is read.
    pub fn read(text: &str) -> Option<Self> {
        serde_json::from_str(text).ok()
    }

    /// Whether nobody was owed anything when the day was last read whole.
    pub fn is_clear(&self) -> bool {
        self.owed.is_some_and(|owed| owed.is_nothing())
    }

    /// Whether the day is clear and may hold events of users who cannot be emailed. An older
    /// version did not count those.
    pub fn is_blocked(&self) -> bool {
        self.is_clear() && self.blocked.is_none_or(|blocked| !blocked.is_nothing())
    }

    /// Whether nothing is left that could expire.
    pub fn is_settled(&self) -> bool {
        self.is_clear() && self.blocked.is_none_or(|blocked| blocked.is_nothing())
    }
}

/// What people were owed of days that had left the window, when a run last looked at everybody.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct LastLook {
    /// When a run found it so; runs that find the same amount later do not move it.
    pub at: DateTime<Utc>,
    /// Of all those days together.
    #[serde(flatten)]
    pub owed: Owed,
    /// The same for users who may not be emailed at the moment.
    #[serde(default)]
    pub blocked: Owed,
}

/// Which days count for digests: those of the window, and before them those that are not too old.
#[derive(Debug, Clone)]
pub struct DaysRead {
    /// The days that feeds show as well.
    pub window: Window,
    /// The first day of which events are still mailed.
    pub first: Day,
}

impl DaysRead {
    /// What counts at this moment; `window_back` is in days before today.
    pub fn of(now: DateTime<Utc>, window_back: u32, max_age: TimeDelta) -> Self {
        let window = Window::ending(Day::of(now), window_back);
        let first = Day::of(now - max_age).min(window.first());
        Self { window, first }
    }

    /// Whether the day has left the window, and its events are mailed all the same.
    pub fn is_older(&self, day: Day) -> bool {
        self.first <= day && day < self.window.first()
    }

    /// Whether what is owed of the day is given up.
    pub fn is_too_old(&self, day: Day) -> bool {
        day < self.first
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_is_in_the_window_or_older_or_too_old() {
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
            let told = (days.is_older(day(text)), days.is_too_old(day(text)));
            assert_eq!(told, (older, too_old), "{text}");
        }
    }

    #[test]
    fn a_window_longer_than_the_longest_age_leaves_no_older_days() {
        let now = "2014-04-22T12:00:00Z".parse().unwrap();
        let days = DaysRead::of(now, 60, TimeDelta::days(30));

        assert_eq!(days.first, days.window.first());
    }

    #[test]
    fn a_note_comes_back_as_written_and_what_is_none_says_nothing() {
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
