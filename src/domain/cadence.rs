//! Computes when digests are due: daily or weekly, at an hour of the user's time zone.
//!
//! A period is named by its local date (`2014-04-22`) or ISO week (`2014-W17`). Each day or week
//! therefore has one digest, even if daylight saving or a new time zone shifts the clock (P2). If
//! the clock skips the hour, the digest is due at the first moment after it. If the hour occurs
//! twice, the first counts.

use std::fmt;
use std::str::FromStr;

use chrono::{
    DateTime, Datelike, Days, LocalResult, NaiveDate, NaiveTime, TimeDelta, TimeZone, Utc, Weekday,
};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::name::Invalid;

/// How often a user gets a digest.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cadence {
    /// No digest.
    Never,
    /// One per local day, at the chosen hour.
    Daily,
    /// One per ISO week, on the chosen weekday and hour.
    Weekly,
}

impl Cadence {
    /// Returns the name in the store, in JSON and in delivery ids.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Never => "never",
            Self::Daily => "daily",
            Self::Weekly => "weekly",
        }
    }
}

impl fmt::Display for Cadence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Cadence {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "never" => Ok(Self::Never),
            "daily" => Ok(Self::Daily),
            "weekly" => Ok(Self::Weekly),
            _ => Err(Invalid::new(
                "cadence",
                text,
                "is not never, daily or weekly",
            )),
        }
    }
}

/// A local day or ISO week (ISO 8601, weeks start on Monday). A user gets at most one digest of a
/// cadence per period.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Period {
    /// A day of a daily digest: the local date on which it is due.
    Day(NaiveDate),
    /// A week of a weekly digest: the ISO week in which it is due.
    Week {
        /// The year of the ISO week. Around New Year it can differ from the calendar year.
        year: i32,
        /// The number of the week, 1 to 53.
        week: u32,
    },
}

impl fmt::Display for Period {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Day(date) => write!(f, "{date}"),
            Self::Week { year, week } => write!(f, "{year:04}-W{week:02}"),
        }
    }
}

/// A period, with the moment at which its digest becomes due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The start of the local hour. If the clock skips that hour, the first moment after it.
    pub at: DateTime<Utc>,
    /// The period of the digest, which is part of the delivery id.
    pub period: Period,
    /// The local date on which the digest is due.
    pub date: NaiveDate,
}

/// A user's schedule for digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// How often. With [`Cadence::Never`] no digest is due.
    pub cadence: Cadence,
    /// The day of weekly digests.
    pub weekday: Weekday,
    /// The local hour, 0 to 23.
    pub hour: u8,
    /// The time zone of hour, weekday and dates.
    pub tz: Tz,
}

impl Schedule {
    /// Returns the latest period that was due at `now` or before.
    pub fn last_due(&self, now: DateTime<Utc>) -> Option<Due> {
        let today = now.with_timezone(&self.tz).date_naive();
        let from = today.checked_add_days(Days::new(1))?;
        from.iter_back(9)
            .filter_map(|date| self.due_on(date))
            .find(|due| due.at <= now)
    }

    /// Returns the first period that becomes due after `now`.
    pub fn next_due(&self, now: DateTime<Utc>) -> Option<Due> {
        self.dues_after(now).next()
    }

    /// Returns the periods that become due after `now`, for at least 14 days.
    pub fn dues_after(&self, now: DateTime<Utc>) -> impl Iterator<Item = Due> + '_ {
        let today = now.with_timezone(&self.tz).date_naive();
        let from = today.checked_sub_days(Days::new(1));
        let dates = from.into_iter().flat_map(|from| from.iter_days().take(17));
        let dues = dates.filter_map(|date| self.due_on(date));
        dues.filter(move |due| due.at > now)
    }

    /// Returns the period that is due on this local date, if there is one.
    pub(super) fn due_on(&self, date: NaiveDate) -> Option<Due> {
        let period = match self.cadence {
            Cadence::Never => return None,
            Cadence::Daily => Period::Day(date),
            Cadence::Weekly if date.weekday() == self.weekday => {
                let week = date.iso_week();
                Period::Week {
                    year: week.year(),
                    week: week.week(),
                }
            }
            Cadence::Weekly => return None,
        };
        Some(Due {
            at: self.moment(date)?,
            period,
            date,
        })
    }

    /// Returns the moment at which the hour starts on this date.
    fn moment(&self, date: NaiveDate) -> Option<DateTime<Utc>> {
        let wanted = date.and_time(NaiveTime::from_hms_opt(u32::from(self.hour), 0, 0)?);
        // Time zones have skipped up to a whole day (Samoa, 30 December 2011).
        (0..=25 * 4).find_map(|quarters| {
            match self
                .tz
                .from_local_datetime(&(wanted + TimeDelta::minutes(15 * quarters)))
            {
                LocalResult::Single(time) | LocalResult::Ambiguous(time, _) => {
                    Some(time.with_timezone(&Utc))
                }
                LocalResult::None => None,
            }
        })
    }
}

/// Iterates backwards over dates.
trait IterBack {
    fn iter_back(self, count: usize) -> impl Iterator<Item = NaiveDate>;
}

impl IterBack for NaiveDate {
    fn iter_back(self, count: usize) -> impl Iterator<Item = NaiveDate> {
        std::iter::successors(Some(self), |date| date.pred_opt()).take(count)
    }
}

#[cfg(test)]
#[path = "cadence_tests.rs"]
mod tests;
