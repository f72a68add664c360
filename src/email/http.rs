//! Calls a provider's HTTP API, with limits on time and size, and reads the answer.
//!
//! A call was not sent, was answered, or may have been sent (P5). These are never confused. Calls
//! are not repeated here; reqwest repeats a request only if its connection never accepted it. Each
//! request is signed on its own ([`Sign`]) and names a user agent and content types, which some
//! providers require. [`super::api_calls`] writes the requests.

use std::collections::BTreeMap;
use std::error::Error;
use std::sync::atomic::Ordering;
use std::time::Duration;

use chrono::{DateTime, Utc};
use reqwest::header::{ACCEPT, DATE, HeaderMap, HeaderValue, RETRY_AFTER};
use reqwest::{Client, ClientBuilder, Method, Request, Response, StatusCode, Url, redirect};
use serde_json::Value;
use sha2::{Digest as _, Sha256};

use super::lease_permit::GuardedBody;
use super::mime::mailbox;
use super::{CheckResult, Outcome, SendPermit, SenderAddress};
use crate::domain::Secret;
use crate::domain::error_chain::error_chain;

/// The account at a provider, and the settings that all of its calls share.
#[derive(Debug, Clone)]
pub struct Account {
    /// The base URL of the API, such as `https://api.resend.com`, by provider and region.
    pub base_url: String,
    /// The API key.
    pub key: Secret,
    /// The values of the provider's own options, by path, and of `mail.region`.
    pub options: BTreeMap<&'static str, String>,
    /// Returns the time for signatures.
    pub now: fn() -> DateTime<Utc>,
    /// The time limit of a call.
    pub timeout: Duration,
    /// The maximum number of messages in a call, if it is lower than the provider's own limit.
    pub max_per_call: Option<usize>,
    /// The sender of all emails.
    pub sender: SenderAddress,
}

impl Account {
    /// Returns the value of an option; empty if it has none.
    pub(super) fn option(&self, path: &str) -> String {
        self.options.get(path).cloned().unwrap_or_default()
    }

    /// Returns the maximum number of messages in a call.
    pub(super) fn per_call(&self, provider_limit: usize) -> usize {
        self.max_per_call.unwrap_or(provider_limit).clamp(1, provider_limit)
    }
}

/// Authenticates requests.
pub(super) trait Sign: Send + Sync {
    /// Adds the headers that authenticate the request. The request is complete except for its body,
    /// so a signature can cover URL, content and time. `at` is the time of signing.
    fn sign(&self, request: &mut Request, body: &[u8], at: DateTime<Utc>);
}

/// A client for one API.
pub(super) struct ApiClient {
    pub account: Account,
    /// The sender's name and address, quoted.
    pub from: String,
    client: Client,
    signer: Box<dyn Sign>,
    /// Eight hexadecimal digits that identify the base URL and the key.
    fingerprint: String,
}

/// The body of a request, with its `Content-Type` and other headers.
pub(super) struct RequestBody {
    pub headers: Vec<(&'static str, String)>,
    pub bytes: Vec<u8>,
}

impl RequestBody {
    pub(super) fn json(value: &Value) -> Self {
        Self {
            headers: vec![("content-type", "application/json".into())],
            bytes: value.to_string().into_bytes(),
        }
    }
}

/// Why a call has no answer, with the reason in words.
pub(super) enum NoAnswer {
    /// There was no connection, so nothing was sent.
    NotSent(String),
    /// The machine refused the connection, as no service listens there. Nothing was sent.
    ConnectionRefused(String),
    /// TLS failed, for example because the certificate is not trusted. Nothing was sent.
    CertificateRejected(String),
    /// The send permit ended before the request was complete.
    Withheld(String),
    /// The request may have arrived.
    MaybeSent(String),
}

impl NoAnswer {
    fn from_error(error: reqwest::Error, timeout: Duration) -> Self {
        let not_sent: fn(String) -> Self = if is_connection_refused(&error) {
            Self::ConnectionRefused
        } else if is_tls_failure(&error) {
            Self::CertificateRejected
        } else if error.is_connect() || error.is_builder() {
            Self::NotSent
        } else if error.is_timeout() {
            let limit = timeout.as_secs_f32();
            return Self::MaybeSent(format!("no answer within {limit} s"));
        } else {
            return Self::MaybeSent(format!("no answer: {}", error_line(&error.without_url())));
        };
        not_sent(format!("no connection: {}", error_line(&error.without_url())))
    }
}

impl From<NoAnswer> for String {
    fn from(failed: NoAnswer) -> Self {
        match failed {
            NoAnswer::NotSent(reason)
            | NoAnswer::ConnectionRefused(reason)
            | NoAnswer::CertificateRejected(reason)
            | NoAnswer::Withheld(reason)
            | NoAnswer::MaybeSent(reason) => reason,
        }
    }
}

/// The provider's answer.
pub(super) struct ProviderResponse {
    pub status: u16,
    headers: HeaderMap,
    /// `None` if it is too long or incomplete.
    body: Option<Vec<u8>>,
}

/// The size limit of an answer in bytes. The longest answer to a full call is a tenth of this.
const MAX_ANSWER_BYTES: usize = 2 * 1024 * 1024;
/// The time limit for connecting.
const CONNECT_TIMEOUT: Duration = Duration::from_secs(10);
/// How long an unused connection is kept. Providers keep theirs longer, so none closes it just as
/// we write.
const IDLE_TIMEOUT: Duration = Duration::from_secs(10);

impl ApiClient {
    /// Creates a client whose requests `signer` signs. Fails if the sender's address is invalid, or
    /// this machine has no root certificates.
    pub(super) fn new(mut account: Account, signer: impl Sign + 'static) -> Result<Self, String> {
        let accept = (ACCEPT, HeaderValue::from_static("application/json"));
        let builder = Client::builder()
            .default_headers([accept].into_iter().collect())
            .connect_timeout(CONNECT_TIMEOUT.min(account.timeout))
            .timeout(account.timeout)
            .pool_idle_timeout(IDLE_TIMEOUT);
        let client = build_client(builder)?;
        account.base_url.truncate(account.base_url.trim_end_matches('/').len());
        let base = &account.base_url;
        Url::parse(base).map_err(|error| format!("mail.url {base:?} is no address: {error}"))?;
        let hash = Sha256::digest(format!("{base} {}", account.key.expose()));
        let sender = &account.sender;
        Ok(Self {
            client,
            signer: Box::new(signer),
            from: mailbox(&sender.from, Some(&sender.from_name))?.to_string(),
            account,
            fingerprint: hex::encode(&hash[..4]),
        })
    }

