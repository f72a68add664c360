//! Changes of deliveries: transitions by the worker that holds the lease, and later corrections.
//!
//! Each change is one compare-and-set. A transition requires the caller's lease. A correction
//! requires the state that it corrects.

use chrono::{DateTime, Utc};

use super::{Delivery, DeliveryId, DeliveryState};
use crate::domain::{Lease, Watermarks};

/// A change of an open delivery by the worker that leases it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// Sets the state to `sending`, keeps the lease and counts an attempt.
    HandOver(Handover),
    /// Returns from `sending` to `pending` without a call and keeps the lease. The email was
    /// certainly not accepted.
    Recall(DeliveryId),
    /// Renews the lease, also of a settled delivery.
    Hold(DeliveryId),
    /// Releases the lease. No worker can claim the delivery before its time.
    Defer(Deferral),
    /// Settles the delivery. It stays open, because its markers are not written yet.
    Settle(Settlement),
    /// Settles and closes the delivery at once, because its markers are written.
    Conclude(Settlement),
}

impl Transition {
    /// Returns the id of the delivery.
    pub fn id(&self) -> &DeliveryId {
        match self {
            Self::HandOver(Handover { id, .. })
            | Self::Recall(id)
            | Self::Hold(id)
            | Self::Defer(Deferral { id, .. })
            | Self::Settle(Settlement { id, .. })
            | Self::Conclude(Settlement { id, .. }) => id,
        }
    }
}

/// A delivery that is about to be sent.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// The id of the delivery.
    pub id: DeliveryId,
    /// The reference of the provider call that contains it.
    pub call: String,
    /// The number of events in the email.
    pub items: u32,
}

/// A delivery that waits for its next attempt or for its outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deferral {
    /// The id of the delivery.
    pub id: DeliveryId,
    /// `pending` before another attempt, `sending` while the outcome of the last one is unknown.
    pub state: DeliveryState,
    /// The earliest time at which a worker may claim it.
    pub not_before: DateTime<Utc>,
    /// Why it waits, without an address.
    pub reason: Option<String>,
    /// Whether the last attempt counts toward `delivery.attempts`.
    ///
    /// It counts if the provider rejected the email without naming a time to wait. It also counts
    /// if the outcome is unknown and the email is sent again (`delivery.guarantee`). An attempt
    /// that did not reach the provider does not count.
    pub has_failed: bool,
}

/// The end of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The id of the delivery.
    pub id: DeliveryId,
    /// One of the settled states.
    pub state: DeliveryState,
    /// The number of events in the email; 0 if none was built.
    pub items: u32,
    /// The provider's id of the email; `None` if it was not accepted or the provider gave none.
    pub provider_id: Option<String>,
    /// The reason, without an address; `None` if the email was sent.
    pub reason: Option<String>,
    /// The kind of reason for metrics; `None` if the email was sent.
    pub cause: Option<Cause>,
}

/// Why an email was not sent, or may not have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No event applies any more.
    NothingLeft,
    /// The user may not be emailed.
    Barred,
    /// All attempts failed, up to the limit of their number or time.
    GivenUp,
    /// The provider rejected the email, or it cannot be rendered.
    Refused,
    /// The outcome is unknown.
    NoAnswer,
}

impl Cause {
    /// Returns the value of the label `cause` in metrics.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NothingLeft => "nothing_left",
            Self::Barred => "barred",
            Self::GivenUp => "given_up",
            Self::Refused => "refused",
            Self::NoAnswer => "no_answer",
        }
    }
}

impl Settlement {
    /// Returns the settlement of this row, with the usual cause of the state and without a
    /// provider's id.
    pub fn of(row: &Delivery, state: DeliveryState, items: u32, reason: Option<&str>) -> Self {
        let cause = match state {
            DeliveryState::Canceled => Some(Cause::Barred),
            DeliveryState::Failed => Some(Cause::Refused),
            DeliveryState::Unknown => Some(Cause::NoAnswer),
            DeliveryState::Pending | DeliveryState::Sending | DeliveryState::Sent => None,
        };
        Self {
            id: row.id.clone(),
            state,
            items,
            provider_id: None,
            reason: reason.map(str::to_owned),
            cause,
        }
    }

    /// Changes the cause of a failure to [`Cause::GivenUp`]. The cause of an unknown outcome stays.
    #[must_use]
    pub fn given_up(self) -> Self {
        let has_failed = self.state == DeliveryState::Failed;
        let cause = if has_failed {
            Some(Cause::GivenUp)
        } else {
            self.cause
        };
        Self { cause, ..self }
    }
}

/// A failed delivery that is to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reopening {
    /// The id of the delivery.
    pub id: DeliveryId,
    /// The new watermarks; `None` keeps the old ones.
    pub watermarks: Option<Watermarks>,
    /// The lease of the worker that tries it; `None` if no worker does yet.
    pub lease: Option<Lease>,
    /// The number of automatic retries including this one; 0 if an operator asked for it.
    pub reopened: u32,
}

impl Reopening {
    /// Creates a reopening without new watermarks or a lease.
    pub fn of(id: DeliveryId) -> Self {
        Self {
            id,
            watermarks: None,
            lease: None,
            reopened: 0,
        }
    }
}

/// An operator's statement about a delivery with an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// The email was sent.
    Sent,
    /// The email was not sent, so its events are still to be emailed.
    NotSent,
}

/// A change of a delivery by a caller without its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Correction {
    /// Resolves an unknown outcome. A sent email becomes `sent`. One that was not sent becomes
    /// `pending` and open again, without a lease.
    Judge {
        /// The id of the delivery.
        id: DeliveryId,
        /// The operator's statement.
        verdict: Verdict,
        /// The reason, which is stored.
        reason: String,
    },
    /// Retries a failed delivery as if it were new: without attempts, call or outcome.
    Reopen(Reopening),
    /// Cancels and closes a pending delivery, leased or not, so that no worker can send it.
    Cancel {
        /// The id of the delivery.
        id: DeliveryId,
        /// Why it is not sent, without an address.
        reason: String,
    },
}

impl Correction {
    /// Returns the id of the delivery.
    pub fn id(&self) -> &DeliveryId {
        match self {
            Self::Judge { id, .. }
            | Self::Reopen(Reopening { id, .. })
            | Self::Cancel { id, .. } => id,
        }
    }
}

/// The result of a correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corrected {
    /// The row is as requested.
    Done,
    /// The row does not exist, is in another state, or is not closed yet.
    OtherState,
    /// Another delivery of the user is open. Try again when it is closed.
    Busy,
}
