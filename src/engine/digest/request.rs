//! The options of a digest run, and how its report counts expired events.

use chrono::{DateTime, TimeDelta, Utc};

use crate::domain::{Cadence, Day, Share, UserId};
use crate::engine::digest::owed::Expired;
use crate::wire::digest::BacklogReport;

/// The options of a digest run.
#[derive(Debug, Clone, Default)]
pub struct Request {
    /// The time of the run, now by default.
    pub at: Option<DateTime<Utc>>,
    /// Only users with this cadence.
    pub cadence: Option<Cadence>,
    /// Only these users.
    pub users: Option<Vec<UserId>>,
    /// The most emails.
    pub limit: Option<u64>,
    /// Only this share of all users, the same ones each time.
    pub sample: Option<Share>,
    /// How long the run waits for deferred emails while none of them makes progress. Without it,
    /// the next run sends them.
    pub patience: Option<TimeDelta>,
    /// Whether digests wait for their user's hour; they do by default.
    pub timing: Timing,
    /// Whether emails are sent; they are by default.
    pub effect: Effect,
}

/// Whether digests wait for their user's hour.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Timing {
    /// Only users who had pending events when their hour came.
    #[default]
    WhenDue,
    /// All users with pending events who got no email in their current period.
    Now,
}

/// Whether a run sends emails.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Effect {
    /// Opens rows in the ledger and sends due digests.
    #[default]
    Send,
    /// A dry run: reports what would be sent and writes nothing.
    Rehearse,
}

impl Request {
    /// Returns whether a run reads all users, so that it may store their backlog.
    pub(super) fn reads_all(&self) -> bool {
        self.effect == Effect::Send && self.users.is_none()
    }
}

impl BacklogReport {
    pub(super) fn give_up(&mut self, day: Day, expired: Expired) {
        if !expired.all.is_nothing() {
            *self.given_up.entry(day).or_default() += expired.all;
            self.given_up_blocked += expired.blocked;
        }
    }
}
