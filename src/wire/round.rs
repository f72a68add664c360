//! The result of a worker's round.

use std::error::Error;
use std::sync::Arc;

use serde::Serialize;

use super::digest::{Report, Tally};
use super::trouble::{BadFanouts, BadStacks};
use crate::domain::{Counts, Pause};

/// The result of a round, or of a part of it.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Round {
    /// The result of fanning out events.
    pub fanouts: FannedOut,
    /// The batches that ended.
    pub batches: Closed,
    /// The outcomes of waiting deliveries, including those of batches.
    pub mails: Tally,
    /// The digest run; `None` if this worker did not start one.
    pub digests: Option<Report>,
    /// The old records that were removed.
    pub forgotten: Forgotten,
    /// Why sending is paused, if it is.
    pub paused: Option<Pause>,
    /// The error that ended the fan-out, if any. The rest of the round was done.
    #[serde(skip)]
    pub not_fanned_out: Option<Arc<dyn Error + Send + Sync>>,
}

impl Round {
    /// Returns whether nothing was done, so that the worker can rest.
    pub fn idle(&self) -> bool {
        self.fanouts.done == 0
            && self.batches == Closed::default()
            && self.forgotten == Forgotten::default()
            && self.mails.settled() == 0
            && self.digests.is_none()
    }
}

/// The result of fanning out events.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize)]
pub struct FannedOut {
    /// The number of fan-outs that were completed.
    pub done: u64,
    /// The numbers of users and entries of all fan-outs, completed or not.
    pub counts: Counts,
    /// Documents that accept no entries. Their entries count as dropped, but still join batches.
    #[serde(skip_serializing_if = "BadStacks::is_empty")]
    pub bad_stacks: BadStacks,
    /// Unreadable fan-outs, which stay pending until they are repaired.
    #[serde(skip_serializing_if = "BadFanouts::is_empty")]
    pub bad_fanouts: BadFanouts,
}

impl FannedOut {
    /// Returns whether no document and no fan-out was skipped.
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

/// The batches that ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Closed {
    /// Batches for which a delivery was created.
    pub ended: u64,
    /// Batches that were not emailed: no event was left, or the user wanted no email.
    pub canceled: u64,
}

impl std::ops::AddAssign for Closed {
    fn add_assign(&mut self, other: Self) {
        self.ended += other.ended;
        self.canceled += other.canceled;
    }
}

/// The old records that were removed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize)]
pub struct Forgotten {
    /// The number of deliveries.
    pub deliveries: u64,
    /// The number of filed batches.
    pub batches: u64,
}
