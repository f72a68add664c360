//! One call to a provider's HTTP API: sent within bounds, and read for what it says.
//!
//! The rule (P5): a call ends in one of three ways, and they are never mixed up. It was surely not
//! sent; it was answered; or it may have been sent and nobody knows. Nothing is repeated here:
//! reqwest sends again only what its connection never took. Every request names its user agent and
//! its types, as providers turn away those that do not, and is signed by itself ([`Sign`]).
//! [`super::letter`] is what goes into the requests.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{ACCEPT, CONTENT_TYPE, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, Method, StatusCode, Url, redirect};
use sha2::{Digest as _, Sha256};

use super::guarded::Guarded;
use super::sign::Sign;
use super::{Checked, Leave, Outcome, Sender};
use crate::domain::Secret;

/// How a provider's API is reached, and what all its calls have in common.
#[derive(Debug, Clone)]
pub struct Account {
    /// Where the API is, such as `https://api.resend.com`; each provider has its own, by region.
    pub url: String,
    /// The API key, shown with each call in the provider's own way.
    pub key: Secret,
    /// What goes with a key that is lent for a while (a session's token), at providers that lend
    /// keys.
    pub session: Option<Secret>,
    /// The values of the provider's own options, by their paths, and of `mail.region`.
    pub options: BTreeMap<&'static str, String>,
    /// Tells the time that a request is signed at.
    pub now: fn() -> DateTime<Utc>,
    /// How long a call may take in all.
    pub timeout: Duration,
    /// The most messages of a call, if it is to be fewer than the provider takes.
    pub per_call: Option<usize>,
    /// What all mails are tagged with at the provider.
    pub tags: Vec<String>,
    /// Whom mails come from.
    pub sender: Sender,
}

impl Account {
    /// The value of an option; empty where it has none.
    pub(super) fn option(&self, path: &str) -> String {
        self.options.get(path).cloned().unwrap_or_default()
    }

    /// The most messages of a call to a provider that takes so many.
    pub(super) fn per_call(&self, most: usize) -> usize {
        self.per_call.unwrap_or(most).clamp(1, most)
    }
}

/// A client of one API.
pub(super) struct Api {
    client: Client,
    signer: Box<dyn Sign>,
    now: fn() -> DateTime<Utc>,
    base: String,
    timeout: Duration,
    /// Eight hexadecimal digits that stand for the address and the key.
    login: String,
}

/// What is sent.
pub(super) struct Body {
    pub kind: String,
    pub bytes: Vec<u8>,
}

impl Body {
    pub(super) fn json(value: &serde_json::Value) -> Self {
        Self {
            kind: "application/json".into(),
            bytes: value.to_string().into_bytes(),
        }
    }
}

/// What came of a call.
pub(super) enum Reply {
    /// There was no connection, so nothing was sent.
    NotSent {
        reason: String,
    },
    /// The same, and the machine at that address said that nothing listens there.
    NobodyListens {
        reason: String,
    },
    /// Nothing complete was sent, as the leave to send it had ended.
    Withheld {
        reason: String,
    },
    /// There was no connection, as whoever is there could not prove to be the provider.
    Untrusted {
        reason: String,
    },
    /// It may have arrived, and no answer came.
    Unanswered {
        reason: String,
    },
    Answered(Answer),
}

/// An answer of the provider.
pub(super) struct Answer {
    pub status: u16,
    headers: HeaderMap,
    /// `None` if it could not be read to its end.
    body: Option<Vec<u8>>,
}

/// Longer answers are not read: the longest that a provider gives to a full call is a tenth of it.
const MOST_BYTES: usize = 2 * 1024 * 1024;
/// How long a connection may take.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept: less than any provider does, so that none is closed just
/// as it is written to.
const IDLE: Duration = Duration::from_secs(10);

impl Api {
    /// A client whose requests are signed by this. Fails where this machine has no certificates.
    pub(super) fn new(account: &Account, signer: impl Sign + 'static) -> Result<Self, String> {
        // Whoever came first has chosen one, which is as good.
        let _ = rustls::crypto::ring::default_provider().install_default();
        let mut headers = HeaderMap::new();
        headers.insert(ACCEPT, HeaderValue::from_static("application/json"));
        let client = Client::builder()
            .user_agent(concat!("tidings/", env!("CARGO_PKG_VERSION")))
            .default_headers(headers)
            .connect_timeout(CONNECT.min(account.timeout))
            .timeout(account.timeout)
            .pool_idle_timeout(IDLE)
            .redirect(redirect::Policy::none())
            .build()
            .map_err(|error| format!("no HTTPS client can be made: {}", chain(&error)))?;
        let base = account.url.trim_end_matches('/').to_owned();
        Url::parse(&base).map_err(|error| format!("mail.url {base:?} is no address: {error}"))?;
        let hash = Sha256::digest(format!("{base} {}", account.key.expose()));
        Ok(Self {
            client,
            signer: Box::new(signer),
            now: account.now,
            base,
            timeout: account.timeout,
            login: hex::encode(&hash[..4]),
        })
    }

