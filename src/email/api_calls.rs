//! Prepares messages for a provider's API, splits them into calls, and authenticates these.
//!
//! A message that cannot be an email fails alone, before the call. Recipients of one call share
//! only the content: the API fills in each one's links, and no recipient sees another's address.
//! Splitting keeps the order and is deterministic. [`Proof`] authenticates a call with the key, and
//! [`Aws`] with AWS Signature Version 4, as Amazon documents it. Start with [`post`].

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

use super::http::{ApiClient, Body, ProviderResponse, Sign};
use super::mime::{headers, message_id, one_line, recipient, tag};
use super::placeholders::in_text;
use super::{Message, Outcome, Permit, SenderAddress};
use crate::domain::{Address, Secret};

/// A valid message, with the fields that every API needs.
pub(super) struct Letter<'a> {
    pub message: &'a Message,
    /// The id that the provider stores with the email and repeats in its reports.
    pub tag: String,
    /// Name and address, quoted as RFC 5322 requires.
    pub to: String,
    pub subject: String,
    /// All headers of [`Message::headers`], validated.
    pub headers: Vec<(String, String)>,
}

impl<'a> Letter<'a> {
    /// Prepares a message. Returns the reason if it cannot be an email.
    fn new(message: &'a Message) -> Result<Self, String> {
        let content = &message.content;
        if content.says_nothing() {
            return Err("the email is empty".into());
        }
        let headers = headers(message)?.into_iter();
        Ok(Self {
            message,
            tag: tag(&message.delivery),
            to: recipient(message)?.to_string(),
            subject: in_text(&one_line(&content.subject)).into_owned(),
            headers: headers.map(|(name, value)| (name.to_string(), value)).collect(),
        })
    }

    /// Returns the headers with the email's own `Message-ID`, for an API that sets headers
    /// unchanged.
    pub(super) fn all_headers(&self, sender: &SenderAddress) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        headers.push(("Message-ID".into(), message_id(&self.tag, sender)));
        headers
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
/// message, in order. `judge` returns the outcomes that an answer means for this number of emails.
pub(super) async fn post<'a>(
    messages: &'a [Message],
    permit: &Permit,
    (api, path): (&ApiClient, &str),
    body: impl FnOnce(&[Letter<'a>]) -> Body,
    judge: impl FnOnce(&ProviderResponse, usize) -> Vec<Outcome>,
) -> Vec<Outcome> {
    let (ready, refused) = prepare(messages);
    let answered = match ready.len() {
        0 => Vec::new(),
        emails => match api.post(path, body(&ready), permit).await {
            Ok(answer) => judge(&answer, emails),
            Err(failed) => vec![Outcome::from(failed); emails],
        },
    };
    merged(refused, answered)
}

/// Returns the valid messages, and for each message its outcome if it is invalid.
pub(super) fn prepare(messages: &[Message]) -> (Vec<Letter<'_>>, Vec<Option<Outcome>>) {
    let (mut ready, mut refused) = (Vec::new(), Vec::new());
    for message in messages {
        match Letter::new(message) {
            Ok(letter) => {
                ready.push(letter);
                refused.push(None);
            }
            Err(reason) => refused.push(Some(Outcome::Unsendable(reason))),
        }
    }
    (ready, refused)
}

/// Fills the gaps in a list of outcomes with the outcomes of a call, in order.
fn merged(outcomes: Vec<Option<Outcome>>, answered: Vec<Outcome>) -> Vec<Outcome> {
    let mut answered = answered.into_iter();
    let unanswered = || Outcome::Unknown("the provider did not answer for it".into());
    let filled = outcomes.into_iter().map(|outcome| outcome.or_else(|| answered.next()));
    filled.map(|outcome| outcome.unwrap_or_else(unanswered)).collect()
}

/// Splits messages into calls of at most `most` messages and `most_bytes` bytes of content. A
/// longer message gets a call of its own.
pub(super) fn cut(messages: &[Message], most: usize, most_bytes: usize) -> Vec<Vec<usize>> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for (place, message) in messages.iter().enumerate() {
        let long = message.content.bytes();
        match calls.last_mut() {
            Some(call) if call.len() < most && bytes + long <= most_bytes => {
                call.push(place);
                bytes += long;
            }
            _ => {
                calls.push(vec![place]);
                bytes = long;
            }
        }
    }
    calls
}

/// Splits messages into calls of at most `most` messages with equal content and headers. An address
/// occurs at most once per call. Calls are in the order of their first messages.
pub(super) fn share(messages: &[Message], most: usize) -> Vec<Vec<usize>> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    // The last call with this content and these headers, and its addresses.
    let mut open: HashMap<_, (usize, HashSet<Address>)> = HashMap::new();
    for (place, message) in messages.iter().enumerate() {
        let links = message.personal.as_ref();
        let has_one_click = links.map(|links| links.one_click().is_some());
        let common = (&message.content, &message.further, has_one_click);
        let address = message.to.folded();
        match open.get_mut(&common) {
            Some((call, addresses))
                if calls[*call].len() < most && !addresses.contains(&address) =>
            {
                calls[*call].push(place);
                addresses.insert(address);
            }
            _ => {
                open.insert(common, (calls.len(), HashSet::from([address])));
                calls.push(vec![place]);
            }
        }
    }
    calls
}

