//! What happens where processes die, and whom it has to reach.

use std::collections::BTreeSet;

use tidings::domain::{Day, Id};

/// How a work is told.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Digest,
    /// In batches.
    Gathered,
    /// In a batch of its own.
    Immediate,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Digest => "ArtworkPublished",
            Self::Gathered => "CommentAdded",
            Self::Immediate => "MentionMade",
        }
    }
}

/// Something that happened.
pub struct Work {
    pub kind: Kind,
    /// Whom it has to reach.
    pub people: BTreeSet<String>,
    pub fanout: Id,
    /// The day it happened.
    pub day: Day,
    /// Whether it still applies.
    pub applies: bool,
}