    /// Returns a text that identifies the account among all accounts and providers.
    pub(super) fn account(&self, provider: &str) -> String {
        format!("{provider} {}", self.fingerprint)
    }

    pub(super) async fn get(&self, path: &str) -> Result<ProviderResponse, NoAnswer> {
        self.call(Method::GET, path, None).await
    }

    pub(super) async fn post(
        &self,
        path: &str,
        body: RequestBody,
        permit: &SendPermit,
    ) -> Result<ProviderResponse, NoAnswer> {
        if let Some(reason) = permit.withheld_reason() {
            return Err(NoAnswer::Withheld(reason));
        }
        self.call(Method::POST, path, Some((body, permit))).await
    }

    async fn call(
        &self,
        method: Method,
        path: &str,
        body: Option<(RequestBody, &SendPermit)>,
    ) -> Result<ProviderResponse, NoAnswer> {
        let url = format!("{}{path}", self.account.base_url);
        let mut builder = self.client.request(method, url);
        for (name, value) in body.iter().flat_map(|(body, _)| &body.headers) {
            builder = builder.header(*name, value);
        }
        let no_answer = |error| NoAnswer::from_error(error, self.account.timeout);
        let mut request = builder.build().map_err(no_answer)?;
        let bytes = body.as_ref().map_or(&[][..], |(body, _)| &body.bytes);
        self.signer.sign(&mut request, bytes, (self.account.now)());
        let mut guard = None;
        if let Some((body, permit)) = body {
            let (guarded_body, is_aborted) = GuardedBody::new(body.bytes, permit.clone());
            *request.body_mut() = Some(reqwest::Body::wrap(guarded_body));
            guard = Some((is_aborted, permit));
        }
        match self.client.execute(request).await {
            Ok(response) => Ok(ProviderResponse {
                status: response.status().as_u16(),
                headers: response.headers().clone(),
                body: read_body(response, MAX_ANSWER_BYTES).await.ok(),
            }),
            Err(error) => Err(match guard {
                Some((is_aborted, permit)) if is_aborted.load(Ordering::SeqCst) => {
                    permit.lost_reason().map_or_else(|| no_answer(error), NoAnswer::Withheld)
                }
                _ => no_answer(error),
            }),
        }
    }
}

/// Builds a client that follows no redirects.
pub(crate) fn build_client(client: ClientBuilder) -> Result<Client, String> {
    // Fails if a crypto provider is installed already, which works as well.
    let _ = rustls::crypto::ring::default_provider().install_default();
    client
        .user_agent(concat!("tidings/", env!("CARGO_PKG_VERSION")))
        .redirect(redirect::Policy::none())
        .build()
        .map_err(|error| format!("no HTTPS client can be made: {}", error_line(&error)))
}

/// Reads a body, or fails if it is longer than `max_bytes`.
pub(super) async fn read_body(mut response: Response, max_bytes: usize) -> Result<Vec<u8>, String> {
    let mut bytes = Vec::new();
    while let Some(chunk) = response.chunk().await.map_err(|error| error_line(&error))? {
        if bytes.len() + chunk.len() > max_bytes {
            return Err(format!("answered more than {} KiB", max_bytes >> 10));
        }
        bytes.extend_from_slice(&chunk);
    }
    Ok(bytes)
}

/// The longest wait that an answer can ask for. After a day the provider is called again.
pub(super) const MAX_WAIT: Duration = Duration::from_secs(24 * 60 * 60);

impl ProviderResponse {
    pub(super) fn header(&self, name: &str) -> Option<&str> {
        self.headers.get(name)?.to_str().ok().map(str::trim)
    }

