//! Batches: list, show, close now, cancel.
//!
//! Only an open batch can be changed. The email of a closing batch may already have been sent, so
//! a change is a conflict.

use actix_web::HttpResponse;
use serde::Deserialize;

use super::problem::{ApiResult, Code, Problem};
use super::request::ApiRequest;
use super::route::routes;
use crate::domain::{Batch, Id};
use crate::engine::Error;
use crate::engine::batches::{BatchFilter, EndAction};
use crate::wire::batch::BatchPage;

routes! {ROUTES under "/v1":
    "/batches" => {get read ["user", "key", "state", "limit", "before"]: page}
    "/batches/{id}" => {get read: get}
    "/batches/{id}/close" => {post write: close}
    "/batches/{id}/cancel" => {post write: cancel}
}

/// The only body that these requests accept: an empty JSON object.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields)]
struct EmptyBody {}

/// Answers with a batch, or with the problem that there is none.
async fn view(request: &ApiRequest, batch: Option<Batch>, id: Id) -> ApiResult {
    let batch = batch.ok_or_else(|| {
        let detail = format!(
            "there is no batch {id}; GET /v1/batches lists them, and what was settled long ago is forgotten"
        );
        Problem::new(Code::UnknownBatch, detail)
    })?;
    Ok(HttpResponse::Ok().json(request.app.batches().view(batch).await?))
}

/// `GET /v1/batches`
async fn page(request: ApiRequest) -> ApiResult {
    let filter = BatchFilter {
        user: request.parameter("user")?,
        key: request.parameter("key")?,
        state: request.parameter("state")?,
        before: request.parameter("before")?,
    };
    let limit = request.page_limit(20, 200)?;
    let service = request.app.batches();
    let page = service.list(&filter, limit).await?;
    let next = page.last().filter(|_| page.len() == limit).map(|last| last.id);
    let batches = service.views(page).await?;
    Ok(HttpResponse::Ok().json(BatchPage { batches, next }))
}

/// `GET /v1/batches/{id}`
async fn get(request: ApiRequest) -> ApiResult {
    let id: Id = request.segment("id")?;
    view(&request, request.app.batches().batch(id).await?, id).await
}

/// `POST /v1/batches/{id}/close`
async fn close(request: ApiRequest) -> ApiResult {
    end(request, EndAction::Close).await
}

/// `POST /v1/batches/{id}/cancel`
async fn cancel(request: ApiRequest) -> ApiResult {
    end(request, EndAction::Cancel).await
}

async fn end(mut request: ApiRequest, how: EndAction) -> ApiResult {
    let id: Id = request.segment("id")?;
    let EmptyBody {} = request.parse_one_or_default().await?;
    let ended = request.app.batches().end(id, how).await;
    let batch = ended.map_err(|error| match error {
        Error::Conflict(why) => Problem::new(Code::BatchEnded, why),
        other => other.into(),
    })?;
    view(&request, batch, id).await
}
