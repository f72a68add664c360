//! What providers report of mails, as they post it: is it theirs, is it fresh, and what does it
//! say?
//!
//! The rule (P8): nothing of a body is believed before its sender is verified, by the provider's
//! own scheme, over the bytes as they came and in constant time. Pure functions: secrets and the
//! time come in as arguments, and nothing is remembered here. What follows from a report is
//! [`crate::engine::feedback`]'s to say. Each provider's own scheme is in a file of
//! [`super::providers`]; start with `sendgrid_hook`.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;

use crate::domain::{Address, EnhancedStatus, FailureKind, ReportKind, Tag};

/// What hooks are verified by, for those providers that have a hook here. `Debug` shows nothing of
/// it.
#[derive(Clone, Default)]
pub struct Keys(BTreeMap<&'static str, Vec<Vec<u8>>>);

impl Keys {
    /// The keys of the provider of this name: one for each account that has one.
    pub fn of(&self, provider: &str) -> &[Vec<u8>] {
        self.0.get(provider).map_or(&[], Vec::as_slice)
    }

    /// Adds keys of further accounts; one that is there already is not there twice.
    pub fn add(&mut self, others: &Self) {
        for (provider, keys) in &others.0 {
            let known = self.0.entry(provider).or_default();
            for key in keys {
                if !known.contains(key) {
                    known.push(key.clone());
                }
            }
        }
    }
}

impl FromIterator<(&'static str, Vec<u8>)> for Keys {
    fn from_iter<T: IntoIterator<Item = (&'static str, Vec<u8>)>>(keys: T) -> Self {
        let keys = keys.into_iter();
        Self(keys.map(|(provider, key)| (provider, vec![key])).collect())
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
    /// What stands where the provider's certificate is, if it has one ([`Locate`]).
    pub certificate: Option<Arc<[u8]>>,
}

impl<'a> Posted<'a> {
    pub(super) fn needs(&self, name: &str) -> Result<&'a str, Refused> {
        (self.header)(name)
            .ok_or_else(|| Refused::unverified(format!("the header {name} is missing")))
    }

    /// That it was posted by somebody who knows this `user:password` (basic authentication).
    pub(super) fn has_login(&self, login: &[u8]) -> Result<(), Refused> {
        let given = self.needs("authorization")?;
        given
            .get(..6)
            .filter(|scheme| scheme.eq_ignore_ascii_case("basic "))
            .and_then(|scheme| STANDARD.decode(given[scheme.len()..].trim()).ok())
            .filter(|given| same(given, login))
            .map(|_| ())
            .ok_or_else(|| Refused::unverified("this is not the hook's user and password"))
    }
}

/// Verifies with a key what was posted, and reads what it says; with the time it is.
pub type Read = fn(&[u8], &Posted<'_>, DateTime<Utc>) -> Result<Verified, Refused>;

/// Where the certificate is that verifies what was posted; with the key and the time it is. Where
/// that is follows from the key, so that nobody is asked for one whom a body names.
pub type Locate = fn(&[u8], &Posted<'_>, DateTime<Utc>) -> Result<Place, Refused>;

/// What is had over HTTPS from a host that only the provider has.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Place {
    /// The name of the host.
    pub host: String,
    /// Path and query, from the first slash on.
    pub path: String,
}

/// What a verified body says.
#[derive(Debug, PartialEq, Eq)]
pub struct Verified {
    /// What became of mails, in the order of the body.
    pub reports: Vec<Report>,
    /// Reports of other kinds, such as of opened mails.
    pub ignored: u64,
    /// Reports that do not have the documented form. The others were read all the same.
    pub unreadable: u64,
    /// What must not be used for anything else, where the signature does not cover what is
    /// reported.
    pub once: Option<Once>,
    /// What has to be asked for before the provider reports anything: it wants to know that reports
    /// are wanted here.
    pub confirm: Option<Place>,
}

impl Verified {
    /// One report, or none if it means nothing here.
    pub(super) fn of(report: Option<Report>) -> Self {
        Self {
            ignored: u64::from(report.is_none()),
            unreadable: 0,
            reports: report.into_iter().collect(),
            once: None,
            confirm: None,
        }
    }
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
    /// What the provider calls it; the same when it comes again.
    pub id: String,
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
    /// It is not the provider's, or too old.
    Unverified(String),
    /// It is the provider's, and not what its documentation says.
    Unreadable(String),
}

impl Refused {
    pub(super) fn unverified(why: impl Into<String>) -> Self {
        Self::Unverified(why.into())
    }

    pub(super) fn unreadable(why: impl fmt::Display) -> Self {
        Self::Unreadable(why.to_string())
    }

    /// Names the place in the JSON, and repeats no value of it.
    pub(super) fn undocumented(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Unreadable(format!(
            "the report does not have the documented form (line {line}, column {column})"
        ))
    }
}

/// How far a provider's clock may be ahead of ours.
const AHEAD: TimeDelta = TimeDelta::minutes(5);

/// Whether a signed time, in seconds since 1970, is at most so old.
pub(super) fn fresh(
    seconds: &str,
    now: DateTime<Utc>,
    most: TimeDelta,
) -> Result<DateTime<Utc>, Refused> {
    let signed = seconds.parse().ok();
    let signed = signed.and_then(|seconds| DateTime::from_timestamp(seconds, 0));
    let signed = signed.ok_or_else(|| Refused::unverified("the timestamp is no time"))?;
    young(signed, now, most)
}

/// Whether what was signed at this time is at most so old.
pub(super) fn young(
    signed: DateTime<Utc>,
    now: DateTime<Utc>,
    most: TimeDelta,
) -> Result<DateTime<Utc>, Refused> {
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

pub(super) fn wrong_signature() -> Refused {
    Refused::unverified("the signature does not fit the body and the key")
}

pub(super) fn json<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, Refused> {
    serde_json::from_slice(body).map_err(|error| Refused::undocumented(&error))
}

/// Judges a failed email by the first enhanced status in `stated` that names a cause. Each item is
/// a status or a reply that starts with one. Without such a status, the provider's own
/// classification decides, which is `otherwise`.
pub(super) fn failed<'a>(
    stated: impl IntoIterator<Item = Option<&'a str>>,
    otherwise: ReportKind,
) -> ReportKind {
    let stated: Vec<&str> = stated.into_iter().flatten().collect();
    let text = stated.join(" ");
    let kind = stated
        .iter()
        .find_map(|one| EnhancedStatus::in_reply(one)?.judge(&text));
    match kind {
        Some(FailureKind::BadAddress) => ReportKind::Bounced,
        Some(FailureKind::Soft) => ReportKind::Delayed,
        Some(FailureKind::Refused) => ReportKind::Refused,
        None => otherwise,
    }
}

pub(super) fn address(text: Option<&str>) -> Option<Address> {
    Address::stored(text?).ok()
}

/// The parts that are there, with spaces between.
pub(super) fn detail<'a>(parts: impl IntoIterator<Item = Option<&'a str>>) -> Option<String> {
    let parts = parts.into_iter().flatten();
    let parts: Vec<&str> = parts.filter(|part| !part.is_empty()).collect();
    (!parts.is_empty()).then(|| parts.join(" "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn now() -> DateTime<Utc> {
        DateTime::from_timestamp(1_398_124_800, 0).unwrap()
    }

    #[test]
    fn keys_are_not_printed() {
        let keys: Keys = [("postmark", b"hook:a password".to_vec())]
            .into_iter()
            .collect();

        assert_eq!(format!("{keys:?}"), "Keys(hidden)");
    }

    #[test]
    fn a_status_that_names_no_cause_leaves_the_decision_to_the_next() {
        for (stated, expected) in [
            (["5.0.0", "550 5.1.1 no such user"], ReportKind::Bounced),
            (["5.3.0", "550 5.7.1 policy"], ReportKind::Refused),
            (["5.1.1", "550 5.7.1 policy"], ReportKind::Bounced),
            (["5.0.0", "550 5.5.0 failed"], ReportKind::Delayed),
            (["", "550 failed"], ReportKind::Delayed),
        ] {
            let judged = failed(stated.map(Some), ReportKind::Delayed);
            assert_eq!(judged, expected, "{stated:?}");
        }
    }

    #[test]
    fn a_timestamp_is_fresh_up_to_its_age_and_a_little_ahead() {
        let hour = TimeDelta::hours(1);
        let at = |shift: i64| fresh(&(now().timestamp() + shift).to_string(), now(), hour);

        assert!(at(0).is_ok() && at(-3_600).is_ok() && at(300).is_ok());
        assert!(at(-3_601).is_err() && at(301).is_err());
        for odd in ["", "soon", "1e9", "99999999999999999999", "-1"] {
            assert!(fresh(odd, now(), hour).is_err(), "{odd}");
        }
    }
}
