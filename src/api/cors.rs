//! What browsers may do for pages of other origins (CORS).
//!
//! The rule: only origins that are configured, and never with cookies; a page brings a key or a
//! token all the same. Pages may read every header that clients need.

use actix_cors::Cors;
use actix_web::http::header;

/// For how long, in seconds, a browser remembers what it may do: as long as any does.
const REMEMBERED: usize = 7_200;

/// What pages of these origins may do; `*` is any.
pub(super) fn of(origins: &[String]) -> Cors {
    let cors = Cors::default()
        .allowed_methods(["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE"])
        .allowed_headers([
            header::AUTHORIZATION.as_str(),
            header::CONTENT_TYPE.as_str(),
            header::IF_NONE_MATCH.as_str(),
            "Idempotency-Key",
            "Last-Event-ID",
            "X-Request-Id",
        ])
        .expose_headers([
            header::ETAG.as_str(),
            header::LOCATION.as_str(),
            header::RETRY_AFTER.as_str(),
            "X-Poll-Interval",
            "RateLimit",
            "RateLimit-Policy",
            "X-Request-Id",
        ])
        .max_age(REMEMBERED);
    let is_any = |origin: &String| origin == "*";
    match origins.iter().any(is_any) {
        true => cors.allow_any_origin().send_wildcard(),
        false => origins
            .iter()
            .fold(cors, |cors, origin| cors.allowed_origin(origin)),
    }
}
