//! Computes when digests are due: daily or weekly, at an hour of the user's time zone.
//!
//! A period is named by its local date (`2014-04-22`) or ISO week (`2014-W17`). Each day or week
//! therefore has one digest, even if daylight saving or a new time zone shifts the clock (P2). If
//! the clock skips the hour, the digest is due at the first moment after it. If the hour occurs
//! twice, the first counts.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{
    DateTime, Datelike, Days, LocalResult, NaiveDate, NaiveDateTime, NaiveTime, TimeDelta,
    TimeZone, Utc, Weekday,
};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::name::named_enum;

/// The time between two searches for due digests. They are due on whole local hours, and time zones
/// differ by multiples of this.
pub const SCAN_INTERVAL: TimeDelta = TimeDelta::minutes(15);

named_enum! {
    /// How often a user gets a digest.
    Cadence("cadence") {
        /// No digest.
        Never = "never",
        /// One per local day, at the chosen hour.
        Daily = "daily",
        /// One per ISO week, on the chosen weekday and hour.
        Weekly = "weekly",
    }
}

/// A period, with the moment at which its digest becomes due.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DuePeriod {
    /// The start of the local hour. If the clock skips that hour, the first moment after it.
    pub at: DateTime<Utc>,
    /// The period of the digest, which is part of the delivery id: the local date on which it is
    /// due, or the ISO week (ISO 8601, weeks start on Monday). A user gets at most one digest of a
    /// cadence per period.
    pub period: String,
}

/// A user's schedule for digests.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Schedule {
    /// How often. With [`Cadence::Never`] no digest is due.
    pub cadence: Cadence,
    /// The day of weekly digests, `mon` to `sun` in JSON.
    #[serde(serialize_with = "super::durations_and_times::write_weekday")]
    pub weekday: Weekday,
    /// The local hour, 0 to 23.
    pub hour: u8,
    /// The time zone of hour, weekday and dates.
    #[serde(skip)]
    pub tz: Tz,
}

/// The dates that can contain the last due time: a week, and a day on each side, because a change
/// of the clock can move a due time across midnight.
const DATES_BACK: usize = 9;
/// The dates of which a schedule announces the due times: two weeks, and a day on each side.
const DATES_AHEAD: usize = 17;

impl Schedule {
    /// Returns the latest period that was due at `now` or before.
    pub fn last_due(&self, now: DateTime<Utc>) -> Option<DuePeriod> {
        let today = now.with_timezone(&self.tz).date_naive();
        let tomorrow = today.checked_add_days(Days::new(1))?;
        let dates = std::iter::successors(Some(tomorrow), |date| date.pred_opt());
        dates.take(DATES_BACK).filter_map(|date| self.due_on(date)).find(|due| due.at <= now)
    }

    /// Returns the first period that becomes due after `now`.
    pub fn next_due(&self, now: DateTime<Utc>) -> Option<DuePeriod> {
        self.dues_after(now).next()
    }

    /// Returns the periods that become due after `now`, for at least 14 days.
    pub fn dues_after(&self, now: DateTime<Utc>) -> impl Iterator<Item = DuePeriod> + '_ {
        let today = now.with_timezone(&self.tz).date_naive();
        let yesterday = today.checked_sub_days(Days::new(1));
        let dates = yesterday.into_iter().flat_map(|date| date.iter_days().take(DATES_AHEAD));
        dates.filter_map(|date| self.due_on(date)).filter(move |due| due.at > now)
    }

    /// Returns the period that is due on this local date, if there is one.
    pub(super) fn due_on(&self, date: NaiveDate) -> Option<DuePeriod> {
        let period = match self.cadence {
            Cadence::Daily => date.to_string(),
            Cadence::Weekly if date.weekday() == self.weekday => date.format("%G-W%V").to_string(),
            Cadence::Weekly | Cadence::Never => return None,
        };
        let hour = NaiveTime::from_hms_opt(self.hour.into(), 0, 0)?;
        let (at, _) = moments(date.and_time(hour), self.tz)?;
        Some(DuePeriod { at, period })
    }
}

/// Returns the first and last moment of a local time, or of the next one if it is skipped.
pub(super) fn moments(local: NaiveDateTime, tz: Tz) -> Option<(DateTime<Utc>, DateTime<Utc>)> {
    // Time zones have skipped up to a whole day (Samoa, 30 December 2011).
    let delays = (0..=25 * 60).map(TimeDelta::minutes);
    let mut times = delays.filter_map(|delay| local.checked_add_signed(delay));
    times.find_map(|local| match tz.from_local_datetime(&local) {
        LocalResult::Single(time) => Some((time.to_utc(), time.to_utc())),
        LocalResult::Ambiguous(first, last) => Some((first.to_utc(), last.to_utc())),
        LocalResult::None => None,
    })
}

/// The preferences of a set of due users. A user matches if each field contains the stored choice;
/// `None` means that the user chose nothing.
///
/// There is only one hour, because a store scans one index range per combination and can merge only
/// a limited number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueUserFilter {
    /// The time zone.
    pub tz: Option<Tz>,
    /// The cadences.
    pub cadences: Vec<Option<Cadence>>,
    /// The weekdays.
    pub weekdays: Vec<Option<Weekday>>,
    /// The local hour.
    pub hour: Option<u8>,
}

