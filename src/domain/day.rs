//! Days in UTC, windows of days, and the times that events may have.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Datelike, Days, NaiveDate, SecondsFormat, TimeDelta, Utc};

use super::audience::distinct;
use super::name::{InvalidKind, InvalidValue, debug_as_text, serde_as_text};

/// A UTC day. Parsed days are in the years 1 to 9999.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Day(NaiveDate);

/// The prefix of the names of day collections and tables. Eight digits follow.
pub const COLLECTION_PREFIX: &str = "notifications_";

impl Day {
    /// Returns the UTC day that contains this moment.
    pub fn of(time: DateTime<Utc>) -> Self {
        Self(time.date_naive())
    }

    /// Returns the day `n` days earlier, or the first day of the calendar.
    pub fn days_before(self, n: u32) -> Self {
        let day = self.0.checked_sub_days(Days::new(n.into()));
        Self(day.unwrap_or(NaiveDate::MIN))
    }

    /// Returns the midnight at which the day starts.
    pub fn start(self) -> DateTime<Utc> {
        self.0.and_time(chrono::NaiveTime::MIN).and_utc()
    }

    /// Returns the name of the day's collection, such as `notifications_20140422`.
    pub fn collection_name(self) -> String {
        format!("{COLLECTION_PREFIX}{self}")
    }

    /// Returns the day of a collection; `None` if the name is not that of a day collection.
    pub fn from_collection(name: &str) -> Option<Self> {
        name.strip_prefix(COLLECTION_PREFIX)?.parse().ok()
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (year, month, day) = (self.0.year(), self.0.month(), self.0.day());
        write!(f, "{year:04}{month:02}{day:02}")
    }
}

debug_as_text!(Day);

serde_as_text!(Day);

impl FromStr for Day {
    type Err = InvalidValue;

    fn from_str(text: &str) -> Result<Self, InvalidValue> {
        let refuse = || InvalidValue::new("day", text, "is not a date written as YYYYMMDD");
        if text.len() != 8 || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse());
        }
        let date = NaiveDate::parse_from_str(text, "%Y%m%d").ok();
        date.filter(|date| date.year() > 0).map(Self).ok_or_else(refuse)
    }
}

/// A set of days, oldest first: at least one, without duplicates. It may have gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DaySet(Arc<[Day]>);

impl DaySet {
    /// Returns the window of `last` and the `back` days before it.
    pub fn ending(last: Day, back: u32) -> Self {
        let mut days: Vec<Day> = (0..=back).rev().map(|n| last.days_before(n)).collect();
        days.dedup();
        Self(days.into())
    }

    /// Returns the window from `first` to `last`; only `last` if `first` is later.
    pub fn between(first: Day, last: Day) -> Self {
        let back = (last.0 - first.0).num_days().clamp(0, 100_000);
        Self::ending(last, back as u32)
    }

    /// Returns the window of exactly these days; `None` if there are none.
    pub fn from_days(days: impl IntoIterator<Item = Day>) -> Option<Self> {
        let sorted = distinct(days);
        (!sorted.is_empty()).then(|| Self(sorted.into()))
    }

    /// Returns this window extended by more days, in any position.
    pub fn extended_by(&self, more: impl IntoIterator<Item = Day>) -> Self {
        Self::from_days(more.into_iter().chain(self.days())).unwrap_or_else(|| self.clone())
    }

    /// Returns the oldest day.
    pub fn first(&self) -> Day {
        self.0[0]
    }

    /// Returns the newest day.
    pub fn last(&self) -> Day {
        self.0[self.0.len() - 1]
    }

    /// Returns whether the day is in the window.
    pub fn contains(&self, day: Day) -> bool {
        self.0.binary_search(&day).is_ok()
    }

    /// Returns the days, oldest first.
    pub fn days(&self) -> impl DoubleEndedIterator<Item = Day> + '_ {
        self.0.iter().copied()
    }
}

/// The tolerance for a writer's clock that is fast.
pub const MAX_CLOCK_SKEW: TimeDelta = TimeDelta::minutes(5);

/// Checks that an event that arrives at `now` may have the time `at`. `window_back` is in days
/// before today.
///
/// # Errors
///
/// Names the accepted range, and suggests a unit if seconds and milliseconds were swapped.
pub fn check_event_time(
    at: DateTime<Utc>,
    now: DateTime<Utc>,
    window_back: u32,
) -> Result<(), InvalidValue> {
    let earliest = Day::of(now).days_before(window_back).start();
    let latest = now + MAX_CLOCK_SKEW;
    let is_accepted = |time: DateTime<Utc>| earliest <= time && time <= latest;
    if is_accepted(at) {
        return Ok(());
    }
    let problem = if at < earliest {
        "lies before the window, so it would not be shown or emailed"
    } else {
        "lies in the future"
    };
    let fits = |millis| DateTime::from_timestamp_millis(millis).is_some_and(is_accepted);
    let millis = at.timestamp_millis();
    let hint = if millis.checked_mul(1_000).is_some_and(fits) {
        " (was a number of seconds read as milliseconds?)"
    } else if fits(millis / 1_000) {
        " (was a number of milliseconds read as seconds?)"
    } else {
        ""
    };
    let bound = |time: DateTime<Utc>| time.to_rfc3339_opts(SecondsFormat::Secs, true);
    let why = format!(
        "{problem}; events can be of {} to {}: give the time in UTC or with its offset, or leave \
         the time out where it happens now{hint}",
        bound(earliest),
        bound(latest),
    );
    let value = at.to_rfc3339_opts(SecondsFormat::AutoSi, true);
    Err(InvalidValue::new("time", value, why).with_kind(InvalidKind::Time))
}

#[cfg(test)]
#[path = "day_tests.rs"]
mod tests;
