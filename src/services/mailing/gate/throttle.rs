//! What this process knows of the provider's mood: how many calls it keeps up with, until when it
//! wants none, and how mails have ended that the others do not know yet.
//!
//! The rule: calls are made one at a time at first, and more at a time as they are taken; a
//! provider that takes nothing is left alone for longer and longer.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::watch;

use super::super::retry::Verdicts;
use super::shared::Lately;

/// What this process knows of the provider's mood, and whose turn it is to make calls: one part of
/// it at a time, or there would be more calls under way than the provider keeps up with.
#[derive(Debug, Default)]
pub struct Throttle(Mutex<Known>, tokio::sync::Mutex<()>, OnceLock<Stop>);

/// Turns true when the process is to end.
type Stop = watch::Receiver<bool>;

#[derive(Debug, Default)]
struct Known {
    /// Until when nothing is sent.
    closed: Option<DateTime<Utc>>,
    /// Which of that all processes know.
    told: Option<DateTime<Utc>>,
    /// Until when the operator's limit lets nothing be begun.
    paced: Option<DateTime<Utc>>,
    /// How often that was asked for; makes each asking another owner of the lease.
    asked: u64,
    /// Calls in a row of which nothing is known to be taken.
    fruitless: u32,
    /// Calls that may be under way at a time on top of the first, and how many were taken since
    /// there was one more.
    wider: usize,
    fruitful: u32,
    /// How mails ended that is not told to the others yet.
    untold: Lately,
    /// Whether nobody can tell what became of the last call.
    astray: bool,
    /// When it was last asked what is reported of the mails.
    echoed: Option<DateTime<Utc>>,
}

/// So many calls in a row of which nothing is known to be taken are the provider's fault, not the
/// mails'.
const IN_A_ROW: u32 = 3;
/// After so many calls in a row of which something was taken, one more may be under way.
const WIDEN_AFTER: u32 = 10;
/// A provider that takes nothing is tried at least this often.
const LONGEST: TimeDelta = TimeDelta::minutes(10);
/// How often it is asked what is reported of the mails.
const ASK_REPORTS: TimeDelta = TimeDelta::seconds(30);
impl Throttle {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for its turn to deliver a part; others wait until this is dropped, in the order in
    /// which they came.
    pub(super) async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.1.lock().await
    }

    /// From now on mails leave only until this turns true; the first that is given counts.
    pub fn end_with(&self, stop: Stop) {
        drop(self.2.set(stop));
    }

    /// Whether the process is to end: nothing new is begun then.
    pub(super) fn ending(&self) -> bool {
        self.2.get().is_some_and(|stop| *stop.borrow())
    }

    /// Until when nothing is sent, if that is still to come.
    pub(super) fn closed(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().closed.filter(|until| *until > now)
    }

    /// Says how often the operator's limit was asked.
    pub(super) fn asks(&self) -> u64 {
        let mut known = self.known();
        known.asked += 1;
        known.asked
    }

    /// The operator's limit lets nothing be begun until then.
    pub(super) fn pace_until(&self, until: DateTime<Utc>) {
        self.known().paced = Some(until);
    }

    pub(super) fn paced(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().paced.filter(|until| *until > now)
    }

    /// A call was answered.
    pub(in crate::services::mailing) fn heard(
        &self,
        verdicts: &Verdicts,
        retry_after: TimeDelta,
        now: DateTime<Utc>,
    ) {
        let mut known = self.known();
        if verdicts.none_taken {
            known.fruitless += 1;
            (known.wider, known.fruitful) = (0, 0);
        } else {
            known.fruitless = 0;
            known.fruitful += 1;
            if known.fruitful == WIDEN_AFTER {
                known.fruitful = 0;
                known.wider += 1;
            }
        }
        let theirs = verdicts
            .after
            .and_then(|after| TimeDelta::from_std(after).ok());
        let ours = known.fruitless.checked_sub(IN_A_ROW).map(|more| {
            let doubled = retry_after * (1 << more.min(16));
            doubled.min(LONGEST)
        });
        if let Some(wait) = theirs.max(ours) {
            known.closed = known.closed.max(Some(now + wait));
        }
    }

    /// All processes know that nothing is sent before then.
    pub(super) fn told(&self, until: DateTime<Utc>) {
        self.known().told = Some(until);
    }

    /// All processes knew until when nothing is sent, and somebody let go of it.
    pub(super) fn open(&self) {
        let mut known = self.known();
        if known.told.is_some() && known.told == known.closed {
            (known.closed, known.told) = (None, None);
        }
    }

    /// Nothing is sent before then.
    pub(in crate::services::mailing) fn close(&self, until: DateTime<Utc>) {
        let mut known = self.known();
        known.closed = known.closed.max(Some(until));
    }

    /// Everything is paused: what went wrong before that is not held against what follows.
    pub(super) fn forget(&self) {
        let mut known = self.known();
        known.untold = Lately::default();
    }

    /// How many calls may be under way at a time: one at first and when nothing was taken, more as
    /// the provider keeps up.
    pub(in crate::services::mailing) fn width(&self, most: usize) -> usize {
        let mut known = self.known();
        known.wider = known.wider.min(most - 1);
        known.wider + 1
    }

    /// Whether it is time to ask what is reported of the mails; the next time is a while later.
    pub(super) fn listens(&self, now: DateTime<Utc>) -> bool {
        let mut known = self.known();
        let due = known.echoed.is_none_or(|last| now - last >= ASK_REPORTS);
        if due {
            known.echoed = Some(now);
        }
        due
    }

    /// Counts how mails ended; says what is to be told to all: at once where anything failed or
    /// went astray, or went well again, otherwise now and then.
    pub(super) fn count(&self, heard: Lately, answered: bool, often: u32) -> Option<Lately> {
        let mut known = self.known();
        known.untold.sent += heard.sent;
        known.untold.failed += heard.failed;
        known.untold.astray += heard.astray;
        let back = answered && known.astray;
        if heard.astray > 0 {
            known.astray = true;
        } else if answered {
            known.astray = false;
        }
        let untold = known.untold;
        let tell =
            back || untold.failed > 0 || untold.astray > 0 || untold.sent >= u64::from(often);
        tell.then(|| std::mem::take(&mut known.untold))
    }

    /// What was counted and is not told yet.
    pub(super) fn untold(&self) -> Option<Lately> {
        let untold = std::mem::take(&mut self.known().untold);
        (untold != Lately::default()).then_some(untold)
    }

    /// Whether nobody can tell what became of the last call, of this process or another.
    pub(super) fn goes_astray(&self, astray: bool) {
        self.known().astray = astray;
    }

    /// Whether the next call should risk little.
    pub(in crate::services::mailing) fn probes(&self) -> bool {
        self.known().astray
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_made_one_at_a_time_until_the_provider_keeps_up() {
        let throttle = Throttle::default();
        let now = DateTime::UNIX_EPOCH;
        let hear = |times: u32, none_taken: bool| {
            for _ in 0..times {
                let verdicts = Verdicts {
                    none_taken,
                    ..Verdicts::default()
                };
                throttle.heard(&verdicts, TimeDelta::seconds(1), now);
            }
            throttle.width(3)
        };

        assert_eq!(throttle.width(3), 1);
        assert_eq!(hear(9, false), 1);
        assert_eq!(hear(1, false), 2);
        assert_eq!(hear(10, false), 3);
        assert_eq!(hear(30, false), 3, "and never more than are allowed");
        assert_eq!(hear(1, true), 1);
        assert_eq!(hear(10, false), 2);
    }
}
