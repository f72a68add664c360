//! Health checks, and the metrics for Prometheus at `/metrics` of the API and at `metrics.listen`.
//!
//! The API's `/metrics` needs a server key. The other address needs none, and is all that a worker
//! serves. Metrics identify no user ([`crate::metrics`]). A slow store delays the answer by at most
//! a second ([`crate::operate::metrics_text`]).

use std::net::{SocketAddr, TcpListener};
use std::time::Duration;

use actix_web::http::header;
use actix_web::web::{self, Data};
use actix_web::{HttpResponse, HttpServer};
use anyhow::Context;
use tokio::sync::watch;

use super::listener::{
    DISCONNECT_TIMEOUT, HEAD_TIMEOUT, KEEP_ALIVE, ListeningSocket, listen, stopped,
};
use super::problem::{ApiResult, Code, Problem, not_found};
use super::request::ApiRequest;
use super::route::routes;
use crate::app::App;
use crate::metrics::CONTENT_TYPE;
use crate::operate::status;
use crate::wire::Health;

routes! {METRICS under "/metrics":
    "" => {get read: api_metrics}
}

routes! {HEALTH under "":
    "/healthz" => {get open: alive}
    "/readyz" => {get open: ready}
}

/// The longest time to wait for the store.
const STORE_TIMEOUT: Duration = Duration::from_secs(1);
/// The maximum number of connections. Few scrapers are expected.
const MAX_CONNECTIONS: usize = 64;

/// `GET /healthz`
async fn alive() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(Health { status: "ok" })
}

/// `GET /readyz`
async fn ready(app: Data<App>) -> ApiResult {
    match tokio::time::timeout(STORE_TIMEOUT, status::ready(&app.context)).await {
        Ok(Ok(())) => Ok(alive().await),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            let detail = format!("the store did not answer within {STORE_TIMEOUT:?}");
            Err(Problem::new(Code::StoreUnavailable, detail))
        }
    }
}

/// `GET /metrics` of the API.
async fn api_metrics(request: ApiRequest) -> ApiResult {
    metrics(request.app).await
}

/// `GET /metrics`
async fn metrics(app: Data<App>) -> ApiResult {
    let text = app.scrape().metrics_text().await.map_err(|error| Problem::internal(&error))?;
    Ok(HttpResponse::Ok()
        .content_type(CONTENT_TYPE)
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .body(text))
}

fn is_in_use(error: &anyhow::Error) -> bool {
    let cause = error.downcast_ref::<std::io::Error>();
    cause.is_some_and(|cause| cause.kind() == std::io::ErrorKind::AddrInUse)
}

/// A metrics server that is bound to its address and does not serve yet.
pub struct MetricsServer {
    /// The bound address, with the actual port if port 0 was configured.
    pub addr: SocketAddr,
    listener: TcpListener,
    app: App,
}

impl MetricsServer {
    /// Binds the configured address. Returns `None` if there is none or another process uses it.
    /// Needs a Tokio runtime.
    pub fn bind(app: &App) -> anyhow::Result<Option<Self>> {
        let Some(addr) = app.config.observability.metrics else {
            return Ok(None);
        };
        let ListeningSocket { addr, listener } = match listen(addr) {
            Err(error) if is_in_use(&error) => {
                tracing::warn!(
                    "metrics: another process listens on {addr} (metrics.listen), so this one \
                     serves none; set TIDINGS_METRICS_LISTEN to an address of its own"
                );
                return Ok(None);
            }
            listening => listening?,
        };
        Ok(Some(Self { addr, listener, app: app.clone() }))
    }

    /// Serves metrics until `stop` becomes true or its sender is dropped.
    pub async fn run(self, stop: watch::Receiver<bool>) -> anyhow::Result<()> {
        let app = Data::new(self.app);
        let server = HttpServer::new(move || {
            actix_web::App::new()
                .app_data(app.clone())
                .route("/metrics", web::get().to(metrics))
                .route("/healthz", web::get().to(alive))
                .default_service(web::to(not_found))
        })
        .workers(1)
        .max_connections(MAX_CONNECTIONS)
        .client_request_timeout(HEAD_TIMEOUT)
        .client_disconnect_timeout(DISCONNECT_TIMEOUT)
        .keep_alive(KEEP_ALIVE)
        .shutdown_timeout(1)
        .shutdown_signal(stopped(stop))
        .listen(self.listener)
        .context("listening")?;
        server.run().await.context("serving metrics")
    }
}
