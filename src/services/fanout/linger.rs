//! Long audiences wait for company: events that keep coming to very many people are pushed
//! together.
//!
//! The rule: to update somebody's stack costs the server nearly as much for one event as for ten.
//! So where a long audience was begun a moment ago, what comes for long audiences is held until
//! that moment has passed, and then goes together. The first of them waits for nothing, and nobody
//! of a short audience ever waits. What is held is leased; once that is over, because its holder
//! died or stood still, it is pending again, and whoever comes first claims it.

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::Fanout;

/// What a process holds, and when it began with a long audience last.
#[derive(Debug, Default)]
pub struct Lingering(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// Each with the end of its lease.
    fanouts: Vec<(Fanout, DateTime<Utc>)>,
    begun: Option<DateTime<Utc>>,
}

impl Lingering {
    /// What was held, if so many that came begin now: nothing was begun within this time, or they
    /// are as many as go together. Nothing if they wait, or there are none.
    pub(super) fn begins(
        &self,
        came: usize,
        linger: TimeDelta,
        most: usize,
        now: DateTime<Utc>,
    ) -> Option<Vec<Fanout>> {
        let mut held = self.held();
        held.fanouts.retain(|(_, until)| now < *until);
        let all = held.fanouts.len() + came;
        // A clock that was put back lets nobody wait.
        let is_soon = |begun: DateTime<Utc>| begun <= now && now - begun < linger;
        if all == 0 || (held.begun.is_some_and(is_soon) && all < most) {
            return None;
        }
        held.begun = Some(now);
        let all = std::mem::take(&mut held.fanouts).into_iter();
        Some(all.map(|(fanout, _)| fanout).collect())
    }

    /// These wait with what is held; they are leased until then.
    pub(super) fn hold(&self, came: impl Iterator<Item = Fanout>, until: DateTime<Utc>) {
        self.held()
            .fanouts
            .extend(came.map(|fanout| (fanout, until)));
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    #[test]
    fn nothing_waits_for_longer_than_that_nor_for_a_clock_that_was_put_back() {
        let (lingering, five) = (Lingering::default(), TimeDelta::seconds(5));
        let begins = |came, seconds| lingering.begins(came, five, 9, at(seconds)).is_some();

        assert!(!begins(0, 99), "there is nothing");
        assert!(begins(1, 100), "the first");
        assert!(!begins(1, 104));
        assert!(begins(9, 104), "the most");
        assert!(!begins(8, 108));
        assert!(begins(1, 109));
        assert!(begins(1, 50), "the clock was put back");
        assert!(!begins(1, 54));
    }

    #[test]
    fn without_a_linger_nothing_waits() {
        let lingering = Lingering::default();
        for _ in 0..3 {
            assert!(lingering.begins(1, TimeDelta::zero(), 9, at(1)).is_some());
        }
    }
}
