//! How fast mails may leave: what the provider asks for, what goes wrong, and the limit an operator
//! sets.
//!
//! The rule: nothing is sent while the provider asks for patience; calls are made one at a time at
//! first, and more at a time as they are taken; a provider that takes nothing is left alone for
//! longer and longer. What holds for all processes is in [`super::shared`]. The operator's limit
//! holds over all processes: whoever has the lease `pace` may send, and it lasts as long as the
//! mails are to take.

use std::sync::{Mutex, MutexGuard, OnceLock, PoisonError};

use chrono::{DateTime, TimeDelta, Utc};
use tokio::sync::watch;

use super::outcome::Verdicts;
use super::shared::Lately;
use super::{Deliver, Road};
use crate::domain::Lease;
use crate::services::Result;

/// What this process knows of the provider's mood, and whose turn it is to make calls: one part of
/// it at a time, or there would be more calls under way than the provider keeps up with.
#[derive(Debug, Default)]
pub struct Traffic(Mutex<Known>, tokio::sync::Mutex<()>, OnceLock<Stop>);

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
/// How soon the limit is asked again where another process has used it up.
const ASK_AGAIN: TimeDelta = TimeDelta::seconds(5);

impl Traffic {
    fn known(&self) -> MutexGuard<'_, Known> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
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

    fn paced(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        self.known().paced.filter(|until| *until > now)
    }

    /// A call was answered.
    pub(super) fn heard(&self, verdicts: &Verdicts, retry_after: TimeDelta, now: DateTime<Utc>) {
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
    pub(super) fn close(&self, until: DateTime<Utc>) {
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
    pub(super) fn width(&self, most: usize) -> usize {
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
    pub(super) fn probes(&self) -> bool {
        self.known().astray
    }
}

impl Deliver {
    /// Waits for its turn to deliver a chunk; others wait until this is dropped, in the order in
    /// which they came.
    pub async fn turn(&self) -> tokio::sync::MutexGuard<'_, ()> {
        self.traffic.1.lock().await
    }

    /// Whether anything may be begun at this moment.
    pub async fn road(&self) -> Result<Road> {
        match self.barrier().await? {
            Road::Free => {
                let paced = self.traffic.paced(self.clock.now());
                Ok(paced.map_or(Road::Free, Road::Closed))
            }
            held => Ok(held),
        }
    }

    /// How many rows are taken in hand together: under a limit, what may leave in a minute.
    pub fn chunk(&self) -> usize {
        let chunk = self.settings.chunk;
        match self.settings.mails_per_hour as usize {
            0 => chunk,
            limit => chunk.min((limit / 60).max(1)),
        }
    }

    /// Asks for leave to send so many mails; if there is none now, answers when to ask again.
    pub(super) async fn pace(&self, mails: usize) -> Result<Option<DateTime<Utc>>> {
        let limit = i64::from(self.settings.mails_per_hour);
        if limit == 0 {
            return Ok(None);
        }
        let now = self.clock.now();
        let until = now + TimeDelta::milliseconds(3_600_000 * mails as i64 / limit);
        let asked = {
            let mut known = self.traffic.known();
            known.asked += 1;
            known.asked
        };
        // Each time as somebody else: the holder of a lease could extend it.
        let lease = Lease {
            owner: format!("{}-{asked}", self.owner),
            until,
        };
        let granted = self.leases.lease("pace", &lease, now).await?;
        let next = if granted {
            until
        } else {
            until.min(now + ASK_AGAIN)
        };
        self.traffic.known().paced = Some(next);
        Ok((!granted).then_some(next))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn calls_are_made_one_at_a_time_until_the_provider_keeps_up() {
        let traffic = Traffic::default();
        let now = DateTime::UNIX_EPOCH;
        let hear = |times: u32, none_taken: bool| {
            for _ in 0..times {
                let verdicts = Verdicts {
                    none_taken,
                    ..Verdicts::default()
                };
                traffic.heard(&verdicts, TimeDelta::seconds(1), now);
            }
            traffic.width(3)
        };

        assert_eq!(traffic.width(3), 1);
        assert_eq!(hear(9, false), 1);
        assert_eq!(hear(1, false), 2);
        assert_eq!(hear(10, false), 3);
        assert_eq!(hear(30, false), 3, "and never more than are allowed");
        assert_eq!(hear(1, true), 1);
        assert_eq!(hear(10, false), 2);
    }
}
