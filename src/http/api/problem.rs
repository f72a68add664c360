//! What goes wrong, as RFC 9457 problem details: what, which value, what to do, and a code for
//! programs.
//!
//! The rule (P10): a code never changes its meaning; `docs/api.md` explains each, and a test
//! compares. What goes wrong inside is logged with its causes and told to nobody outside.

use std::fmt;
use std::time::Duration;

use actix_web::http::{StatusCode, header};
use actix_web::{HttpResponse, ResponseError};

use crate::domain::{Invalid, Kind};
use crate::engine;
use crate::wire::problem::Details;

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal, $status:ident;)*) => {
        /// Why a request was not done.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {$($(#[$doc])* $code,)*}

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// The code as clients read it, in snake case.
            pub fn as_str(self) -> &'static str {
                match self {$(Self::$code => $name,)*}
            }

            /// The HTTP status that goes with it.
            pub fn status(self) -> StatusCode {
                match self {$(Self::$code => StatusCode::$status,)*}
            }
        }
    };
}

codes! {
    /// The body is not JSON, or not what is asked for.
    InvalidBody = "invalid_body", BAD_REQUEST;
    /// A query parameter, a part of the path or a header is not known or not what is asked for.
    InvalidParameter = "invalid_parameter", BAD_REQUEST;
    /// The key or token is missing, wrong or over.
    Unauthorized = "unauthorized", UNAUTHORIZED;
    /// A report is not the provider's, or too old.
    Unverified = "unverified", UNAUTHORIZED;
    /// The key's scope, or the token, does not open this.
    Forbidden = "forbidden", FORBIDDEN;
    /// There is no such path.
    NotFound = "not_found", NOT_FOUND;
    /// No event has this id.
    UnknownEvent = "unknown_event", NOT_FOUND;
    /// There is no record of this person.
    UnknownUser = "unknown_user", NOT_FOUND;
    /// There is no record of this object.
    UnknownObject = "unknown_object", NOT_FOUND;
    /// No batch has this id.
    UnknownBatch = "unknown_batch", NOT_FOUND;
    /// No provider has this name.
    UnknownProvider = "unknown_provider", NOT_FOUND;
    /// There is no key to verify this provider's reports by.
    HookNotConfigured = "hook_not_configured", NOT_FOUND;
    /// The address is not suppressed.
    NotSuppressed = "not_suppressed", NOT_FOUND;
    /// The path cannot be asked with this method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    /// The body did not come in time.
    BodyTimeout = "body_timeout", REQUEST_TIMEOUT;
    /// The batch closes or has ended: nothing can be changed about it.
    BatchEnded = "batch_ended", CONFLICT;
    /// An event with this key was accepted, and was another one.
    IdempotencyKeyReused = "idempotency_key_reused", CONFLICT;
    /// The body is longer than what is taken.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE;
    /// A value is larger than what is kept.
    LimitExceeded = "limit_exceeded", PAYLOAD_TOO_LARGE;
    /// An event is of a moment at which none can be accepted now.
    TimeOutOfRange = "time_out_of_range", UNPROCESSABLE_ENTITY;
    /// An event's type is not configured, and `strict_types` refuses it.
    UnknownType = "unknown_type", UNPROCESSABLE_ENTITY;
    /// As many streams are open as are served.
    TooManyStreams = "too_many_streams", TOO_MANY_REQUESTS;
    /// The body is not said to be JSON.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE;
    /// The key, or the person's tokens, made too many requests.
    TooManyRequests = "too_many_requests", TOO_MANY_REQUESTS;
    /// A fault of ours; the log says which.
    Internal = "internal", INTERNAL_SERVER_ERROR;
    /// The database does not answer; asking again later helps.
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE;
    /// What a report is verified by cannot be had from its provider; it can be posted again.
    ProviderUnavailable = "provider_unavailable", SERVICE_UNAVAILABLE;
    /// The database took too long; asking again may help.
    TimedOut = "timed_out", SERVICE_UNAVAILABLE;
}

/// What is said of a request whose end nobody saw …
const REPEATABLE: &str =
    "whether something was changed is not known, and the request can be repeated";
/// … and of one with events that have no key.
const NOT_REPEATABLE: &str = "whether something was accepted is not known, \
    and an event without a key that is sent again is another event";

/// A request that was not done, and why.
#[derive(Debug)]
pub struct Problem {
    /// What clients can act on.
    pub code: Code,
    detail: String,
    /// Where in the request, such as `query parameter limit` or `events[12].at (line 3, column 7)`.
    location: Option<String>,
    /// What the path can be asked with, for a wrong method.
    allow: Option<String>,
    /// In how many seconds it may be asked again.
    retry_after: Option<u64>,
    /// What went wrong inside, for the log alone.
    pub cause: Option<String>,
}

