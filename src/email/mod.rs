//! The messages that tidings sends, the outcomes of sending, and the [`Mailer`] that sends.
//!
//! An outcome states only what is known (P5). A mailer returns one for each message, in order, and
//! never panics or waits forever. Debug output masks addresses, and reasons contain none (P8). Rate
//! limits are in `engine::delivery`. Start with [`Mailer`] and [`Outcome`].

mod api_calls;
pub mod hooks;
pub(crate) mod http;
mod lease_permit;
mod mime;
pub mod outbox;
mod placeholders;
pub mod providers;
pub mod smtp;

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use crate::domain::{Address, DeliveryId};

pub use hooks::PinnedClient;
pub use http::Account;
pub use lease_permit::{SendPermit, SendPermitState};
pub use mime::delivery_tag;
pub use outbox::Outbox;
pub use placeholders::{
    BodyText, FilledContent, LinkPlaceholder, Placeholders, RecipientLinks, SharedContent,
};
pub use providers::{PROVIDERS, Provider};
pub use smtp::{Relay, Security, Smtp};

/// An email to one recipient. `Debug` shows neither the address nor the content nor the links.
#[derive(Clone, PartialEq, Eq)]
pub struct Message {
    /// The delivery that this email belongs to. The `Message-ID` and the provider's tag derive from
    /// its id.
    pub delivery: DeliveryId,
    /// The recipient's address. It prints masked.
    pub to: Address,
    /// The recipient's name in `To`. It is made safe for a header and shortened when it is written.
    pub to_name: Option<String>,
    /// Subject and bodies. Messages with equal content share one value, so that they can share a
    /// call.
    pub content: Arc<SharedContent>,
    /// The links that fill the content's placeholders. Without them the placeholders stay empty.
    pub links: Option<RecipientLinks>,
    /// Additional headers that are the same for all recipients, such as `List-Id`. Do not add
    /// `Auto-Submitted` or `List-Unsubscribe`: [`Message::headers`] adds them. An invalid header
    /// makes the message [`Outcome::Unsendable`].
    pub extra_headers: Vec<(String, String)>,
    /// The time in `Date`. It is the same for each attempt.
    pub at: DateTime<Utc>,
}

/// Marks the email as generated automatically and not a reply.
const AUTOMATIC: (&str, &str) = ("Auto-Submitted", "auto-generated");

impl Message {
    /// Returns the content with the recipient's links filled in.
    pub fn fill_links(&self) -> FilledContent {
        self.content.fill(self.links.as_ref())
    }

    /// Returns the headers beyond those that every email has, such as `From` and `Date`.
    ///
    /// `Auto-Submitted` (RFC 3834, section 5.1) keeps vacation responders from replying. The
    /// headers for one-click unsubscribing (RFC 8058, section 3.1) are included only with an HTTPS
    /// link, which that RFC requires.
    pub fn headers(&self) -> Vec<(String, String)> {
        let (name, value) = AUTOMATIC;
        let mut headers = vec![(name.to_owned(), value.to_owned())];
        headers.extend_from_slice(&self.extra_headers);
        if let Some(link) = self.links.as_ref().and_then(RecipientLinks::one_click) {
            headers.push(("List-Unsubscribe".into(), format!("<{link}>")));
            headers.push(("List-Unsubscribe-Post".into(), "List-Unsubscribe=One-Click".into()));
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

/// The sender of all emails.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SenderAddress {
    /// The address in `From`. Its domain is also that of each `Message-ID` that tidings sets.
    pub from: Address,
    /// The name in `From`; empty for none.
    pub from_name: String,
    /// The `Reply-To` address, if it differs from the sender.
    pub reply_to: Option<Address>,
}

/// The outcome of sending one message. Most have a reason, which appears in the ledger and contains
/// no address: the provider's words, or the problem with the message or the connection.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// The provider accepted the message, under this id, which its later reports (delivered,
    /// bounced) name. The delivery becomes `sent`.
    Accepted(String),
    /// The provider rejects this message for good. The delivery becomes `failed`.
    Refused(String),
    /// The message cannot be written as an email, so it was not part of a call. The delivery
    /// becomes `failed`.
    Unsendable(String),
    /// The provider rejected a call of several messages, perhaps because of only one of them. It
    /// accepted none. The caller sends each message alone.
    RefusedTogether(String),
    /// The provider accepts no email for this address. The delivery becomes `failed`, and the
    /// address is suppressed.
    Undeliverable(String),
    /// No connection, so the message was not sent. It is retried until `delivery.give_up_after`.
    Unreachable(String),
    /// The message was certainly not accepted, but may be later: a rate limit, a full disk, or a
    /// fault at the provider. Besides the reason, this has the minimum wait, if the provider named
    /// one.
    TryLater(String, Option<Duration>),
    /// The server does not accept this recipient or this content now, but may later. Other messages
    /// are not affected.
    Deferred(String),
    /// The send permit ([`SendPermit`]) ended before the message was complete, so it was certainly
    /// not accepted. The reason says why it ended.
    Withheld(String),
    /// The message was certainly not accepted. Every other message will fail too until an operator
    /// acts, for example because of a bad key or a suspended account.
    Stop(String),
    /// The message may have been accepted: the request was written, but no readable answer arrived.
    Unknown(String),
}

impl Outcome {
    /// Returns whether the message was part of a call. Other outcomes say nothing about the
    /// provider.
    pub fn is_part_of_call(&self) -> bool {
        !matches!(self, Self::Unsendable(..) | Self::Withheld(..))
    }

