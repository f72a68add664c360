//! Events of the shape that real ones have, for those who have recorded none: quiet nights and
//! weekends, bursts about one thing, and one person with half of everything.
//!
//! The rule: a seed gives the same events everywhere, and they come in the order of time, one by
//! one.

use chrono::{DateTime, Datelike, TimeDelta, Timelike, Utc, Weekday};

use super::Happening;
use crate::domain::{EventType, ObjectId, UserId};

/// What is made.
#[derive(Debug, Clone, Copy)]
pub struct Shape {
    /// How many events, over 28 days.
    pub events: u64,
    /// The same seed and number give the same events.
    pub seed: u64,
}

/// The first of the days: a Monday.
const FROM: i64 = 1_772_409_600;
const DAYS: usize = 28;
const MINUTES: usize = DAYS * 24 * 60;
/// How much more happens in the minutes of a burst.
const BURST: f64 = 30.0;

/// A minute: how much happens in it, and which burst it belongs to.
#[derive(Clone, Copy)]
struct Minute {
    weight: f64,
    burst: Option<u64>,
}

/// Numbers that look like chance and are always the same: SplitMix64.
struct Chance(u64);

impl Chance {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, limit: u64) -> u64 {
        self.next() % limit.max(1)
    }

    /// From 0 up to 1.
    fn share(&mut self) -> f64 {
        (self.next() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// The events of this shape.
pub fn events(shape: Shape) -> impl Iterator<Item = Happening> {
    let mut chance = Chance(shape.seed);
    let minutes = minutes(&mut chance);
    let whole: f64 = minutes.iter().map(|minute| minute.weight).sum();
    let people = (shape.events / 200).clamp(10, 20_000);
    let (mut gone, mut made) = (0.0, 0);
    (0..).zip(minutes).flat_map(move |(number, minute)| {
        gone += minute.weight;
        let until = if number + 1 == MINUTES as i64 {
            shape.events
        } else {
            ((gone / whole * shape.events as f64) as u64).min(shape.events)
        };
        let here = until - made;
        made = until;
        let begin = start() + TimeDelta::minutes(number);
        let happen = |place: u64| {
            let room = 60_000 / here;
            let after = place * 60_000 / here + chance.below(room.max(1));
            let at = begin + TimeDelta::milliseconds(after.min(59_999) as i64);
            happening(at, minute.burst, people, &mut chance)
        };
        (0..here).map(happen).collect::<Vec<_>>()
    })
}

fn start() -> DateTime<Utc> {
    DateTime::from_timestamp(FROM, 0).unwrap_or_default()
}

fn minutes(chance: &mut Chance) -> Vec<Minute> {
    let mut burst = None;
    let minutes = (0..MINUTES as i64).map(|number| {
        let at = start() + TimeDelta::minutes(number);
        let usual = usual(at);
        burst = burst.filter(|(_, until)| number < *until);
        if burst.is_none() && chance.share() < 0.004 * usual {
            burst = Some((chance.next(), number + 2 + chance.below(12) as i64));
        }
        let more = if burst.is_some() { BURST } else { 1.0 };
        Minute {
            weight: usual * more,
            burst: burst.map(|(burst, _)| burst),
        }
    });
    minutes.collect()
}

/// How much usually happens at a time, up to 1: most in working hours.
fn usual(at: DateTime<Utc>) -> f64 {
    let day = match at.weekday() {
        Weekday::Sat | Weekday::Sun => 0.15,
        _ => 1.0,
    };
    day * match at.hour() {
        0..=5 => 0.02,
        6..=7 | 20..=23 => 0.2,
        12 => 0.6,
        9..=11 | 13..=16 => 1.0,
        _ => 0.5,
    }
}

fn happening(at: DateTime<Utc>, burst: Option<u64>, people: u64, chance: &mut Chance) -> Happening {
    let user = if chance.share() < 0.5 {
        "busy".to_owned()
    } else {
        let person = match burst {
            // Those who work on what the burst is about.
            Some(burst) => (burst % people + chance.below(8)) % people,
            // Some are concerned far more often than others.
            None => {
                let share = chance.share();
                (share * share * people as f64) as u64
            }
        };
        format!("person-{person}")
    };
    let about = burst.unwrap_or_else(|| chance.below(people * 4)) % 100_000;
    let kind = match chance.below(10) {
        0..=5 => "Comment",
        6..=8 => "Edit",
        _ => "Mention",
    };
    Happening {
        at,
        users: vec![UserId::stored(user)],
        kind: EventType::stored(kind),
        object: ObjectId::stored(format!("document-{about}")),
        key: None,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[test]
    fn a_seed_gives_as_many_events_as_asked_for_in_the_order_of_time_and_always_the_same() {
        for count in [1, 10, 10_000] {
            let shape = Shape {
                events: count,
                seed: 7,
            };
            let all: Vec<Happening> = events(shape).collect();
            assert_eq!(all.len() as u64, count);
            assert!(all.is_sorted_by_key(|happening| happening.at));
            assert!(all.iter().eq(events(shape).collect::<Vec<_>>().iter()));
        }
        let first = |seed| events(Shape { events: 9, seed }).next();
        assert_ne!(first(1), first(2));
    }

    #[test]
    fn there_are_bursts_and_quiet_and_one_person_has_half_of_everything() {
        let (mut people, mut minutes) = (HashMap::new(), HashMap::new());
        for happening in events(Shape {
            events: 20_000,
            seed: 1,
        }) {
            *people.entry(happening.users[0].clone()).or_insert(0) += 1;
            *minutes.entry(happening.at.timestamp() / 60).or_insert(0) += 1;
        }

        assert!((9_500..10_500).contains(&people[&UserId::stored("busy")]));
        assert!(people.len() > 80);
        assert!(*minutes.values().max().unwrap() >= 5);
        assert!(minutes.len() < MINUTES / 2);
    }
}
