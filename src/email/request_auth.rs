//! Authenticates requests to providers.
//!
//! A request is signed last, when it is complete except for its body. So a signature can cover URL,
//! content and time. [`Proof`] sends the key itself in a header, and [`Aws`] a signature: AWS
//! Signature Version 4, as Amazon documents it.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Request, Url};
use ring::hmac;
use sha2::{Digest as _, Sha256};
use url::Position;

use crate::domain::Secret;

/// Authenticates requests.
pub(super) trait Sign: Send + Sync {
    /// Adds the headers that authenticate the request. The request is complete except for its body,
    /// which is passed separately. `at` is the time of signing.
    fn sign(&self, request: &mut Request, body: &[u8], at: DateTime<Utc>);
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
        let pair = STANDARD.encode(format!("{user}:{}", key.expose()));
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
#[path = "request_auth_tests.rs"]
mod tests;
