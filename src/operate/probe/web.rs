//! Requests the public pages as a mailbox provider does: without cookies, login or redirects.
//!
//! Responses are returned unchanged. A refused connection and an untrusted certificate are
//! distinguished from a missing response.

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Client, RequestBuilder, redirect};

/// The HTTP client.
pub struct Web(Client);

/// The result of a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// A response, with any status.
    Answered {
        /// The HTTP status.
        status: u16,
        /// The target of a redirect.
        location: Option<String>,
        /// The start of the body, at most [`MOST_BYTES`] and the rest of a chunk.
        body: String,
    },
    /// The host refused the connection.
    Refused {
        /// The error message.
        reason: String,
    },
    /// The TLS connection failed, usually because of the certificate.
    Untrusted {
        /// The error message.
        reason: String,
    },
    /// There was no response.
    Silent {
        /// The error message.
        reason: String,
    },
}

/// The number of bytes of a body after which reading stops.
const MOST_BYTES: usize = 64 * 1024;

impl Web {
    /// Creates a client with this time limit for each request. Fails if no client can be created,
    /// such as without root certificates.
    pub fn new(timeout: Duration) -> Result<Self, String> {
        // An error means that a provider was installed before, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("tidings/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout)
            .redirect(redirect::Policy::none())
            .build();
        let client = client.map_err(|error| format!("no HTTPS client can be made: {error}"))?;
        Ok(Self(client))
    }

    /// Requests a page. Does not follow redirects.
    pub async fn get(&self, url: &str) -> Heard {
        hear(self.0.get(url)).await
    }

    /// Posts a form.
    pub async fn post(&self, url: &str, form: &'static str) -> Heard {
        let kind = "application/x-www-form-urlencoded";
        hear(self.0.post(url).header(CONTENT_TYPE, kind).body(form)).await
    }
}

async fn hear(request: RequestBuilder) -> Heard {
    let mut response = match request.send().await {
        Ok(response) => response,
        // The URL may contain a token.
        Err(error) => return silence(&error.without_url()),
    };
    let status = response.status().as_u16();
    let location = response.headers().get(LOCATION);
    let location = location.map(|place| String::from_utf8_lossy(place.as_bytes()).into_owned());
    let mut bytes = Vec::new();
    while bytes.len() < MOST_BYTES
        && let Ok(Some(chunk)) = response.chunk().await
    {
        bytes.extend_from_slice(&chunk);
    }
    Heard::Answered {
        status,
        location,
        body: String::from_utf8_lossy(&bytes).into_owned(),
    }
}

fn silence(error: &(dyn Error + 'static)) -> Heard {
    let (mut next, mut reason) = (Some(error), String::new());
    let (mut is_refused, mut is_untrusted) = (false, false);
    while let Some(cause) = next {
        reason = cause.to_string();
        let io = cause.downcast_ref::<io::Error>();
        is_refused |= io.is_some_and(|io| io.kind() == io::ErrorKind::ConnectionRefused);
        is_untrusted |= cause.is::<rustls::Error>();
        // `source` skips the error that an I/O error wraps.
        next = match io.and_then(io::Error::get_ref) {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    match (is_refused, is_untrusted) {
        (true, _) => Heard::Refused { reason },
        (false, true) => Heard::Untrusted { reason },
        (false, false) => Heard::Silent { reason },
    }
}