/// The key itself, in the same header of each request.
pub(super) struct Proof {
    name: HeaderName,
    value: HeaderValue,
}

impl Proof {
    pub(super) fn bearer(key: &Secret) -> Result<Self, String> {
        Self::of(AUTHORIZATION, &format!("Bearer {}", key.expose()))
    }

    /// Returns HTTP Basic authentication with this user name.
    pub(super) fn basic(user: &str, key: &Secret) -> Result<Self, String> {
        let pair = BASE64_STANDARD.encode(format!("{user}:{}", key.expose()));
        Self::of(AUTHORIZATION, &format!("Basic {pair}"))
    }

    pub(super) fn header(name: &'static str, key: &Secret) -> Result<Self, String> {
        Self::of(HeaderName::from_static(name), key.expose())
    }

    fn of(name: HeaderName, value: &str) -> Result<Self, String> {
        let mut value = HeaderValue::from_str(value)
            .map_err(|_| "mail.key holds a character that no key has".to_owned())?;
        value.set_sensitive(true);
        Ok(Self { name, value })
    }
}

impl Sign for Proof {
    fn sign(&self, request: &mut Request, _body: &[u8], _at: DateTime<Utc>) {
        // A login in the URL has set this header already and takes precedence.
        let header = request.headers_mut().entry(&self.name);
        header.or_insert_with(|| self.value.clone());
    }
}

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: &str = "x-amz-date";

/// An access key, and the service that it is used for.
///
/// The signature is an HMAC with a key that is derived from the secret for one day, region and
/// service. It covers method, path, host, content type, body and time, so it fits no other request.
/// The secret itself is never sent. Our requests have no query.
pub(super) struct Aws {
    /// The id of the access key, which each request names.
    pub id: String,
    /// The secret of the access key.
    pub secret: Secret,
    pub region: String,
    pub service: &'static str,
}

impl Aws {
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

impl Sign for Aws {
    fn sign(&self, request: &mut Request, body: &[u8], at: DateTime<Utc>) {
        let time = at.format("%Y%m%dT%H%M%SZ").to_string();
        let day = &time[..8];
        // Sorted by name, as the signature requires.
        let mut signed: Vec<(&str, String)> = Vec::new();
        if let Some(kind) = request.headers().get(CONTENT_TYPE) {
            let kind = String::from_utf8_lossy(kind.as_bytes());
            signed.push(("content-type", kind.trim().to_owned()));
        }
        // With the port, unless it is the default port.
        let host = &request.url()[Position::BeforeHost..Position::AfterPort];
        signed.push(("host", host.to_owned()));
        signed.push((DATE, time.clone()));
        let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        // The empty line is the query.
        let mut canonical = format!("{}\n{}\n\n", request.method(), encoded_path(request.url()));
        for (name, value) in &signed {
            canonical.push_str(&format!("{name}:{value}\n"));
        }
        canonical.push_str(&format!("\n{names}\n{}", hex::encode(Sha256::digest(body))));
        let scope = format!("{day}/{}/{}/aws4_request", self.region, self.service);
        let hash = hex::encode(Sha256::digest(canonical));
        let signature = self.signature(day, &format!("{ALGORITHM}\n{time}\n{scope}\n{hash}"));
        let proof = format!(
            "{ALGORITHM} Credential={}/{scope}, SignedHeaders={names}, Signature={signature}",
            self.id
        );

        let headers = request.headers_mut();
        // All parts are ASCII; the configuration has validated the key id.
        let value = |text: &str| HeaderValue::from_str(text).expect("it is printable ASCII");
        headers.insert(HeaderName::from_static(DATE), value(&time));
        headers.insert(AUTHORIZATION, value(&proof));
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
