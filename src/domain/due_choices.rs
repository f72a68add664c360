//! Selects the users whose digests become due between two moments, by their preferences.
//!
//! Users with the same zone, cadence, weekday and hour are due together. A store that indexes these
//! preferences therefore reads only the users who are due.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Datelike, Days, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::cadence::{Cadence, Schedule};
use super::lease::TICK;

/// The preferences of a set of due users. A user matches if each field contains the stored choice;
/// `None` means that the user chose nothing.
///
/// There is only one hour, because a store scans one index range per combination and can merge only
/// a limited number.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueChoices {
    /// The time zone.
    pub tz: Option<Tz>,
    /// The cadences.
    pub cadences: Vec<Option<Cadence>>,
    /// The weekdays.
    pub weekdays: Vec<Option<Weekday>>,
    /// The local hour.
    pub hour: Option<u8>,
}

/// The settings that apply to all users.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    /// The schedule for users who chose nothing.
    pub schedule: Schedule,
    /// Whether users who want no digest get one with mandatory events, at the default cadence.
    pub mandatory: bool,
}

/// The progress of the search for due digests, stored as a note. A tick is a search that reads only
/// users who became due since the last one; a full scan reads all users.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticks {
    /// The time up to which users who were due have been processed, with all events from before it.
    pub due: DateTime<Utc>,
    /// The time of the last full scan.
    pub all: DateTime<Utc>,
    /// The defaults at that time, as from [`Common::told`].
    pub common: String,
}

impl Ticks {
    /// The name of the note.
    pub const NOTE: &str = "digest-ticks";

    /// Parses the note. Returns `None` if a full scan is needed. That is so if the note is
    /// unreadable or in the future, the defaults have changed, or the interval `full_look` has
    /// passed.
    pub fn read(
        text: &str,
        common: &Common,
        full_look: TimeDelta,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let ticks: Self = serde_json::from_str(text).ok()?;
        // A clock that was ahead may have written the note.
        let is_past = ticks.due <= now && ticks.all <= now;
        // Ticks are not exact to the second.
        let is_late = now - ticks.all >= full_look - TICK / 2;
        (is_past && !is_late && ticks.common == common.told()).then_some(ticks)
    }
}

const WEEK: [Weekday; 7] = [
    Weekday::Mon,
    Weekday::Tue,
    Weekday::Wed,
    Weekday::Thu,
    Weekday::Fri,
    Weekday::Sat,
    Weekday::Sun,
];

impl DueChoices {
    /// Returns the preferences of users in this zone, or without one, who become due after `after`
    /// and no later than `until`. No user matches two results.
    pub fn between(
        tz: Option<Tz>,
        common: &Common,
        after: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Vec<Self> {
        let mut hours: BTreeMap<u8, BTreeSet<u8>> = BTreeMap::new();
        for (weekday, hour) in local_hours(tz.unwrap_or(common.schedule.tz), after, until) {
            let number = weekday.num_days_from_monday() as u8;
            hours.entry(number).or_default().insert(hour);
        }
        let all: BTreeSet<u8> = hours.values().flatten().copied().collect();
        let weekly = hours.into_iter().map(|(number, hours)| {
            let weekday = WEEK[usize::from(number)];
            let unchosen = (weekday == common.schedule.weekday).then_some(None);
            let weekdays = [Some(weekday)].into_iter().chain(unchosen).collect();
            (Cadence::Weekly, weekdays, hours)
        });
        let any_weekday: Vec<_> = WEEK.into_iter().map(Some).chain([None]).collect();
        let daily = (Cadence::Daily, any_weekday, all);
        let of = |(cadence, weekdays, hours): (_, Vec<_>, BTreeSet<u8>)| {
            let unchosen = hours.contains(&common.schedule.hour).then_some(None);
            let hours = hours.into_iter().map(Some).chain(unchosen);
            hours.map(move |hour| Self {
                tz,
                cadences: common.as_often_as(cadence),
                weekdays: weekdays.clone(),
                hour,
            })
        };
        weekly.chain([daily]).flat_map(of).collect()
    }
}

impl Common {
    /// Returns a text for comparing two sets of defaults.
    pub fn told(&self) -> String {
        let Schedule {
            cadence,
            weekday,
            hour,
            tz,
        } = self.schedule;
        format!("{cadence} {weekday} {hour} {tz} {}", self.mandatory)
    }

    /// Returns the choices that lead to a digest of this cadence.
    fn as_often_as(&self, cadence: Cadence) -> Vec<Option<Cadence>> {
        let mut choices = vec![Some(cadence)];
        if cadence == self.schedule.cadence {
            choices.push(None);
            choices.extend(self.mandatory.then_some(Some(Cadence::Never)));
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
    let from = date(after)
        .checked_sub_days(Days::new(2))
        .unwrap_or_default();
    let to = date(until);
    let dates = from.iter_days().take_while(move |date| *date <= to);
    dates.flat_map(move |date| {
        (0..24).filter_map(move |hour| {
            let schedule = Schedule {
                cadence: Cadence::Daily,
                weekday: date.weekday(),
                hour,
                tz,
            };
            let due = schedule.due_on(date)?.at;
            (after < due && due <= until).then_some((date.weekday(), hour))
        })
    })
}

#[cfg(test)]
#[path = "due_choices_tests.rs"]
mod tests;
