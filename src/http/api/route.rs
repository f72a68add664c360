//! The tables of routes. A row states who may call a route, its parameters, and its largest body.
//!
//! [`routes!`] declares the routes of a file beside their handlers. Its checks run before the
//! handler, so no handler can forget one (P8). [`super::callers`] has identified the caller.

use std::cell::Cell;
use std::rc::Rc;
use std::str::FromStr;

use actix_web::body::{BoxBody, EitherBody, MessageBody};
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::http::header;
use actix_web::middleware::{Next, from_fn};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{Error, FromRequest, Handler, HttpMessage, HttpRequest, Responder, guard};

use super::callers::Caller;
use super::problem::{Code, Problem};
use crate::app::App;
use crate::domain::{InvalidValue, Scope, UserId};

/// The largest body of one record, in bytes.
const BODY_LIMIT: usize = 1 << 20;
/// The largest body of many records, in bytes.
const BULK_LIMIT: usize = 16 << 20;

/// The routes of one file.
pub struct RouteTable {
    /// The routes, in the order in which requests are matched.
    pub routes: &'static [Route],
    pub(in crate::http) configure: fn(&mut ServiceConfig),
}

/// A route, and the requests that it accepts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Route {
    /// In lower case. `get` includes HEAD (RFC 9110, 9.3.2).
    pub method: &'static str,
    /// With `{name}` for each variable segment.
    pub path: &'static str,
    /// The scope that a server key needs; `None` opens the route to all.
    pub scope: Option<Scope>,
    /// Whether a user token opens the route for the user in its path, `{id}`.
    pub own: bool,
    /// The query parameters, all optional. Handlers that take an `ApiRequest` reject others.
    pub parameters: &'static [&'static str],
    /// The largest body, in bytes.
    pub body_limit: usize,
}

/// Declares a table of routes. Each path has its methods, and each method has words, which are
/// functions of [`Route`], its query parameters, and its handler.
macro_rules! routes {
    ($table:ident under $prefix:literal:
     $($path:literal => {$(
        $method:ident $($word:ident)+ $([$($parameter:literal),+])?: $handler:path
     ),+ $(,)?})*) => {
        /// The routes of this file.
        pub(super) const $table: $crate::http::api::route::RouteTable = $crate::http::api::route::RouteTable {
            routes: &[$($(
                $crate::http::api::route::Route::new(stringify!($method), concat!($prefix, $path))
                    $(.$word())+ $(.takes(&[$($parameter),+]))?,
            )+)*],
            configure: |config| {
                $(config.service(
                    actix_web::web::resource($path)
                        $(.route($crate::http::api::route::guarded(
                            const { &$crate::http::api::route::Route::new(
                                stringify!($method), concat!($prefix, $path)
                            )$(.$word())+ $(.takes(&[$($parameter),+]))? },
                            $handler,
                        )))+
                        .default_service(actix_web::web::to(|req: actix_web::HttpRequest| async move {
                            $crate::http::api::route::wrong_method(&req, &[$(stringify!($method)),+])
                        })),
                );)*
            },
        };
    };
}
pub(in crate::http) use routes;

impl Route {
    pub(in crate::http) const fn new(method: &'static str, path: &'static str) -> Self {
        Self { method, path, scope: None, own: false, parameters: &[], body_limit: BODY_LIMIT }
    }

    /// Needs no key.
    pub(in crate::http) const fn open(self) -> Self {
        self
    }

    pub(in crate::http) const fn read(self) -> Self {
        self.needs(Scope::Read)
    }

    pub(in crate::http) const fn write(self) -> Self {
        self.needs(Scope::Write)
    }

    pub(in crate::http) const fn admin(self) -> Self {
        self.needs(Scope::Admin)
    }

    const fn needs(self, scope: Scope) -> Self {
        Self { scope: Some(scope), ..self }
    }

    /// Also admits a token of the user in the path.
    pub(in crate::http) const fn own(self) -> Self {
        Self { own: true, ..self }
    }

    /// Accepts the body of many records.
    pub(in crate::http) const fn bulk(self) -> Self {
        Self { body_limit: BULK_LIMIT, ..self }
    }

