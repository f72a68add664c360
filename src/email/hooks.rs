//! Webhooks: verifies and reads the reports that providers post about sent emails.
//!
//! No report is trusted before its sender is verified (P8), over the original bytes and in constant
//! time. The key and the time are arguments, and nothing is stored. `engine::feedback` acts on the
//! reports. Each provider's scheme is in its file of [`super::providers`]. Only Amazon's needs a
//! certificate, which [`PinnedClient`] fetches.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use moka::sync::Cache;
use reqwest::{Client, Url};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Semaphore;

use super::http::{build_client, error_line, read_body};
use crate::domain::{Address, EnhancedStatus, FailureKind, ReportKind, Tag};

/// The verification key of each provider that has a hook. `Debug` shows none of them.
#[derive(Clone, Default)]
pub struct HookKeys(BTreeMap<&'static str, Vec<u8>>);

impl HookKeys {
    /// Returns the key of the provider with this name.
    pub fn get(&self, provider: &str) -> Option<&[u8]> {
        self.0.get(provider).map(Vec::as_slice)
    }

    /// Adds the keys of a brand. They replace the default's of the same providers.
    pub fn override_with(&mut self, others: &Self) {
        self.0.extend(others.0.clone());
    }
}

impl FromIterator<(&'static str, Vec<u8>)> for HookKeys {
    fn from_iter<T: IntoIterator<Item = (&'static str, Vec<u8>)>>(keys: T) -> Self {
        Self(keys.into_iter().collect())
    }
}

impl fmt::Debug for HookKeys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Keys(hidden)")
    }
}

/// A request to a hook, the key that verifies it, and the time of its arrival.
pub struct HookRequest<'a> {
    /// The key.
    pub key: &'a [u8],
    /// The current time.
    pub now: DateTime<Utc>,
    /// Returns the value of a header, by its name in lower case, if the value is ASCII text.
    pub header: &'a dyn Fn(&str) -> Option<&'a str>,
    /// The original bytes.
    pub body: &'a [u8],
    /// The provider's certificate, for schemes that need one ([`LocateCertificate`]).
    pub certificate: Option<Arc<[u8]>>,
}

impl<'a> HookRequest<'a> {
    pub(super) fn required_header(&self, name: &str) -> Result<&'a str, HookRejection> {
        (self.header)(name)
            .ok_or_else(|| HookRejection::unverified(format!("the header {name} is missing")))
    }

    /// Checks that the request carries the key: `user:password` (basic authentication).
    pub(super) fn check_login(&self) -> Result<(), HookRejection> {
        let authorization = self.required_header("authorization")?;
        authorization
            .get(..6)
            .filter(|scheme| scheme.eq_ignore_ascii_case("basic "))
            .and_then(|scheme| BASE64_STANDARD.decode(authorization[scheme.len()..].trim()).ok())
            .filter(|login| is_equal(login, self.key))
            .map(|_| ())
            .ok_or_else(|| HookRejection::unverified("this is not the hook's user and password"))
    }

    /// Parses a signed time, in seconds since 1970, and rejects one that is older than `max_age`.
    pub(super) fn parse_signed_time(
        &self,
        seconds: &str,
        max_age: TimeDelta,
    ) -> Result<DateTime<Utc>, HookRejection> {
        let parsed = seconds.parse().ok().and_then(|seconds| DateTime::from_timestamp(seconds, 0));
        let signed = parsed.ok_or_else(|| HookRejection::unverified("the timestamp is no time"))?;
        self.check_age(signed, max_age)?;
        Ok(signed)
    }

    /// Rejects a signed time that is older than `max_age`, or too far in the future.
    pub(super) fn check_age(
        &self,
        signed: DateTime<Utc>,
        max_age: TimeDelta,
    ) -> Result<(), HookRejection> {
        if signed > self.now + MAX_CLOCK_LEAD {
            return Err(HookRejection::unverified(
                "the timestamp is ahead of this machine's clock; is the clock right?",
            ));
        }
        if signed < self.now - max_age {
            let minutes = max_age.num_minutes();
            let why = format!("the timestamp is older than {minutes} minutes; is the clock right?");
            return Err(HookRejection::unverified(why));
        }
        Ok(())
    }
}

