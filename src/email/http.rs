//! Calls a provider's HTTP API, with limits on time and size, and reads the answer.
//!
//! A call was not sent, was answered, or may have been sent (P5). These are never confused. Calls
//! are not repeated here; reqwest repeats a request only if its connection never accepted it. Each
//! request is signed on its own ([`Sign`]) and names a user agent and content types, which some
//! providers require. [`super::letter`] writes the requests.

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

/// The account at a provider, and the settings that all of its calls share.
#[derive(Debug, Clone)]
pub struct Account {
    /// The base URL of the API, such as `https://api.resend.com`, by provider and region.
    pub url: String,
    /// The API key.
    pub key: Secret,
    /// The session token that belongs to a temporary key.
    pub session: Option<Secret>,
    /// The values of the provider's own options, by path, and of `mail.region`.
    pub options: BTreeMap<&'static str, String>,
    /// Returns the time for signatures.
    pub now: fn() -> DateTime<Utc>,
    /// The time limit of a call.
    pub timeout: Duration,
    /// The maximum number of messages in a call, if it is lower than the provider's own limit.
    pub per_call: Option<usize>,
    /// The tags of all emails at the provider.
    pub tags: Vec<String>,
    /// The sender of all emails.
    pub sender: Sender,
}

impl Account {
    /// Returns the value of an option; empty if it has none.
    pub(super) fn option(&self, path: &str) -> String {
        self.options.get(path).cloned().unwrap_or_default()
    }

    /// Returns the maximum number of messages in a call. `most` is the provider's limit.
    pub(super) fn per_call(&self, most: usize) -> usize {
        self.per_call.unwrap_or(most).clamp(1, most)
    }
}

/// A client for one API.
pub(super) struct Api {
    client: Client,
    signer: Box<dyn Sign>,
    now: fn() -> DateTime<Utc>,
    base: String,
    timeout: Duration,
    /// Eight hexadecimal digits that identify the base URL and the key.
    login: String,
}

/// The body of a request.
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

/// The result of a call.
pub(super) enum Reply {
    /// There was no connection, so nothing was sent.
    NotSent {
        reason: String,
    },
    /// The machine refused the connection, as no service listens there. Nothing was sent.
    NobodyListens {
        reason: String,
    },
    /// The send permit ended before the request was complete.
    Withheld {
        reason: String,
    },
    /// TLS failed, for example because the certificate is not trusted. Nothing was sent.
    Untrusted {
        reason: String,
    },
    /// The request may have arrived, but no answer came.
    Unanswered {
        reason: String,
    },
    Answered(Answer),
}

/// The provider's answer.
pub(super) struct Answer {
    pub status: u16,
    headers: HeaderMap,
    /// `None` if it is too long or incomplete.
    body: Option<Vec<u8>>,
}

/// The size limit of an answer in bytes. The longest answer to a full call is a tenth of this.
const MOST_BYTES: usize = 2 * 1024 * 1024;
/// The time limit for connecting.
const CONNECT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept. Providers keep theirs longer, so none closes it just as
/// we write.
const IDLE: Duration = Duration::from_secs(10);

impl Api {
    /// Creates a client whose requests `signer` signs. Fails if this machine has no root
    /// certificates.
    pub(super) fn new(account: &Account, signer: impl Sign + 'static) -> Result<Self, String> {
        // Fails if a crypto provider is installed already, which works as well.
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

    /// Returns a text that identifies the account among all accounts and providers.
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

/// The longest wait that an answer can ask for. After a day the provider is called again.
pub(super) const MOST_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

impl Answer {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok().map(str::trim)
    }

    /// Parses the body, if it has the expected form.
    pub(super) fn json<T: serde::de::DeserializeOwned>(&self) -> Option<T> {
        serde_json::from_slice(self.body.as_deref()?).ok()
    }

    /// Returns status and body as text for the ledger.
    pub(super) fn said(&self) -> String {
        let body = String::from_utf8_lossy(self.body.as_deref().unwrap_or_default());
        words(&format!("{} {body}", self.status))
    }

    /// Returns the wait before the next call, if a header names one, up to [`MOST_WAIT`].
    ///
    /// - `Retry-After` is a number of seconds or a date.
    /// - `RateLimit-Reset` is a number of seconds.
    /// - `X-RateLimit-Reset` is a time, in seconds or milliseconds, or a number of seconds.
    ///
    /// The last two describe the window in which calls are counted, so they count only with status
    /// 429. Times are compared with the answer's own `Date`, so clocks may be wrong.
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
            // A current time has ten digits in seconds and thirteen in milliseconds. A smaller
            // number is a duration.
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

/// Returns the same outcome for each message of a call. A rejected call of several messages is
/// [`Outcome::RefusedTogether`], as the fault may be in only one of them.
pub(super) fn all(outcome: Outcome, messages: usize) -> Vec<Outcome> {
    let outcome = match outcome {
        Outcome::Refused { reason } | Outcome::Undeliverable { reason } if messages > 1 => {
            Outcome::RefusedTogether { reason }
        }
        other => other,
    };
    vec![outcome; messages]
}

/// Returns the outcomes of a call. `judge` interprets the answer, if there is one.
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

/// Returns the answer to a query, or the reason why there is none.
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

/// Returns the answer to a check, or the result of the check if there is no answer. `name` is the
/// provider's.
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

/// Returns the result of a check whose answer the provider does not document.
pub(super) fn unexpected(name: &str, said: &str) -> Checked {
    Checked::wrong(
        format!("{name} answered {said}"),
        "see whether mail.url is right, and whether the provider has an outage",
    )
}

/// Returns whether the machine refused the connection, because no service listens there. Other
/// errors may come from the network.
pub(super) fn is_refused(error: &(dyn Error + 'static)) -> bool {
    is_of(error, std::io::ErrorKind::ConnectionRefused)
}

/// Returns whether the error or one of its causes is an I/O error of this kind.
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

/// Returns whether TLS failed, for example because of an untrusted certificate. This does not pass
/// by itself.
fn is_untrusted(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(cause) = next {
        if cause.is::<rustls::Error>() {
            return true;
        }
        // `source` skips the error that an I/O error wraps.
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

/// Shortens a provider's words to one line of at most 240 characters, for the ledger. Masks
/// addresses and links.
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

/// Formats an error and its causes on one line.
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
