//! Our own pages, asked for over the network as a mailbox provider does: no cookie, no login, no
//! redirect followed.
//!
//! The rule: an answer is handed on as it came; that nobody listens, and that a certificate is not
//! to be trusted, are told from silence.

use std::error::Error;
use std::io;
use std::time::Duration;

use reqwest::header::{CONTENT_TYPE, LOCATION};
use reqwest::{Client, RequestBuilder, redirect};

/// Who asks.
pub struct Web(Client);

/// What came of asking.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Heard {
    /// It answered, whatever with.
    Answered {
        /// The HTTP status.
        status: u16,
        /// Where it wants to be asked instead.
        location: Option<String>,
        /// As much as was read of it.
        body: String,
    },
    /// The machine is there, and nothing listens.
    Refused {
        /// What went wrong, for people to read.
        reason: String,
    },
    /// The connection is not to be trusted: whose certificate is it?
    Untrusted {
        /// What went wrong, for people to read.
        reason: String,
    },
    /// Nothing was heard.
    Silent {
        /// What went wrong, for people to read.
        reason: String,
    },
}

/// So much of an answer is read.
const MOST_BYTES: usize = 64 * 1024;

impl Web {
    /// Each question may take so long. Fails where this machine has no certificates to compare
    /// with.
    pub fn new(timeout: Duration) -> Result<Self, String> {
        // Whoever came first has chosen one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let client = Client::builder()
            .user_agent(concat!("tidings/", env!("CARGO_PKG_VERSION")))
            .timeout(timeout)
            .redirect(redirect::Policy::none())
            .build();
        let client = client.map_err(|error| format!("no HTTPS client can be made: {error}"))?;
        Ok(Self(client))
    }

    /// Asks for a page by GET; follows no redirect.
    pub async fn get(&self, url: &str) -> Heard {
        hear(self.0.get(url)).await
    }

    /// Sends a form.
    pub async fn post(&self, url: &str, form: &'static str) -> Heard {
        let kind = "application/x-www-form-urlencoded";
        hear(self.0.post(url).header(CONTENT_TYPE, kind).body(form)).await
    }
}

async fn hear(request: RequestBuilder) -> Heard {
    let mut response = match request.send().await {
        Ok(response) => response,
        // The address may hold a token.
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
        // What an I/O error is made of is not among its causes.
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
