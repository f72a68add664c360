//! Deliveries: one row per email, with its state and outcome.
//!
//! The row is written before the email is sent, and its id is derived, so no email has two rows
//! (P2, P4). It names the events that it covers, so the email and its markers can be built again
//! (P5). Each slot has at most one open delivery, which stays open until its markers are written.
//! Start with [`Delivery`]; [`crate::engine::delivery`] performs the transitions.

use chrono::{DateTime, Utc};
use sha2::{Digest as _, Sha256};

use super::coordination::Lease;
use super::day_stack::Watermarks;
pub use super::feedback::DeliveryState;
use super::feedback::Feedback;
use super::name::{InvalidValue, UserId, checked_texts, named_enum};
use super::schedule::Cadence;
use super::timed_id::Id;

checked_texts! {
    /// The id of a delivery: `digest:<user>:<cadence>:<period>` or `batch:<batch>`. It may contain
    /// a user id, so providers get the tag instead.
    DeliveryId: |text| Ok(text);
    /// Forty hexadecimal digits that identify a delivery in its `Message-ID` and in provider
    /// events. They do not reveal the user.
    Tag: check_tag;
}

impl DeliveryId {
    /// Returns the id of a digest. A second run for the period derives the same id.
    pub fn digest(user: &UserId, cadence: Cadence, period: &str) -> Self {
        Self::stored(format!("digest:{user}:{cadence}:{period}"))
    }

    /// Returns the id of a batch's only delivery.
    pub fn batch(batch: Id) -> Self {
        Self::stored(format!("batch:{batch}"))
    }

    /// Returns the tag, for use where the id must not appear.
    pub fn tag(&self) -> Tag {
        Tag::stored(hex::encode(&Sha256::digest(self.0.as_bytes())[..20]))
    }
}

fn check_tag(text: &str) -> Result<&str, InvalidValue> {
    let is_digit = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if text.len() == 40 && text.bytes().all(is_digit) {
        return Ok(text);
    }
    let why = "is not forty hexadecimal digits in lower case";
    Err(InvalidValue::new("delivery tag", text.escape_debug(), why))
}

/// The source of an email's events.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum DeliverySource {
    /// The events that are pending when the digest of a period is due: its cadence, which is part
    /// of the id, and the name of the period, such as `2014-W17`.
    Digest(Cadence, String),
    /// A batch that has closed: its id, whose record contains the events, and the position among
    /// waiting emails, as a time (see [`crate::domain::batch::Accumulator`]).
    Batch(Id, DateTime<Utc>),
}

impl DeliverySource {
    /// Returns the cadence and the period of a digest.
    pub fn digest(&self) -> Option<(Cadence, &str)> {
        match self {
            Self::Digest(cadence, period) => Some((*cadence, period.as_str())),
            Self::Batch(..) => None,
        }
    }

    /// Returns the id of a batch.
    pub fn batch(&self) -> Option<Id> {
        match self {
            Self::Digest(..) => None,
            Self::Batch(batch, _) => Some(*batch),
        }
    }
}

/// A delivery row.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// The id, derived from the occasion.
    pub id: DeliveryId,
    /// The recipient.
    pub user: UserId,
    /// The source of the events, read each time the email is built.
    pub source: DeliverySource,
    /// When the row was inserted, or reopened after a failure.
    pub created: DateTime<Utc>,
    /// The number of entries that a digest covers on each stack; empty for a batch.
    pub watermarks: Watermarks,
    /// The id of the markers that the delivery writes. No other delivery of the user has it.
    pub marker: Id,
    /// The state. A settled state changes only by a [`Correction`].
    pub state: DeliveryState,
    /// Whether the delivery is unsettled or lacks markers. Each slot has at most one open delivery
    /// (see [`Delivery::slot`]).
    pub open: bool,
    /// The lease of the worker that processes it. `None` if no worker does or it is closed.
    pub lease: Option<Lease>,
    /// The attempts to send it.
    pub attempts: DeliveryAttempts,
    /// The result of sending it.
    pub outcome: DeliveryOutcome,
}

