//! A person's quiet hours: no batch of theirs closes while they last, in their own zone.
//!
//! The rule (P7): what would close within them closes when they end. They begin and end by the
//! local clock: where an hour is skipped, what was to happen in it happens when it would have
//! begun, and of an hour that comes twice the quiet ones last from its first beginning to its last
//! end. So on no night are they cut short by a clock that is set.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, LocalResult, NaiveDateTime, NaiveTime, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::name::Invalid;

/// A time of the day, to the minute: `22:00`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct TimeOfDay(NaiveTime);

impl FromStr for TimeOfDay {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("time of day", text, "is not 00:00 to 23:59");
        let digit = |(place, byte): (usize, u8)| match place {
            2 => byte == b':',
            _ => byte.is_ascii_digit(),
        };
        let is_plain = text.len() == 5 && text.bytes().enumerate().all(digit);
        let time = NaiveTime::parse_from_str(text, "%H:%M").ok();
        time.filter(|_| is_plain).map(Self).ok_or_else(refuse)
    }
}

impl fmt::Display for TimeOfDay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:02}:{:02}", self.0.hour(), self.0.minute())
    }
}

impl Serialize for TimeOfDay {
    fn serialize<S: Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        to.collect_str(self)
    }
}

impl<'de> Deserialize<'de> for TimeOfDay {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<Self, D::Error> {
        let text = String::deserialize(from)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// From when to when, every day; where the end is no later than the beginning, until the day after.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Told")]
pub struct Quiet {
    from: TimeOfDay,
    to: TimeOfDay,
}

/// As they are handed in.
#[derive(Deserialize)]
#[serde(deny_unknown_fields, expecting = "an object with from and to")]
struct Told {
    from: TimeOfDay,
    to: TimeOfDay,
}

impl TryFrom<Told> for Quiet {
    type Error = Invalid;

    fn try_from(told: Told) -> Result<Self, Invalid> {
        Self::new(told.from, told.to)
    }
}

impl Quiet {
    /// Refuses hours that end where they begin: nothing would ever leave, or everything.
    pub fn new(from: TimeOfDay, to: TimeOfDay) -> Result<Self, Invalid> {
        if from == to {
            let why = "is where they begin as well; for no quiet hours, set null";
            return Err(Invalid::new("the end of quiet hours", to, why));
        }
        Ok(Self { from, to })
    }

    /// When they begin.
    pub fn from(self) -> TimeOfDay {
        self.from
    }

    /// When they end.
    pub fn to(self) -> TimeOfDay {
        self.to
    }

    /// When the quiet hours end that last at this moment; `None` where none do.
    pub fn ends(self, at: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        let mut ends = self.night_ends(at, tz)?;
        // Where a day is skipped, the next ones may begin right then.
        while let Some(later) = self.night_ends(ends, tz) {
            ends = later;
        }
        Some(ends)
    }

    fn night_ends(self, at: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        let today = at.with_timezone(&tz).date_naive();
        // They may have begun the evening before, and a clock that is set may move midnight.
        let days = [-1, 0, 1].into_iter();
        let nights = days.filter_map(|days| {
            let begins = today.checked_add_signed(TimeDelta::days(days))?;
            let ends = match self.to > self.from {
                true => begins,
                false => begins.succ_opt()?,
            };
            let (begins, _) = moments(begins.and_time(self.from.0), tz)?;
            let (_, ends) = moments(ends.and_time(self.to.0), tz)?;
            (begins <= at && at < ends).then_some(ends)
        });
        nights.max()
    }
}

/// The first and the last moment of a local time; where it is skipped, when the clock is set.
fn moments(local: NaiveDateTime, tz: Tz) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    // Zones have skipped up to a whole day (Samoa, 30 December 2011).
    let minutes = (0..=25 * 60).map(TimeDelta::minutes);
    let mut later = minutes.filter_map(|minutes| local.checked_add_signed(minutes));
    later.find_map(|local| match tz.from_local_datetime(&local) {
        LocalResult::Single(time) => Some((time.to_utc(), time.to_utc())),
        LocalResult::Ambiguous(first, last) => Some((first.to_utc(), last.to_utc())),
        LocalResult::None => None,
    })
}

#[cfg(test)]
#[path = "quiet_tests.rs"]
mod tests;
