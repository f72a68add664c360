//! The ledger's rows: one for every mail that was ever to leave, and what became of it.
//!
//! The rule (P2, P4, P5): the row exists before the mail does; its id is derived, so a mail can
//! only have one; it holds what the mail covers, or which batch it is of, so the mail can be built
//! again and its markers written again. There is at most one *open* delivery of a slot, and it
//! stays open until its markers stand. [`crate::engine::delivery`] walks the states.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, NaiveDate, Utc};

use sha2::{Digest as _, Sha256};

use super::cadence::{Cadence, Period};
pub use super::delivery_state::DeliveryState;
use super::feedback::Feedback;
use super::id::Id;
use super::lease::Lease;
use super::name::{Invalid, UserId};
use super::stack::Watermarks;

mod change;

pub use change::{
    Cause, Corrected, Correction, Deferral, Handover, Reopening, Settlement, Transition, Verdict,
};

/// `digest:<user>:<cadence>:<period>`, or `batch:<batch>`.
#[derive(Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DeliveryId(String);

impl DeliveryId {
    /// The id of a digest. It is derived, so a second run of the period finds the same row.
    pub fn digest(user: &UserId, cadence: Cadence, period: Period) -> Self {
        Self(format!("digest:{user}:{cadence}:{period}"))
    }

    /// The id of a batch's mail: each batch has one.
    pub fn batch(batch: Id) -> Self {
        Self(format!("batch:{batch}"))
    }

    /// An id as it stands in the store.
    pub fn stored(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// As it stands in the store. It may name the person, so a provider gets the tag instead.
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// What stands for it wherever the id itself cannot.
    pub fn tag(&self) -> Tag {
        Tag(hex::encode(&Sha256::digest(self.0.as_bytes())[..20]))
    }
}

impl serde::Serialize for DeliveryId {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(&self.0)
    }
}

/// Forty hexadecimal digits that stand for a delivery: in a `Message-ID`, and in what a provider
/// keeps with a mail and repeats in its events. Unlike the id they name nobody.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Tag(String);

impl Tag {
    /// The forty digits, in lower case.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Tag {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl FromStr for Tag {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let digits = text
            .bytes()
            .all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'));
        if digits && text.len() == 40 {
            Ok(Self(text.to_owned()))
        } else {
            let why = "is not forty hexadecimal digits in lower case";
            Err(Invalid::new("delivery tag", text.escape_debug(), why))
        }
    }
}

impl fmt::Display for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for DeliveryId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// What a mail is made of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Occasion {
    /// What was pending when a period's digest fell due.
    Digest {
        /// The cadence it fell due by; part of the id.
        cadence: Cadence,
        /// Such as `2014-W17`.
        period: String,
    },
    /// A batch that has ended.
    Batch {
        /// The batch that the mail tells of; its record holds the events.
        batch: Id,
        /// Its place among the mails that wait, by time: see [`crate::domain::batch::Accumulator`].
        turn: DateTime<Utc>,
    },
}

/// A row of the ledger.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Derived from the occasion, so a mail has one row whoever opens it.
    pub id: DeliveryId,
    /// Whom the mail is for.
    pub user: UserId,
    /// What the mail is made of, each time it is built.
    pub occasion: Occasion,
    /// How far it has come; a settled state changes only by a verdict or a reopening.
    pub state: DeliveryState,
    /// Open until it is settled and its markers stand; one open delivery a slot (see
    /// [`Delivery::slot`]).
    pub open: bool,
    /// Up to where a digest reaches on each stack; nothing for a batch, which knows its events
    /// itself.
    pub watermarks: Watermarks,
    /// The id of the markers it will write; no other row of the person has it.
    pub marker: Id,
    /// Who works on it; `None` where nobody does, and once it is closed.
    pub lease: Option<Lease>,
    /// Nobody takes it up before then: the provider, or a limit of ours, asked for patience.
    pub not_before: Option<DateTime<Utc>>,
    /// The local date on which a digest fell due; nothing for a batch, and in rows of before this
    /// was noted.
    pub due_on: Option<NaiveDate>,
    /// How often it was to be handed to the provider.
    pub attempts: u32,
    /// How many of these tries used up one of `delivery.attempts`: see [`Deferral::spends_try`].
    /// The store calls them `refusals`.
    pub tries_spent: u32,
    /// How often it was tried again by itself after it had failed.
    pub reopened: u32,
    /// The reference of the call it was handed over in last: with all rows of that call, the call
    /// can be made again or asked about.
    pub call: Option<String>,
    /// When that call was made first.
    pub tried: Option<DateTime<Utc>>,
    /// How many events the mail told of; known once it was about to be handed over.
    pub items: u32,
    /// When the row was opened, or opened again after a failure.
    pub created: DateTime<Utc>,
    /// When it ended, or somebody judged it; `None` while it has not ended.
    pub settled: Option<DateTime<Utc>>,
    /// The provider's id of the mail.
    pub provider_id: Option<String>,
    /// Why it failed, was canceled, is unknown or waits.
    pub reason: Option<String>,
    /// The worst that the provider has reported of it since.
    pub feedback: Option<Feedback>,
}

impl Delivery {
    /// A new row: to be built and sent by whoever takes it up, nobody at first, and covering
    /// nothing of stacks.
    pub fn new(
        id: DeliveryId,
        user: UserId,
        occasion: Occasion,
        marker: Id,
        created: DateTime<Utc>,
    ) -> Self {
        Self {
            id,
            user,
            occasion,
            state: DeliveryState::Pending,
            open: true,
            watermarks: Watermarks::new(),
            marker,
            lease: None,
            not_before: None,
            due_on: None,
            attempts: 0,
            tries_spent: 0,
            reopened: 0,
            call: None,
            tried: None,
            items: 0,
            created,
            settled: None,
            provider_id: None,
            reason: None,
            feedback: None,
        }
    }

    /// What an open delivery occupies: the person's digest, so that no two digests hold the same
    /// event; a batch is one delivery in any case. Deliveries are taken up in this order: batches
    /// first, in their turn.
    pub fn slot(&self) -> String {
        match &self.occasion {
            Occasion::Digest { .. } => digest_slot(&self.user),
            Occasion::Batch { batch, turn } => {
                format!("batch:{:013}:{batch}", turn.timestamp_millis().max(0))
            }
        }
    }
}

/// What an open digest of this person occupies.
pub fn digest_slot(user: &UserId) -> String {
    format!("digest:{user}")
}

/// What is better where nobody can tell whether a mail was taken.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Guarantee {
    /// It is not sent again.
    #[default]
    AtMostOnce,
    /// It is.
    AtLeastOnce,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tag_stands_for_one_delivery_and_names_nobody() {
        let tag = |id: &str| DeliveryId::stored(id).tag();
        let ada = tag("digest:ada:weekly:2014-W17");

        assert_eq!(ada, tag("digest:ada:weekly:2014-W17"));
        assert_ne!(ada, tag("digest:ada:weekly:2014-W18"));
        assert_eq!(ada.to_string().parse(), Ok(ada));
    }

    #[test]
    fn what_is_no_tag_is_refused() {
        let upper = "A".repeat(40);
        for text in ["", "abc", &upper, &"0".repeat(41), "{\"$ne\":null}"] {
            assert!(text.parse::<Tag>().is_err(), "{text}");
        }
    }
}
