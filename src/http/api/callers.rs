//! Identifies the caller of a request, and limits the request rate of each caller.
//!
//! A caller is an application with a server key, or a user with a token that an application signed.
//! Every request under `/v1` and `/metrics` needs one (P8). [`super::route`] decides which routes
//! it opens. Pages of the origins in `server.cors_origins` may call `/v1`, without cookies. Keys
//! and tokens, valid or not, are never logged or returned.

use std::num::NonZeroU32;
use std::sync::Arc;

use actix_cors::Cors;
use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::{Method, header};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, web};

use super::problem::{Code, Problem};
use super::rate_limit::RateLimit;
use crate::app::App;
use crate::clock::Clock;
use crate::domain::KeyName;
use crate::engine::access::keys::{KeyRing, RecognizedKey};
use crate::engine::access::tokens::{TokenError, UserToken, UserTokens};
use crate::engine::users::personal::cached_start;

/// The authenticated sender of a request.
#[derive(Debug, Clone)]
pub(super) enum Caller {
    /// An application with a server key.
    Key(RecognizedKey),
    /// A user, with a token that their application signed.
    User(UserToken),
}

impl Caller {
    /// Rejects a token that was issued to an earlier user with the same id.
    pub(super) async fn check_start(&self, app: &App) -> Result<(), Problem> {
        let Self::User(token) = self else {
            return Ok(());
        };
        match cached_start(&*app.context.store, &app.feed_cache, &token.user).await? {
            Some(start) if start.invalidates(token.issued_at) => {
                Err(unauthorized(TokenError::EarlierUser))
            }
            _ => Ok(()),
        }
    }
}

fn unauthorized(why: impl ToString) -> Problem {
    Problem::new(Code::Unauthorized, why.to_string()).at("header Authorization")
}

/// Identifies callers and limits their request rates.
pub(super) struct Authorizer {
    keys: KeyRing,
    tokens: UserTokens,
    clock: Arc<dyn Clock>,
    /// The limits of server keys and of users; `None` where requests are not limited.
    key_limit: Option<RateLimit>,
    user_limit: Option<RateLimit>,
}

impl Authorizer {
    /// Creates the authorizer of this process's API. `key` is the configured server key.
    pub(super) fn new(app: &App, key: &str) -> Self {
        let server = &app.config.server;
        let limit =
            |rate: Option<NonZeroU32>, caller| rate.map(|rate| RateLimit::new(caller, rate));
        Self {
            keys: KeyRing::new(key, app.context.clone()),
            tokens: app.tokens(),
            clock: app.context.clock.clone(),
            key_limit: limit(server.rate_limit_key, "this server key"),
            user_limit: limit(server.rate_limit_token, "this user's tokens"),
        }
    }

    async fn identify(&self, req: &ServiceRequest) -> Result<Caller, Problem> {
        let credential = bearer(req).ok_or_else(|| {
            unauthorized("the server key is missing; send it, or a user token, as \"Authorization: Bearer KEY\"")
        })?;
        if let Some(key) = self.keys.recognize(credential).await? {
            return Ok(Caller::Key(key));
        }
        match std::str::from_utf8(credential) {
            Ok(token) if UserTokens::is_token_like(token) => {
                let opened = self.tokens.open(token, self.clock.now());
                opened.map(Caller::User).map_err(unauthorized)
            }
            _ => Err(unauthorized(
                "this server key is not known here: it is mistyped, or was revoked",
            )),
        }
    }

    /// Counts a request against the limit of its caller, if there is one.
    fn count(&self, caller: &Caller) -> Result<(), Problem> {
        let (limit, name) = match caller {
            Caller::Key(key) => (&self.key_limit, key.name.as_ref().map_or("", KeyName::as_str)),
            Caller::User(token) => (&self.user_limit, token.user.as_str()),
        };
        limit.as_ref().map_or(Ok(()), |limit| limit.count(name))
    }
}

/// Admits requests of identified callers, within their rate limits.
pub(super) async fn require<B: MessageBody>(
    authorizer: web::Data<Authorizer>,
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
    let identified = authorizer.identify(&req).await;
    match identified.and_then(|caller| authorizer.count(&caller).map(|()| caller)) {
        Ok(caller) => {
            req.extensions_mut().insert(caller);
            Ok(next.call(req).await?.map_into_left_body())
        }
        Err(problem) => Ok(req.error_response(problem).map_into_right_body()),
    }
}

fn bearer(req: &ServiceRequest) -> Option<&[u8]> {
    let value = req.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("Bearer ".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    is_bearer.then(|| rest.trim_ascii())
}

/// How long a browser may cache the answer to a preflight, in seconds. Chromium allows no more.
const PREFLIGHT_MAX_AGE: usize = 7_200;

/// Returns the CORS rules that admit pages of these origins; `*` admits all.
pub(super) fn cors(origins: &[String]) -> Cors {
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
            "X-Request-Id",
        ])
        .max_age(PREFLIGHT_MAX_AGE);
    if origins.iter().any(|origin| origin == "*") {
        cors.allow_any_origin().send_wildcard()
    } else {
        origins.iter().fold(cors, |cors, origin| cors.allowed_origin(origin))
    }
}

/// Rejects requests of pages whose origin is not listed. Runs before authentication, so that the
/// answer names the origin and not the missing key.
pub(super) async fn reject_foreign<B: MessageBody>(
    app: web::Data<App>,
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
    let listed = &app.config.server.cors_origins;
    let is_listed = |origin: &str| listed.iter().any(|listed| listed == "*" || listed == origin);
    let Some(origin) = foreign_origin(&req).filter(|origin| !is_listed(origin)) else {
        return Ok(next.call(req).await?.map_into_left_body());
    };
    let detail = format!(
        "pages of this origin may not call this API; to allow them, add {origin:?} to \
         server.cors_origins (\"null\" is a page without an origin, such as a local file: serve \
         the page over HTTP)"
    );
    let problem = Problem::new(Code::Forbidden, detail).at("header Origin");
    Ok(req.error_response(problem).map_into_right_body())
}

/// Returns the origin of a cross-origin page: of a preflight, or of a request without a key that
/// the browser marks as cross-site. Other requests passed a preflight, or no page sent them.
fn foreign_origin(req: &ServiceRequest) -> Option<&str> {
    let headers = req.headers();
    let origin = headers.get(header::ORIGIN)?.to_str().ok()?;
    let is_preflight = *req.method() == Method::OPTIONS
        && headers.contains_key(header::ACCESS_CONTROL_REQUEST_METHOD);
    let site = headers.get("Sec-Fetch-Site");
    let is_cross_site = site.is_some_and(|site| site == "cross-site" || site == "same-site");
    let is_anonymous = !headers.contains_key(header::AUTHORIZATION);
    (is_preflight || is_cross_site && is_anonymous).then_some(origin)
}
