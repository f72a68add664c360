//! What a worker did in a round.

use std::error::Error;
use std::sync::Arc;

use serde::Serialize;

use super::digest::{Report, Tally};
use super::trouble::{BadFanouts, BadStacks};
use crate::domain::{Counts, Pause};

/// What a round did, or a part of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Round {
    /// What was fanned out.
    pub fanouts: FannedOut,
    /// Batches that have ended.
    pub batches: Closed,
    /// What became of mails that waited in the ledger, those of batches among them.
    pub mails: Tally,
    /// The run of digests; `None` if this worker did not look for any.
    pub digests: Option<Report>,
    /// What was removed, as it was settled long ago.
    pub forgotten: Forgotten,
    /// Why no mail leaves, if none may.
    pub paused: Option<Pause>,
    /// Why nothing could be fanned out, where the rest was done all the same.
    #[serde(skip)]
    pub not_fanned_out: Option<Arc<dyn Error + Send + Sync>>,
}

impl Round {
    /// Whether nothing was done, so that the part may rest.
    pub fn idle(&self) -> bool {
        self.fanouts.done == 0
            && self.batches == Closed::default()
            && self.forgotten == Forgotten::default()
            && self.mails.settled() == 0
            && self.digests.is_none()
    }
}

/// What one step did.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FannedOut {
    /// Fan-outs that are finished now.
    pub done: u64,
    /// What was added, by all that was fanned out: people, entries, entries without room.
    pub counts: Counts,
    /// Documents that took no entries. What should stand there is counted as not stored; it is in
    /// batches all the same.
    #[serde(skip_serializing_if = "BadStacks::is_empty")]
    pub bad_stacks: BadStacks,
    /// Fan-outs that cannot be read: they stay pending until somebody fixes them.
    #[serde(skip_serializing_if = "BadFanouts::is_empty")]
    pub bad_fanouts: BadFanouts,
}

impl FannedOut {
    /// Whether nothing had to be passed over.
    pub fn is_whole(&self) -> bool {
        self.bad_stacks.is_empty() && self.bad_fanouts.is_empty()
    }
}

impl std::ops::AddAssign for FannedOut {
    fn add_assign(&mut self, other: Self) {
        self.done += other.done;
        self.counts += other.counts;
        self.bad_stacks += other.bad_stacks;
        self.bad_fanouts += other.bad_fanouts;
    }
}

/// What became of batches.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Closed {
    /// Handed on to be mailed.
    pub ended: u64,
    /// There was nothing to mail, or nobody wanted it mailed.
    pub canceled: u64,
}

impl std::ops::AddAssign for Closed {
    fn add_assign(&mut self, other: Self) {
        self.ended += other.ended;
        self.canceled += other.canceled;
    }
}

/// What was forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Forgotten {
    /// Rows of the ledger that were removed.
    pub deliveries: u64,
    /// Filed batches that were removed.
    pub batches: u64,
}