    /// Returns the name in metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Accepted(..) => "accepted",
            Self::Refused(..) => "refused",
            Self::Unsendable(..) => "unsendable",
            Self::RefusedTogether(..) => "refused_together",
            Self::Undeliverable(..) => "undeliverable",
            Self::Unreachable(..) => "unreachable",
            Self::TryLater(..) => "try_later",
            Self::Deferred(..) => "deferred",
            Self::Withheld(..) => "withheld",
            Self::Stop(..) => "stop",
            Self::Unknown(..) => "unknown",
        }
    }
}

/// How a caller can resolve an unknown outcome (P5).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Resolution {
    /// The same call, repeated under the same reference, sends no email twice.
    Repeat {
        /// How long the provider remembers a reference, counted from the first call; `None` for
        /// unlimited.
        within: Option<Duration>,
    },
    /// The provider can be queried with [`Mailer::query_outcomes`].
    Query,
    /// There is no way. The outcome stays unknown.
    Impossible,
}

/// The result of a query for one message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum QueryAnswer {
    /// The provider accepted the message, under this id, as in [`Outcome::Accepted`].
    Accepted(String),
    /// The provider does not list the message. Lists lag behind, so this proves nothing soon after
    /// a call.
    NotAccepted,
    /// The query failed, or its answer cannot be read.
    Failed(QueryFailure),
}

/// Why a query has no result.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueryFailure {
    /// The cause, for the ledger, without an address.
    pub reason: String,
    /// The minimum wait, if the provider named one.
    pub min_wait: Option<Duration>,
}

impl<T: Into<String>> From<T> for QueryFailure {
    fn from(reason: T) -> Self {
        Self { reason: reason.into(), min_wait: None }
    }
}

/// The result of [`Mailer::check`]. `Unreached` says nothing about the key. None of the texts
/// contains a key or an address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum CheckResult {
    /// The mailer would accept emails, as far as a check can find out: the finding, and the DNS
    /// names of the DKIM keys that the provider signs with. There are none if the provider does not
    /// list them.
    Ready(String, Vec<String>),
    /// The mailer was reached and would not accept an email: the problem and its remedy.
    Wrong(String, String),
    /// The mailer was not reached, for this reason.
    Unreached(String),
}

impl CheckResult {
    /// Returns [`Self::Ready`] without DKIM names.
    pub fn ready(finding: impl Into<String>) -> Self {
        Self::Ready(finding.into(), Vec::new())
    }

    /// Returns [`Self::Wrong`].
    pub fn wrong(problem: impl Into<String>, remedy: impl Into<String>) -> Self {
        Self::Wrong(problem.into(), remedy.into())
    }
}

