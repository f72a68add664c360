//! What stands in the store and cannot be used, as a run tells of it: documents of people, and
//! fan-outs.
//!
//! The rule: one person's document is their trouble only, and one fan-out's record its own. It is
//! passed over, counted and named once a run, here and in the log, and everything else is done.

use std::fmt::Display;

use serde::Serialize;

use crate::domain::BadStack;
use crate::store::BadFanout;

/// So many are named; of others only the number is kept.
const NAMED: usize = 1_000;

/// Documents that something could not be done with.
pub type BadStacks = Bad<BadStack>;

/// Fan-outs that cannot be read, so that nobody can fan them out.
pub type BadFanouts = Bad<BadFanout>;

/// What a run met and passed over.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bad<T> {
    /// How many there are, also of those that are not named.
    pub count: u64,
    /// The first of them, in the order in which they were met.
    pub first: Vec<T>,
}

impl<T> Default for Bad<T> {
    fn default() -> Self {
        Self {
            count: 0,
            first: Vec::new(),
        }
    }
}

impl<T: Display + PartialEq> Bad<T> {
    /// Whether nothing was passed over.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notes each once, and logs it then.
    pub fn note(&mut self, bad: impl IntoIterator<Item = T>) {
        for bad in bad {
            if self.first.contains(&bad) {
                continue;
            }
            tracing::warn!("passed over: {bad}");
            self.count += 1;
            if self.first.len() < NAMED {
                self.first.push(bad);
            }
        }
    }
}

impl<T: PartialEq> std::ops::AddAssign for Bad<T> {
    fn add_assign(&mut self, other: Self) {
        let unnamed = other.count - other.first.len() as u64;
        let new = other.first.into_iter();
        for bad in new {
            if !self.first.contains(&bad) {
                self.count += 1;
                if self.first.len() < NAMED {
                    self.first.push(bad);
                }
            }
        }
        self.count += unnamed;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Day, Defect, UserId};

    fn bad(user: &str, reason: Defect) -> BadStack {
        BadStack {
            user: UserId::stored(user),
            day: Day::from_ymd(2014, 4, 22).unwrap(),
            reason,
        }
    }

    #[test]
    fn each_is_counted_once_whoever_met_it() {
        let mut one = BadStacks::default();
        one.note([bad("ada", Defect::NoRoom), bad("ada", Defect::NoRoom)]);
        let mut other = BadStacks::default();
        other.note([bad("ada", Defect::NoRoom), bad("ben", Defect::NoList)]);

        one += other;

        assert_eq!(one.count, 2);
        assert_eq!(
            one.first,
            [bad("ada", Defect::NoRoom), bad("ben", Defect::NoList)]
        );
        assert!(BadStacks::default().is_empty());
    }
}
