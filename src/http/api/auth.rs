//! Identifies the caller: an application by its server key, or a user by a token.
//!
//! Every request under `/v1` and `/metrics` needs a key or a token (P8). [`super::guard`] decides
//! which routes it opens. Keys and tokens, valid or not, are never logged or returned.

use std::sync::Arc;

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header;
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, web};

use super::caller::Caller;
use super::limits::Limits;
use super::problem::{Code, Problem};
use crate::app::App;
use crate::clock::Clock;
use crate::engine::access::keys::KeyRing;
use crate::engine::access::tokens::Tokens;

/// Identifies callers and limits their request rates.
pub(super) struct Door {
    ring: KeyRing,
    tokens: Tokens,
    limits: Limits,
    clock: Arc<dyn Clock>,
}

impl Door {
    /// Creates the door of this process's API. `key` is the configured server key.
    pub(super) fn of(app: &App, key: &str) -> Self {
        let server = &app.config.server;
        Self {
            ring: KeyRing::new(key, app.context.clone()),
            tokens: app.tokens(),
            limits: Limits::new(server.rate_limit_key, server.rate_limit_token),
            clock: app.context.clock.clone(),
        }
    }

    async fn caller(&self, req: &ServiceRequest) -> Result<Caller, Problem> {
        let refused =
            |why: String| Problem::new(Code::Unauthorized, why).at("header Authorization");
        let given = bearer(req).ok_or_else(|| {
            refused("the server key is missing; send it, or a user token, as \"Authorization: Bearer KEY\"".into())
        })?;
        if let Some(entry) = self.ring.entry(given).await? {
            return Ok(Caller::Key {
                name: entry.name,
                scope: entry.scope,
            });
        }
        match std::str::from_utf8(given) {
            Ok(text) if Tokens::is_like_one(text) => {
                let opened = self.tokens.open(text, self.clock.now());
                opened
                    .map(Caller::of)
                    .map_err(|why| refused(why.to_string()))
            }
            _ => Err(refused(
                "this server key is not known here: it is mistyped, or was revoked".into(),
            )),
        }
    }
}

/// Admits requests of identified callers, within their rate limits.
pub(super) async fn require<B: MessageBody>(
    door: web::Data<Door>,
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
    let caller = match door.caller(&req).await {
        Ok(caller) => caller,
        Err(problem) => return Ok(req.error_response(problem).map_into_right_body()),
    };
    let standing = door.limits.ask(&caller);
    let mut response = match standing.as_ref().and_then(|standing| standing.problem()) {
        Some(problem) => req.error_response(problem).map_into_right_body(),
        None => {
            req.extensions_mut().insert(caller);
            next.call(req).await?.map_into_left_body()
        }
    };
    if let Some(standing) = standing {
        standing.tell(response.headers_mut());
    }
    Ok(response)
}

fn bearer(req: &ServiceRequest) -> Option<&[u8]> {
    let value = req.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("Bearer ".len())?;
    scheme
        .eq_ignore_ascii_case(b"Bearer ")
        .then(|| rest.trim_ascii())
}