/// Verifies a request and reads its reports.
pub type ReadReports = fn(&HookRequest<'_>) -> Result<VerifiedReports, HookRejection>;

/// Returns the URL of the certificate that verifies a request. The host follows from the key, so a
/// request cannot choose it.
pub type LocateCertificate = fn(&HookRequest<'_>) -> Result<PinnedUrl, HookRejection>;

/// A URL that is fetched over HTTPS, on a host that only the provider controls.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PinnedUrl {
    /// The host name.
    pub host: String,
    /// Path and query, starting with the first slash.
    pub path: String,
}

/// The tolerance for a provider's clock that is ahead of ours.
const MAX_CLOCK_LEAD: TimeDelta = TimeDelta::minutes(5);
/// The time limit of a request to a provider. The caller of the hook waits for it.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The size limit of an answer in bytes. A certificate has about 2,000.
const MAX_ANSWER_BYTES: usize = 64 << 10;
/// The maximum number of concurrent requests.
const MAX_REQUESTS_IN_FLIGHT: usize = 4;
/// The maximum number of cached certificates. A provider has about one a year.
const MAX_CACHED_CERTIFICATES: u64 = 16;

/// Fetches what webhooks need: a signing certificate, or the page that confirms a subscription.
///
/// Anyone can post to a hook, so requests go only to hosts that follow from our configuration
/// ([`PinnedUrl`]). They use HTTPS, follow no redirects, and have limits on time, size and number.
/// A certificate is cached only after it has verified a request, so a bad answer is never cached.
pub struct PinnedClient {
    client: OnceLock<Result<Client, String>>,
    /// The base URL that replaces `https://HOST` in tests.
    test_server: Option<String>,
    certificates: Cache<PinnedUrl, Arc<[u8]>>,
    request_slots: Semaphore,
}

impl Default for PinnedClient {
    fn default() -> Self {
        Self {
            client: OnceLock::new(),
            test_server: None,
            certificates: Cache::new(MAX_CACHED_CERTIFICATES),
            request_slots: Semaphore::new(MAX_REQUESTS_IN_FLIGHT),
        }
    }
}

impl PinnedClient {
    /// Creates a client for tests, in which a server on this machine, such as
    /// `http://127.0.0.1:4010`, replaces all hosts. Returns `None` for any other address.
    pub fn on_this_machine(base: &str) -> Option<Self> {
        let url = Url::parse(base).ok()?;
        let address = url.host_str()?.parse::<std::net::Ipv4Addr>().ok()?;
        let test_server = Some(base.to_owned());
        address.is_loopback().then(|| Self { test_server, ..Self::default() })
    }

    /// Returns the certificate at this URL, from the cache or from the host.
    pub async fn certificate(&self, url: &PinnedUrl) -> Result<Arc<[u8]>, HookRejection> {
        match self.certificates.get(url) {
            Some(certificate) => Ok(certificate),
            None => self.get(url).await.map(Arc::from),
        }
    }

    /// Caches a certificate. Call this only after it has verified a request.
    pub fn cache_certificate(&self, url: PinnedUrl, certificate: Arc<[u8]>) {
        self.certificates.insert(url, certificate);
    }

    /// Requests the URL for its effect. Every failure is [`HookRejection::Unreached`], because a
    /// later attempt may succeed.
    pub async fn request(&self, url: &PinnedUrl) -> Result<(), HookRejection> {
        match self.get(url).await {
            Err(HookRejection::Unverified(_)) => {
                let why = format!("{}: the page does not exist", url.host);
                Err(HookRejection::Unreached(why))
            }
            result => result.map(|_| ()),
        }
    }

    async fn get(&self, url: &PinnedUrl) -> Result<Vec<u8>, HookRejection> {
        let unreached = |why: String| HookRejection::Unreached(format!("{}: {why}", url.host));
        let Ok(_slot) = self.request_slots.try_acquire() else {
            return Err(unreached(format!("{MAX_REQUESTS_IN_FLIGHT} requests are under way")));
        };
        let client = self
            .client
            .get_or_init(|| self.client())
            .as_ref()
            .map_err(|why| unreached(why.clone()))?;
        let base = match &self.test_server {
            Some(base) => base.clone(),
            None => format!("https://{}", url.host),
        };
        let response = client
            .get(format!("{base}{}", url.path))
            .send()
            .await
            .map_err(|error| unreached(error_line(&error.without_url())))?;
        match response.status().as_u16() {
            200 => read_body(response, MAX_ANSWER_BYTES).await.map_err(unreached),
            // The host of certificates answers 403 for one that does not exist.
            403 | 404 | 410 => Err(HookRejection::unverified("the provider knows nothing of it")),
            status => Err(unreached(format!("answered {status}"))),
        }
    }

    fn client(&self) -> Result<Client, String> {
        let has_https = self.test_server.is_none();
        build_client(Client::builder().https_only(has_https).timeout(REQUEST_TIMEOUT))
    }
}

/// The content of a verified body.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct VerifiedReports {
    /// The reports, in the order of the body.
    pub reports: Vec<EmailReport>,
    /// The number of reports of other kinds, such as opened emails.
    pub ignored_count: u64,
    /// The number of reports that do not have the documented form. They do not affect the others.
    pub unreadable_count: u64,
    /// A token to bind to this body, if the signature does not cover the body.
    pub single_use_token: Option<SingleUseToken>,
    /// A URL to fetch before the provider sends reports. The request confirms that they are wanted.
    pub confirmation_url: Option<PinnedUrl>,
}

