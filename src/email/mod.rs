//! What is sent: a message, what may become of it, and whoever takes it.
//!
//! The rule (P5): an outcome says what is known, never what is hoped. A mailer answers for every
//! message it was given, in order, and never panics or waits for ever. Only here are addresses
//! revealed. [`outbox`] is the mailer that always works; `content` is what mails say; `mime` is
//! what it and [`smtp`] write; the [`providers`] stand on `http` and `letter`. How often any of
//! them is called is not decided here.

mod check;
mod content;
pub mod dkim;
mod guarded;
pub mod hooks;
mod http;
mod leave;
mod letter;
mod mime;
pub mod outbox;
mod pinned;
pub mod providers;
mod sign;
pub mod smtp;
mod variables;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::domain::{Address, DeliveryId};

pub use check::Checked;
pub use content::{Content, Filled, Personal, Place, Placeholders, Text};
pub use dkim::Dkim;
pub use http::Account;
pub use leave::{Leave, Standing};
pub use mime::tag;
pub use outbox::Outbox;
pub use pinned::{Pinned, Unfetched};
pub use providers::{PROVIDERS, Provider};
pub use smtp::{Relay, Security, Smtp};

/// One mail to one person. `Debug` shows neither the address nor the content nor the links.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// Which delivery it is: the mail's `Message-ID`, and what a provider knows it by, are derived
    /// from it.
    pub delivery: DeliveryId,
    /// Where it goes; it prints masked.
    pub to: Address,
    /// The recipient's name in `To`; made harmless and shortened when it is written.
    pub to_name: Option<String>,
    /// What it says; shared by all whose mail is the same, so that they can share a call.
    pub content: Arc<Content>,
    /// What fills the places of the content. Without it the content has none.
    pub personal: Option<Personal>,
    /// Further headers that are the same for everybody, such as `List-Id`. `Auto-Submitted` and
    /// `List-Unsubscribe` are not among them: every mail has the one, and mailers derive the other
    /// from the personal links ([`Message::headers`]). One that a mail has anyway, or that cannot
    /// stand in one, makes the message refused.
    pub further: Vec<(String, String)>,
    /// The moment the mail is of: its `Date`, the same each time it is sent.
    pub at: DateTime<Utc>,
}

/// That a mail was made by a program and answers none.
const AUTOMATIC: (&str, &str) = ("Auto-Submitted", "auto-generated");

impl Message {
    /// The content with this person's links in it.
    pub fn filled(&self) -> Filled {
        self.content.filled(self.personal.as_ref())
    }

    /// All headers beside those that mails have of themselves: that no person wrote it (RFC 3834,
    /// section 5.1), so that nobody's absence is told to us; the further ones; and the one-click
    /// unsubscribe of RFC 8058, section 3.1, which asks for an HTTPS link.
    pub fn headers(&self) -> Vec<(String, String)> {
        let (name, value) = AUTOMATIC;
        let mut headers = vec![(name.to_owned(), value.to_owned())];
        headers.extend_from_slice(&self.further);
        if let Some(link) = self.personal.as_ref().and_then(Personal::one_click) {
            headers.push(("List-Unsubscribe".into(), format!("<{link}>")));
            headers.push((
                "List-Unsubscribe-Post".into(),
                "List-Unsubscribe=One-Click".into(),
            ));
        }
        headers
    }
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
    /// The address in `From`; its domain is that of the `Message-ID`, where we choose one.
    pub from: Address,
    /// The name in `From`; empty for none.
    pub from_name: String,
    /// Where answers go, if not to the sender.
    pub reply_to: Option<Address>,
}

