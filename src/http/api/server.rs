//! The server: it binds an address, registers all routes, and watches over each request.
//!
//! [`observe`] limits the time of a request, and logs and counts its outcome. [`BodyGuard`] closes
//! connections with an unread body. Start with [`BoundServer::run`].

use std::borrow::Cow;
use std::cell::RefCell;
use std::net::{SocketAddr, TcpListener};
use std::pin::Pin;
use std::rc::Rc;
use std::task::{self, Poll};
use std::time::{Duration, Instant};

use actix_web::body::{BodySize, MessageBody};
use actix_web::dev::{Payload, ServiceRequest, ServiceResponse};
use actix_web::error::{InternalError, PayloadError};
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderName, HeaderValue};
use actix_web::middleware::{Condition, Next, from_fn};
use actix_web::web::{self, Bytes, Data, ServiceConfig};
use actix_web::{Error, HttpMessage, HttpServer};
use anyhow::Context;
use futures::Stream;
use tokio::sync::watch;
use tracing::Instrument;

use super::callers::{self, Authorizer};
use super::listener::{
    DISCONNECT_TIMEOUT, HEAD_TIMEOUT, KEEP_ALIVE, ListeningSocket, connections_per_thread, listen,
    stopped,
};
use super::local_only::require_local_host;
use super::problem::{Problem, not_found};
use super::route::{MatchedRoute, RouteTable};
use super::stream::Streams;
use super::{DEMO_ROUTES, METRICS_ROUTES, OPEN_ROUTES, V1_ROUTES};
use crate::app::App;
use crate::demo::Gallery;
use crate::domain::Id;
use crate::http::pages::PAGES;

/// The longest time from a request to the start of its response.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(60);
/// More threads than this do not help, because the store does most of the work.
const MAX_THREADS: usize = 16;
/// The header with the id of a request.
const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");
/// The longest accepted id of a request, in bytes.
const MAX_REQUEST_ID: usize = 64;

/// A server that is bound to its address and does not serve yet.
pub struct BoundServer {
    /// The bound address, with the actual port if port 0 was configured.
    pub addr: SocketAddr,
    listener: TcpListener,
    app: App,
    authorizer: Authorizer,
    demo: Option<Gallery>,
}

/// Binds the configured address. Connections wait until [`BoundServer::run`] accepts them. Needs a
/// Tokio runtime.
///
/// # Errors
///
/// Fails if the server key is empty or the address cannot be bound.
pub fn bind(app: App, key: impl AsRef<str>) -> anyhow::Result<BoundServer> {
    listen(app.config.server.listen)?.bound(app, key.as_ref(), None)
}

impl ListeningSocket {
    fn bound(self, app: App, key: &str, demo: Option<Gallery>) -> anyhow::Result<BoundServer> {
        let key = key.trim();
        anyhow::ensure!(!key.is_empty(), "the server key is empty, and would admit all requests");
        Ok(BoundServer {
            addr: self.addr,
            listener: self.listener,
            authorizer: Authorizer::new(&app, key),
            app,
            demo,
        })
    }

    /// Creates a server that also serves the demo. Fails unless the address is a loopback address.
    pub fn with_demo(
        self,
        app: App,
        key: impl AsRef<str>,
        gallery: Gallery,
    ) -> anyhow::Result<BoundServer> {
        self.require_loopback()?.bound(app, key.as_ref(), Some(gallery))
    }
}

/// Registers the routes of all these tables.
fn register(tables: &[RouteTable], config: &mut ServiceConfig) {
    for table in tables {
        (table.configure)(config);
    }
}

/// Registers all routes except those of the demo.
fn configure(config: &mut ServiceConfig, app: &App) {
    let origins = &app.config.server.cors_origins;
    config
        .service(
            web::scope("/v1")
                .wrap(from_fn(callers::require))
                // Wraps authentication, so that pages can read its errors.
                .wrap(Condition::new(!origins.is_empty(), callers::cors(origins)))
                .wrap(from_fn(callers::reject_foreign))
                .configure(|config| register(V1_ROUTES, config))
                .default_service(web::to(not_found)),
        )
        .service(
            web::scope("/metrics")
                .wrap(from_fn(callers::require))
                .configure(|config| register(METRICS_ROUTES, config))
                .default_service(web::to(not_found)),
        )
        .configure(|config| register(OPEN_ROUTES, config))
        .configure(|config| register(PAGES, config));
}