impl VerifiedReports {
    /// Returns the content of a body with one report. `None` counts as ignored.
    pub(super) fn from_report(report: Option<EmailReport>) -> Self {
        Self {
            ignored_count: u64::from(report.is_none()),
            reports: report.into_iter().collect(),
            ..Self::default()
        }
    }
}

/// A token whose signature is valid for any body, and the body that it came with.
#[derive(Debug, PartialEq, Eq)]
pub struct SingleUseToken {
    /// The provider's token, which the signature covers.
    pub token: String,
    /// A digest of the body that the token came with.
    pub body_digest: String,
    /// The time at which the token's timestamp is too old. The token can be forgotten then.
    pub expires_at: DateTime<Utc>,
}

/// A report about one email. `Debug` masks the address.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmailReport {
    /// An id that is the same if the provider repeats the report.
    pub id: String,
    /// The kind of report, such as delivered or bounced.
    pub kind: ReportKind,
    /// The tag that we gave the email, if the report repeats it.
    pub tag: Option<Tag>,
    /// The ids by which the provider may know the email.
    pub provider_ids: Vec<String>,
    /// The recipient's address. It is only compared with the delivery's recipient, never emailed.
    pub recipient: Option<Address>,
    /// The time of the event, according to the provider. Never later than the request.
    pub at: DateTime<Utc>,
    /// Status codes and classifications, such as `550 5.1.1`.
    pub detail: Option<String>,
}

impl EmailReport {
    /// Returns a report. `tag` and `recipient` are as the provider states them.
    pub(super) fn new(
        id: &str,
        news: ReportKind,
        tag: Option<&str>,
        recipient: Option<&str>,
        at: Option<DateTime<Utc>>,
        now: DateTime<Utc>,
    ) -> Self {
        Self {
            id: id.to_owned(),
            kind: news,
            tag: tag.and_then(|tag| tag.parse().ok()),
            provider_ids: Vec::new(),
            recipient: recipient.and_then(|text| Address::stored(text).ok()),
            at: at.unwrap_or(now).min(now),
            detail: None,
        }
    }
}

/// The reason why a request is rejected. It does not quote the body.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum HookRejection {
    /// The request is not from the provider, it is too old, or its token was used for another one.
    #[error("{0}")]
    Unverified(String),
    /// The provider sent the request, but not in the documented form.
    #[error("{0}")]
    Unreadable(String),
    /// The provider's certificate or confirmation page cannot be fetched now. The provider can post
    /// the request again.
    #[error("the provider cannot be reached, by whose certificate this is verified ({0})")]
    Unreached(String),
}

impl HookRejection {
    pub(super) fn unverified(why: impl Into<String>) -> Self {
        Self::Unverified(why.into())
    }

    pub(super) fn unreadable(why: impl fmt::Display) -> Self {
        Self::Unreadable(why.to_string())
    }

    /// A report lacks a field that every report has, or a field has another type.
    pub(super) fn incomplete() -> Self {
        Self::unreadable("the report does not have the documented form")
    }

    /// Names the line and column in the JSON, without a value.
    pub(super) fn undocumented(error: &serde_json::Error) -> Self {
        let (line, column) = (error.line(), error.column());
        Self::Unreadable(format!(
            "the report does not have the documented form (line {line}, column {column})"
        ))
    }
}