    /// What tells the account at this provider from any other.
    pub(super) fn account(&self, provider: &str) -> String {
        format!("{provider} {}", self.login)
    }

    pub(super) async fn get(&self, path: &str) -> Reply {
        self.call(Method::GET, path, &[], None).await
    }

    pub(super) async fn post(
        &self,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Body,
        leave: &Leave,
    ) -> Reply {
        if let Some(reason) = leave.withheld() {
            return Reply::Withheld { reason };
        }
        let body = (body, leave);
        self.call(Method::POST, path, headers, Some(body)).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        headers: &[(&'static str, &str)],
        body: Option<(Body, &Leave)>,
    ) -> Reply {
        let mut request = self.client.request(method, format!("{}{path}", self.base));
        for (name, value) in headers {
            request = request.header(*name, *value);
        }
        if let Some((body, _)) = &body {
            request = request.header(CONTENT_TYPE, &body.kind);
        }
        let mut request = match request.build() {
            Ok(request) => request,
            Err(error) => return unsent(error),
        };
        let bytes = body.as_ref().map_or(&[][..], |(body, _)| &body.bytes);
        self.signer.sign(&mut request, bytes, (self.now)());
        let mut broken_off = None;
        if let Some((body, leave)) = body {
            let (bytes, broken) = Guarded::new(body.bytes, leave.clone());
            *request.body_mut() = Some(reqwest::Body::wrap(bytes));
            broken_off = Some((broken, leave));
        }
        let answer = self.client.execute(request).await;
        if answer.is_err()
            && let Some((broken, leave)) = broken_off
            && broken.load(Ordering::SeqCst)
            && let Some(reason) = leave.over()
        {
            return Reply::Withheld { reason };
        }
        match answer {
            Ok(response) => Reply::Answered(read(response).await),
            Err(error) if is_refused(&error) => Reply::NobodyListens {
                reason: format!("no connection: {}", chain(&error.without_url())),
            },
            Err(error) if is_untrusted(&error) => Reply::Untrusted {
                reason: format!("no connection: {}", chain(&error.without_url())),
            },
            Err(error) if error.is_connect() || error.is_builder() => unsent(error),
            Err(error) if error.is_timeout() => Reply::Unanswered {
                reason: format!("no answer within {} s", self.timeout.as_secs_f32()),
            },
            Err(error) => Reply::Unanswered {
                reason: format!("no answer: {}", chain(&error.without_url())),
            },
        }
    }
}

fn unsent(error: reqwest::Error) -> Reply {
    Reply::NotSent {
        reason: format!("no connection: {}", chain(&error.without_url())),
    }
}

async fn read(mut response: reqwest::Response) -> Answer {
    let status = response.status().as_u16();
    let headers = response.headers().clone();
    let mut bytes = Vec::new();
    let body = loop {
        match response.chunk().await {
            Ok(Some(chunk)) if bytes.len() + chunk.len() <= MOST_BYTES => {
                bytes.extend_from_slice(&chunk);
            }
            Ok(None) => break Some(bytes),
            Ok(Some(_)) | Err(_) => break None,
        }
    };
    Answer {
        status,
        headers,
        body,
    }
}

/// The longest a provider's word is taken for; a later reset is asked about again.
pub(super) const MOST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok().map(str::trim)
    }

    /// What it says, if it is what we understand.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.body.as_deref()?).ok()
    }

    /// Status and body, for people.
    pub(super) fn said(&self) -> String {
        let body = String::from_utf8_lossy(self.body.as_deref().unwrap_or_default());
        words(&format!("{} {body}", self.status))
    }

    /// How long to wait before the next call, where a header says so: as seconds or a date
    /// (`Retry-After`), as seconds (`RateLimit-Reset`), or as a moment in seconds or milliseconds
    /// (`X-RateLimit-Reset`). The last two speak of the window in which calls are counted, so they
    /// mean a wait only where there were too many. Moments are measured by the answer's own `Date`,
    /// so nobody's clock needs to be right.
    pub(super) fn wait(&self) -> Option<Duration> {
        let seconds = |text: &str| text.parse::<f64>().ok().filter(|s| *s >= 0.0);
        let now = self.header(DATE.as_str()).and_then(moment);
        let until = |then: f64| now.map(|now| (then - now).max(0.0));
        let retry_after = self
            .header(RETRY_AFTER.as_str())
            .and_then(|text| seconds(text).or_else(|| until(moment(text)?)));
        let reset = || self.header("ratelimit-reset").and_then(seconds);
        let x_reset = || {
            let at = self.header("x-ratelimit-reset").and_then(seconds)?;
            // Milliseconds of our days have thirteen digits, seconds ten; anything shorter is no
            // moment.
            match at {
                at if at >= 1e11 => until(at / 1e3),
                at if at >= 1e8 => until(at),
                at => Some(at),
            }
        };
        let too_many = self.status == StatusCode::TOO_MANY_REQUESTS.as_u16();
        let window = || too_many.then(|| reset().or_else(x_reset)).flatten();
        let wait = retry_after.or_else(window)?;
        Some(Duration::from_secs_f64(wait.min(MOST_WAIT.as_secs_f64())))
    }
}

