//! How requests show a provider whose they are.
//!
//! The rule: each request is signed by itself, once it is complete, so that a signature may cover
//! what is asked for, what is sent and when. Where the key itself is shown, it is the same header
//! each time.

mod aws;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use reqwest::Request;
use reqwest::header::{AUTHORIZATION, HeaderName, HeaderValue};

pub(super) use aws::Aws;

use crate::domain::Secret;

/// Shows a provider whose requests they are.
pub(super) trait Sign: Send + Sync {
    /// Adds the headers that do so to a request that is complete but for its body, which is given
    /// beside it. A signature may cover all of it, and the time.
    fn sign(&self, request: &mut Request, body: &[u8], at: DateTime<Utc>);
}

/// The key itself, in the same header of every request.
pub(super) struct Proof {
    name: HeaderName,
    value: HeaderValue,
}

impl Proof {
    pub(super) fn bearer(key: &Secret) -> Result<Self, String> {
        Self::of(AUTHORIZATION, &format!("Bearer {}", key.expose()))
    }

    /// HTTP Basic, under this user name.
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
        // A login in the address stands already, and was meant.
        let header = request.headers_mut().entry(&self.name);
        header.or_insert_with(|| self.value.clone());
    }
}