/// Sends emails: through a provider, over SMTP, or into a folder.
#[async_trait]
pub trait Mailer: Send + Sync {
    /// Splits messages into calls that are no larger than the provider accepts. A call is a list of
    /// indices into `messages`; each index occurs once. The messages of a call are sent, and fail,
    /// together. Some providers accept many recipients only with equal content, so their calls have
    /// equal content. By default, each message has a call, and so an outcome, of its own.
    fn split_into_calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        (0..messages.len()).map(|index| vec![index]).collect()
    }

    /// Makes one call, for messages that [`Mailer::split_into_calls`] grouped, and returns an
    /// outcome for each, in order.
    ///
    /// `reference` identifies the call in the ledger: at most 64 ASCII letters, digits, `-` and
    /// `_`. It serves as the idempotency key, or as the key for [`Mailer::query_outcomes`]. A call
    /// that is repeated under its reference must contain the same deliveries. Nothing is sent once
    /// `permit` is over.
    ///
    /// If the future is dropped, all outcomes are unknown.
    async fn send(
        &self,
        reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome>;

    /// Returns how an unknown outcome can be resolved.
    fn resolution(&self) -> Resolution {
        Resolution::Impossible
    }

    /// Queries the provider about a call whose answer was lost. `deliveries` are all or some of the
    /// call's messages; the results are in their order. Only called with [`Resolution::Query`].
    async fn query_outcomes(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<QueryAnswer> {
        let _ = reference;
        let reason = format!("{} cannot be queried", self.name());
        vec![QueryAnswer::Failed(reason.into()); deliveries.len()]
    }

    /// Checks the configuration without sending an email: verifies the key at the provider, or
    /// writes to the folder.
    async fn check(&self) -> CheckResult;

    /// Returns the name in configuration, logs and metrics.
    fn name(&self) -> &str;

    /// Returns the folder that emails are written to; `None` if they are sent.
    fn outbox(&self) -> Option<&Path> {
        None
    }

    /// Returns a text that identifies this account among all accounts and providers. Only the
    /// account that accepted a call knows about it.
    fn account_id(&self) -> String {
        self.name().to_owned()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns a message to Ada Lovelace whose links are below this URL.
    fn message(base: &str, html: BodyText, text: BodyText) -> Message {
        Message {
            delivery: DeliveryId::stored("digest:ada:weekly:2014-W17"),
            to: Address::new("ada.lovelace@example.org").unwrap(),
            to_name: Some("Ada Lovelace".into()),
            content: Arc::new(SharedContent { subject: "14 new works".into(), html, text }),
            links: Some(RecipientLinks {
                unsubscribe: Some(format!("{base}/u/token")),
                preferences: format!("{base}/u/token/preferences"),
                mute: None,
            }),
            extra_headers: Vec::new(),
            at: DateTime::UNIX_EPOCH,
        }
    }

    #[test]
    fn a_message_prints_neither_its_address_nor_its_body() {
        let mut message = message("https://x.example", "<p>secret".into(), "secret".into());
        message.extra_headers = vec![("Feedback-ID".into(), "hidden-id".into())];

        let printed = format!("{message:?}");

        assert!(printed.contains("a…@example.org"), "{printed}");
        for hidden in ["lovelace", "Lovelace", "secret", "token", "hidden-id"] {
            assert!(!printed.contains(hidden), "{printed}");
        }
    }

    #[test]
    fn each_users_links_replace_the_placeholders_in_shared_content() {
        let placeholders = Placeholders::new().unwrap();
        let html =
            format!("<a href=\"{}\">choose</a>", placeholders.marker(LinkPlaceholder::Preferences));
        let text = format!("stop: {}\n", placeholders.marker(LinkPlaceholder::Unsubscribe));
        let message =
            message("https://x.example", placeholders.extract(&html), placeholders.extract(&text));

        let filled = message.fill_links();

        assert_eq!(filled.html, "<a href=\"https://x.example/u/token/preferences\">choose</a>");
        assert_eq!(filled.text, "stop: https://x.example/u/token\n");
        assert_eq!(
            message.headers(),
            [
                ("Auto-Submitted".into(), "auto-generated".into()),
                ("List-Unsubscribe".into(), "<https://x.example/u/token>".into()),
                ("List-Unsubscribe-Post".into(), "List-Unsubscribe=One-Click".into()),
            ] as [(String, String); 3]
        );
    }

    #[test]
    fn one_click_is_omitted_if_the_link_is_not_https() {
        let plain = message("http://127.0.0.1:8080", BodyText::default(), BodyText::default());

        let automatic = ("Auto-Submitted".into(), "auto-generated".into());
        assert_eq!(plain.headers(), [automatic]);
    }
}
