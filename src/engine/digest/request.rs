//! What is asked of a run of digests, and how its [`Report`] counts.

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::{Cadence, Day, Share, UserId};
use crate::engine::digest::owed::Expired;
use crate::wire::digest::Report;

/// Whose digests, and when.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// As if this were now.
    pub at: Option<DateTime<Utc>>,
    /// Only people on this cadence.
    pub cadence: Option<Cadence>,
    /// Only these people.
    pub users: Option<Vec<UserId>>,
    /// At most so many mails.
    pub limit: Option<u64>,
    /// Only so many of all people, the same each time.
    pub sample: Option<Share>,
    /// How long the run waits for deferred mails while none of them moves; without it they are left
    /// to the next run.
    pub patience: Option<TimeDelta>,
    /// By default a digest waits for its person's hour.
    pub timing: Timing,
    /// By default mails are sent.
    pub effect: Effect,
}

/// Whether people's hours are waited for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// Only who had something pending when their hour came.
    #[default]
    WhenDue,
    /// Everybody who has something pending and got no mail in the period they are in.
    Now,
}

/// Whether a run mails, or only says what it would mail.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    /// Opens rows in the ledger and mails what is due.
    #[default]
    Send,
    /// Says what would be sent and writes nothing.
    Rehearse,
}

impl Request {
    /// Whether a run looks at everybody, so that it may note what is owed.
    pub(super) fn reads_all(&self) -> bool {
        self.effect == Effect::Send && self.users.is_none()
    }
}

impl Report {
    pub(super) fn give_up(&mut self, day: Day, expired: Expired) {
        if !expired.all.is_nothing() {
            *self.given_up.entry(day).or_default() += expired.all;
            self.given_up_blocked += expired.blocked;
        }
    }
}