impl BoundServer {
    /// Serves until `stop` becomes true or its sender is dropped. Then it accepts no new
    /// connections, finishes running requests within `server.grace`, and returns.
    pub async fn run(self, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        let (app, authorizer) = (Data::new(self.app), Data::new(self.authorizer));
        let streams = Data::new(Streams::new(app.config.feed.streams, stop.clone()));
        let demo = self.demo.map(Data::new);
        let notices = {
            let (app, stop) = (app.clone(), stop.clone());
            tokio::spawn(async move { app.feed_cache.listen(&*app.context.store, stop).await })
        };
        let grace = app.config.server.grace.to_std().unwrap_or_default();
        let threads = std::thread::available_parallelism().map_or(1, usize::from).min(MAX_THREADS);
        let server = HttpServer::new(move || {
            let path = app.config.server.public_path();
            let routes = |config: &mut ServiceConfig| {
                configure(config, &app);
                if let Some(gallery) = &demo {
                    config.app_data(gallery.clone());
                    register(DEMO_ROUTES, config);
                }
                // A proxy strips the path of the public address, or keeps it.
                if !path.is_empty() {
                    let scope = web::scope(path);
                    config.service(scope.configure(|config| configure(config, &app)));
                }
            };
            actix_web::App::new()
                .app_data(app.clone())
                .app_data(authorizer.clone())
                .app_data(streams.clone())
                .wrap(Condition::new(demo.is_some(), from_fn(require_local_host)))
                .wrap(from_fn(observe))
                .configure(routes)
                .default_service(web::to(not_found))
        })
        .workers(threads)
        .max_connections(connections_per_thread(threads))
        .client_request_timeout(HEAD_TIMEOUT)
        .client_disconnect_timeout(DISCONNECT_TIMEOUT)
        .keep_alive(KEEP_ALIVE)
        .shutdown_timeout(grace.as_secs())
        .shutdown_signal(stopped(stop))
        .listen(self.listener)
        .context("listening")?
        .run();
        let served = server.await.context("serving HTTP");
        notices.abort();
        served
    }
}

/// Limits the time of a request, and logs and counts its outcome. The log contains the route but
/// no path or query, because these contain user ids. Disables content sniffing.
async fn observe(
    mut req: ServiceRequest,
    next: Next<impl MessageBody + Unpin + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let (payload, began) = (SharedPayload::share(&mut req), Instant::now());
    let method = req.method().clone();
    let app = req.app_data::<Data<App>>().cloned();
    let id = request_id(&req, || {
        let context = &app.as_ref()?.context;
        Some(context.ids.next(context.clock.now()))
    });
    let matched = MatchedRoute::default();
    req.extensions_mut().insert(matched.clone());
    let span = tracing::error_span!("request", request = %id.to_str().unwrap_or_default());
    let answered = tokio::time::timeout(REQUEST_TIMEOUT, next.call(req));
    let answer = answered
        .instrument(span.clone())
        .await
        .unwrap_or_else(|_| Err(Problem::timed_out(REQUEST_TIMEOUT).into()));
    let _entered = span.enter();
    let (status, error) = match &answer {
        Ok(response) => (response.status(), response.response().error()),
        Err(error) => (error.as_response_error().status_code(), Some(error)),
    };
    let status = status.as_u16();
    let route = match matched.get() {
        Some(route) => Cow::Borrowed(route.path),
        // The request was rejected before a route was called.
        None => {
            let base = app.as_ref().map_or("", |app| app.config.server.public_path());
            path_pattern(answer.as_ref().ok(), base)
        }
    };
    log(&method, &route, status, error.and_then(|error| error.as_error::<Problem>()));
    if let Some(app) = app {
        app.metrics.record_request(route, method.as_str(), status, began.elapsed());
    }
    let add_headers = |headers: &mut HeaderMap| {
        let nosniff = HeaderValue::from_static("nosniff");
        headers.insert(header::X_CONTENT_TYPE_OPTIONS, nosniff);
        headers.insert(REQUEST_ID, id);
    };
    match answer {
        Ok(answer) => Ok(answer.map_body(|head, body| {
            add_headers(head.headers_mut());
            BodyGuard { body, payload }
        })),
        Err(error) => {
            let response = error.as_response_error().error_response().map_body(|head, body| {
                add_headers(head.headers_mut());
                BodyGuard { body, payload }.boxed()
            });
            Err(InternalError::from_response(error, response).into())
        }
    }
}

