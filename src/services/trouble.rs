//! Documents that something could not be done with, as a run tells of them.
//!
//! The rule: one person's document is their trouble only. It is passed over, counted and named once a run, here and in the log, and
//! everybody else is served.

use serde::Serialize;

use crate::domain::BadStack;

/// So many are named; of the others only the number is kept.
const NAMED: usize = 1_000;

/// The bad documents that a run met.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct BadStacks {
    pub count: u64,
    /// The first of them, in the order in which they were met.
    pub first: Vec<BadStack>,
}

impl BadStacks {
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Notes each once, and logs it then.
    pub fn note(&mut self, bad: impl IntoIterator<Item = BadStack>) {
        for bad in bad {
            if self.first.contains(&bad) {
                continue;
            }
            tracing::warn!(day = %bad.day, user = %bad.user, why = %bad.reason, "a stack is passed over");
            self.count += 1;
            if self.first.len() < NAMED {
                self.first.push(bad);
            }
        }
    }
}

impl std::ops::AddAssign for BadStacks {
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