    pub(in crate::http) const fn takes(self, parameters: &'static [&'static str]) -> Self {
        Self { parameters, ..self }
    }

    /// Calls the handler if the caller may call this route.
    async fn admit<B: MessageBody>(
        &'static self,
        req: ServiceRequest,
        next: Next<B>,
    ) -> Result<ServiceResponse<EitherBody<B, BoxBody>>, Error> {
        if let Some(matched) = req.extensions().get::<MatchedRoute>() {
            matched.set(Some(self));
        }
        match self.check(&req).await {
            Ok(()) => Ok(next.call(req).await?.map_into_left_body()),
            Err(problem) => Ok(req.error_response(problem).map_into_right_body()),
        }
    }

    async fn check(&self, req: &ServiceRequest) -> Result<(), Problem> {
        let Some(needed) = self.scope else {
            return Ok(());
        };
        let caller = req.extensions().get::<Caller>().cloned();
        let why = match &caller {
            Some(Caller::Key(key)) if key.scope >= needed => return Ok(()),
            Some(Caller::Key(key)) => format!(
                "this needs a server key of the scope {needed}; the one given has {}",
                key.scope
            ),
            Some(user @ Caller::User(token)) if self.own => {
                if segment::<UserId>(req.request(), "id")? == token.user {
                    return match req.app_data::<Data<App>>() {
                        Some(app) => user.check_start(app).await,
                        None => Ok(()),
                    };
                }
                "a user token opens only the routes of that user".to_owned()
            }
            Some(Caller::User(_)) => {
                "a user token does not open this; it needs a server key".to_owned()
            }
            None => {
                let why = "the request has no identified caller";
                return Err(Problem::new(Code::Unauthorized, why));
            }
        };
        Err(Problem::new(Code::Forbidden, why).at("header Authorization"))
    }
}

/// Returns the actix-web route that runs a handler behind the checks of its row.
pub(in crate::http) fn guarded<F, A>(route: &'static Route, handler: F) -> actix_web::Route
where
    F: Handler<A>,
    A: FromRequest + 'static,
    F::Output: Responder + 'static,
{
    let method = match route.method {
        "get" => web::route().guard(guard::Any(guard::Get()).or(guard::Head())),
        "put" => web::put(),
        "patch" => web::patch(),
        "post" => web::post(),
        _ => web::delete(),
    };
    let admit = |req: ServiceRequest, next: Next<_>| route.admit(req, next);
    method.to(handler).wrap(from_fn(admit))
}

/// Answers a request whose path has no such method.
pub(in crate::http) fn wrong_method(
    req: &HttpRequest,
    methods: &[&str],
) -> Result<&'static str, Problem> {
    let allow = methods.join(", ").replace("get", "get, head").to_uppercase();
    let detail = format!("{} does not work here; use {allow}", req.method());
    Err(Problem::new(Code::MethodNotAllowed, detail).with(header::ALLOW, allow))
}

/// The matched route of a request, once it is known; `None` if no table has it. Clones share it.
///
/// Looking it up again by the request's path would cost more than answering a poll.
pub(super) type MatchedRoute = Rc<Cell<Option<&'static Route>>>;

/// Returns the route of a request; `None` if no table has it.
pub(super) fn matched_route(req: &HttpRequest) -> Option<&'static Route> {
    req.extensions().get::<MatchedRoute>()?.get()
}

/// Parses the path segment that the route calls `{name}`. It may contain any percent-encoded
/// character, including slashes.
pub(super) fn segment<T: FromStr<Err = InvalidValue>>(
    req: &HttpRequest,
    name: &str,
) -> Result<T, Problem> {
    let problem = |why: &str| Problem::parameter(format!("path segment {name}"), why);
    let text = raw_segment(req, name)
        .and_then(|raw| decode(raw, false))
        .ok_or_else(|| problem("is not percent-encoded UTF-8"))?;
    text.parse().map_err(|invalid: InvalidValue| problem(&invalid.to_string()))
}

/// Returns the segment undecoded, because the router's decoder changes invalid UTF-8. Counts from
/// the end, because the path may begin with that of the public address.
fn raw_segment<'a>(req: &'a HttpRequest, name: &str) -> Option<&'a str> {
    let mut pattern = matched_route(req)?.path.rsplit('/');
    let index = pattern.position(|part| part.trim_matches(['{', '}']) == name)?;
    req.uri().path().rsplit('/').nth(index)
}

/// Decodes percent-encoded UTF-8; `None` if it is malformed.
pub(super) fn decode(raw: &str, plus_is_space: bool) -> Option<String> {
    let mut bytes = Vec::with_capacity(raw.len());
    let mut rest = raw.bytes();
    while let Some(byte) = rest.next() {
        bytes.push(match byte {
            b'%' => {
                let digit = |byte: u8| char::from(byte).to_digit(16);
                let (high, low) = (digit(rest.next()?)?, digit(rest.next()?)?);
                (high * 16 + low) as u8
            }
            b'+' if plus_is_space => b' ',
            byte => byte,
        });
    }
    String::from_utf8(bytes).ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_decoded_once() {
        assert_eq!(decode("a%2Fb%2541+", false).unwrap(), "a/b%41+");
        assert_eq!(decode("%C3%A9+%2B", true).unwrap(), "é +");
        for garbled in ["%", "%4", "%zz", "%+1", "%FF", "100%"] {
            assert_eq!(decode(garbled, true), None, "{garbled}");
        }
    }
}