/// What became of a message that was handed over. Reasons are for the ledger and its reader: they
/// hold no address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// It is the provider's now: the delivery is `sent`.
    Accepted {
        /// What the provider calls it; its events (delivered, bounced) name it so.
        provider_id: String,
    },
    /// It will never be taken as it is: the delivery is `failed`, and its events go into the next
    /// mail.
    Refused {
        /// What the provider said, or what it will not take.
        reason: String,
    },
    /// The same, and it was not even put into the call: it cannot be a mail.
    Unsendable {
        /// Why it cannot be a mail.
        reason: String,
    },
    /// Its call was refused as a whole, though perhaps for another message of it: surely none was
    /// taken, and each is to be sent alone, so that nobody goes without a mail for somebody else's
    /// fault. Only calls of several end so.
    RefusedTogether {
        /// What the provider said of the call.
        reason: String,
    },
    /// The provider takes nothing for this address any more: the delivery is `failed`, and the
    /// address is suppressed.
    Undeliverable {
        /// What the provider said of the address.
        reason: String,
    },
    /// Nobody could be reached who might have taken it: it is tried again later, until that is too
    /// late.
    Unreachable {
        /// Why nobody could be reached.
        reason: String,
    },
    /// It was surely not taken, and may be later: too many at once, a full disk, trouble of the
    /// provider's own.
    TryLater {
        /// Why not now.
        reason: String,
        /// How long to wait at least, where the provider said so.
        after: Option<Duration>,
    },
    /// Its recipient or its content is not taken now, and may be later; nothing follows for other
    /// messages.
    Deferred {
        /// Why not now.
        reason: String,
    },
    /// It was not begun, or broken off before it could be taken, as the leave to send it had ended
    /// ([`Leave`]): surely not taken.
    Withheld {
        /// Why it did not go out.
        reason: String,
    },
    /// It was surely not taken, and neither will any other be until somebody fixes it: a bad key, a
    /// suspended account.
    Stop {
        /// What the provider said, which tells what to fix.
        reason: String,
    },
    /// It may have been taken: the request was written and no answer came, or one that cannot be
    /// read.
    Unknown {
        /// Why nobody can tell.
        reason: String,
    },
}

impl Outcome {
    /// Whether the mail was in a call at all: what was not says nothing of the provider.
    pub fn is_shown(&self) -> bool {
        !matches!(self, Self::Unsendable { .. } | Self::Withheld { .. })
    }
}

/// What can be done about an outcome nobody saw (P5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Certainty {
    /// Sending the same call again, under the same reference, mails nothing twice: for so long, or
    /// for ever.
    Repeat {
        /// Since the first call, as long as the provider keeps its reference; `None` for ever.
        within: Option<Duration>,
    },
    /// The provider can be asked what it took ([`Mailer::ask`]).
    Ask,
    /// Nobody can tell: it stays unknown.
    Never,
}

/// What a provider says of a message when it is asked.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Answer {
    /// It took the message.
    Taken {
        /// What the provider calls it, as in [`Outcome::Accepted`].
        provider_id: String,
    },
    /// It does not know the message. Providers index what they take a little later, so soon after
    /// sending it proves nothing.
    NotTaken,
    /// The answer could not be got or read now.
    Silent(Silence),
}

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Silence {
    /// Why, for the ledger; without an address.
    pub reason: String,
    /// How long to wait at least, where the provider said so.
    pub after: Option<Duration>,
}

impl<T: Into<String>> From<T> for Silence {
    fn from(reason: T) -> Self {
        Self {
            reason: reason.into(),
            after: None,
        }
    }
}

/// Whoever takes mails: a provider, an SMTP server, a folder.
#[async_trait]
pub trait Mailer: Send + Sync {
    /// How these messages are cut into calls: each message once, by its place, in calls no longer
    /// than the provider takes. Messages of one call are sent, and fail, together; where a provider
    /// takes many recipients only with the same content, they have it.
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>>;

    /// Makes one call, of messages that [`Mailer::calls`] put together, and answers for each, in
    /// their order. `reference` names the call in the ledger (ASCII letters, digits, `-` and `_`,
    /// at most 64 characters): it is the provider's idempotency key, or what it can be asked by. A
    /// call that is made again under its reference must hold the same deliveries. Nothing of it
    /// goes out once `leave` is over.
    ///
    /// Dropping the future leaves the outcome of all of them unknown.
    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome>;

    /// What can be done about an unknown outcome.
    fn certainty(&self) -> Certainty;