    /// Returns the body as JSON; null if it is none.
    pub(super) fn json(&self) -> Value {
        let body = self.body.as_deref().unwrap_or_default();
        serde_json::from_slice(body).unwrap_or_default()
    }

    /// Returns whether the status is a success.
    pub(super) fn is_success(&self) -> bool {
        (200..300).contains(&self.status)
    }

    /// Returns the status and the provider's error message as text for the ledger. Without such a
    /// message, it returns status and body.
    pub(super) fn describe(&self, message: Option<String>) -> String {
        let body = || String::from_utf8_lossy(self.body.as_deref().unwrap_or_default());
        let text = message.unwrap_or_else(|| body().into_owned());
        ledger_line(&format!("{} {text}", self.status))
    }

    /// Returns the wait before the next call, if a header names one, up to [`MAX_WAIT`].
    ///
    /// A header contains a number of seconds, a date (`Retry-After`), or a time in seconds or
    /// milliseconds (`X-RateLimit-Reset`). The headers of rate limits describe the window in which
    /// calls are counted, so they count only with status 429. Times are compared with the answer's
    /// own `Date`, so clocks may be wrong.
    pub(super) fn wait(&self) -> Option<Duration> {
        let now = self.header(DATE.as_str()).and_then(http_date_seconds);
        let until = |then: f64| now.map(|now| (then - now).max(0.0));
        let wait_in = |name: &str| {
            let text = self.header(name)?;
            match text.parse::<f64>() {
                // A current time has thirteen digits in milliseconds and ten in seconds.
                Ok(time) if time >= 1e11 => until(time / 1e3),
                Ok(time) if time >= 1e8 => until(time),
                Ok(seconds) => Some(seconds).filter(|seconds| *seconds >= 0.0),
                Err(_) => until(http_date_seconds(text)?),
            }
        };
        let is_limited = self.status == StatusCode::TOO_MANY_REQUESTS.as_u16();
        let rest_of_window = || wait_in("ratelimit-reset").or_else(|| wait_in("x-ratelimit-reset"));
        let wait =
            wait_in(RETRY_AFTER.as_str()).or_else(|| is_limited.then(rest_of_window).flatten())?;
        Some(Duration::from_secs_f64(wait.min(MAX_WAIT.as_secs_f64())))
    }
}

/// Returns the seconds from 1970 to this date.
fn http_date_seconds(text: &str) -> Option<f64> {
    let date = DateTime::parse_from_rfc2822(text).ok()?;
    Some(date.timestamp() as f64)
}

/// Returns the same outcome for each message of a call. A rejected call of several messages is
/// [`Outcome::RefusedTogether`], as the fault may be in only one of them.
pub(super) fn repeat_outcome(outcome: Outcome, messages: usize) -> Vec<Outcome> {
    let outcome = match outcome {
        Outcome::Refused(reason) | Outcome::Undeliverable(reason) if messages > 1 => {
            Outcome::RefusedTogether(reason)
        }
        other => other,
    };
    vec![outcome; messages]
}

/// Returns the outcome that most providers mean by the status of a failed call.
pub(super) fn outcome_of_status(answer: &ProviderResponse, reason: String) -> Outcome {
    match answer.status {
        429 | 500 | 503 => Outcome::TryLater(reason, answer.wait()),
        // A gateway answered. The provider may have accepted the call behind it.
        501.. => Outcome::Unknown(reason),
        300..=399 | 401 | 403 | 404 | 405 => Outcome::Stop(reason),
        _ => Outcome::Refused(reason),
    }
}

/// Returns the outcome of a success: the provider's id for the email, without brackets.
pub(super) fn accepted_outcome(
    provider: &str,
    answer: &ProviderResponse,
    id: Option<&str>,
) -> Outcome {
    match id.map(|id| id.trim_matches(['<', '>'])) {
        None | Some("") => missing_id_outcome(provider, answer),
        Some(id) => Outcome::Accepted(id.to_owned()),
    }
}

/// Returns the outcome of a success that does not name an id for each email.
pub(super) fn missing_id_outcome(provider: &str, answer: &ProviderResponse) -> Outcome {
    let status = answer.status;
    Outcome::Unknown(format!("{provider} answered {status}, but not with an id for each email"))
}

impl From<NoAnswer> for Outcome {
    fn from(failed: NoAnswer) -> Self {
        match failed {
            NoAnswer::NotSent(reason)
            | NoAnswer::ConnectionRefused(reason)
            | NoAnswer::CertificateRejected(reason) => Self::Unreachable(reason),
            NoAnswer::Withheld(reason) => Self::Withheld(reason),
            NoAnswer::MaybeSent(reason) => Self::Unknown(reason),
        }
    }
}

/// Returns status and body of the answer to a check; 0 and null without one.
pub(super) fn status_and_body(answer: &Result<ProviderResponse, NoAnswer>) -> (u16, Value) {
    answer.as_ref().map(|answer| (answer.status, answer.json())).unwrap_or_default()
}

/// Returns the result of a check whose answer does not prove that the key is valid. `name` is the
/// provider's, `describe` returns the provider's error message, and `remedy` describes a valid key.
pub(super) fn failed_key_check(
    name: &str,
    answer: Result<ProviderResponse, NoAnswer>,
    describe: fn(&ProviderResponse) -> String,
    remedy: &str,
) -> CheckResult {
    match answer {
        Ok(answer) if matches!(answer.status, 401 | 403) => {
            rejected_key_check(name, &describe(&answer), remedy)
        }
        Ok(answer) => CheckResult::wrong(
            format!("{name} answered {}", describe(&answer)),
            "see whether mail.url is right, and whether the provider has an outage",
        ),
        Err(NoAnswer::ConnectionRefused(reason)) => CheckResult::wrong(
            format!("nothing listens where {name}'s API should be ({reason})"),
            "set mail.url right, or leave it empty",
        ),
        Err(NoAnswer::CertificateRejected(reason)) => CheckResult::wrong(
            format!("the connection to {name}'s API cannot be trusted ({reason})"),
            "see mail.url and this machine's clock; a certificate authority of your own is named by SSL_CERT_FILE",
        ),
        Err(failed) => CheckResult::Unreached(format!("{name}: {}", String::from(failed))),
    }
}

/// Returns the result of a check in which the provider rejected the key with this message.
pub(super) fn rejected_key_check(name: &str, message: &str, remedy: &str) -> CheckResult {
    CheckResult::wrong(format!("{name} rejected the key ({message})"), remedy)
}

/// Returns whether the machine refused the connection, because no service listens there. Other
/// errors may come from the network.
pub(crate) fn is_connection_refused(error: &(dyn Error + 'static)) -> bool {
    has_io_cause(error, std::io::ErrorKind::ConnectionRefused)
}

/// Returns whether the error or one of its causes is an I/O error of this kind.
pub(super) fn has_io_cause(error: &(dyn Error + 'static), kind: std::io::ErrorKind) -> bool {
    let is_kind = |io: &std::io::Error| io.kind() == kind;
    error_causes(error).any(|cause| cause.downcast_ref().is_some_and(is_kind))
}

/// Returns whether TLS failed, for example because of an untrusted certificate. This does not pass
/// by itself.
pub(crate) fn is_tls_failure(error: &(dyn Error + 'static)) -> bool {
    error_causes(error).any(|cause| cause.is::<rustls::Error>())
}

/// Returns the error and its causes. Includes the errors that I/O errors wrap, which `source`
/// skips.
pub(crate) fn error_causes<'a>(
    error: &'a (dyn Error + 'static),
) -> impl Iterator<Item = &'a (dyn Error + 'static)> {
    std::iter::successors(Some(error), |cause| {
        let cause = *cause;
        let wrapped = cause.downcast_ref::<std::io::Error>();
        match wrapped.and_then(std::io::Error::get_ref) {
            Some(wrapped) => Some(wrapped),
            None => cause.source(),
        }
    })
}

/// Shortens a provider's message to one line of at most 240 characters, for the ledger. Masks
/// addresses and links.
pub(super) fn ledger_line(text: &str) -> String {
    const MAX_CHARS: usize = 240;
    let mask = |word: &str| {
        if word.contains('@') {
            "(address)".to_owned()
        } else if word.contains("://") {
            "(link)".to_owned()
        } else {
            word.replace(char::is_control, "")
        }
    };
    let line = text.split_whitespace().map(mask).collect::<Vec<_>>().join(" ");
    match line.char_indices().nth(MAX_CHARS) {
        Some((end, _)) => format!("{}…", &line[..end]),
        None => line,
    }
}

/// Formats an error and its causes on one line.
pub(super) fn error_line(error: &dyn Error) -> String {
    ledger_line(&error_chain(error))
}

#[cfg(test)]
#[path = "http_tests.rs"]
pub(super) mod tests;