/// Returns the pattern that the path of a request matched, without the path of the public address.
fn path_pattern<B>(answer: Option<&ServiceResponse<B>>, base: &str) -> Cow<'static, str> {
    let Some(pattern) = answer.and_then(|answer| answer.request().match_pattern()) else {
        return "(none)".into();
    };
    pattern.strip_prefix(base).map(str::to_owned).unwrap_or(pattern).into()
}

fn log(method: &Method, route: &str, status: u16, problem: Option<&Problem>) {
    let code = problem.map_or("", |problem| problem.code.as_str());
    if status < 500 {
        return tracing::debug!(%method, route, status, code, "a request was answered");
    }
    // Without a cause, log the problem itself. Pages log theirs.
    let cause_of = |problem: &Problem| problem.cause.clone().unwrap_or_else(|| problem.to_string());
    let cause = problem.map(cause_of).unwrap_or_default();
    tracing::error!(%method, route, status, code, cause, "a request failed");
}

/// Returns the id of a request for the log and the header `X-Request-Id`: that of the client, or
/// else a new one. Any id with other characters is replaced, so that no email address gets into the
/// log (P8).
fn request_id(req: &ServiceRequest, new_id: impl FnOnce() -> Option<Id>) -> HeaderValue {
    let given = req.headers().get(REQUEST_ID).filter(|id| is_request_id(id.as_bytes())).cloned();
    given
        .or_else(|| HeaderValue::try_from(new_id()?.to_string()).ok())
        .unwrap_or_else(|| HeaderValue::from_static("none"))
}

fn is_request_id(id: &[u8]) -> bool {
    let is_allowed = |c: &u8| c.is_ascii_alphanumeric() || b"-_.:/+=".contains(c);
    (1..=MAX_REQUEST_ID).contains(&id.len()) && id.iter().all(is_allowed)
}

/// The payload of a request, shared by its reader and the response body.
#[derive(Clone)]
struct SharedPayload(Rc<RefCell<Payload>>);

impl SharedPayload {
    /// Takes the payload of a request, and leaves a stream that reads from it. Returns `None` if
    /// there is no body.
    fn share(req: &mut ServiceRequest) -> Option<Self> {
        let payload = match req.take_payload() {
            Payload::None => return None,
            payload => Self(Rc::new(RefCell::new(payload))),
        };
        req.set_payload(Payload::Stream { payload: Box::pin(payload.clone()) });
        Some(payload)
    }
}

impl Stream for SharedPayload {
    type Item = Result<Bytes, PayloadError>;

    fn poll_next(self: Pin<&mut Self>, cx: &mut task::Context<'_>) -> Poll<Option<Self::Item>> {
        Pin::new(&mut *self.0.borrow_mut()).poll_next(cx)
    }
}

/// A response body that keeps the payload of its request alive, so that the connection is closed if
/// the request was not read to the end.
///
/// If the payload is dropped before the response is sent, actix-web reads the rest of a chunked
/// body, which can be endless. Handlers drop it when they return. After a payload that was read to
/// its end, the connection stays open.
struct BodyGuard<B> {
    body: B,
    #[expect(dead_code, reason = "it is held and not read")]
    payload: Option<SharedPayload>,
}

impl<B: MessageBody + Unpin> MessageBody for BodyGuard<B> {
    type Error = B::Error;

    fn size(&self) -> BodySize {
        self.body.size()
    }

    fn poll_next(
        mut self: Pin<&mut Self>,
        cx: &mut task::Context<'_>,
    ) -> Poll<Option<Result<Bytes, Self::Error>>> {
        Pin::new(&mut self.body).poll_next(cx)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_well_formed_request_ids_are_accepted() {
        let longest = "x".repeat(MAX_REQUEST_ID);
        for id in ["7", "b7ad6b71-4c1f.3:Root=1-67/+", &longest] {
            assert!(is_request_id(id.as_bytes()), "{id}");
        }
        let longer = "x".repeat(MAX_REQUEST_ID + 1);
        for other in ["", "a b", "ada@example.org", "a\"b", "ä", &longer] {
            assert!(!is_request_id(other.as_bytes()), "{other}");
        }
    }
}
