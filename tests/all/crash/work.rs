//! A simulated event: its object is a work, and it has an expected audience.

use std::collections::BTreeSet;

use tidings::domain::{Day, Id};

/// How users receive the event.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    Digest,
    /// By email in a batch that collects events.
    Batch,
    /// By email at once, in a batch of its own.
    Immediate,
}

impl Kind {
    pub fn name(self) -> &'static str {
        match self {
            Self::Digest => "ArtworkPublished",
            Self::Batch => "CommentAdded",
            Self::Immediate => "MentionMade",
        }
    }
}

/// An event about one work.
pub struct Work {
    pub kind: Kind,
    /// The expected recipients.
    pub people: BTreeSet<String>,
    pub fanout: Id,
    /// The day of the event.
    pub day: Day,
    /// Whether the work is notifiable.
    pub applies: bool,
}