impl Problem {
    /// A problem of this kind; `detail` is for people to read.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self {
            code,
            detail: detail.into(),
            location: None,
            allow: None,
            retry_after: None,
            cause: None,
        }
    }

    /// Says where in the request it is.
    pub fn at(self, location: impl Into<String>) -> Self {
        Self {
            location: Some(location.into()),
            ..self
        }
    }

    /// Something in the body.
    pub fn body(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidBody, detail)
    }

    /// Something in a query parameter, the path or a header.
    pub fn parameter(location: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidParameter, detail).at(location)
    }

    /// The path exists, and not with this method; `allow` lists those it has.
    pub fn method_not_allowed(method: &str, allow: String) -> Self {
        let detail = format!("{method} does not work here; use {allow}");
        Self {
            allow: Some(allow),
            ..Self::new(Code::MethodNotAllowed, detail)
        }
    }

    /// More requests than may be made; in so many seconds another may.
    pub fn too_many(detail: impl Into<String>, retry_after: u64) -> Self {
        Self {
            retry_after: Some(retry_after),
            ..Self::new(Code::TooManyRequests, detail)
        }
    }

    /// The same of events of which not all have a key: sent again, these are other events.
    pub fn without_keys(self) -> Self {
        match self.code {
            Code::StoreUnavailable | Code::TimedOut => Self {
                detail: self.detail.replace(REPEATABLE, NOT_REPEATABLE),
                ..self
            },
            _ => self,
        }
    }

    /// Nobody waited for its end.
    pub fn timed_out(patience: Duration) -> Self {
        let detail = format!("the request took longer than {patience:?}; {REPEATABLE}");
        Self::new(Code::TimedOut, detail)
    }

    /// Work beside the request was stopped.
    pub fn stopped(cause: &(dyn std::error::Error + 'static)) -> Self {
        Self::inside(
            Code::Internal,
            "something went wrong inside; the log says what",
            cause,
        )
    }

    fn inside(code: Code, detail: &str, cause: &(dyn std::error::Error + 'static)) -> Self {
        let chain = std::iter::successors(Some(cause), |error| error.source());
        let chain: Vec<String> = chain.map(ToString::to_string).collect();
        Self {
            cause: Some(chain.join(": ")),
            ..Self::new(code, detail)
        }
    }
}

/// Invalid values come from the body unless a handler reports another location.
impl From<Invalid> for Problem {
    fn from(invalid: Invalid) -> Self {
        let code = match invalid.kind {
            Kind::Value => Code::InvalidBody,
            Kind::Limit => Code::LimitExceeded,
            Kind::Time => Code::TimeOutOfRange,
            Kind::Type => Code::UnknownType,
        };
        let problem = Self::new(code, invalid.to_string());
        match invalid.kind {
            Kind::Type => problem.at("type"),
            Kind::Value | Kind::Limit | Kind::Time => problem,
        }
    }
}

impl From<engine::Error> for Problem {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Invalid(invalid) => invalid.into(),
            engine::Error::Conflict(why) => Self::new(Code::IdempotencyKeyReused, why),
            engine::Error::Store(error) if error.is_outage() => Self::inside(
                Code::StoreUnavailable,
                &format!("the store does not answer; {REPEATABLE}"),
                &error,
            ),
            error => Self::inside(
                Code::Internal,
                "something went wrong inside; the log says what",
                &error,
            ),
        }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.code.as_str(), self.detail)
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.code.status()
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.status_code();
        let details = Details {
            // "about:blank" says that the title is the status's own phrase (RFC 9457, 4.2.1);
            // programs read the code.
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            code: self.code.as_str(),
            detail: &self.detail,
            location: self.location.as_deref(),
        };
        let mut response = HttpResponse::build(status);
        response.content_type("application/problem+json");
        if let Some(allow) = &self.allow {
            response.insert_header((header::ALLOW, allow.as_str()));
        }
        if let Some(seconds) = self.retry_after {
            response.insert_header((header::RETRY_AFTER, seconds));
        }
        match self.code {
            Code::Unauthorized => {
                response.insert_header((header::WWW_AUTHENTICATE, "Bearer"));
            }
            Code::Unverified => {
                response.insert_header((header::WWW_AUTHENTICATE, "Basic realm=\"hooks\""));
            }
            Code::StoreUnavailable | Code::TimedOut => {
                response.insert_header((header::RETRY_AFTER, "1"));
            }
            Code::TooManyStreams => {
                response.insert_header((header::RETRY_AFTER, "30"));
            }
            _ => {}
        }
        response.body(serde_json::to_vec(&details).expect("text and numbers are always JSON"))
    }
}
