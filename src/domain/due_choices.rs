//! Whose digests fall due between two moments, by what people chose.
//!
//! The rule: people who chose the same zone, cadence, weekday and hour fall due together. So a
//! store with an index of these choices finds whom an hour concerns, and reads nobody else.

use std::collections::{BTreeMap, BTreeSet};

use chrono::{DateTime, Datelike, Days, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use serde::{Deserialize, Serialize};

use super::cadence::{Cadence, Schedule};
use super::lease::TICK;

/// People whose record says one of each of these; `None` is no choice of their own. It has one
/// hour, as a store looks at a range of its index for each combination, and merges only so many.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DueChoices {
    /// Their time zone.
    pub tz: Option<Tz>,
    /// How often.
    pub cadences: Vec<Option<Cadence>>,
    /// On which weekday.
    pub weekdays: Vec<Option<Weekday>>,
    /// At which local hour.
    pub hour: Option<u8>,
}

/// What holds for all people, whatever they choose.
#[derive(Debug, Clone, Copy)]
pub struct Common {
    /// For what they did not choose.
    pub schedule: Schedule,
    /// Whether those who want no digest get one of what is mandatory, as often as is configured.
    pub mandatory: bool,
}

/// How far ticks have come that look only at whoever falls due.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Ticks {
    /// Whoever fell due up to then was looked at, with all that had happened before.
    pub due: DateTime<Utc>,
    /// When everybody was looked at last.
    pub all: DateTime<Utc>,
    /// What held then for whoever did not choose: [`Common::told`].
    pub common: String,
}

impl Ticks {
    /// Under this name they are noted.
    pub const NOTE: &str = "digest-ticks";

    /// As they were noted; nothing where the note cannot be read, or the next tick has to look at
    /// everybody whatever it says.
    pub fn read(
        text: &str,
        common: &Common,
        full_look: TimeDelta,
        now: DateTime<Utc>,
    ) -> Option<Self> {
        let ticks: Self = serde_json::from_str(text).ok()?;
        // A clock that ran ahead may have written it.
        let is_past = ticks.due <= now && ticks.all <= now;
        // Ticks do not come to the second.
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
    /// Of people who chose this zone, or none: who falls due after the one moment and up to the
    /// other. Nobody is in two of the answers.
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
    /// The same as a text to compare with.
    pub fn told(&self) -> String {
        let Schedule {
            cadence,
            weekday,
            hour,
            tz,
        } = self.schedule;
        format!("{cadence} {weekday} {hour} {tz} {}", self.mandatory)
    }

    /// The choices with which a digest comes this often.
    fn as_often_as(&self, cadence: Cadence) -> Vec<Option<Cadence>> {
        let mut choices = vec![Some(cadence)];
        if cadence == self.schedule.cadence {
            choices.push(None);
            choices.extend(self.mandatory.then_some(Some(Cadence::Never)));
        }
        choices
    }
}

/// The local hours that begin after the one moment and up to the other, with their weekdays.
fn local_hours(
    tz: Tz,
    after: DateTime<Utc>,
    until: DateTime<Utc>,
) -> impl Iterator<Item = (Weekday, u8)> {
    let date = |moment: DateTime<Utc>| moment.with_timezone(&tz).date_naive();
    // An hour that is skipped at the end of a day falls due on the next one.
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
