//! What is sent: a message, what may become of it, and whoever takes it.
//!
//! The rule (P5): an outcome says what is known, never what is hoped. A mailer answers for every message it was given, in
//! order, and never panics or waits for ever. Only here are addresses revealed. [`outbox`] is the mailer that always
//! works; `mime` is what it and SMTP write.

mod mime;
pub mod outbox;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::domain::{Address, DeliveryId};

pub use outbox::Outbox;

/// One mail to one person.
///
/// Names, subject and bodies may hold anything: line breaks and control characters in what becomes a header are turned
/// into spaces. `Debug` shows neither the address nor the bodies.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Which delivery it is: the mail's `Message-ID`, and a provider's idempotency key, are derived from it.
    pub delivery: DeliveryId,
    pub to: Address,
    pub to_name: Option<String>,
    pub subject: String,
    pub html: String,
    pub text: String,
    /// Further headers, such as `List-Unsubscribe`. One that a mail has anyway, or that cannot stand in one, makes the
    /// message refused.
    pub headers: Vec<(String, String)>,
    /// The moment the mail is of: its `Date`, the same each time it is sent.
    pub at: DateTime<Utc>,
}

impl std::fmt::Debug for Message {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Message")
            .field("delivery", &self.delivery)
            .field("to", &self.to)
            .field("at", &self.at)
            .finish_non_exhaustive()
    }
}

/// Whom mails come from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Sender {
    pub from: Address,
    pub from_name: String,
    /// Where answers go, if not to the sender.
    pub reply_to: Option<Address>,
}

/// What became of a message that was handed over. Reasons are for the ledger and its reader: they hold no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is the provider's now: the delivery is `sent`.
    Accepted {
        /// What the provider calls it; its events (delivered, bounced) name it so.
        provider_id: String,
    },
    /// It will never be taken as it is: the delivery is `failed`, and its events go into the next mail.
    Refused { reason: String },
    /// It was surely not taken, and may be later: no connection, too many at once, a full disk.
    TryLater { reason: String },
    /// It may have been taken: the request was written and no answer came. Sent again only if
    /// [`Mailer::repeats_safely`].
    Unknown { reason: String },
}

/// Whoever takes mails: a provider, an SMTP server, a folder.
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Hands messages over and answers for each, in their order.
    ///
    /// Dropping the future leaves the outcome of all of them unknown.
    async fn send(&self, messages: &[Message]) -> Vec<Outcome>;

    /// Whether sending the same delivery again cannot mail it twice.
    fn repeats_safely(&self) -> bool;

    /// What it is called in configuration, logs and metrics.
    fn name(&self) -> &str;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_prints_neither_its_address_nor_its_body() {
        let message = Message {
            delivery: DeliveryId::stored("digest:ada:weekly:2014-W17"),
            to: Address::new("ada.lovelace@example.org").unwrap(),
            to_name: Some("Ada Lovelace".into()),
            subject: "14 new works".into(),
            html: "<p>secret".into(),
            text: "secret".into(),
            headers: vec![(
                "List-Unsubscribe".into(),
                "<https://x.example/token>".into(),
            )],
            at: DateTime::UNIX_EPOCH,
        };

        let printed = format!("{message:?}");

        assert!(printed.contains("a…@example.org"), "{printed}");
        for hidden in ["lovelace", "Lovelace", "secret", "token"] {
            assert!(!printed.contains(hidden), "{printed}");
        }
    }
}
