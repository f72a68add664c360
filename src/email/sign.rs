//! Authenticates requests to providers.
//!
//! A request is signed last, when it is complete except for its body. So a signature can cover URL,
//! content and time. [`Proof`] sends the key itself in a header, and [`Aws`] a signature.

mod aws;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use reqwest::Request;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

pub(super) use aws::Aws;

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
