//! What came of a policy: counts, and how they are spread.
//!
//! The rule: delays are exact to the second up to an hour (4,096 s), and to 1 in 2,048 beyond, so
//! that millions of them take a few hundred kilobytes. A percentile is the smallest value that so
//! many have at most (nearest rank).

use std::collections::HashMap;

use chrono::{DateTime, Timelike, Utc};

use crate::domain::UserId;
use crate::wire::simulation::{Delay, PerPerson, Reach, Report};

/// Up to how many seconds the steps of [`Report::delays`] go; the last has no limit.
const STEPS: [u64; 8] = [0, 10, 60, 300, 900, 3_600, 14_400, 86_400];

/// What is counted while events are replayed.
#[derive(Debug, Default)]
pub(super) struct Measure {
    mails: u64,
    largest: u64,
    delays: Spread,
    steps: [u64; STEPS.len() + 1],
    by_hour: [u64; 24],
    people: HashMap<UserId, u64>,
}

impl Measure {
    /// Something concerns them.
    pub(super) fn event(&mut self, user: &UserId) {
        if !self.people.contains_key(user) {
            self.people.insert(user.clone(), 0);
        }
    }

    /// They get a mail of so many events, which happened at these times.
    pub(super) fn mail(
        &mut self,
        user: &UserId,
        count: u64,
        times: impl Iterator<Item = DateTime<Utc>>,
        at: DateTime<Utc>,
    ) {
        self.mails += 1;
        self.largest = self.largest.max(count);
        self.by_hour[at.hour() as usize] += 1;
        if let Some(mails) = self.people.get_mut(user) {
            *mails += 1;
        }
        for then in times {
            let waited = ((at - then).num_milliseconds().max(0) as u64 + 500) / 1_000;
            self.delays.add(waited);
            self.steps[STEPS.partition_point(|step| *step < waited)] += 1;
        }
    }

    /// How many events were mailed, and how long they waited together, as exactly as delays are
    /// kept.
    #[cfg(test)]
    pub(super) fn waited(&self) -> (u64, u64) {
        let places = self.delays.counts.iter().enumerate();
        let waited = places
            .map(|(place, count)| Spread::value(place) * count)
            .sum();
        (self.delays.count, waited)
    }

    pub(super) fn report(self, policy: String, days: f64) -> Report {
        let mut mails: Vec<u64> = self.people.into_values().collect();
        mails.sort_unstable();
        let people = mails.len() as u64;
        let limits = STEPS.into_iter().map(Some).chain([None]);
        Report {
            policy,
            mails: self.mails,
            mails_per_day: self.mails as f64 / days,
            people,
            mails_per_person: PerPerson {
                mean: self.mails as f64 / people.max(1) as f64,
                p95: rank(people, 95).map_or(0, |rank| mails[rank as usize - 1]),
                max: mails.last().copied().unwrap_or(0),
            },
            delay_seconds: Delay {
                p50: self.delays.percentile(50),
                p95: self.delays.percentile(95),
                max: self.delays.max,
            },
            largest: self.largest,
            delays: limits
                .zip(self.steps)
                .map(|(up_to_seconds, events)| Reach {
                    up_to_seconds,
                    events,
                })
                .collect(),
            mails_by_hour: self.by_hour,
        }
    }
}

/// Which of so many values, counted from 1 in ascending order, is this percentile.
fn rank(count: u64, percent: u64) -> Option<u64> {
    (count > 0).then(|| (count * percent).div_ceil(100).max(1))
}

/// How often each whole number came, the large ones to 1 in 2,048.
#[derive(Debug, Default)]
struct Spread {
    counts: Vec<u64>,
    count: u64,
    max: u64,
}

/// As many bits of a number count.
const BITS: u32 = 12;

impl Spread {
    fn add(&mut self, value: u64) {
        let place = Self::place(value);
        if self.counts.len() <= place {
            self.counts.resize(place + 1, 0);
        }
        self.counts[place] += 1;
        self.count += 1;
        self.max = self.max.max(value);
    }

    /// Numbers below 4,096 have a place each; above, each doubling has 2,048 places.
    fn place(value: u64) -> usize {
        let shift = (u64::BITS - value.leading_zeros()).saturating_sub(BITS);
        (u64::from(shift) << (BITS - 1)) as usize + (value >> shift) as usize
    }

    /// The smallest number of a place.
    fn value(place: usize) -> u64 {
        let (place, half) = (place as u64, 1 << (BITS - 1));
        let shift = (place / half).saturating_sub(1);
        (place - shift * half) << shift
    }

    fn percentile(&self, percent: u64) -> u64 {
        let Some(rank) = rank(self.count, percent) else {
            return 0;
        };
        let mut seen = 0;
        let place = self.counts.iter().position(|count| {
            seen += count;
            seen >= rank
        });
        place.map_or(self.max, Self::value)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_exact_up_to_an_hour_and_to_one_in_two_thousand_beyond() {
        for value in (0..5_000)
            .chain((0..45).map(|bit| 1 << bit))
            .chain([86_399, 2_591_999])
        {
            let told = Spread::value(Spread::place(value));
            assert!(
                told <= value && value - told <= value / 2_048,
                "{value}: {told}"
            );
            assert!(value >= 4_096 || told == value);
        }
        let places: Vec<usize> = (0..20_000).map(Spread::place).collect();
        assert!(places.is_sorted_by(|a, b| b - a <= 1));
    }

    #[test]
    fn a_percentile_is_the_smallest_value_that_so_many_have_at_most() {
        let mut spread = Spread::default();
        assert_eq!(spread.percentile(50), 0);
        for value in [40, 10, 30, 20] {
            spread.add(value);
        }

        assert_eq!(
            [1, 25, 50, 51, 95, 100].map(|p| spread.percentile(p)),
            [10, 10, 20, 30, 40, 40]
        );
    }
}
