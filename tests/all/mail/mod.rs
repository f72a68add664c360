//! The mailers that use the network, against real servers on loopback.
//!
//! P2, P5: an email that was surely not accepted is retried later, and one that may have been is
//! unknown. Nothing is sent twice to find out. Tests beside the code cover each status and code;
//! these tests cover the calls.

mod apis;
mod asking;
mod headers;
pub mod provider;
pub mod received;
pub mod server;
mod smtp;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use chrono::DateTime;
use tidings::domain::{Address, DeliveryId, Secret};
use tidings::email::{
    Account, LinkPlaceholder, Mailer, Message, Outcome, Placeholders, RecipientLinks,
    SenderAddress, SharedContent,
};

use provider::Dialect;

pub const ALL: [Dialect; 5] =
    [Dialect::Mailgun, Dialect::SendGrid, Dialect::Postmark, Dialect::Resend, Dialect::Ses];

pub fn sender() -> SenderAddress {
    SenderAddress {
        from: Address::new("digest@art.example").unwrap(),
        from_name: "Art".into(),
        reply_to: None,
    }
}

/// Returns a mailer for this dialect and URL, with this timeout.
pub fn mailer(dialect: Dialect, url: &str, timeout: Duration) -> Arc<dyn Mailer> {
    let account = Account {
        base_url: url.to_owned(),
        key: Secret::new("key-1"),
        options: BTreeMap::from([
            ("mail.domain", "mg.art.example".into()),
            ("mail.stream", "broadcast".into()),
            ("mail.access_key_id", provider::ses::KEY_ID.into()),
            ("mail.region", "eu-west-1".into()),
        ]),
        now: || DateTime::UNIX_EPOCH,
        timeout,
        max_per_call: None,
        sender: sender(),
    };
    let provider = tidings::email::Provider::find(dialect.name()).unwrap();
    (provider.new_mailer)(account).unwrap()
}

/// Longer than anything on loopback takes.
pub const PATIENT: Duration = Duration::from_secs(30);

/// An email to this user, with the shared content and personal links.
fn email(person: &str) -> Message {
    let unsubscribe = format!("https://x.example/u/{person}");
    let placeholders = Placeholders::new().unwrap();
    let place = placeholders.marker(LinkPlaceholder::Unsubscribe);
    Message {
        delivery: DeliveryId::stored(format!("digest:{person}:weekly:2014-W17")),
        to: Address::new(format!("{person}@example.org")).unwrap(),
        to_name: Some(person.to_owned()),
        content: Arc::new(SharedContent {
            subject: "Fourteen works".into(),
            html: placeholders.extract(&format!("<p>100 %recipient% <a href=\"{place}\">stop</a>")),
            text: placeholders.extract(&format!("Fourteen works — {place}\n")),
        }),
        links: Some(RecipientLinks {
            preferences: format!("{unsubscribe}/preferences"),
            unsubscribe: Some(unsubscribe),
            mute: None,
        }),
        extra_headers: vec![],
        at: DateTime::UNIX_EPOCH,
    }
}

fn emails(count: usize) -> Vec<Message> {
    (0..count).map(|n| email(&format!("p{n:04}"))).collect()
}

/// Returns this number of emails, or one for SES, whose calls hold one email.
fn call_of(dialect: Dialect, count: usize) -> Vec<Message> {
    emails(if dialect == Dialect::Ses { 1 } else { count })
}

/// Returns the kinds of the outcomes in order, without consecutive duplicates.
fn kinds(outcomes: &[Outcome]) -> Vec<&'static str> {
    let mut kinds: Vec<_> = outcomes
        .iter()
        .map(|outcome| match outcome {
            Outcome::Accepted(..) => "accepted",
            Outcome::Refused(..) => "refused",
            Outcome::Unsendable(..) => "unsendable",
            Outcome::RefusedTogether(..) => "refused together",
            Outcome::Undeliverable(..) => "undeliverable",
            Outcome::Unreachable(..) => "unreachable",
            Outcome::TryLater(..) => "later",
            Outcome::Deferred(..) => "deferred",
            Outcome::Withheld(..) => "withheld",
            Outcome::Stop(..) => "stop",
            Outcome::Unknown(..) => "unknown",
        })
        .collect();
    kinds.dedup();
    kinds
}
