//! Quiet hours: a daily interval in a user's time zone in which no batch closes (P7).
//!
//! A batch that is due within quiet hours closes when they end. Clock changes never shorten a
//! night: a skipped start or end moves to the next local time that exists. A repeated start counts
//! at its first occurrence, a repeated end at its last. Start with [`Quiet::ends`].

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, LocalResult, NaiveDateTime, NaiveTime, TimeDelta, TimeZone, Timelike, Utc};
use chrono_tz::Tz;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

use super::name::Invalid;

/// A time of day with minute precision, such as `22:00`.
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

/// Quiet hours, the same every day. If `to` is not later than `from`, they end on the next day.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "Told")]
pub struct Quiet {
    from: TimeOfDay,
    to: TimeOfDay,
}

/// The JSON form, before validation.
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
    /// Rejects equal times, which could mean both no quiet hours and the whole day.
    pub fn new(from: TimeOfDay, to: TimeOfDay) -> Result<Self, Invalid> {
        if from == to {
            let why = "is where they begin as well; for no quiet hours, set null";
            return Err(Invalid::new("the end of quiet hours", to, why));
        }
        Ok(Self { from, to })
    }

    /// The local time at which they start.
    pub fn from(self) -> TimeOfDay {
        self.from
    }

    /// The local time at which they end.
    pub fn to(self) -> TimeOfDay {
        self.to
    }

    /// Returns the end of the quiet hours in progress at `at`, or `None` outside quiet hours.
    pub fn ends(self, at: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        let mut ends = self.night_ends(at, tz)?;
        // Where the clock skips a day, the next quiet hours may start at that very moment.
        while let Some(later) = self.night_ends(ends, tz) {
            ends = later;
        }
        Some(ends)
    }

    fn night_ends(self, at: DateTime<Utc>, tz: Tz) -> Option<DateTime<Utc>> {
        let today = at.with_timezone(&tz).date_naive();
        // They may have started the evening before, and a clock change may move midnight.
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

/// Returns the first and last moment of a local time, or of the next one if it is skipped.
fn moments(local: NaiveDateTime, tz: Tz) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    // Time zones have skipped up to a whole day (Samoa, 30 December 2011).
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
