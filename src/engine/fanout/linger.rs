//! Delays large audiences, so that events in quick succession are pushed together.
//!
//! Updating a stack costs the server nearly as much for one event as for ten. After a large
//! audience has started, later ones wait for `fanout.linger` or until arrivals stop, and then start
//! together. The first never waits, nor do small audiences. Waiting fan-outs are leased; if their
//! process dies, they can be claimed when the leases expire.

use std::sync::Mutex;

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::Fanout;
use crate::mutex::lock;

/// The large audiences that a process delays.
#[derive(Debug, Default)]
pub struct WaitingFanouts(Mutex<WaitState>);

#[derive(Debug, Default)]
struct WaitState {
    /// The waiting fan-outs, each with the end of its lease.
    waiting: Vec<(Fanout, DateTime<Utc>)>,
    last_start: Option<DateTime<Utc>>,
    /// The number of arrivals since `last_start`, and the time of the last.
    arrivals: usize,
    last_arrival: Option<DateTime<Utc>>,
}

/// Arrivals can count as stopped only after `fanout.linger` divided by this.
const PAUSE_DIVISOR: i32 = 5;

impl WaitingFanouts {
    /// Removes and returns the waiting fan-outs if they start now, together with `arrivals` new
    /// ones. Returns `None` if the new ones have to wait too.
    ///
    /// They start if none has started within `linger`, if arrivals have stopped, or if there are
    /// `max` of them.
    pub(super) fn take_if_due(
        &self,
        arrivals: usize,
        linger: TimeDelta,
        max: usize,
        now: DateTime<Utc>,
    ) -> Option<Vec<Fanout>> {
        let mut state = lock(&self.0);
        state.waiting.retain(|(_, lease_end)| now < *lease_end);
        let count = state.waiting.len() + arrivals;
        if count == 0 {
            return Some(Vec::new());
        }
        if arrivals > 0 {
            state.arrivals += arrivals;
            state.last_arrival = Some(now);
        }
        if count < max && state.expects_arrivals(linger, now) {
            return None;
        }
        (state.last_start, state.arrivals, state.last_arrival) = (Some(now), 0, None);
        let due = std::mem::take(&mut state.waiting).into_iter();
        Some(due.map(|(fanout, _)| fanout).collect())
    }

    /// Adds fan-outs to the waiting ones. They are leased until `lease_end`.
    pub(super) fn delay(&self, arrived: impl Iterator<Item = Fanout>, lease_end: DateTime<Utc>) {
        lock(&self.0).waiting.extend(arrived.map(|fanout| (fanout, lease_end)));
    }
}

impl WaitState {
    /// Returns whether further fan-outs may arrive soon.
    fn expects_arrivals(&self, linger: TimeDelta, now: DateTime<Utc>) -> bool {
        // After the clock was set back, nothing waits.
        let Some(last_start) = self.last_start.filter(|start| *start <= now) else {
            return false;
        };
        let have_stopped = |last_arrival: DateTime<Utc>| {
            let arrivals = i32::try_from(self.arrivals).unwrap_or(i32::MAX);
            let average_interval = (last_arrival - last_start) / arrivals.max(1);
            now - last_arrival >= (average_interval * 2).max(linger / PAUSE_DIVISOR)
        };
        now - last_start < linger && !self.last_arrival.is_some_and(have_stopped)
    }
}

#[cfg(test)]
#[path = "linger_tests.rs"]
mod tests;
