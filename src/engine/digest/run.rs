//! The state of a digest run: its dependencies, its counts and the due users.

use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};

use super::Request;
use super::older::Older;
use super::owed::OwedDays;
use crate::context::Context;
use crate::domain::content::Caps;
use crate::domain::stack::EventAt;
use crate::domain::{
    Cadence, Content, Delivery, DeliveryId, Due, Period, PersonStacks, Schedule, User,
};
use crate::engine::Watcher;
use crate::engine::delivery::Sender;
use crate::engine::eligibility::catalog::{Catalog, CatalogSource};
use crate::engine::eligibility::skip_seen::SkipSeen;
use crate::wire::digest::Report;

/// A digest that is due.
#[derive(Debug, Clone, Copy)]
pub struct Found<'a> {
    /// The recipient.
    pub user: &'a User,
    /// The user's cadence, never `never`.
    pub cadence: Cadence,
    /// The local date or ISO week of the digest.
    pub period: Period,
    /// The wanted events that still apply.
    pub content: &'a Content,
}

/// Runs digests: finds the due ones and sends or only shows them. Start with [`Digests::run`].
pub struct Digests {
    /// Sends the due digests.
    pub sender: Sender,
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    /// Excludes events that were seen in the feed, if `digest.skip_seen` is on.
    pub skip_seen: SkipSeen,
    /// Knows which days before the window have a backlog, and stores its counts.
    pub owed: OwedDays,
    /// The interval between full scans (`digest.full_look`).
    pub full_look: TimeDelta,
    /// The default schedule, for users who did not choose a cadence, weekday, hour or time zone.
    pub schedule: Schedule,
    /// The most items in a section and in an email.
    pub caps: Caps,
}

pub(super) struct DuePerson<'a> {
    pub user: User,
    pub stacks: &'a PersonStacks,
    pub cadence: Cadence,
    pub due: Due,
    pub row: Row,
    pub wanted: Vec<EventAt<'a>>,
}

impl DuePerson<'_> {
    pub(super) fn found<'a>(&'a self, content: &'a Content) -> Found<'a> {
        Found {
            user: &self.user,
            cadence: self.cadence,
            period: self.due.period,
            content,
        }
    }
}

/// A run, with its options and its results so far.
pub(super) struct Run<'a> {
    pub digests: &'a Digests,
    pub request: &'a Request,
    pub progress: &'a dyn Watcher,
    /// The time of the run.
    pub at: DateTime<Utc>,
    /// Its tally counts the outcomes of the run's emails.
    pub sender: Sender,
    pub report: Report,
    /// Whether a due user was skipped because of an open email. It is an earlier digest, or this
    /// one, opened by another process.
    pub passed_over: bool,
    /// Whether an [`Onlooker`](super::Onlooker) gets the digests.
    pub is_looked_on: bool,
    pub catalog: Catalog,
    pub older: Older,
}

/// The ledger row of a digest.
pub(super) enum Row {
    New(DeliveryId),
    /// A failed row that is retried.
    Again(Box<Delivery>),
}

impl Row {
    pub(super) fn id(&self) -> &DeliveryId {
        match self {
            Self::New(id) => id,
            Self::Again(row) => &row.id,
        }
    }
}
