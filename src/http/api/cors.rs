//! Cross-origin requests of browsers (CORS).
//!
//! Pages of the origins in `server.cors_origins` may call `/v1`, without cookies: they send a key
//! or a token. [`refuse`] answers pages of other origins and names the option, in the answer and
//! once in the log.

use std::collections::HashSet;
use std::sync::{Mutex, PoisonError};

use actix_cors::Cors;
use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, header};
use actix_web::middleware::Next;
use actix_web::{Error, web};

use super::problem::{Code, Problem};
use crate::app::App;

/// The maximum number of refused origins that one process logs.
const MAX_LOGGED: usize = 100;
/// The longest origin that is logged or repeated, in bytes: a host name has at most 253.
const MAX_ORIGIN: usize = 300;

/// How long a browser may cache the answer to a preflight, in seconds. Chromium allows no more.
const REMEMBERED: usize = 7_200;

/// Returns the CORS rules that admit pages of these origins; `*` admits all.
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

/// The refused origins that were logged.
#[derive(Default)]
pub(super) struct Refused(Mutex<HashSet<String>>);

impl Refused {
    /// Logs a refusal, once per origin.
    fn log(&self, origin: &str) {
        let mut logged = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if logged.len() < MAX_LOGGED && logged.insert(origin.to_owned()) {
            tracing::warn!(
                origin,
                "refused a page of an origin that is not in server.cors_origins"
            );
        }
    }
}

/// Refuses requests of pages whose origin is not listed. Runs before authentication, so that the
/// answer names the origin and not the missing key.
pub(super) async fn refuse<B: MessageBody>(
    app: web::Data<App>,
    refused: web::Data<Refused>,
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
    let listed = &app.config.server.cors_origins;
    let Some(origin) = foreign(&req).filter(|origin| !is_listed(listed, origin)) else {
        return Ok(next.call(req).await?.map_into_left_body());
    };
    let detail = match origin {
        "null" => "pages without an origin, such as local files, may not call this API; serve the \
                   page over HTTP and add its origin to server.cors_origins"
            .to_owned(),
        _ if origin.len() > MAX_ORIGIN => {
            "pages of this origin may not call this API; server.cors_origins lists those that may"
                .to_owned()
        }
        origin => {
            refused.log(origin);
            format!(
                "pages of this origin may not call this API; to allow them, add {origin:?} to \
                 server.cors_origins"
            )
        }
    };
    let problem = Problem::new(Code::Forbidden, detail).at("header Origin");
    Ok(req.error_response(problem).map_into_right_body())
}

/// Returns the origin of a cross-origin page: of a preflight, or of a request without a key that
/// the browser marks as cross-site. Other requests passed a preflight, or no page sent them.
fn foreign(req: &ServiceRequest) -> Option<&str> {
    let headers = req.headers();
    let origin = headers.get(header::ORIGIN)?.to_str().ok()?;
    let preflights = *req.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let site = headers.get("Sec-Fetch-Site");
    let crosses = site.is_some_and(|site| site == "cross-site" || site == "same-site");
    let is_anonymous = !headers.contains_key(header::AUTHORIZATION);
    (preflights || crosses && is_anonymous).then_some(origin)
}

fn is_listed(listed: &[String], origin: &str) -> bool {
    listed.iter().any(|one| one == "*" || one == origin)
}
