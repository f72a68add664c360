//! Delays large audiences, so that events in quick succession are pushed together.
//!
//! Updating a stack costs the server nearly as much for one event as for ten. After a large
//! audience has started, later ones wait for `fanout.linger` or until arrivals stop, and then start
//! together. The first never waits, nor do small audiences. Waiting fan-outs are leased; if their
//! process dies, they can be claimed when the leases expire.

use std::sync::{Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::Fanout;

/// The large audiences that a process delays.
#[derive(Debug, Default)]
pub struct Lingering(Mutex<Held>);

#[derive(Debug, Default)]
struct Held {
    /// The waiting fan-outs, each with the end of its lease.
    fanouts: Vec<(Fanout, DateTime<Utc>)>,
    begun: Option<DateTime<Utc>>,
    /// The number of arrivals since `begun`, and the time of the last.
    came: usize,
    last: Option<DateTime<Utc>>,
}

/// Arrivals can count as stopped only after `fanout.linger` divided by this.
const QUIET: i32 = 5;

impl Lingering {
    /// Returns the waiting fan-outs, if they start now together with `came` new ones. `None` if
    /// they wait, or if there are none.
    ///
    /// They start if none has started within `linger`, if arrivals have stopped, or if there are
    /// `most` of them.
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
        if came > 0 {
            held.came += came;
            held.last = Some(now);
        }
        if all == 0 || (held.waits(linger, now) && all < most) {
            return None;
        }
        (held.begun, held.came, held.last) = (Some(now), 0, None);
        let all = std::mem::take(&mut held.fanouts).into_iter();
        Some(all.map(|(fanout, _)| fanout).collect())
    }

    /// Adds fan-outs to the waiting ones. They are leased until `until`.
    pub(super) fn hold(&self, came: impl Iterator<Item = Fanout>, until: DateTime<Utc>) {
        self.held()
            .fanouts
            .extend(came.map(|fanout| (fanout, until)));
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Held {
    /// Returns whether further fan-outs may arrive soon.
    fn waits(&self, linger: TimeDelta, now: DateTime<Utc>) -> bool {
        // After the clock was set back, nothing waits.
        let Some(begun) = self.begun.filter(|begun| *begun <= now) else {
            return false;
        };
        let come_no_more = |last: DateTime<Utc>| {
            let came = i32::try_from(self.came).unwrap_or(i32::MAX);
            let apart = (last - begun) / came.max(1);
            now - last >= (apart * 2).max(linger / QUIET)
        };
        now - begun < linger && !self.last.is_some_and(come_no_more)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::domain::{Audience, EventType, Id, ObjectId, UserId};

    fn at(seconds: i64) -> DateTime<Utc> {
        DateTime::UNIX_EPOCH + TimeDelta::seconds(seconds)
    }

    fn fanout() -> Fanout {
        let id = Id::at(DateTime::UNIX_EPOCH, [0; 8]);
        let audience = Audience::users([UserId::stored("ada")]).unwrap();
        let objects = vec![ObjectId::stored("a1")];
        Fanout::new(id, None, EventType::stored("Work"), objects, audience).unwrap()
    }

    #[test]
    fn the_wait_ends_at_its_limit_even_after_a_clock_change() {
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
    fn the_wait_ends_when_no_further_events_arrive() {
        let (lingering, five) = (Lingering::default(), TimeDelta::seconds(5));
        let begins = |came, tenths: i64| {
            let at = DateTime::UNIX_EPOCH + TimeDelta::milliseconds(100 * tenths);
            lingering.begins(came, five, 9, at).is_some()
        };
        let held = |came, tenths| {
            assert!(!begins(came, tenths), "{tenths}");
            let fanouts = std::iter::repeat_n(fanout(), came);
            lingering.hold(fanouts, at(1_000));
        };

        assert!(begins(1, 0));
        // They arrive 1 s apart, so 2 s without an arrival end the wait.
        held(1, 10);
        held(1, 20);
        held(0, 39);
        assert!(begins(0, 40));
        // They arrive quickly, and 1 s is the shortest pause.
        held(3, 43);
        held(0, 52);
        assert!(begins(0, 53));
        // They arrive slowly, and no wait is longer than 5 s.
        held(1, 83);
        held(0, 102);
        assert!(begins(0, 103));
    }

    #[test]
    fn without_a_linger_fan_outs_start_immediately() {
        let lingering = Lingering::default();
        for _ in 0..3 {
            assert!(lingering.begins(1, TimeDelta::zero(), 9, at(1)).is_some());
        }
    }
}
