//! The HTTP API: its server, its routes and their middleware.
//!
//! A handler parses the request (`uri`, `body`), calls one use case, and returns a type of
//! [`crate::wire`]. Every error becomes a [`problem`]. The tables below list all routes.
//! [`OPENAPI`] describes them except those of the demo, and a test compares the two. Start with
//! `events` and `feed`.

use std::borrow::Cow;
use std::net::{SocketAddr, TcpListener};
use std::time::{Duration, Instant};

use actix_web::body::MessageBody;
use actix_web::dev::{ServiceRequest, ServiceResponse};
use actix_web::error::InternalError;
use actix_web::http::Method;
use actix_web::http::header::{self, HeaderMap, HeaderValue};
use actix_web::middleware::{Condition, Next, from_fn};
use actix_web::web::{self, Data, ServiceConfig};
use actix_web::{Error, HttpRequest, HttpResponse, HttpServer};
use anyhow::Context;
use tokio::sync::watch;
use tracing::Instrument;

use crate::app::App;
use crate::demo::Gallery;
use crate::http::pages;
use crate::wire::OPENAPI;

mod asked;
mod auth;
mod base;
mod batches;
mod body;
mod caller;
mod cors;
mod demo;
mod events;
mod feed;
mod guard;
mod gzip;
mod health;
mod held;
mod hooks;
mod limits;
mod metrics;
mod mutes;
mod objects;
mod preview;
pub mod problem;
mod request_id;
mod room;
mod shared;
mod socket;
mod stream;
mod suppressions;
mod uri;
mod users;
mod widget;

use asked::Asked;
pub use guard::{Guard, Route};
use held::{Coming, Held};
pub use metrics::Watched;
pub use preview::{Of, Showing};
use problem::Problem;
use request_id::RequestId;
use shared::not_found;
use socket::{HEAD_PATIENCE, KEEP_ALIVE, LEAVE_PATIENCE};
pub use socket::{Listening, listen};
use stream::Streams;

/// The longest time from a request to the start of its response.
const REQUEST_PATIENCE: Duration = Duration::from_secs(60);
/// How long running requests may take to finish during a shutdown.
const STOP_PATIENCE: Duration = Duration::from_secs(30);
/// More threads than this do not help, because the store does most of the work.
const MAX_THREADS: usize = 16;

/// Lists routes and registers them. Each path has its methods, and each method its [`Guard`]: the
/// scope that a server key needs, or `open` for all. `own` also admits a token of the user in the
/// path.
macro_rules! routes {
    ($register:ident, $list:ident under $prefix:literal:
     $($path:literal => {$($method:ident $scope:ident $($own:ident)?: $handler:path),*})*) => {
        /// These routes and their guards.
        pub const $list: &[Route] = &[$($(Route {
            method: stringify!($method),
            path: concat!($prefix, $path),
            guard: guard::words::$scope()$(.$own())?,
        },)*)*];

        fn $register(config: &mut ServiceConfig) {
            $(config.service(
                web::resource($path)
                    $(.route({
                        const GUARD: Guard = guard::words::$scope()$(.$own())?;
                        let admit = |req: ServiceRequest, next: Next<_>| {
                            Asked::note(&req, concat!($prefix, $path));
                            GUARD.admit(req, next)
                        };
                        let route = web::route().guard(methods::$method()).to($handler);
                        route.wrap(from_fn(admit))
                    }))*
                    .default_service(web::to(|req: HttpRequest| async move {
                        wrong_method(&req, &[$(stringify!($method)),*])
                    })),
            );)*
        }
    };
}

