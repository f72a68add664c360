//! Errors as RFC 9457 problem details: which field, which value, what to do, and a stable code.
//!
//! A code never changes its meaning (P10). `docs/api.md` explains each code, and a test compares
//! the two. The causes of internal errors are logged and never sent to clients.

use std::time::Duration;

use actix_web::http::StatusCode;
use actix_web::http::header::{self, HeaderName};
use actix_web::web::Data;
use actix_web::{HttpResponse, ResponseError};

use crate::app::App;
use crate::domain::error_chain::error_chain;
use crate::domain::{InvalidKind, InvalidValue, UserId};
use crate::engine;
use crate::wire::{ProblemDetails, to_json};

macro_rules! codes {
    ($($(#[$doc:meta])* $code:ident = $name:literal, $status:ident;)*) => {
        /// Why a request failed.
        #[derive(Debug, Clone, Copy, PartialEq, Eq)]
        pub enum Code {$($(#[$doc])* $code,)*}

        impl Code {
            /// Every code, in the order of the documentation.
            pub const ALL: &[Self] = &[$(Self::$code,)*];

            /// Returns the code as clients read it, in snake case.
            pub fn as_str(self) -> &'static str {
                match self {$(Self::$code => $name,)*}
            }

            /// Returns the HTTP status of the code.
            pub fn status(self) -> StatusCode {
                match self {$(Self::$code => StatusCode::$status,)*}
            }
        }
    };
}

codes! {
    /// The body is not JSON, or its content is invalid.
    InvalidBody = "invalid_body", BAD_REQUEST;
    /// A query parameter, path segment or header is unknown or invalid.
    InvalidParameter = "invalid_parameter", BAD_REQUEST;
    /// The key or token is missing, invalid, revoked or expired.
    Unauthorized = "unauthorized", UNAUTHORIZED;
    /// The provider's signature of a report is missing or invalid, or the report is too old.
    Unverified = "unverified", UNAUTHORIZED;
    /// The key, the token or the origin of the page does not permit the request.
    Forbidden = "forbidden", FORBIDDEN;
    /// No route has this path.
    NotFound = "not_found", NOT_FOUND;
    /// No event has this id.
    UnknownEvent = "unknown_event", NOT_FOUND;
    /// The user has no record.
    UnknownUser = "unknown_user", NOT_FOUND;
    /// The object has no record.
    UnknownObject = "unknown_object", NOT_FOUND;
    /// No batch has this id.
    UnknownBatch = "unknown_batch", NOT_FOUND;
    /// No provider has this name.
    UnknownProvider = "unknown_provider", NOT_FOUND;
    /// No key is configured that verifies this provider's reports.
    HookNotConfigured = "hook_not_configured", NOT_FOUND;
    /// The address is not suppressed.
    NotSuppressed = "not_suppressed", NOT_FOUND;
    /// The path does not support the method.
    MethodNotAllowed = "method_not_allowed", METHOD_NOT_ALLOWED;
    /// The body did not arrive in time.
    BodyTimeout = "body_timeout", REQUEST_TIMEOUT;
    /// The batch is closing or has ended, so it cannot be changed.
    BatchEnded = "batch_ended", CONFLICT;
    /// A different event was accepted with this key.
    IdempotencyKeyReused = "idempotency_key_reused", CONFLICT;
    /// The body exceeds the size limit.
    BodyTooLarge = "body_too_large", PAYLOAD_TOO_LARGE;
    /// A value exceeds a limit.
    LimitExceeded = "limit_exceeded", PAYLOAD_TOO_LARGE;
    /// Events of this time are not accepted now.
    TimeOutOfRange = "time_out_of_range", UNPROCESSABLE_ENTITY;
    /// The event type is not configured, and `strict_types` is on.
    UnknownType = "unknown_type", UNPROCESSABLE_ENTITY;
    /// The maximum number of streams is open.
    TooManyStreams = "too_many_streams", TOO_MANY_REQUESTS;
    /// The body is not declared as JSON, or is encoded.
    UnsupportedMediaType = "unsupported_media_type", UNSUPPORTED_MEDIA_TYPE;
    /// The key, or the user's tokens together, exceeded the rate limit.
    TooManyRequests = "too_many_requests", TOO_MANY_REQUESTS;
    /// An internal error. The log contains the cause.
    Internal = "internal", INTERNAL_SERVER_ERROR;
    /// The store does not answer. The client can retry later.
    StoreUnavailable = "store_unavailable", SERVICE_UNAVAILABLE;
    /// The provider cannot be reached to verify or confirm a report. It can post the report again.
    ProviderUnavailable = "provider_unavailable", SERVICE_UNAVAILABLE;
    /// The request took too long, and may have taken effect.
    TimedOut = "timed_out", SERVICE_UNAVAILABLE;
}

/// Tells clients that a failed request may have taken effect.
const REPEATABLE: &str = "the request may have taken effect; you can repeat it, but repeated \
                          events without a key may be accepted twice";

/// The result of a handler.
pub(super) type ApiResult = Result<HttpResponse, Problem>;

/// The detail of internal errors.
const INTERNAL: &str = "something went wrong inside; the log says what";

/// A failed request, and why it failed.
#[derive(Debug, thiserror::Error)]
#[error("{}: {detail}", code.as_str())]
pub struct Problem {
    /// The code for programs.
    pub code: Code,
    pub(in crate::http) detail: String,
    /// The location in the request, such as `query parameter limit` or `events[12].at (line 3,
    /// column 7)`.
    location: Option<String>,
    /// A header of the response; boxed, because few problems have one.
    header: Option<Box<(HeaderName, String)>>,
    /// The internal cause, which is logged and never sent.
    pub cause: Option<String>,
}

impl Problem {
    /// Creates a problem; `detail` is for humans.
    pub fn new(code: Code, detail: impl Into<String>) -> Self {
        Self { code, detail: detail.into(), location: None, header: None, cause: None }
    }

    /// Adds the location in the request.
    pub fn at(self, location: impl Into<String>) -> Self {
        Self { location: Some(location.into()), ..self }
    }

    /// Creates the problem for a user without a record.
    pub(super) fn unknown_user(id: &UserId) -> Self {
        let detail = format!("there is no record of user {id:?}");
        Self::new(Code::UnknownUser, detail)
    }

    /// Creates a problem with the body.
    pub fn body(detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidBody, detail)
    }

    /// Creates a problem with a query parameter, path segment or header.
    pub fn parameter(location: impl Into<String>, detail: impl Into<String>) -> Self {
        Self::new(Code::InvalidParameter, detail).at(location)
    }

    /// Adds a header to the response.
    pub fn with(self, name: HeaderName, value: String) -> Self {
        Self { header: Some(Box::new((name, value))), ..self }
    }

    /// Creates the problem for a request that exceeded the time limit.
    pub fn timed_out(timeout: Duration) -> Self {
        let detail = format!("the request took longer than {timeout:?}; {REPEATABLE}");
        Self::new(Code::TimedOut, detail)
    }

    /// Creates the problem for an internal error.
    pub fn internal(cause: &dyn std::error::Error) -> Self {
        Self::with_cause(Code::Internal, INTERNAL, cause)
    }

    fn with_cause(code: Code, detail: &str, cause: &dyn std::error::Error) -> Self {
        Self { cause: Some(error_chain(cause)), ..Self::new(code, detail) }
    }
}

/// Invalid values come from the body unless a handler reports another location.
impl From<InvalidValue> for Problem {
    fn from(invalid: InvalidValue) -> Self {
        let problem = |code| Self::new(code, invalid.to_string());
        match invalid.kind {
            InvalidKind::Value => problem(Code::InvalidBody),
            InvalidKind::Limit => problem(Code::LimitExceeded),
            InvalidKind::Time => problem(Code::TimeOutOfRange),
            InvalidKind::Type => problem(Code::UnknownType).at("type"),
        }
    }
}

impl From<engine::Error> for Problem {
    fn from(error: engine::Error) -> Self {
        match error {
            engine::Error::Invalid(invalid) => invalid.into(),
            engine::Error::Conflict(why) => Self::new(Code::IdempotencyKeyReused, why),
            engine::Error::Store(error) if error.is_disk_full() => Self::with_cause(
                Code::StoreUnavailable,
                &format!("the disk of the store is full; {REPEATABLE}"),
                &error,
            ),
            engine::Error::Store(error) if error.is_outage() => Self::with_cause(
                Code::StoreUnavailable,
                &format!("the store does not answer; {REPEATABLE}"),
                &error,
            ),
            engine::Error::Store(error) => {
                Self::with_cause(Code::Internal, &format!("{INTERNAL}; {REPEATABLE}"), &error)
            }
            error => Self::internal(&error),
        }
    }
}

impl ResponseError for Problem {
    fn status_code(&self) -> StatusCode {
        self.code.status()
    }

    fn error_response(&self) -> HttpResponse {
        let status = self.status_code();
        let details = ProblemDetails {
            // "about:blank" means that the title is the status phrase (RFC 9457, 4.2.1).
            // Programs read the code.
            r#type: "about:blank",
            title: status.canonical_reason().unwrap_or_default(),
            status: status.as_u16(),
            code: self.code.as_str(),
            detail: &self.detail,
            location: self.location.as_deref(),
        };
        let mut response = HttpResponse::build(status);
        response.content_type("application/problem+json");
        if let Some((name, value)) = self.header.as_deref() {
            response.insert_header((name.clone(), value.as_str()));
        }
        let header = match self.code {
            Code::Unauthorized => Some((header::WWW_AUTHENTICATE, "Bearer")),
            Code::Unverified => Some((header::WWW_AUTHENTICATE, "Basic realm=\"hooks\"")),
            Code::StoreUnavailable | Code::TimedOut => Some((header::RETRY_AFTER, "1")),
            Code::TooManyStreams => Some((header::RETRY_AFTER, "30")),
            _ => None,
        };
        if let Some(header) = header {
            response.insert_header(header);
        }
        response.body(to_json(&details))
    }
}

/// Answers a request for an unknown path.
pub(super) async fn not_found(app: Data<App>) -> ApiResult {
    let path = app.config.server.public_path();
    let detail = format!("there is nothing here; {path}/openapi.json lists what there is");
    Err(Problem::new(Code::NotFound, detail))
}