fn moment(text: &str) -> Option<f64> {
    let date = chrono::DateTime::parse_from_rfc2822(text).ok()?;
    Some(date.timestamp() as f64)
}

/// One outcome for all messages of a call. What would be one message's fault may be another's where
/// there are several.
pub(super) fn all(outcome: Outcome, messages: usize) -> Vec<Outcome> {
    let outcome = match outcome {
        Outcome::Refused { reason } | Outcome::Undeliverable { reason } if messages > 1 => {
            Outcome::RefusedTogether { reason }
        }
        other => other,
    };
    vec![outcome; messages]
}

/// The outcomes of a call: `judge` reads the answer, if there is one.
pub(super) fn outcomes(
    reply: Reply,
    messages: usize,
    judge: impl FnOnce(&Answer) -> Vec<Outcome>,
) -> Vec<Outcome> {
    match reply {
        Reply::NotSent { reason }
        | Reply::NobodyListens { reason }
        | Reply::Untrusted { reason } => vec![Outcome::Unreachable { reason }; messages],
        Reply::Withheld { reason } => vec![Outcome::Withheld { reason }; messages],
        Reply::Unanswered { reason } => vec![Outcome::Unknown { reason }; messages],
        Reply::Answered(answer) => judge(&answer),
    }
}

/// The answer to a question, or why there is none.
pub(super) fn answered(reply: Reply) -> Result<Answer, String> {
    match reply {
        Reply::NotSent { reason }
        | Reply::NobodyListens { reason }
        | Reply::Withheld { reason }
        | Reply::Untrusted { reason }
        | Reply::Unanswered { reason } => Err(reason),
        Reply::Answered(answer) => Ok(answer),
    }
}

/// The answer to a check, or what there is to say without one. `name` is whose API it is.
pub(super) fn heard(reply: Reply, name: &str) -> Result<Answer, Checked> {
    match reply {
        Reply::Answered(answer) => Ok(answer),
        Reply::NobodyListens { reason } => Err(Checked::wrong(
            format!("nothing listens where {name}'s API should be ({reason})"),
            "set mail.url right, or leave it empty",
        )),
        Reply::Untrusted { reason } => Err(Checked::wrong(
            format!("the connection to {name}'s API cannot be trusted ({reason})"),
            "see mail.url and this machine's clock; a certificate authority of your own is named by SSL_CERT_FILE",
        )),
        Reply::NotSent { reason } | Reply::Withheld { reason } | Reply::Unanswered { reason } => {
            Err(Checked::Unreached {
                reason: format!("{name}: {reason}"),
            })
        }
    }
}

/// A check's answer that no provider gives.
pub(super) fn unexpected(name: &str, said: &str) -> Checked {
    Checked::wrong(
        format!("{name} answered {said}"),
        "see whether mail.url is right, and whether the provider has an outage",
    )
}

/// Whether a connection was refused: whoever is there does not listen. Everything else may be the
/// network's fault.
pub(super) fn is_refused(error: &(dyn Error + 'static)) -> bool {
    is_of(error, std::io::ErrorKind::ConnectionRefused)
}

/// Whether such an error of the system is behind this one.
pub(super) fn is_of(error: &(dyn Error + 'static), kind: std::io::ErrorKind) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        let io = cause.downcast_ref::<std::io::Error>();
        if io.is_some_and(|io| io.kind() == kind) {
            return true;
        }
        next = cause.source();
    }
    false
}

/// Whether the connection was not to be trusted: whose certificate is it? That does not pass by
/// itself.
fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.is::<rustls::Error>() {
            return true;
        }
        // What an I/O error is made of is not among its causes.
        let inner = cause
            .downcast_ref::<std::io::Error>()
            .and_then(std::io::Error::get_ref);
        next = match inner {
            Some(inner) => Some(inner),
            None => cause.source(),
        };
    }
    false
}

/// A provider's own words for the ledger: on one line, short, and without addresses and links,
/// which it may quote.
pub(super) fn words(text: &str) -> String {
    const MOST_CHARS: usize = 240;
    let mask = |word: &str| {
        if word.contains('@') {
            "(address)".to_owned()
        } else if word.contains("://") {
            "(link)".to_owned()
        } else {
            word.replace(char::is_control, "")
        }
    };
    let text: Vec<String> = text.split_whitespace().map(mask).collect();
    let text = text.join(" ");
    match text.char_indices().nth(MOST_CHARS) {
        Some((at, _)) => format!("{}…", &text[..at]),
        None => text,
    }
}

/// An error and its causes on one line.
pub(super) fn chain(error: &dyn Error) -> String {
    let mut lines = vec![error.to_string()];
    let mut cause = error.source();
    while let Some(error) = cause {
        lines.push(error.to_string());
        cause = error.source();
    }
    lines.dedup();
    words(&lines.join(": "))
}

#[cfg(test)]
#[path = "http_tests.rs"]
pub(super) mod tests;
