//! Prepares messages for a provider's API, splits them into calls, and authenticates these.
//!
//! A message that cannot be an email fails alone, before the call. Recipients of one call share
//! only the content: the API fills in each one's links, and no recipient sees another's address.
//! Splitting keeps the order and is deterministic. [`KeyHeader`] authenticates a call with the key,
//! and [`AwsSigner`] with AWS Signature Version 4, as Amazon documents it. Start with [`post`].

use std::collections::{HashMap, HashSet};
use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, Utc};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Request, Url};
use ring::hmac;
use serde_json::Value;
use sha2::{Digest as _, Sha256};
use url::Position;

use super::http::{ApiClient, ProviderResponse, RequestBody, Sign};
use super::mime::{delivery_tag, headers, message_id, one_line, recipient};
use super::placeholders::in_text;
use super::{Message, Outcome, SendPermit, SenderAddress};
use crate::domain::{Address, Secret};

/// A valid message, with the fields that every API needs.
pub(super) struct PreparedEmail<'a> {
    pub message: &'a Message,
    /// The id that the provider stores with the email and repeats in its reports.
    pub tag: String,
    /// Name and address, quoted as RFC 5322 requires.
    pub to: String,
    pub subject: String,
    /// All headers of [`Message::headers`], validated.
    pub headers: Vec<(String, String)>,
}

impl<'a> PreparedEmail<'a> {
    /// Prepares a message. Returns the reason if it cannot be an email.
    fn new(message: &'a Message) -> Result<Self, String> {
        let content = &message.content;
        if content.is_empty() {
            return Err("the email is empty".into());
        }
        let headers = headers(message)?;
        Ok(Self {
            message,
            tag: delivery_tag(&message.delivery),
            to: recipient(message)?.to_string(),
            subject: in_text(&one_line(&content.subject)).into_owned(),
            headers: headers.into_iter().map(|(name, value)| (name.to_string(), value)).collect(),
        })
    }

    /// Returns the headers with the email's own `Message-ID`, for an API that sets headers
    /// unchanged.
    pub(super) fn all_headers(&self, sender: &SenderAddress) -> Vec<(String, String)> {
        let id = ("Message-ID".into(), message_id(&self.tag, sender));
        self.headers.iter().cloned().chain([id]).collect()
    }

    pub(super) fn address(&self) -> &'a str {
        self.message.to.reveal()
    }
}

/// Sets a field of a JSON object, unless the text is empty.
pub(super) fn set_text(object: &mut Value, field: &str, text: impl Into<String>) {
    let text = text.into();
    if !text.is_empty() {
        object[field] = text.into();
    }
}

/// Posts one call with the valid messages, if there are any, and returns an outcome for each
/// message, in order. `body` writes the call. `judge` returns the outcomes that an answer means for
/// this number of emails.
pub(super) async fn post<'a>(
    messages: &'a [Message],
    permit: &SendPermit,
    (api, path): (&ApiClient, &str),
    body: impl FnOnce(&[PreparedEmail<'a>]) -> RequestBody,
    judge: impl FnOnce(&ProviderResponse, usize) -> Vec<Outcome>,
) -> Vec<Outcome> {
    let (emails, invalid) = prepare(messages);
    let call_outcomes = match emails.len() {
        0 => Vec::new(),
        count => match api.post(path, body(&emails), permit).await {
            Ok(answer) => judge(&answer, count),
            Err(no_answer) => vec![Outcome::from(no_answer); count],
        },
    };
    merge_outcomes(invalid, call_outcomes)
}

/// Returns the valid messages, and for each message its outcome if it is invalid.
pub(super) fn prepare(messages: &[Message]) -> (Vec<PreparedEmail<'_>>, Vec<Option<Outcome>>) {
    let (mut emails, mut outcomes) = (Vec::new(), Vec::new());
    for message in messages {
        match PreparedEmail::new(message) {
            Ok(email) => {
                emails.push(email);
                outcomes.push(None);
            }
            Err(reason) => outcomes.push(Some(Outcome::Unsendable(reason))),
        }
    }
    (emails, outcomes)
}

/// Fills the gaps in a list of outcomes with the outcomes of a call, in order.
fn merge_outcomes(outcomes: Vec<Option<Outcome>>, call_outcomes: Vec<Outcome>) -> Vec<Outcome> {
    let mut call_outcomes = call_outcomes.into_iter();
    let missing = || Outcome::Unknown("the provider did not answer for it".into());
    let fill =
        |outcome: Option<Outcome>| outcome.or_else(|| call_outcomes.next()).unwrap_or_else(missing);
    outcomes.into_iter().map(fill).collect()
}

/// Splits messages into calls of at most `max` messages and `max_bytes` bytes of content. A longer
/// message gets a call of its own.
pub(super) fn split_by_size(messages: &[Message], max: usize, max_bytes: usize) -> Vec<Vec<usize>> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    let mut call_bytes = 0;
    for (index, message) in messages.iter().enumerate() {
        let bytes = message.content.bytes();
        match calls.last_mut() {
            Some(call) if call.len() < max && call_bytes + bytes <= max_bytes => {
                call.push(index);
                call_bytes += bytes;
            }
            _ => {
                calls.push(vec![index]);
                call_bytes = bytes;
            }
        }
    }
    calls
}

