//! Identifies the caller of a request, and limits the request rate of each caller.
//!
//! A caller is an application with a server key, or a user with a token that an application signed.
//! Every request under `/v1` and `/metrics` needs one (P8). [`super::route`] decides which routes
//! it opens. Keys and tokens, valid or not, are never logged or returned. Each process counts
//! requests by itself.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header::{self, HeaderName, HeaderValue};
use actix_web::middleware::Next;
use actix_web::{Error, HttpMessage, web};
use governor::clock::{Clock as _, DefaultClock};
use governor::middleware::StateInformationMiddleware;
use governor::state::keyed::HashMapStateStore;
use governor::{Quota, RateLimiter};

use super::problem::{Code, Problem};
use crate::app::App;
use crate::clock::Clock;
use crate::domain::KeyName;
use crate::engine::access::keys::{KeyRing, RecognizedKey};
use crate::engine::access::tokens::{TokenError, Tokens, UserToken};

/// The size of a burst, in seconds of the average rate.
const BURST: NonZeroU32 = NonZeroU32::new(6).expect("6 is not 0");
/// The number of requests after which idle callers are removed from memory.
const SWEEP: u32 = 4_096;

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
        match app.starts.of(&token.user).await? {
            Some(start) if start.rejects(token.issued) => {
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
pub(super) struct Gate {
    ring: KeyRing,
    tokens: Tokens,
    clock: Arc<dyn Clock>,
    /// The limits of server keys and of users; `None` where requests are not limited.
    keys: Option<RateLimit>,
    users: Option<RateLimit>,
}

impl Gate {
    /// Creates the gate of this process's API. `key` is the configured server key.
    pub(super) fn new(app: &App, key: &str) -> Self {
        let server = &app.config.server;
        let keys = server.rate_limit_key;
        let users = server.rate_limit_token;
        Self {
            ring: KeyRing::new(key, app.context.clone()),
            tokens: app.tokens(),
            clock: app.context.clock.clone(),
            keys: keys.map(|rate| RateLimit::new("key", "this server key", rate)),
            users: users.map(|rate| RateLimit::new("token", "this person's tokens", rate)),
        }
    }

    async fn caller(&self, req: &ServiceRequest) -> Result<Caller, Problem> {
        let given = bearer(req).ok_or_else(|| {
            unauthorized("the server key is missing; send it, or a user token, as \"Authorization: Bearer KEY\"")
        })?;
        if let Some(entry) = self.ring.entry(given).await? {
            return Ok(Caller::Key(entry));
        }
        match std::str::from_utf8(given) {
            Ok(text) if Tokens::is_like_one(text) => {
                let opened = self.tokens.open(text, self.clock.now());
                opened.map(Caller::User).map_err(unauthorized)
            }
            _ => Err(unauthorized(
                "this server key is not known here: it is mistyped, or was revoked",
            )),
        }
    }

    /// Counts a request against the limit of its caller, if there is one.
    fn count(&self, caller: &Caller) -> Counted {
        let (limit, name) = match caller {
            Caller::Key(key) => (&self.keys, key.name.as_ref().map_or("", KeyName::as_str)),
            Caller::User(token) => (&self.users, token.user.as_str()),
        };
        limit
            .as_ref()
            .map_or_else(Counted::default, |limit| limit.count(name))
    }
}

/// Admits requests of identified callers, within their rate limits.
pub(super) async fn require<B: MessageBody>(
    gate: web::Data<Gate>,
    req: ServiceRequest,
    next: Next<B>,
) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
    let caller = match gate.caller(&req).await {
        Ok(caller) => caller,
        Err(problem) => return Ok(req.error_response(problem).map_into_right_body()),
    };
    let (headers, exceeded) = gate.count(&caller);
    let mut response = match exceeded {
        Some(problem) => req.error_response(problem).map_into_right_body(),
        None => {
            req.extensions_mut().insert(caller);
            next.call(req).await?.map_into_left_body()
        }
    };
    for (name, value) in headers {
        response.headers_mut().insert(name, value);
    }
    Ok(response)
}

fn bearer(req: &ServiceRequest) -> Option<&[u8]> {
    let value = req.headers().get(header::AUTHORIZATION)?.as_bytes();
    let (scheme, rest) = value.split_at_checked("Bearer ".len())?;
    let is_bearer = scheme.eq_ignore_ascii_case(b"Bearer ");
    is_bearer.then(|| rest.trim_ascii())
}

/// The limit for one kind of caller. All tokens of a user share one limit, so no client slows
/// another down.
struct RateLimit {
    /// The name of the policy in the headers.
    name: &'static str,
    /// The caller, for error messages.
    who: &'static str,
    limiter:
        RateLimiter<String, HashMapStateStore<String>, DefaultClock, StateInformationMiddleware>,
    quota: Quota,
    since_sweep: AtomicU32,
}

/// The headers `RateLimit-Policy` and `RateLimit` of the answer
/// (draft-ietf-httpapi-ratelimit-headers), and the problem if the request exceeded the limit.
type Counted = (Vec<(HeaderName, HeaderValue)>, Option<Problem>);

impl RateLimit {
    fn new(name: &'static str, who: &'static str, rate: NonZeroU32) -> Self {
        let quota = Quota::per_second(rate).allow_burst(rate.saturating_mul(BURST));
        Self {
            name,
            who,
            limiter: RateLimiter::hashmap(quota).with_middleware(),
            quota,
            since_sweep: AtomicU32::new(0),
        }
    }

    fn count(&self, caller: &str) -> Counted {
        if self.since_sweep.fetch_add(1, Ordering::Relaxed) >= SWEEP {
            self.since_sweep.store(0, Ordering::Relaxed);
            self.limiter.retain_recent();
            self.limiter.shrink_to_fit();
        }
        let Self { name, who, .. } = self;
        let quota = self.quota.burst_size().get();
        let window = seconds(self.quota.burst_size_replenished_in());
        let (left, exceeded) = match self.limiter.check_key(&caller.to_owned()) {
            Ok(snapshot) => (snapshot.remaining_burst_capacity(), None),
            Err(until) => {
                let wait = until.wait_time_from(self.limiter.clock().now());
                let wait = seconds(wait).max(1);
                let detail = format!(
                    "{who} made more than {quota} requests in {window} s; ask again in {wait} s"
                );
                (0, Some(Problem::too_many(detail, wait)))
            }
        };
        let full_in = seconds(self.quota.replenish_interval() * quota.saturating_sub(left));
        let header = |field, value: String| {
            let value = HeaderValue::try_from(value).expect("names and numbers are plain text");
            (HeaderName::from_static(field), value)
        };
        let headers = vec![
            header(
                "ratelimit-policy",
                format!("\"{name}\";q={quota};w={window}"),
            ),
            header("ratelimit", format!("\"{name}\";r={left};t={full_in}")),
        ];
        (headers, exceeded)
    }
}

/// Rounds up to whole seconds.
fn seconds(time: Duration) -> u64 {
    time.as_secs() + u64::from(time.subsec_nanos() > 0)
}