/// The attempts to send a delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryAttempts {
    /// The number of attempts.
    pub made: u32,
    /// The number of attempts that count toward `delivery.attempts`: see [`Deferral::has_failed`].
    pub failed: u32,
    /// The number of automatic retries after the delivery had failed.
    pub reopened: u32,
    /// The reference of the last provider call. The rows that share it were sent in one call, which
    /// can be repeated or queried.
    pub call: Option<String>,
    /// When that call was first made.
    pub called_at: Option<DateTime<Utc>>,
    /// The earliest time of the next attempt, set by the provider or by one of our limits.
    pub not_before: Option<DateTime<Utc>>,
}

/// The result of sending a delivery, as far as it is known.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct DeliveryOutcome {
    /// The number of events in the message; set when it is first sent.
    pub items: u32,
    /// When the delivery ended, or an operator resolved its outcome; `None` while it has not ended.
    pub settled: Option<DateTime<Utc>>,
    /// The provider's id of the message.
    pub provider_id: Option<String>,
    /// Why the delivery failed, was canceled, is unknown or waits.
    pub reason: Option<String>,
    /// The worst report from the provider since it accepted the message.
    pub feedback: Option<Feedback>,
}

impl Delivery {
    /// Creates a pending delivery without a lease or watermarks.
    pub fn new(
        id: DeliveryId,
        user: UserId,
        occasion: DeliverySource,
        marker: Id,
        created: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            user,
            source: occasion,
            created,
            watermarks: Watermarks::new(),
            marker,
            state: DeliveryState::Pending,
            open: true,
            lease: None,
            attempts: DeliveryAttempts::default(),
            outcome: DeliveryOutcome::default(),
        }
    }

    /// Returns when the message was last built: when the last call was first made, or else when the
    /// row was created.
    pub fn built_at(&self) -> DateTime<Utc> {
        self.attempts.called_at.unwrap_or(self.created)
    }

    /// Returns the slot that an open delivery occupies. A user's digests share one, so no two open
    /// digests contain the same event. A batch has its own.
    ///
    /// Workers claim deliveries in the order of their slots: batches first, by queue position.
    pub fn slot(&self) -> String {
        match &self.source {
            DeliverySource::Digest(..) => digest_slot(&self.user),
            DeliverySource::Batch(batch, queue_position) => {
                let queue_position = queue_position.timestamp_millis().max(0);
                format!("batch:{queue_position:013}:{batch}")
            }
        }
    }
}

/// Returns the slot of a user's digests.
pub fn digest_slot(user: &UserId) -> String {
    format!("digest:{user}")
}

/// A change of an open delivery by the worker that leases it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Transition {
    /// Sets the state to `sending`, keeps the lease and counts an attempt.
    HandOver(Handover),
    /// Returns from `sending` to `pending` without a call and keeps the lease. The email was
    /// certainly not accepted.
    ReturnToPending(DeliveryId),
    /// Renews the lease, also of a settled delivery.
    RenewLease(DeliveryId),
    /// Releases the lease. No worker can claim the delivery before its time.
    Defer(Deferral),
    /// Settles the delivery. It stays open, because its markers are not written yet.
    Settle(Settlement),
    /// Settles and closes the delivery at once, because its markers are written.
    SettleAndClose(Settlement),
}

