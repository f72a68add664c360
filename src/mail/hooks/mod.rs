//! What providers report of mails, as they post it: is it theirs, is it fresh, and what does it
//! say?
//!
//! The rule (P8): nothing of a body is believed before its sender is verified, by the provider's
//! own scheme, over the bytes as they came and in constant time. Pure functions: secrets and the
//! time come in as arguments, and nothing is remembered here. What follows from a report is
//! [`crate::services::feedback`]'s to say. One file a provider; begin with [`sendgrid`].

use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::domain::{Address, ReportKind, Tag};

mod mailgun;
mod postmark;
mod resend;
mod sendgrid;
#[cfg(test)]
mod tests;

/// Whose hook it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Provider {
    /// Signs a token and a timestamp (HMAC), not what is reported.
    Mailgun,
    /// Signs the timestamp and the body with a key on the curve P-256.
    Sendgrid,
    /// Signs nothing: it shows a user and a password.
    Postmark,
    /// Signs its id, the timestamp and the body (HMAC).
    Resend,
}

impl Provider {
    /// All providers that have hooks.
    pub const ALL: [Self; 4] = [Self::Mailgun, Self::Sendgrid, Self::Postmark, Self::Resend];

    /// Its name in the hook's path, `/hooks/mailgun`, and as the source of suppressions.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Mailgun => "mailgun",
            Self::Sendgrid => "sendgrid",
            Self::Postmark => "postmark",
            Self::Resend => "resend",
        }
    }

    /// The provider of that name; `None` where no hook has it.
    pub fn named(name: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .find(|provider| provider.as_str() == name)
    }
}

/// What hooks are verified by, for those providers that have a hook here. `Debug` shows nothing of
/// it.
#[derive(Clone, Default)]
pub struct Keys {
    /// The webhook signing key, which is not the key that sends.
    pub mailgun: Option<String>,
    /// The point of the curve P-256 that the key is, uncompressed.
    pub sendgrid: Option<Vec<u8>>,
    /// What the hook's address carries as `user:password@`.
    pub postmark: Option<String>,
    /// The bytes that the part after `whsec_` stands for.
    pub resend: Option<Vec<u8>>,
}

impl Keys {
    /// Whether there is one for this provider.
    pub fn has(&self, provider: Provider) -> bool {
        match provider {
            Provider::Mailgun => self.mailgun.is_some(),
            Provider::Sendgrid => self.sendgrid.is_some(),
            Provider::Postmark => self.postmark.is_some(),
            Provider::Resend => self.resend.is_some(),
        }
    }
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(hidden)")
    }
}

/// What was posted.
pub struct Posted<'a> {
    /// A header's value by its name in lower case, if it is text.
    pub header: &'a dyn Fn(&str) -> Option<&'a str>,
    /// As it came.
    pub body: &'a [u8],
}

impl<'a> Posted<'a> {
    fn needs(&self, name: &str) -> Result<&'a str, Refused> {
        (self.header)(name)
            .ok_or_else(|| Refused::unverified(format!("the header {name} is missing")))
    }
}

/// What a verified body says.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    /// What became of mails, in the order of the body.
    pub reports: Vec<Report>,
    /// Events of other kinds, such as opened mails.
    pub ignored: u64,
    /// What must not be used for anything else, where the signature does not cover what is
    /// reported.
    pub once: Option<Once>,
}

/// A token that fits any body, and the body it came with.
#[derive(Debug, PartialEq, Eq)]
pub struct Once {
    /// The provider's token, which its signature covers.
    pub token: String,
    /// A digest of what it came with.
    pub with: String,
    /// When its timestamp will be too old, so that it need not be remembered any longer.
    pub until: DateTime<Utc>,
}

/// What became of one mail. `Debug` masks the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Report {
    /// What the provider calls this piece of news; the same when it comes again.
    pub event: String,
    /// What became of the mail.
    pub news: ReportKind,
    /// Our own name for the mail, if it came back.
    pub tag: Option<Tag>,
    /// What the mail may be known by to the provider.
    pub provider_ids: Vec<String>,
    /// Whose mailbox it was. It is compared with whom the mail was for, never written to.
    pub recipient: Option<Address>,
    /// When it happened, as the provider says; never later than it was posted.
    pub at: DateTime<Utc>,
    /// Codes and names of kinds, such as `550 5.1.1`.
    pub detail: Option<String>,
}

/// Why a body is not believed. Holds nothing of it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Refused {
    /// There is no key for this provider.
    Unconfigured,
    /// It is not the provider's, or too old.
    Unverified(String),
    /// It is the provider's, and not what its documentation says.
    Unreadable(String),
}

impl Refused {
    fn unverified(why: impl Into<String>) -> Self {
        Self::Unverified(why.into())
    }

    fn unreadable(why: impl fmt::Display) -> Self {
        Self::Unreadable(why.to_string())
    }
}

/// How far a provider's clock may be ahead of ours.
const AHEAD: TimeDelta = TimeDelta::minutes(5);

/// Verifies what was posted and reads what it says.
pub fn read(
    provider: Provider,
    keys: &Keys,
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    let none = Refused::Unconfigured;
    match provider {
        Provider::Mailgun => mailgun::read(keys.mailgun.as_deref().ok_or(none)?, posted, now),
        Provider::Sendgrid => sendgrid::read(keys.sendgrid.as_deref().ok_or(none)?, posted, now),
        Provider::Postmark => postmark::read(keys.postmark.as_deref().ok_or(none)?, posted, now),
        Provider::Resend => resend::read(keys.resend.as_deref().ok_or(none)?, posted, now),
    }
}

/// Whether a signed time, in seconds since 1970, is at most so old.
fn fresh(seconds: &str, now: DateTime<Utc>, most: TimeDelta) -> Result<DateTime<Utc>, Refused> {
    let signed = seconds.parse().ok();
    let signed = signed.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let signed = signed.ok_or_else(|| Refused::unverified("the timestamp is no time"))?;
    if signed > now + AHEAD {
        return Err(Refused::unverified(
            "the timestamp is ahead of this machine's clock; is the clock right?",
        ));
    }
    if signed < now - most {
        let most = most.num_minutes();
        let why = format!("the timestamp is older than {most} minutes; is the clock right?");
        return Err(Refused::unverified(why));
    }
    Ok(signed)
}

/// Compares secrets so that the time it takes tells nothing of them, not even their length.
fn same(given: &[u8], wanted: &[u8]) -> bool {
    let digest = |bytes| <[u8; 32]>::from(Sha256::digest(bytes));
    digest(given).ct_eq(&digest(wanted)).into()
}

fn wrong_signature() -> Refused {
    Refused::unverified("the signature does not fit the body and the key")
}

fn json<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(Refused::unreadable)
}

fn address(text: Option<&str>) -> Option<Address> {
    Address::new(text?).ok()
}

/// The parts that are there, with spaces between.
fn detail<'a>(parts: impl IntoIterator<Item = Option<&'a str>>) -> Option<String> {
    let parts: Vec<&str> = parts.into_iter().flatten().collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}
