//! Stored records that a run cannot use: day documents of users, and fan-outs.
//!
//! A bad document affects only its user, and a bad fan-out only itself. The run skips it, counts
//! it, logs it once, and continues with everything else.

use std::fmt::Display;

use serde::Serialize;

use crate::domain::BadStack;
use crate::store::BadFanout;

/// The maximum number of records in a report. Further ones are only counted.
const NAMED: usize = 1_000;

/// Documents that could not be read or written.
pub type BadStacks = Bad<BadStack>;

/// Fan-outs that cannot be read, so they cannot be completed.
pub type BadFanouts = Bad<BadFanout>;

/// The records that a run skipped.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Bad<T> {
    /// The number of records, including those that are not listed.
    pub count: u64,
    /// The first records, in the order in which the run met them.
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
    /// Returns whether nothing was skipped.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Counts and logs each record once. A record that is not listed counts each time.
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
    fn a_bad_stack_is_counted_once_even_if_found_twice() {
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