/// Compares secrets in a time that depends on neither their content nor their length.
fn is_equal(given: &[u8], expected: &[u8]) -> bool {
    let digest = |bytes| <[u8; 32]>::from(Sha256::digest(bytes));
    digest(given).ct_eq(&digest(expected)).into()
}

pub(super) fn wrong_signature() -> HookRejection {
    HookRejection::unverified("the signature does not fit the body and the key")
}

pub(super) fn parse<'a, T: serde::Deserialize<'a>>(body: &'a [u8]) -> Result<T, HookRejection> {
    serde_json::from_slice(body).map_err(|error| HookRejection::undocumented(&error))
}

/// Classifies a failed email by the first enhanced status in `replies` that names a cause. Each
/// item is a status or a reply that starts with one. Without such a status, the provider's own
/// classification, `default`, decides.
pub(super) fn classify_failure<'a>(
    replies: impl IntoIterator<Item = Option<&'a str>>,
    default: ReportKind,
) -> ReportKind {
    let replies: Vec<&str> = replies.into_iter().flatten().collect();
    let text = replies.join(" ");
    match replies.iter().find_map(|reply| EnhancedStatus::in_reply(reply)?.failure_kind(&text)) {
        Some(FailureKind::BadAddress) => ReportKind::Bounced,
        Some(FailureKind::Soft) => ReportKind::Delayed,
        Some(FailureKind::Refused) => ReportKind::Refused,
        None => default,
    }
}

/// Returns the enhanced status in a server's reply, as text.
pub(super) fn status_in(reply: &str) -> Option<String> {
    EnhancedStatus::in_reply(reply).map(|status| status.to_string())
}

/// Returns the time in this field, in the form of RFC 3339. The field may be absent.
pub(super) fn time_in(value: &Value) -> Result<Option<DateTime<Utc>>, HookRejection> {
    Option::deserialize(value).map_err(|_| HookRejection::incomplete())
}

/// Returns the text in this field. The field may be absent.
pub(super) fn text_in(value: &Value) -> Result<Option<&str>, HookRejection> {
    Option::deserialize(value).map_err(|_| HookRejection::incomplete())
}

/// Returns the text in this list of texts, if it is the only one. The list may be absent.
pub(super) fn only_text(list: &Value) -> Result<Option<&str>, HookRejection> {
    let texts = Option::<Vec<&str>>::deserialize(list).map_err(|_| HookRejection::incomplete())?;
    Ok(match texts.as_deref() {
        Some([only]) => Some(*only),
        _ => None,
    })
}

/// Joins the nonempty parts with spaces.
pub(super) fn join_details<'a>(parts: impl IntoIterator<Item = Option<&'a str>>) -> Option<String> {
    let parts: Vec<&str> = parts.into_iter().flatten().filter(|part| !part.is_empty()).collect();
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
        let keys: HookKeys = [("postmark", b"hook:a password".to_vec())].into_iter().collect();

        assert_eq!(format!("{keys:?}"), "Keys(hidden)");
    }

    #[test]
    fn an_unspecific_status_code_defers_to_the_next_one() {
        for (replies, expected) in [
            (["5.0.0", "550 5.1.1 no such user"], ReportKind::Bounced),
            (["5.3.0", "550 5.7.1 policy"], ReportKind::Refused),
            (["5.1.1", "550 5.7.1 policy"], ReportKind::Bounced),
            (["5.0.0", "550 5.5.0 failed"], ReportKind::Delayed),
            (["", "550 failed"], ReportKind::Delayed),
        ] {
            let kind = classify_failure(replies.map(Some), ReportKind::Delayed);
            assert_eq!(kind, expected, "{replies:?}");
        }
    }

    #[test]
    fn a_timestamp_is_fresh_within_its_age_and_slightly_ahead() {
        let hour = TimeDelta::hours(1);
        let posted =
            HookRequest { key: &[], now: now(), header: &|_| None, body: &[], certificate: None };
        let at =
            |shift: i64| posted.parse_signed_time(&(now().timestamp() + shift).to_string(), hour);

        assert!(at(0).is_ok() && at(-3_600).is_ok() && at(300).is_ok());
        assert!(at(-3_601).is_err() && at(301).is_err());
        for odd in ["", "soon", "1e9", "99999999999999999999", "-1"] {
            assert!(posted.parse_signed_time(odd, hour).is_err(), "{odd}");
        }
    }
}

#[cfg(test)]
#[path = "pinned_tests.rs"]
mod pinned_tests;