/// Splits messages into calls of at most `max` messages with equal content and headers. An address
/// occurs at most once per call. Calls are in the order of their first messages.
pub(super) fn group_by_content(messages: &[Message], max: usize) -> Vec<Vec<usize>> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    // The last call with this content and these headers, and its addresses.
    let mut open_calls: HashMap<_, (usize, HashSet<Address>)> = HashMap::new();
    for (index, message) in messages.iter().enumerate() {
        let links = message.links.as_ref();
        let has_one_click = links.map(|links| links.one_click().is_some());
        let shared = (&message.content, &message.extra_headers, has_one_click);
        let address = message.to.folded();
        match open_calls.get_mut(&shared) {
            Some((call, addresses))
                if calls[*call].len() < max && !addresses.contains(&address) =>
            {
                calls[*call].push(index);
                addresses.insert(address);
            }
            _ => {
                open_calls.insert(shared, (calls.len(), HashSet::from([address])));
                calls.push(vec![index]);
            }
        }
    }
    calls
}

/// Authenticates requests with the key itself, in the same header of each.
pub(super) struct KeyHeader {
    name: HeaderName,
    value: HeaderValue,
}

impl KeyHeader {
    pub(super) fn bearer(key: &Secret) -> Result<Self, String> {
        Self::new(AUTHORIZATION, &format!("Bearer {}", key.expose()))
    }

    /// Returns HTTP Basic authentication with this user name.
    pub(super) fn basic(user: &str, key: &Secret) -> Result<Self, String> {
        let pair = BASE64_STANDARD.encode(format!("{user}:{}", key.expose()));
        Self::new(AUTHORIZATION, &format!("Basic {pair}"))
    }

    pub(super) fn header(name: &'static str, key: &Secret) -> Result<Self, String> {
        Self::new(HeaderName::from_static(name), key.expose())
    }

    fn new(name: HeaderName, value: &str) -> Result<Self, String> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| "mail.key holds a character that no key has".to_owned())?;
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

impl Sign for KeyHeader {
    fn sign(&self, request: &mut Request, _body: &[u8], _at: DateTime<Utc>) {
        // A login in the URL has set this header already and takes precedence.
        let header = request.headers_mut().entry(&self.name);
        header.or_insert_with(|| self.value.clone());
    }
}

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: &str = "x-amz-date";

/// Authenticates requests to one service with an access key.
///
/// The signature is an HMAC with a key that is derived from the secret for one day, region and
/// service. It covers method, path, host, content type, body and time, so it fits no other request.
/// The secret itself is never sent. Our requests have no query.
pub(super) struct AwsSigner {
    /// The id of the access key, which each request names.
    pub id: String,
    /// The secret of the access key.
    pub secret: Secret,
    pub region: String,
    pub service: &'static str,
}

impl AwsSigner {
    /// Returns the signature of the string to sign, in hexadecimal digits. `day` is `YYYYMMDD`.
    fn signature(&self, day: &str, text: &str) -> String {
        let mut key = format!("AWS4{}", self.secret.expose()).into_bytes();
        for part in [day, &self.region, self.service, "aws4_request", text] {
            let signing = hmac::Key::new(hmac::HMAC_SHA256, &key);
            key = hmac::sign(&signing, part.as_bytes()).as_ref().to_vec();
        }
        hex::encode(key)
    }
}

impl Sign for AwsSigner {
    fn sign(&self, request: &mut Request, body: &[u8], at: DateTime<Utc>) {
        let time = at.format("%Y%m%dT%H%M%SZ").to_string();
        let day = &time[..8];
        // Sorted by name, as the signature requires.
        let mut signed_headers: Vec<(&str, String)> = Vec::new();
        if let Some(content_type) = request.headers().get(CONTENT_TYPE) {
            let content_type = String::from_utf8_lossy(content_type.as_bytes());
            signed_headers.push(("content-type", content_type.trim().to_owned()));
        }
        // With the port, unless it is the default port.
        let host = &request.url()[Position::BeforeHost..Position::AfterPort];
        signed_headers.push(("host", host.to_owned()));
        signed_headers.push((DATE, time.clone()));
        let names = signed_headers.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(";");
        // The empty line is the query.
        let mut canonical = format!("{}\n{}\n\n", request.method(), encoded_path(request.url()));
        for (name, value) in &signed_headers {
            canonical.push_str(&format!("{name}:{value}\n"));
        }
        canonical.push_str(&format!("\n{names}\n{}", hex::encode(Sha256::digest(body))));
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let hash = hex::encode(Sha256::digest(canonical));
        let signature = self.signature(day, &format!("{ALGORITHM}\n{time}\n{scope}\n{hash}"));
        let authorization = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.id
        );

        let headers = request.headers_mut();
        // All parts are ASCII; the configuration has validated the key id.
        let value = |text: &str| HeaderValue::from_str(text).expect("it is printable ASCII");
        headers.insert(HeaderName::from_static(DATE), value(&time));
        headers.insert(AUTHORIZATION, value(&authorization));
    }
}

/// Percent-encodes all bytes of the path except unreserved characters (RFC 3986, section 2.3) and
/// slashes. The path is encoded already and is encoded again, as Amazon requires.
fn encoded_path(url: &Url) -> String {
    let mut out = String::new();
    for byte in url.path().bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~/".contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
#[path = "api_calls_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "aws_signature_tests.rs"]
mod aws_signature_tests;
