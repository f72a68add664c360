//! Long audiences wait for company: events that keep coming to very many people are pushed
//! together.
//!
//! The rule: to update somebody's stack costs the server nearly as much for one event as for ten.
//! So where a long audience was begun a moment ago, what comes for long audiences is held until
//! that moment has passed, or until they seem to come no more, and then goes together. The first of
//! them waits for nothing, and nobody of a short audience ever waits. What is held is leased; once
//! that is over, because its holder died or stood still, it is pending again, and whoever comes
//! first claims it.

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
    /// How many have come since, and when the last of them did.
    came: usize,
    last: Option<DateTime<Utc>>,
}

/// Of this part of the time they wait at least, before they seem to come no more.
const QUIET: i32 = 5;

impl Lingering {
    /// What was held, if so many that came begin now: nothing was begun within this time, no more
    /// have come for a while, or they are as many as go together. Nothing if they wait, or there
    /// are none.
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

impl Held {
    /// Whether company may still come.
    fn waits(&self, linger: TimeDelta, now: DateTime<Utc>) -> bool {
        // A clock that was put back lets nobody wait.
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
    fn what_seems_to_come_no_more_is_waited_for_no_longer() {
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
        // They are 1 s apart, and after 2 s none has come.
        held(1, 10);
        held(1, 20);
        held(0, 39);
        assert!(begins(0, 40));
        // They come quickly, and 1 s is the least.
        held(3, 43);
        held(0, 52);
        assert!(begins(0, 53));
        // They come slowly, and no wait is longer than 5 s.
        held(1, 83);
        held(0, 102);
        assert!(begins(0, 103));
    }

    #[test]
    fn without_a_linger_nothing_waits() {
        let lingering = Lingering::default();
        for _ in 0..3 {
            assert!(lingering.begins(1, TimeDelta::zero(), 9, at(1)).is_some());
        }
    }
}