// Routes are matched in this order, so the most frequent ones come first.
routes! {v1, V1_ROUTES under "/v1":
    "/users/{id}/feed" => {get read own: feed::page}
    "/users/{id}/feed/count" => {get read own: feed::count}
    "/users/{id}/feed/stream" => {get read own: stream::stream}
    "/users/{id}/feed/marks" => {post write own: feed::mark}
    "/events" => {post write: events::post, delete write: events::retract}
    "/events/{id}" => {get read: events::get}
    "/users" => {post write: users::post, get read: users::page}
    "/users/{id}" => {
        put write: users::put, patch write: users::patch, get read: users::get,
        delete write: users::delete
    }
    "/users/{id}/preferences" => {put write own: users::prefer, get read own: users::preferences}
    "/users/{id}/follows" => {get read: users::follows}
    "/users/{id}/follows/{key}" => {put write: users::follow, delete write: users::unfollow}
    "/users/{id}/mutes" => {get read own: mutes::list}
    "/users/{id}/mutes/{subject}" => {put write own: mutes::put, delete write own: mutes::delete}
    "/follows" => {post write: users::follow_many}
    "/objects" => {post write: objects::post}
    "/objects/{model}/{id}" => {
        put write: objects::put, get read: objects::get, delete write: objects::delete
    }
    "/batches" => {get read: batches::page}
    "/batches/{id}" => {get read: batches::get}
    "/batches/{id}/close" => {post write: batches::close}
    "/batches/{id}/cancel" => {post write: batches::cancel}
    "/suppressions" => {get read: suppressions::page, post admin: suppressions::post}
    "/suppressions/{address}" => {get read: suppressions::get, delete admin: suppressions::delete}
}

routes! {open, OPEN_ROUTES under "":
    "/healthz" => {get open: health::alive}
    "/readyz" => {get open: health::ready}
    "/widget.js" => {get open: widget::get}
    "/openapi.json" => {get open: openapi}
    "/hooks/{provider}" => {post open: hooks::post}
}

routes! {scraped, SCRAPED_ROUTES under "/metrics":
    "" => {get read: metrics::get}
}

// Registered only while a demo is served.
routes! {demo_routes, DEMO_ROUTES under "":
    "/demo" => {get open: demo::page}
    "/demo/page.js" => {get open: demo::script}
    "/demo/page.css" => {get open: demo::style}
    "/demo/scene" => {get open: demo::scene}
    "/demo/people/{id}" => {post open: demo::play}
    "/demo/works" => {post open: demo::publish}
    "/demo/comments" => {post open: demo::comment}
    "/demo/digests" => {post open: demo::send_digests}
    "/demo/mails" => {get open: demo::mails}
    "/demo/mails/{number}" => {get open: demo::mail}
    "/demo/pictures/{name}" => {get open: demo::picture}
}

mod methods {
    //! Maps the method names in the route table to actix-web's guards.

    use actix_web::guard::{self, Guard};

    /// Matches HEAD as well (RFC 9110, 9.3.2).
    pub(super) fn get() -> impl Guard {
        guard::Any(guard::Get()).or(guard::Head())
    }

    pub(super) fn put() -> impl Guard {
        guard::Put()
    }

    pub(super) fn patch() -> impl Guard {
        guard::Patch()
    }

    pub(super) fn post() -> impl Guard {
        guard::Post()
    }

    pub(super) fn delete() -> impl Guard {
        guard::Delete()
    }
}

/// A server that is bound to its address and does not serve yet.
pub struct Bound {
    /// The bound address, with the actual port if port 0 was configured.
    pub addr: SocketAddr,
    listener: TcpListener,
    app: App,
    door: auth::Door,
    demo: Option<Gallery>,
}

/// Binds the configured address. Connections wait until [`Bound::run`] accepts them. Needs a Tokio
/// runtime.
///
/// # Errors
///
/// Fails if the server key is empty or the address cannot be bound.
pub fn bind(app: App, key: impl AsRef<str>) -> anyhow::Result<Bound> {
    let key = checked(key.as_ref())?;
    Ok(listen(app.config.server.listen)?.bound(app, key))
}

fn checked(key: &str) -> anyhow::Result<&str> {
    let key = key.trim();
    anyhow::ensure!(
        !key.is_empty(),
        "the server key is empty, and would let everybody in"
    );
    Ok(key)
}

