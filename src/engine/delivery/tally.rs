//! Counts the outcomes of deliveries.
//!
//! A run has one tally, which its [`super::Ledger`] holds and updates. It records every delivery
//! that the run processes and counts each exactly once. Those that are not settled at the end count
//! as deferred. Start with [`RunTally`].

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use crate::domain::delivery::{Deferral, DeliveryOutcome, Settlement};
use crate::domain::{BadStack, Delivery, DeliveryId, DeliveryState};
use crate::wire::digest::Tally;

impl Tally {
    /// Returns the number of settled deliveries.
    pub fn settled(&self) -> u64 {
        self.sent + self.failed + self.canceled + self.unknown
    }

    /// Returns whether any delivery failed, is unknown or is deferred.
    pub fn troubled(&self) -> bool {
        self.failed + self.unknown + self.deferred > 0
    }

    fn note(&mut self, reason: &str, times: u64) {
        /// The most reasons that a tally lists.
        const KINDS: usize = 5;
        if let Some((_, count)) = self.reasons.iter_mut().find(|(known, _)| known == reason) {
            *count += times;
        } else if self.reasons.len() < KINDS {
            self.reasons.push((reason.to_owned(), times));
        }
    }

    fn settle(&mut self, state: DeliveryState, items: u32, reason: Option<&str>) {
        match state {
            DeliveryState::Sent => {
                self.sent += 1;
                self.events += u64::from(items);
            }
            DeliveryState::Failed => self.failed += 1,
            DeliveryState::Canceled => self.canceled += 1,
            DeliveryState::Unknown => self.unknown += 1,
            DeliveryState::Pending | DeliveryState::Sending => {}
        }
        if matches!(state, DeliveryState::Failed | DeliveryState::Unknown)
            && let Some(reason) = reason
        {
            self.note(reason, 1);
        }
    }
}

impl std::ops::AddAssign for Tally {
    fn add_assign(&mut self, other: Self) {
        self.sent += other.sent;
        self.events += other.events;
        self.failed += other.failed;
        self.canceled += other.canceled;
        self.unknown += other.unknown;
        self.deferred += other.deferred;
        for (reason, count) in other.reasons {
            self.note(&reason, count);
        }
        self.bad_stacks += other.bad_stacks;
    }
}

/// The deliveries that a run has processed, and their outcomes. Clones share one tally.
#[derive(Debug, Clone, Default)]
pub struct RunTally(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    tally: Tally,
    /// The unsettled deliveries, and why they wait.
    waiting: HashMap<DeliveryId, Option<String>>,
    begun: u64,
}

impl Entries {
    fn settle(&mut self, id: &DeliveryId, state: DeliveryState, items: u32, reason: Option<&str>) {
        if self.waiting.remove(id).is_some() {
            self.tally.settle(state, items, reason);
        }
    }
}

impl RunTally {
    fn entries(&self) -> MutexGuard<'_, Entries> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Returns the counts so far, with unsettled deliveries as deferred.
    pub fn so_far(&self) -> Tally {
        let entries = self.entries();
        let mut tally = Tally {
            deferred: entries.waiting.len() as u64,
            ..entries.tally.clone()
        };
        for reason in entries.waiting.values().flatten() {
            tally.note(reason, 1);
        }
        tally
    }

    /// Returns the number of deliveries that the run has started to process.
    pub fn begun(&self) -> u64 {
        self.entries().begun
    }

    /// Returns the number of settled deliveries.
    pub fn settled(&self) -> u64 {
        self.entries().tally.settled()
    }

    /// Returns the unsettled deliveries.
    pub(super) fn waiting(&self) -> Vec<DeliveryId> {
        self.entries().waiting.keys().cloned().collect()
    }

    /// Records that the run processes these rows, perhaps again.
    ///
    /// A row that another process has settled counts only if the run was waiting for it. Returns
    /// the number of unsettled rows that are new to the run.
    pub fn take_up(&self, rows: &[Delivery]) -> u64 {
        let mut entries = self.entries();
        let before = entries.begun;
        for row in rows {
            let DeliveryOutcome { items, reason, .. } = &row.outcome;
            if row.state.settled() {
                entries.settle(&row.id, row.state, *items, reason.as_deref());
                continue;
            }
            let waiting = entries.waiting.insert(row.id.clone(), reason.clone());
            if waiting.is_none() {
                entries.begun += 1;
            }
        }
        entries.begun - before
    }

    /// Counts documents that were skipped or could not take a marker.
    pub fn passed_over(&self, bad: impl IntoIterator<Item = BadStack>) {
        self.entries().tally.bad_stacks.note(bad);
    }

    /// Records the outcomes that this run has written.
    pub(super) fn conclude(&self, settled: &[Settlement], deferred: &[Deferral]) {
        let mut entries = self.entries();
        for end in settled {
            entries.settle(&end.id, end.state, end.items, end.reason.as_deref());
        }
        for deferral in deferred {
            if let Some(reason) = entries.waiting.get_mut(&deferral.id) {
                reason.clone_from(&deferral.reason);
            }
        }
    }
}
