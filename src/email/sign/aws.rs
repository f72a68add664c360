//! Signs requests with AWS Signature Version 4, as Amazon documents it.
//!
//! The signature is an HMAC with a key that is derived from the secret for one day, region and
//! service. It covers method, path, query, host, content type, body and time, so it fits no other
//! request. The secret itself is never sent.

use std::fmt::Write as _;

use chrono::{DateTime, Utc};
use hmac::{Hmac, KeyInit, Mac};
use reqwest::header::{AUTHORIZATION, CONTENT_TYPE, HeaderName, HeaderValue};
use reqwest::{Request, Url};
use sha2::{Digest as _, Sha256};

use super::Sign;
use crate::domain::Secret;

const ALGORITHM: &str = "AWS4-HMAC-SHA256";
const DATE: &str = "x-amz-date";
const SESSION: &str = "x-amz-security-token";

/// An access key, and the service that it is used for.
pub(in crate::email) struct Aws {
    /// The id of the access key, which each request names.
    pub id: String,
    /// The secret of the access key.
    pub secret: Secret,
    /// The session token of a temporary key.
    pub session: Option<HeaderValue>,
    pub region: String,
    pub service: &'static str,
}

impl Aws {
    /// Returns a session token as a header value. Fails if it contains a character that no token
    /// has.
    pub(in crate::email) fn session(token: &Secret) -> Result<HeaderValue, String> {
        let mut value = HeaderValue::from_str(token.expose())
            .map_err(|_| "mail.session_token holds a character that no token has".to_owned())?;
        value.set_sensitive(true);
        Ok(value)
    }

    /// Returns the signature of the string to sign, in hexadecimal digits. `day` is `YYYYMMDD`.
    fn signature(&self, day: &str, text: &str) -> String {
        let mut key = format!("AWS4{}", self.secret.expose()).into_bytes();
        for part in [day, &self.region, self.service, "aws4_request", text] {
            let mut mac = Hmac::<Sha256>::new_from_slice(&key).expect("HMAC takes any key");
            mac.update(part.as_bytes());
            key = mac.finalize().into_bytes().to_vec();
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
        signed.push(("host", host(request.url())));
        signed.push((DATE, time.clone()));
        if let Some(session) = &self.session {
            let token = String::from_utf8_lossy(session.as_bytes());
            signed.push((SESSION, token.into_owned()));
        }
        let names: Vec<&str> = signed.iter().map(|(name, _)| *name).collect();
        let names = names.join(";");
        let mut canonical = format!(
            "{}\n{}\n{}\n",
            request.method(),
            encoded(request.url().path(), b"/"),
            query(request.url()),
        );
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
        if let Some(session) = &self.session {
            headers.insert(HeaderName::from_static(SESSION), session.clone());
        }
        headers.insert(AUTHORIZATION, value(&proof));
    }
}

/// Returns the `Host` header: with the port, unless it is the default port.
fn host(url: &Url) -> String {
    let host = url.host_str().unwrap_or_default();
    match url.port() {
        Some(port) => format!("{host}:{port}"),
        None => host.to_owned(),
    }
}

/// Returns the parameters, sorted by name and value. Each is encoded once.
fn query(url: &Url) -> String {
    let pairs = url.query_pairs();
    let mut pairs: Vec<(String, String)> = pairs
        .map(|(name, value)| (encoded(&name, b""), encoded(&value, b"")))
        .collect();
    pairs.sort_unstable();
    let pairs: Vec<String> = pairs
        .into_iter()
        .map(|(name, value)| format!("{name}={value}"))
        .collect();
    pairs.join("&")
}

/// Percent-encodes all bytes except unreserved characters (RFC 3986, section 2.3) and those in
/// `but`. A path arrives encoded and is encoded again, as Amazon requires.
fn encoded(text: &str, but: &[u8]) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(&byte) || but.contains(&byte) {
            out.push(char::from(byte));
        } else {
            // Writing to text cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
    out
}

#[cfg(test)]
#[path = "aws_tests.rs"]
mod tests;