impl Listening {
    fn bound(self, app: App, key: &str) -> Bound {
        Bound {
            addr: self.addr,
            listener: self.listener,
            door: auth::Door::of(&app, key),
            app,
            demo: None,
        }
    }

    /// Creates a server that also serves the demo. Fails unless the address is a loopback address.
    pub fn demo(self, app: App, key: impl AsRef<str>, gallery: Gallery) -> anyhow::Result<Bound> {
        anyhow::ensure!(
            self.addr.ip().is_loopback(),
            "a demo is for this machine alone, and {} is not a loopback address",
            self.addr
        );
        Ok(Bound {
            demo: Some(gallery),
            ..self.bound(app, checked(key.as_ref())?)
        })
    }
}

impl Bound {
    /// Serves until `stop` becomes true or its sender is dropped. Then it accepts no new
    /// connections, finishes running requests, and returns.
    pub async fn run(self, mut stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        let (app, door) = (Data::new(self.app), Data::new(self.door));
        let streams = Streams::new(app.config.feed.streams, stop.clone());
        let streams = Data::new(streams);
        let demo = self.demo.map(Data::new);
        let refused = Data::new(cors::Refused::default());
        let listening = {
            let (app, stop) = (app.clone(), stop.clone());
            tokio::spawn(async move { app.polls.listen(&*app.context.store, stop).await })
        };
        let threads = std::thread::available_parallelism().map_or(1, usize::from);
        let threads = threads.min(MAX_THREADS);
        let server = HttpServer::new(move || {
            let origins = &app.config.server.cors_origins;
            let has_path = !app.config.server.public_path().is_empty();
            let shown = |config: &mut ServiceConfig| {
                if let Some(gallery) = &demo {
                    config.app_data(gallery.clone());
                    demo_routes(config);
                }
            };
            actix_web::App::new()
                .app_data(app.clone())
                .app_data(door.clone())
                .app_data(streams.clone())
                .app_data(refused.clone())
                .wrap(Condition::new(demo.is_some(), from_fn(demo::local)))
                .wrap(from_fn(watch_over))
                .wrap(Condition::new(has_path, from_fn(base::strip)))
                .service(
                    web::scope("/v1")
                        .wrap(from_fn(auth::require))
                        // Wraps authentication, so that pages can read its errors.
                        .wrap(Condition::new(!origins.is_empty(), cors::of(origins)))
                        .wrap(from_fn(cors::refuse))
                        .configure(v1)
                        .default_service(web::to(not_found)),
                )
                .service(
                    web::scope("/metrics")
                        .wrap(from_fn(auth::require))
                        .configure(scraped)
                        .default_service(web::to(not_found)),
                )
                .configure(open)
                .configure(shown)
                .configure(pages::configure)
                .default_service(web::to(not_found))
        })
        .workers(threads)
        .max_connections(room::for_each_of(threads))
        .client_request_timeout(HEAD_PATIENCE)
        .client_disconnect_timeout(LEAVE_PATIENCE)
        .keep_alive(KEEP_ALIVE)
        .shutdown_timeout(STOP_PATIENCE.as_secs())
        .shutdown_signal(async move {
            // An error means that the sender is gone, which stops the server as well.
            let _told = stop.wait_for(|stop| *stop).await;
        })
        .listen(self.listener)
        .context("listening")?
        .run();
        let served = server.await.context("serving HTTP");
        listening.abort();
        served
    }
}

/// Binds the configured address and serves until `stop` becomes true.
pub async fn serve(
    app: App,
    key: impl AsRef<str>,
    stop: watch::Receiver<bool>,
) -> anyhow::Result<()> {
    bind(app, key)?.run(stop).await
}

