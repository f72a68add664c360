//! UTC days, their collections, and windows of days.
//!
//! A day is written `20140422` in names and cursors. By default the window is today and the 7 days
//! before it. Feeds show the days in the window. Digests also include the backlog of earlier days,
//! up to `digest.max_age` ([`super::owed`]).

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use chrono::{DateTime, Datelike, Days, NaiveDate, Utc};

use super::name::Invalid;

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

    /// Returns the day; `None` if the date does not exist or its year is not 1 to 9999.
    pub fn from_ymd(year: i32, month: u32, day: u32) -> Option<Self> {
        NaiveDate::from_ymd_opt(year, month, day)
            .filter(|date| (1..=9999).contains(&date.year()))
            .map(Self)
    }

    /// Returns the day `n` days earlier, or the first day of the calendar.
    pub fn back(self, n: u32) -> Self {
        Self(
            self.0
                .checked_sub_days(Days::new(u64::from(n)))
                .unwrap_or(NaiveDate::MIN),
        )
    }

    /// Returns the day `n` days later, or the last day of the calendar.
    pub fn ahead(self, n: u32) -> Self {
        Self(
            self.0
                .checked_add_days(Days::new(u64::from(n)))
                .unwrap_or(NaiveDate::MAX),
        )
    }

    /// Returns the midnight at which the day starts.
    pub fn start(self) -> DateTime<Utc> {
        self.0.and_time(chrono::NaiveTime::MIN).and_utc()
    }

    /// Returns the name of the day's collection, such as `notifications_20140422`.
    pub fn collection(self) -> String {
        format!("{COLLECTION_PREFIX}{self}")
    }

    /// Returns the day of a collection; `None` if the name is not that of a day collection.
    pub fn of_collection(name: &str) -> Option<Self> {
        name.strip_prefix(COLLECTION_PREFIX)?.parse().ok()
    }
}

impl fmt::Display for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(
            f,
            "{:04}{:02}{:02}",
            self.0.year(),
            self.0.month(),
            self.0.day()
        )
    }
}

impl fmt::Debug for Day {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

impl FromStr for Day {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let refuse = || Invalid::new("day", text, "is not a date written as YYYYMMDD");
        if text.len() != 8 || !text.bytes().all(|b| b.is_ascii_digit()) {
            return Err(refuse());
        }
        let number =
            |range: std::ops::Range<usize>| text[range].parse::<u32>().map_err(|_| refuse());
        Self::from_ymd(number(0..4)? as i32, number(4..6)?, number(6..8)?).ok_or_else(refuse)
    }
}

impl serde::Serialize for Day {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

impl<'de> serde::Deserialize<'de> for Day {
    fn deserialize<D: serde::Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let text = <std::borrow::Cow<'de, str>>::deserialize(deserializer)?;
        text.parse().map_err(serde::de::Error::custom)
    }
}

/// A set of days, oldest first: at least one, without duplicates. It may have gaps.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Window(Arc<[Day]>);

impl Window {
    /// The default number of days before the last one.
    pub const DEFAULT_BACK: u32 = 7;

    /// Returns the window of `last` and the `back` days before it.
    pub fn ending(last: Day, back: u32) -> Self {
        let mut days: Vec<Day> = (0..=back).rev().map(|n| last.back(n)).collect();
        days.dedup();
        Self(days.into())
    }

    /// Returns the window from `first` to `last`; only `last` if `first` is later.
    pub fn between(first: Day, last: Day) -> Self {
        let back = (last.0 - first.0).num_days().clamp(0, 100_000);
        Self::ending(last, back as u32)
    }

    /// Returns the window of exactly these days; `None` if there are none.
    pub fn of(days: impl IntoIterator<Item = Day>) -> Option<Self> {
        let mut days: Vec<Day> = days.into_iter().collect();
        days.sort_unstable();
        days.dedup();
        (!days.is_empty()).then(|| Self(days.into()))
    }

    /// Returns this window extended by more days, in any position.
    pub fn with(&self, more: impl IntoIterator<Item = Day>) -> Self {
        Self::of(more.into_iter().chain(self.days())).unwrap_or_else(|| self.clone())
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_is_a_day_and_the_seven_days_before_it() {
        let window = Window::ending(Day::from_ymd(2014, 3, 3).unwrap(), Window::DEFAULT_BACK);
        let days: Vec<_> = window.days().map(|day| day.to_string()).collect();
        assert_eq!(days.len(), 8);
        assert_eq!(days.first().unwrap(), "20140224");
        assert_eq!(days.last().unwrap(), "20140303");
        assert!(!window.contains(Day::from_ymd(2014, 2, 23).unwrap()));
    }

    #[test]
    fn midnight_belongs_to_the_following_day() {
        let midnight = Day::from_ymd(2014, 4, 22).unwrap().start();
        assert_eq!(Day::of(midnight).to_string(), "20140422");
        assert_eq!(
            Day::of(midnight - chrono::TimeDelta::nanoseconds(1)).to_string(),
            "20140421"
        );
    }

    #[test]
    fn only_day_collections_have_a_day() {
        assert!(Day::of_collection("notifications_20140422").is_some());
        for name in [
            "notifications_20140432",
            "notifications_2014042",
            "notifications_+2014042",
            "users",
            "x_20140422",
        ] {
            assert_eq!(Day::of_collection(name), None, "{name}");
        }
    }

    proptest::proptest! {
        #[test]
        fn a_day_round_trips(n in 0u32..2_000_000) {
            let day = Day::from_ymd(1, 1, 1).unwrap().ahead(n);
            proptest::prop_assert_eq!(day.to_string().parse::<Day>().unwrap(), day);
            proptest::prop_assert_eq!(Day::of_collection(&day.collection()), Some(day));
        }
    }
}