/// The digest settings for users who chose nothing.
#[derive(Debug, Clone, Copy)]
pub struct DigestDefaults {
    /// The schedule for users who chose nothing.
    pub schedule: Schedule,
    /// Whether users who want no digest get one with mandatory events, at the default cadence.
    pub sends_mandatory: bool,
}

/// The progress of the search for due digests, stored as a note. A tick is a search that reads only
/// users who became due since the last one; a full scan reads all users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct DigestScanProgress {
    /// The time up to which users who were due have been processed, with all events from before it.
    pub due: DateTime<Utc>,
    /// The time of the last full scan.
    #[serde(rename = "all")]
    pub last_full_scan: DateTime<Utc>,
    /// The defaults at that time, as from [`DigestDefaults::summary`].
    #[serde(rename = "common")]
    pub defaults_summary: String,
}

impl DigestScanProgress {
    /// The name of the note.
    pub const NOTE: &str = "digest-ticks";

    /// Parses the note. Returns `None` if a full scan is needed. That is so if the note is
    /// unreadable or in the future, the defaults have changed, or the interval `full_scan` has
    /// passed.
    pub fn parse(
        text: &str,
        defaults: &DigestDefaults,
        full_scan: TimeDelta,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let progress: Self = serde_json::from_str(text).ok()?;
        // A clock that was ahead may have written the note.
        let is_past = progress.due <= now && progress.last_full_scan <= now;
        // Scans are not exact to the second.
        let is_full_scan_due = now - progress.last_full_scan >= full_scan - SCAN_INTERVAL / 2;
        let is_usable = is_past && progress.defaults_summary == defaults.summary();
        (is_usable && !is_full_scan_due).then_some(progress)
    }
}

const WEEK: [Weekday; 7] = {
    use Weekday::{Fri, Mon, Sat, Sun, Thu, Tue, Wed};
    [Mon, Tue, Wed, Thu, Fri, Sat, Sun]
};

impl DueUserFilter {
    /// Returns the preferences of users in this zone, or without one, who become due after `after`
    /// and no later than `until`. No user matches two results.
    pub fn due_between(
        tz: Option<Tz>,
        common: &DigestDefaults,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Vec<Self> {
        let mut hours_by_weekday: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
        for (weekday, hour) in local_hours(tz.unwrap_or(common.schedule.tz), after, until) {
            let number = weekday.num_days_from_monday() as u8;
            hours_by_weekday.entry(number).or_default().insert(hour);
        }
        let mut found = Vec::new();
        let mut add = |cadence, weekdays: &[Option<Weekday>], hours: &BTreeSet<u8>| {
            let unchosen = hours.contains(&common.schedule.hour).then_some(None);
            found.extend(hours.iter().copied().map(Some).chain(unchosen).map(|hour| Self {
                tz,
                cadences: common.choices_for(cadence),
                weekdays: weekdays.to_vec(),
                hour,
            }));
        };
        for (number, hours) in &hours_by_weekday {
            let weekday = WEEK[usize::from(*number)];
            let is_default = weekday == common.schedule.weekday;
            let weekdays = [Some(weekday), None];
            add(Cadence::Weekly, if is_default { &weekdays[..] } else { &weekdays[..1] }, hours);
        }
        let any_weekday: Vec<_> = WEEK.into_iter().map(Some).chain([None]).collect();
        let all_hours: BTreeSet<u8> = hours_by_weekday.values().flatten().copied().collect();
        add(Cadence::Daily, &any_weekday, &all_hours);
        found
    }
}

impl DigestDefaults {
    /// Returns a text for comparing two sets of defaults.
    pub fn summary(&self) -> String {
        let Schedule { cadence, weekday, hour, tz } = self.schedule;
        format!("{cadence} {weekday} {hour} {tz} {}", self.sends_mandatory)
    }

    /// Returns the choices that lead to a digest of this cadence.
    fn choices_for(&self, cadence: Cadence) -> Vec<Option<Cadence>> {
        let mut choices = vec![Some(cadence)];
        if cadence == self.schedule.cadence {
            choices.push(None);
            choices.extend(self.sends_mandatory.then_some(Some(Cadence::Never)));
        }
        choices
    }
}

/// Returns the local hours, with their weekdays, that start after `after` and no later than
/// `until`.
fn local_hours(
    tz: Tz,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
) -> impl Iterator<Item = (Weekday, u8)> {
    let date = |moment: DateTime<Utc>| moment.with_timezone(&tz).date_naive();
    // An hour that the clock skips at the end of a day is due on the next day.
    let first = date(after).checked_sub_days(Days::new(2)).unwrap_or_default();
    let last = date(until);
    first.iter_days().take_while(move |date| *date <= last).flat_map(move |date| {
        (0..24).filter_map(move |hour| {
            let schedule = Schedule { cadence: Cadence::Daily, weekday: date.weekday(), hour, tz };
            let due = schedule.due_on(date)?.at;
            (after < due && due <= until).then_some((date.weekday(), hour))
        })
    })
}

#[cfg(test)]
#[path = "schedule_tests.rs"]
mod tests;
