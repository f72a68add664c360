//! When a digest falls due: daily at an hour, weekly on a weekday and hour, in the person's own
//! time zone.
//!
//! The rule (P2): a period is named by the local date on which it falls due (`2014-04-22`,
//! `2014-W17`), so there is one a local day or ISO week, whatever daylight saving or a change of
//! zone does to the clock. An hour that a clock change skips falls due at the first moment after
//! it; one that occurs twice, at the first.

use std::fmt;
use std::str::FromStr;

use chrono::{
    DateTime, Datelike, Days, LocalResult, NaiveDate, NaiveTime, TimeDelta, TimeZone, Utc, Weekday,
};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::name::Invalid;

/// How often.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Cadence {
    /// No digest at all.
    Never,
    /// One each local day, at the chosen hour.
    Daily,
    /// One each ISO week, on the chosen weekday and hour.
    Weekly,
}

impl Cadence {
    /// The name in the store, in JSON and in delivery ids.
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

/// A local day or ISO week (ISO 8601, weeks begin on Monday): the name under which a digest can be
/// sent once.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Period {
    /// Of a daily digest: the local date on which it falls due.
    Day(NaiveDate),
    /// Of a weekly digest: the ISO week in which it falls due.
    Week {
        /// The year of the ISO week; around New Year it is not always the calendar's.
        year: i32,
        /// 1 to 53.
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

/// A period and the moment from which its digest may be sent.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Due {
    /// The first moment of the local hour; where the clock skips that hour, the first one after it.
    pub at: DateTime<Utc>,
    /// What the digest is for; it becomes part of the delivery's id.
    pub period: Period,
    /// The local date it falls on.
    pub date: NaiveDate,
}

/// When a person's digest falls due.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Schedule {
    /// With [`Cadence::Never`] nothing ever falls due.
    pub cadence: Cadence,
    /// For weekly digests.
    pub weekday: Weekday,
    /// Local hour, 0 to 23.
    pub hour: u8,
    /// The zone in which hour, weekday and dates are meant.
    pub tz: Tz,
}

impl Schedule {
    /// The latest period that has fallen due by now.
    pub fn last_due(&self, now: DateTime<Utc>) -> Option<Due> {
        let today = now.with_timezone(&self.tz).date_naive();
        let from = today.checked_add_days(Days::new(1))?;
        from.iter_back(9)
            .filter_map(|date| self.due_on(date))
            .find(|due| due.at <= now)
    }

    /// The next period that falls due after now.
    pub fn next_due(&self, now: DateTime<Utc>) -> Option<Due> {
        self.dues_after(now).next()
    }

    /// The periods that fall due after now, in two weeks.
    pub fn dues_after(&self, now: DateTime<Utc>) -> impl Iterator<Item = Due> + '_ {
        let today = now.with_timezone(&self.tz).date_naive();
        let from = today.checked_sub_days(Days::new(1));
        let dates = from.into_iter().flat_map(|from| from.iter_days().take(17));
        let dues = dates.filter_map(|date| self.due_on(date));
        dues.filter(move |due| due.at > now)
    }

    /// The period that falls due on this local date, if one does.
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

    /// The moment of the local hour on that date.
    fn moment(&self, date: NaiveDate) -> Option<DateTime<Utc>> {
        let wanted = date.and_time(NaiveTime::from_hms_opt(u32::from(self.hour), 0, 0)?);
        // Zones have skipped up to a whole day (Samoa, 30 December 2011).
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

/// Dates going back from one.
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