impl Transition {
    /// Returns the id of the delivery.
    pub fn id(&self) -> &DeliveryId {
        match self {
            Self::HandOver(Handover { id, .. })
            | Self::ReturnToPending(id)
            | Self::RenewLease(id)
            | Self::Defer(Deferral { id, .. })
            | Self::Settle(Settlement { id, .. })
            | Self::SettleAndClose(Settlement { id, .. }) => id,
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
    /// The state before. A `pending` delivery is in no call, so this applies only while it is still
    /// `pending`: another task may have sent it meanwhile. A call's answer always applies.
    pub from: DeliveryState,
    /// `pending` before another attempt, `sending` while the outcome of the last one is unknown.
    pub state: DeliveryState,
    /// The earliest time at which a worker may claim it.
    pub not_before: DateTime<Utc>,
    /// Why it waits, without an address.
    pub reason: Option<String>,
    /// Whether the last attempt counts toward `delivery.attempts`.
    ///
    /// It counts if the provider rejected the email without naming a time to wait. An attempt that
    /// did not reach the provider does not count.
    pub has_failed: bool,
}

impl Deferral {
    /// Returns the deferral of this row, without a failed attempt.
    pub fn for_row(
        row: &Delivery,
        state: DeliveryState,
        not_before: DateTime<Utc>,
        why: &str,
    ) -> Self {
        Self {
            id: row.id.clone(),
            from: row.state,
            state,
            not_before,
            reason: Some(why.to_owned()),
            has_failed: false,
        }
    }
}

/// The end of a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settlement {
    /// The id of the delivery.
    pub id: DeliveryId,
    /// The state before, as in a [`Deferral`].
    pub from: DeliveryState,
    /// One of the settled states.
    pub state: DeliveryState,
    /// The number of events in the email; 0 if none was built.
    pub items: u32,
    /// The provider's id of the email; `None` if it was not accepted or the provider gave none.
    pub provider_id: Option<String>,
    /// The reason, without an address; `None` if the email was sent.
    pub reason: Option<String>,
    /// The kind of reason for metrics; `None` if the email was sent.
    pub cause: Option<SettlementCause>,
}

named_enum! {
    /// Why an email was not sent, or may not have been.
    SettlementCause("cause") {
        /// No event applies any more.
        NothingLeft = "nothing_left",
        /// The user may not be emailed.
        NotMailable = "barred",
        /// All attempts failed, up to the limit of their number or time.
        GivenUp = "given_up",
        /// The provider rejected the email, or it cannot be rendered.
        Refused = "refused",
        /// The outcome is unknown.
        NoAnswer = "no_answer",
    }
}

impl Settlement {
    /// Returns the settlement of this row, with the usual cause of the state and without a
    /// provider's id.
    pub fn for_row(row: &Delivery, state: DeliveryState, items: u32, reason: Option<&str>) -> Self {
        let cause = match state {
            DeliveryState::Canceled => Some(SettlementCause::NotMailable),
            DeliveryState::Failed => Some(SettlementCause::Refused),
            DeliveryState::Unknown => Some(SettlementCause::NoAnswer),
            DeliveryState::Pending | DeliveryState::Sending | DeliveryState::Sent => None,
        };
        Self {
            id: row.id.clone(),
            from: row.state,
            state,
            items,
            provider_id: None,
            reason: reason.map(str::to_owned),
            cause,
        }
    }

    /// Changes the cause of a failure to [`SettlementCause::GivenUp`]. The cause of an unknown
    /// outcome stays.
    #[must_use]
    pub fn into_given_up(self) -> Self {
        let is_failure = self.state == DeliveryState::Failed;
        Self { cause: if is_failure { Some(SettlementCause::GivenUp) } else { self.cause }, ..self }
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
    pub fn new(id: DeliveryId) -> Self {
        Self { id, watermarks: None, lease: None, reopened: 0 }
    }
}

/// An operator's statement about a delivery with an unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OperatorDecision {
    /// The email was sent.
    Sent,
    /// The email was not sent, so its events are still to be emailed.
    NotSent,
}

/// A change of a delivery by a caller without its lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Correction {
    /// Resolves an unknown outcome. A sent email becomes `sent`. One that was not sent becomes
    /// `pending` and open again, without a lease. The text is the reason, which is stored.
    ResolveUnknown(DeliveryId, OperatorDecision, String),
    /// Retries a failed delivery as if it were new: without attempts, call or outcome.
    Reopen(Reopening),
    /// Cancels and closes a pending delivery, leased or not, so that no worker can send it. The
    /// text is the reason, without an address.
    Cancel(DeliveryId, String),
}

impl Correction {
    /// Returns the id of the delivery.
    pub fn id(&self) -> &DeliveryId {
        match self {
            Self::ResolveUnknown(id, _, _)
            | Self::Reopen(Reopening { id, .. })
            | Self::Cancel(id, _) => id,
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_identifies_one_delivery_and_contains_no_user_id() {
        let tag = |id: &str| DeliveryId::stored(id).tag();
        let ada = tag("digest:ada:weekly:2014-W17");

        assert_eq!(ada, tag("digest:ada:weekly:2014-W17"));
        assert_ne!(ada, tag("digest:ada:weekly:2014-W18"));
        assert_eq!(ada.to_string().parse(), Ok(ada));
    }

    #[test]
    fn a_malformed_tag_is_rejected() {
        let upper = "A".repeat(40);
        for text in ["", "abc", &upper, &"0".repeat(41), "{\"$ne\":null}"] {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }
}