/// Limits the time of a request, and logs and counts its outcome. The log contains the route but
/// no path or query, because these contain user ids. Closes connections with an unread body
/// ([`held`]), and disables content sniffing.
async fn watch_over(
    mut req: ServiceRequest,
    next: Next<impl MessageBody + Unpin + 'static>,
) -> Result<ServiceResponse<impl MessageBody>, Error> {
    let (coming, began) = (Coming::of(&mut req), Instant::now());
    let method = req.method().clone();
    let app = req.app_data::<Data<App>>().cloned();
    let id = RequestId::of(&req, || {
        let context = &app.as_ref()?.context;
        Some(context.ids.next(context.clock.now()))
    });
    let asked = Asked::of(&req);
    let span = tracing::error_span!("request", request = %id);
    let answer = tokio::time::timeout(REQUEST_PATIENCE, next.call(req));
    let answer = answer.instrument(span.clone()).await;
    let _entered = span.enter();
    let answer = answer.unwrap_or_else(|_| {
        let problem = Problem::timed_out(REQUEST_PATIENCE);
        // At this point it is unknown whether the events have keys.
        let of_events = method == Method::POST && asked.path() == Some("/v1/events");
        Err(match of_events {
            true => problem.without_keys().into(),
            false => problem.into(),
        })
    });
    let (status, error) = match &answer {
        Ok(response) => (response.status(), response.response().error()),
        Err(error) => (error.as_response_error().status_code(), Some(error)),
    };
    let status = status.as_u16();
    let found = || answer.as_ref().ok()?.request().match_pattern();
    let route = asked.path().map(Cow::Borrowed);
    let route = route.or_else(|| found().map(Cow::Owned));
    let route = route.unwrap_or(Cow::Borrowed("(none)"));
    let problem = error.and_then(|error| error.as_error::<Problem>());
    let code = problem.map_or("", |problem| problem.code.as_str());
    if status >= 500 {
        let cause = problem.and_then(|problem| problem.cause.clone());
        let of_page = |response: &ServiceResponse<_>| {
            let extensions = response.response().extensions();
            extensions
                .get::<pages::Cause>()
                .map(|cause| cause.0.clone())
        };
        let cause = cause.or_else(|| answer.as_ref().ok().and_then(of_page));
        // Without a cause, log the problem itself.
        let told = problem.map_or(String::new(), ToString::to_string);
        let cause = cause.unwrap_or(told);
        tracing::error!(%method, route = &*route, status, code, cause, "a request failed");
    } else {
        tracing::debug!(%method, route = &*route, status, code, "a request was answered");
    }
    if let Some(app) = app {
        let metrics = &app.metrics;
        metrics.answered(route, method.as_str(), status, began.elapsed());
    }
    match answer {
        Ok(answer) => Ok(answer.map_body(|head, body| {
            not_guessed(head.headers_mut());
            id.answer(head.headers_mut());
            Held { body, coming }
        })),
        Err(error) => {
            let response = error.as_response_error().error_response();
            let response = response.map_body(|head, body| {
                not_guessed(head.headers_mut());
                id.answer(head.headers_mut());
                Held { body, coming }.boxed()
            });
            Err(InternalError::from_response(error, response).into())
        }
    }
}

/// Disables content sniffing in browsers.
fn not_guessed(headers: &mut HeaderMap) {
    let value = HeaderValue::from_static("nosniff");
    headers.insert(header::X_CONTENT_TYPE_OPTIONS, value);
}

async fn openapi(app: Data<App>) -> HttpResponse {
    let mut response = HttpResponse::Ok();
    response
        .content_type("application/json")
        .insert_header((header::CACHE_CONTROL, "no-cache"));
    match app.config.server.public_path() {
        "" => response.body(OPENAPI),
        path => response.body(OPENAPI.replacen(
            r#""servers": [{"url": "/"}]"#,
            &format!(r#""servers": [{{"url": "{path}"}}]"#),
            1,
        )),
    }
}

fn wrong_method(req: &HttpRequest, methods: &[&str]) -> Result<HttpResponse, Problem> {
    let allow = methods.join(", ").to_uppercase();
    Err(Problem::method_not_allowed(req.method().as_str(), allow))
}
