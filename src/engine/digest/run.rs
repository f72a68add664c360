//! A run of digests: what it works with, what it has counted, and who is due.

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
    /// The row of the ledger that the mail would be of.
    pub id: &'a DeliveryId,
    /// Whom it would go to.
    pub user: &'a User,
    /// The person's cadence, which is not `never`.
    pub cadence: Cadence,
    /// The local date or ISO week that it is for.
    pub period: Period,
    /// What it would tell: what is wanted and still applies.
    pub content: &'a Content,
}

/// Runs of digests: who is due is found, and mailed or only shown.
pub struct Digests {
    /// Takes the rows of due digests to their end.
    pub sender: Sender,
    pub(crate) context: Arc<Context>,
    pub(crate) catalog: CatalogSource,
    /// Leaves out what was seen in the feed, where that is wanted.
    pub skip_seen: SkipSeen,
    /// Says which days before the window are read, and notes what is owed of them.
    pub owed: OwedDays,
    /// How often everybody is looked at (`digest.full_look`).
    pub full_look: TimeDelta,
    /// What holds for people who did not choose cadence, weekday, hour or time zone.
    pub schedule: Schedule,
    /// How many items a section and a mail show.
    pub caps: Caps,
}

/// Somebody whose digest is due.
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
            id: self.row.id(),
            user: &self.user,
            cadence: self.cadence,
            period: self.due.period,
            content,
        }
    }
}

/// A run: what it is asked for, and all that it has learned and counted up to now.
pub(super) struct Run<'a> {
    pub digests: &'a Digests,
    pub request: &'a Request,
    pub progress: &'a dyn Watcher,
    /// The moment that digests are due by.
    pub at: DateTime<Utc>,
    /// Its tally says what became of the run's mails.
    pub sender: Sender,
    pub report: Report,
    /// Whether somebody who is due was passed over for a mail that is still open: an earlier one,
    /// or this one, opened by somebody else.
    pub passed_over: bool,
    /// Whether what is found is shown to somebody.
    pub is_looked_on: bool,
    pub catalog: Catalog,
    pub older: Older,
}

/// The row that a digest is made under.
pub(super) enum Row {
    /// A new one.
    New(DeliveryId),
    /// One that failed, and is tried again.
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