    /// What became of messages of a call whose answer was not seen, all or some of them, in order.
    /// Only asked where [`Certainty::Ask`].
    async fn ask(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<Answer> {
        let _ = reference;
        let reason = format!("{} cannot be asked", self.name());
        vec![Answer::Silent(reason.into()); deliveries.len()]
    }

    /// Whether it would take mails, as far as can be told without sending one: the key is asked
    /// about, a folder is written to.
    async fn check(&self) -> Checked;

    /// What it is called in configuration, logs and metrics.
    fn name(&self) -> &str;

    /// The folder that emails are written to; `None` if they are sent.
    fn outbox(&self) -> Option<&Path> {
        None
    }

    /// What tells this account from any other, at this provider or at another: only who took a call
    /// knows of it.
    fn account(&self) -> String {
        self.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn personal() -> Personal {
        Personal {
            unsubscribe: Some("https://x.example/u/token".into()),
            preferences: "https://x.example/u/token/preferences".into(),
            mute: None,
        }
    }

    #[test]
    fn a_message_prints_neither_its_address_nor_its_body() {
        let message = Message {
            delivery: DeliveryId::stored("digest:ada:weekly:2014-W17"),
            to: Address::new("ada.lovelace@example.org").unwrap(),
            to_name: Some("Ada Lovelace".into()),
            content: Arc::new(Content {
                subject: "14 new works".into(),
                html: "<p>secret".into(),
                text: "secret".into(),
            }),
            personal: Some(personal()),
            further: vec![("Feedback-ID".into(), "hidden-id".into())],
            at: DateTime::UNIX_EPOCH,
        };

        let printed = format!("{message:?}");

        assert!(printed.contains("a…@example.org"), "{printed}");
        for hidden in ["lovelace", "Lovelace", "secret", "token", "hidden-id"] {
            assert!(!printed.contains(hidden), "{printed}");
        }
    }

    #[test]
    fn each_persons_links_fill_the_places_of_the_content_they_share() {
        let placeholders = Placeholders::new().unwrap();
        let choose = format!(
            "<a href=\"{}\">choose</a>",
            placeholders.of(Place::Preferences)
        );
        let stop = format!("stop: {}\n", placeholders.of(Place::Unsubscribe));
        let message = Message {
            delivery: DeliveryId::stored("digest:ada:weekly:2014-W17"),
            to: Address::new("ada@example.org").unwrap(),
            to_name: None,
            content: Arc::new(Content {
                subject: "One new work".into(),
                html: placeholders.cut(&choose),
                text: placeholders.cut(&stop),
            }),
            personal: Some(personal()),
            further: Vec::new(),
            at: DateTime::UNIX_EPOCH,
        };

        let filled = message.filled();

        assert_eq!(
            filled.html,
            "<a href=\"https://x.example/u/token/preferences\">choose</a>"
        );
        assert_eq!(filled.text, "stop: https://x.example/u/token\n");
        assert_eq!(
            message.headers(),
            [
                ("Auto-Submitted".into(), "auto-generated".into()),
                (
                    "List-Unsubscribe".into(),
                    "<https://x.example/u/token>".into()
                ),
                (
                    "List-Unsubscribe-Post".into(),
                    "List-Unsubscribe=One-Click".into()
                ),
            ] as [(String, String); 3]
        );
    }

    #[test]
    fn one_click_is_not_offered_where_the_link_is_not_https() {
        let plain = Message {
            delivery: DeliveryId::stored("digest:ada:weekly:2014-W17"),
            to: Address::new("ada@example.org").unwrap(),
            to_name: None,
            content: Arc::new(Content {
                subject: String::new(),
                html: Text::default(),
                text: Text::default(),
            }),
            personal: Some(Personal {
                unsubscribe: Some("http://127.0.0.1:8080/u/token".into()),
                preferences: "http://127.0.0.1:8080/u/token".into(),
                mute: None,
            }),
            further: Vec::new(),
            at: DateTime::UNIX_EPOCH,
        };

        let automatic = ("Auto-Submitted".into(), "auto-generated".into());
        assert_eq!(plain.headers(), [automatic]);
    }
}
