//! The ledger: one row for each email.
//!
//! A row is created once, under an id derived from its digest period or batch (P2). Only the lease
//! holder changes an open row, except to cancel it; closed rows are changed by corrections (P4).

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::delivery::{Corrected, Correction, Transition};
use crate::domain::{Delivery, DeliveryId, DeliveryState, ReportKind, Tag, UserId};

/// Which open rows to lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim<'a> {
    /// Rows that no owner has leased and that are not deferred. A lease or a wait is ignored once
    /// it has expired, or if it ends later than any valid one can.
    Free {
        /// Current time.
        now: DateTime<Utc>,
        /// Maximum number of rows.
        limit: usize,
    },
    /// All rows of this provider call that are `sending`, including rows that are leased. The
    /// caller must hold the lease named after the call: only then can it rebuild the whole call.
    Call(&'a str),
}

/// Which rows to make claimable at once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits<'a> {
    /// Rows that this owner has leased.
    Held(&'a str),
    /// Unleased `pending` rows that are deferred beyond this moment.
    PutOff(DateTime<Utc>),
}

/// A half-open time range. Rows are matched by the time at which they were opened or reopened.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// First moment; `None` for no lower bound.
    pub since: Option<DateTime<Utc>>,
    /// First moment after the range; `None` for no upper bound.
    pub until: Option<DateTime<Utc>>,
}

impl Span {
    /// Returns whether the range contains this moment.
    pub fn contains(&self, at: DateTime<Utc>) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }
}

/// Selects rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryFilter<'a> {
    /// Rows in this state.
    State(DeliveryState),
    /// Rows in this state that were opened or reopened at this moment or later.
    StateSince(DeliveryState, DateTime<Utc>),
    /// Rows in this state and time range, with this feedback if one is given.
    StateWithin(DeliveryState, Span, Option<ReportKind>),
    /// Rows of this user.
    User(&'a UserId),
    /// Digests of this user that were opened or reopened at this moment or later.
    Digests(&'a UserId, DateTime<Utc>),
    /// Open digests of these users: not settled, or with markers still to be written.
    OpenDigests(&'a [UserId]),
    /// Rows with these tags.
    Tags(&'a [Tag]),
    /// Rows with these provider ids. Rows share an id if one call sent several emails.
    ProviderIds(&'a [String]),
}

/// The ledger of all emails.
#[async_trait]
pub trait Deliveries: Send + Sync {
    /// Inserts new `pending` rows, with the lease that they name, if any.
    ///
    /// A row is not inserted if its id exists or another open row has its slot. Returns which rows
    /// were inserted, in the order of the request. Durable.
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>>;

    /// Leases open rows to the owner and returns them, ordered by slot.
    async fn claim(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        which: &Claim<'_>,
    ) -> Result<Vec<Delivery>>;

    /// Applies these transitions to open rows that the owner has leased, at most one for each row.
    /// Extended leases end at `until`. Returns which were applied, in the order of the request.
    /// Durable (P4).
    async fn advance(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        transitions: &[Transition],
    ) -> Result<Vec<bool>>;

    /// Closes settled rows, leased or not, and frees their slots. The caller has written their
    /// markers.
    async fn close(&self, ids: &[DeliveryId]) -> Result<()>;

    /// Makes these open rows claimable at once.
    async fn release(&self, which: &Waits<'_>) -> Result<()>;

    /// Corrects rows, each at most once. A correction applies to a closed row that is unknown or
    /// failed, or to a pending row that is to be canceled. Returns the outcomes in the order of the
    /// request. Durable.
    async fn correct(
        &self,
        now: DateTime<Utc>,
        corrections: &[Correction],
    ) -> Result<Vec<Corrected>>;

    /// Returns these rows, in the order of the request; `None` if a row never existed or was
    /// removed.
    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>>;

    /// Returns the selected rows, newest first.
    async fn find_deliveries(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>>;
}

/// Describes these transitions in an error, by the first of them.
pub(super) fn doing(transitions: &[Transition]) -> &'static str {
    match transitions.first() {
        Some(Transition::HandOver(_)) => "handing over deliveries",
        Some(Transition::Recall(_)) => "recalling deliveries",
        Some(Transition::Hold(_)) => "holding deliveries",
        Some(Transition::Defer(_)) => "deferring deliveries",
        Some(Transition::Settle(_) | Transition::Conclude(_)) | None => "settling deliveries",
    }
}

/// Describes these corrections in an error, by the first of them.
pub(super) fn correcting(corrections: &[Correction]) -> &'static str {
    match corrections.first() {
        Some(Correction::Judge { .. }) => "judging deliveries",
        Some(Correction::Cancel { .. }) => "canceling deliveries",
        Some(Correction::Reopen(_)) | None => "opening deliveries again",
    }
}
