//! Liveness and readiness checks for load balancers and supervisors. They need no key.

use std::time::Duration;

use actix_web::web::Data;
use actix_web::{HttpResponse, http::header};

use super::problem::{Code, Problem};
use crate::app::App;
use crate::operate::health::ready as ready_store;
use crate::wire::Health;

/// The longest time to wait for the store.
const PATIENCE: Duration = Duration::from_secs(1);

/// `GET /healthz`
pub(super) async fn alive() -> HttpResponse {
    fine()
}

/// `GET /readyz`
pub(super) async fn ready(app: Data<App>) -> Result<HttpResponse, Problem> {
    match tokio::time::timeout(PATIENCE, ready_store(&app.context)).await {
        Ok(Ok(())) => Ok(fine()),
        Ok(Err(error)) => Err(error.into()),
        Err(_) => {
            let detail = format!("the store did not answer within {PATIENCE:?}");
            let mut problem = Problem::new(Code::StoreUnavailable, &detail);
            problem.cause = Some(detail);
            Err(problem)
        }
    }
}

fn fine() -> HttpResponse {
    HttpResponse::Ok()
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .json(Health { status: "ok" })
}
