//! What becomes of a row of the ledger: the transitions that its holder makes, and what is
//! corrected once it is closed.
//!
//! The rule: each is one compare-and-set. A transition is made only by who still holds the row; a
//! correction only where the row is closed, and in the state that is corrected.

use chrono::{DateTime, Utc};

use super::{Delivery, DeliveryId, DeliveryState};
use crate::domain::{Lease, Watermarks};

/// What its holder makes of an open delivery that is not settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// It is `sending`, and held on to; an attempt is counted.
    HandOver(Handover),
    /// From `sending` it is `pending` again, without its call and still held: it was surely not
    /// taken.
    Recall(DeliveryId),
    /// It is held on to; a settled one as well.
    Hold(DeliveryId),
    /// It is let go, and nobody can claim it before its time.
    Defer(Deferral),
    /// It is settled. It stays open: its markers are still to be written.
    Settle(Settlement),
    /// It is settled and closed at once: its markers stand.
    Conclude(Settlement),
}

impl Transition {
    /// Which delivery it is of.
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

/// A delivery that is about to be handed over.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Handover {
    /// Which delivery it is.
    pub id: DeliveryId,
    /// The reference of the call that it is handed over in.
    pub call: String,
    /// How many events the mail tells of.
    pub items: u32,
}

/// A delivery that waits, and for what.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deferral {
    /// Which delivery waits.
    pub id: DeliveryId,
    /// `pending` for another attempt, `sending` while the outcome of the last one is still to be
    /// found out.
    pub state: DeliveryState,
    /// Nobody takes it up before then.
    pub not_before: DateTime<Utc>,
    /// Why it waits, for whoever reads the ledger; without an address.
    pub reason: Option<String>,
    /// Whether the last try used up one of `delivery.attempts`: the provider would not take the
    /// mail and named no time to wait, or nobody could find out what became of the call and it is
    /// sent again (`delivery.guarantee`). One that did not reach the provider uses up none, and
    /// neither does one that it named a time for.
    pub spends_try: bool,
}

/// How a delivery ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// Which delivery ended.
    pub id: DeliveryId,
    /// One of the settled states.
    pub state: DeliveryState,
    /// How many events the mail told of, or would have; 0 where none was built.
    pub items: u32,
    /// The provider's id of the mail; `None` where it took none or named none.
    pub provider_id: Option<String>,
    /// Why it ended so, without an address; `None` where it was simply sent.
    pub reason: Option<String>,
    /// The kind of that reason, as metrics count it; `None` where it was sent.
    pub cause: Option<Cause>,
}

/// Why an email was not sent, or may not have been.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Cause {
    /// No event applies any more.
    NothingLeft,
    /// The user may not be emailed.
    Barred,
    /// All attempts failed, up to their limit of number or time.
    GivenUp,
    /// The provider rejected it, or it cannot be rendered.
    Refused,
    /// The outcome is unknown.
    NoAnswer,
}

impl Cause {
    /// The value of the label `cause` in metrics.
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
    /// Returns the settlement of this row with the usual cause of its state. No provider named the
    /// email.
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

    /// The same, after the last attempt. The cause of an unknown outcome stays.
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

/// A delivery that failed and is to be tried again.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Reopening {
    /// Which delivery is to be tried again.
    pub id: DeliveryId,
    /// Up to where it reaches now; what it covered before, if nothing is said.
    pub watermarks: Option<Watermarks>,
    /// Who tries it; nobody yet, if nothing is said.
    pub lease: Option<Lease>,
    /// How often it was tried again by itself, this time included; 0 where a person wants it.
    pub reopened: u32,
}

impl Reopening {
    /// As it was, and nobody's yet.
    pub fn of(id: DeliveryId) -> Self {
        Self {
            id,
            watermarks: None,
            lease: None,
            reopened: 0,
        }
    }
}

/// What somebody who knows says of an unknown delivery.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// It was mailed.
    Sent,
    /// It was not: its events are to be mailed after all.
    NotSent,
}

/// What is corrected of a delivery that its holder does not change.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Correction {
    /// Of an unknown one, by somebody who knows. One that was mailed is `sent`; one that was not is
    /// `pending` and open again, nobody's.
    Judge {
        /// Which delivery it is.
        id: DeliveryId,
        /// What they say.
        verdict: Verdict,
        /// Why it is so; kept.
        reason: String,
    },
    /// Of a failed one: it is as if it were new, with no tries spent, no call and no outcome.
    Reopen(Reopening),
    /// Of a pending one, leased or not: it is canceled and closed, so no worker can send it.
    Cancel {
        /// Which delivery it is.
        id: DeliveryId,
        /// Why it is not sent; without an address.
        reason: String,
    },
}

impl Correction {
    /// Which delivery it is of.
    pub fn id(&self) -> &DeliveryId {
        match self {
            Self::Judge { id, .. }
            | Self::Reopen(Reopening { id, .. })
            | Self::Cancel { id, .. } => id,
        }
    }
}

/// What became of a correction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Corrected {
    /// The row says now what was asked for.
    Done,
    /// There is no such row, or its state is another one, or it is not closed yet.
    OtherState,
    /// Another delivery of the person is open; once it is closed there is room.
    Busy,
}
