//! The ledger of every mail.
//!
//! The rule (P2, P4): a row is opened once, under an id that is derived, and changed only by who
//! holds it or, where it is closed, by who knows better.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Result;
use crate::domain::delivery::{Corrected, Correction, Transition};
use crate::domain::{Delivery, DeliveryId, DeliveryState, ReportKind, Tag, UserId};

/// Which open rows are leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Claim<'a> {
    /// Those that nobody holds and that need not wait: their lease, or what they waited for, is
    /// over by now, or lies further ahead than any lease or wait can.
    Free {
        /// The time.
        now: DateTime<Utc>,
        /// How many at most.
        limit: usize,
    },
    /// All that are `sending` in this call, whoever holds them. Only for who has the lease that is
    /// named after the call: others may hold some of its rows, and the call has to be put together
    /// again as a whole.
    Call(&'a str),
}

/// Which open rows nobody can claim yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Waits<'a> {
    /// Those that this owner holds.
    Held(&'a str),
    /// Those that are `pending`, nobody's, and put off until after this moment.
    PutOff(DateTime<Utc>),
}

/// A span of time in which rows were opened, or opened again.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Span {
    /// The first moment; `None` for no bound.
    pub since: Option<DateTime<Utc>>,
    /// The first moment after it; `None` for no bound.
    pub until: Option<DateTime<Utc>>,
}

impl Span {
    /// Whether this moment is of it.
    pub fn contains(&self, at: DateTime<Utc>) -> bool {
        self.since.is_none_or(|since| at >= since) && self.until.is_none_or(|until| at < until)
    }
}

/// Which rows.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum DeliveryFilter<'a> {
    /// Those in this state.
    State(DeliveryState),
    /// Those in this state that were opened, or opened again, since this moment.
    StateSince(DeliveryState, DateTime<Utc>),
    /// Those in this state that are of this span, and have this feedback if one is named.
    StateWithin(DeliveryState, Span, Option<ReportKind>),
    /// Those of this person.
    User(&'a UserId),
    /// Digests of this person that were opened, or opened again, since this moment.
    Digests(&'a UserId, DateTime<Utc>),
    /// The open digests of these people: not settled, or their markers are still to be written.
    OpenDigests(&'a [UserId]),
    /// Those that these tags stand for.
    Tags(&'a [Tag]),
    /// Those that the provider knows under these ids. Several rows may share one, as where one call
    /// carried many mails.
    ProviderIds(&'a [String]),
}

/// The ledger of every mail.
#[async_trait]
pub trait Deliveries: Send + Sync {
    /// Inserts new rows: `pending`, open, and leased to whom they name, or nobody's. A row whose id
    /// exists already, or whose slot another open row holds, is not inserted: the answer says which
    /// were, in the order asked. Durable.
    async fn open(&self, rows: &[Delivery]) -> Result<Vec<bool>>;

    /// Leases open rows to the owner, and answers with them, by slot.
    async fn claim(
        &self,
        owner: &str,
        until: DateTime<Utc>,
        which: &Claim<'_>,
    ) -> Result<Vec<Delivery>>;

    /// Makes these transitions of open rows that the owner holds, of each delivery at most one in a
    /// call; the answer says which were made, in the order asked. `until` is when the leases end
    /// that are extended. Durable before it returns (P4).
    async fn advance(
        &self,
        owner: &str,
        now: DateTime<Utc>,
        until: DateTime<Utc>,
        transitions: &[Transition],
    ) -> Result<Vec<bool>>;

    /// Closes settled rows, whoever holds them: their markers stand. Their slots are free again.
    async fn close(&self, ids: &[DeliveryId]) -> Result<()>;

    /// Lets open rows be claimed at once.
    async fn release(&self, which: &Waits<'_>) -> Result<()>;

    /// Corrects rows, each delivery at most once in a call: a closed one that is unknown, or failed
    /// and is tried again, and a pending one that is canceled. The answers are in the order of the
    /// request. Durable before it returns.
    async fn correct(
        &self,
        now: DateTime<Utc>,
        corrections: &[Correction],
    ) -> Result<Vec<Corrected>>;

    /// These rows, in the order asked; `None` where none was opened, or it has been forgotten.
    async fn deliveries(&self, ids: &[DeliveryId]) -> Result<Vec<Option<Delivery>>>;

    /// These rows, newest first, at most `limit`.
    async fn find_deliveries(
        &self,
        filter: &DeliveryFilter<'_>,
        limit: usize,
    ) -> Result<Vec<Delivery>>;
}

/// What making these comes to, by the first of them.
pub(super) fn doing(transitions: &[Transition]) -> &'static str {
    match transitions.first() {
        Some(Transition::HandOver(_)) => "handing over deliveries",
        Some(Transition::Recall(_)) => "recalling deliveries",
        Some(Transition::Hold(_)) => "holding deliveries",
        Some(Transition::Defer(_)) => "deferring deliveries",
        Some(Transition::Settle(_) | Transition::Conclude(_)) | None => "settling deliveries",
    }
}

/// What correcting these comes to, by the first of them.
pub(super) fn correcting(corrections: &[Correction]) -> &'static str {
    match corrections.first() {
        Some(Correction::Judge { .. }) => "judging deliveries",
        Some(Correction::Cancel { .. }) => "canceling deliveries",
        Some(Correction::Reopen(_)) | None => "opening deliveries again",
    }
}
