//! What became of deliveries: counts for people and scripts, and the tally of a run.
//!
//! The rule: nobody is counted twice and nobody is left out. A run has one tally, which its
//! [`super::Ledger`] holds and writes. Every delivery that is taken in hand is noted there;
//! whichever of them is not settled at the end is still waiting, and said so.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use chrono::{DateTime, Utc};

use crate::domain::delivery::{Deferral, Settlement};
use crate::domain::{BadStack, Delivery, DeliveryId, DeliveryState};
use crate::wire::digest::Tally;

impl Tally {
    /// How many have ended, in whatever way.
    pub fn settled(&self) -> u64 {
        self.sent + self.failed + self.canceled + self.unknown
    }

    /// Whether anything went wrong, or waits.
    pub fn troubled(&self) -> bool {
        self.failed + self.unknown + self.deferred > 0
    }

    fn note(&mut self, reason: &str, times: u64) {
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

/// What was done with some rows, as the ledger has it.
#[derive(Debug, Default)]
pub(super) struct Concluded {
    /// How many of those that failed say nothing of mails to come: their addresses take nothing any
    /// more, or they failed before.
    pub excused: u64,
    /// Whether the provider answered to the call these are of.
    pub answered: bool,
    /// Why nobody can tell what became of that call, and nobody can be asked.
    pub astray: Option<String>,
    pub settled: Vec<Settlement>,
    pub deferred: Vec<Deferral>,
}

#[derive(Debug)]
struct Waiting {
    reason: Option<String>,
    /// Nobody settles it before then, as far as this run has heard.
    until: Option<DateTime<Utc>>,
}

/// Every delivery that a run has taken in hand, and what became of it. Its clones are one tally.
#[derive(Debug, Clone, Default)]
pub struct RunTally(Arc<Mutex<Entries>>);

#[derive(Debug, Default)]
struct Entries {
    tally: Tally,
    /// What is not settled, and what each waits for.
    waiting: HashMap<DeliveryId, Waiting>,
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

    /// What became of them up to now.
    pub fn so_far(&self) -> Tally {
        let entries = self.entries();
        let mut tally = Tally {
            deferred: entries.waiting.len() as u64,
            ..entries.tally.clone()
        };
        let waiting = entries.waiting.values();
        for reason in waiting.filter_map(|row| row.reason.as_ref()) {
            tally.note(reason, 1);
        }
        tally
    }

    /// How many deliveries were taken in hand.
    pub fn begun(&self) -> u64 {
        self.entries().begun
    }

    /// How many of them have ended, in whatever way.
    pub fn settled(&self) -> u64 {
        self.entries().tally.settled()
    }

    /// Those that are not settled, as far as this run has heard, and may be by now.
    pub(super) fn due(&self, now: DateTime<Utc>) -> Vec<DeliveryId> {
        let due = |waiting: &Waiting| waiting.until.is_none_or(|until| until <= now);
        let entries = self.entries();
        let rows = entries.waiting.iter().filter(|(_, waiting)| due(waiting));
        rows.map(|(id, _)| id.clone()).collect()
    }

    /// Nobody settles this one before then.
    pub(super) fn postpone(&self, id: &DeliveryId, until: DateTime<Utc>) {
        if let Some(waiting) = self.entries().waiting.get_mut(id) {
            waiting.until = Some(until);
        }
    }

    /// When the first of those that are not settled may be; nothing if there are none.
    pub(super) fn next(&self, now: DateTime<Utc>) -> Option<DateTime<Utc>> {
        let entries = self.entries();
        let untils = entries.waiting.values();
        untils.map(|waiting| waiting.until.unwrap_or(now)).min()
    }

    /// These were taken in hand, perhaps not for the first time. Of those that somebody else has
    /// settled, only what was waited for is news. Says how many of the others were taken in hand
    /// for the first time.
    pub fn take_up(&self, rows: &[Delivery]) -> u64 {
        let mut entries = self.entries();
        let before = entries.begun;
        for row in rows {
            if row.state.settled() {
                entries.settle(&row.id, row.state, row.items, row.reason.as_deref());
                continue;
            }
            let waiting = Waiting {
                reason: row.reason.clone(),
                until: None,
            };
            if entries.waiting.insert(row.id.clone(), waiting).is_none() {
                entries.begun += 1;
            }
        }
        entries.begun - before
    }

    /// These documents were passed over, or took no marker.
    pub fn passed_over(&self, bad: impl IntoIterator<Item = BadStack>) {
        self.entries().tally.bad_stacks.note(bad);
    }

    /// What was done here.
    pub(super) fn conclude(&self, settled: &[Settlement], deferred: &[Deferral]) {
        let mut entries = self.entries();
        for end in settled {
            entries.settle(&end.id, end.state, end.items, end.reason.as_deref());
        }
        for deferral in deferred {
            if let Some(waiting) = entries.waiting.get_mut(&deferral.id) {
                waiting.reason.clone_from(&deferral.reason);
                waiting.until = Some(deferral.not_before);
            }
        }
    }
}
