//! Batches: list, show, close now, cancel.
//!
//! Only an open batch can be changed. The email of a closing batch may already have been sent, so
//! a change is a conflict.

use actix_web::HttpResponse;
use serde::Deserialize;

use super::problem::{ApiResult, Code, Problem};
use super::request::Call;
use super::route::routes;
use crate::domain::{Batch, Id};
use crate::engine::Error;
use crate::engine::batches::{BatchFilter, End};
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
struct Nothing {}

/// Answers with a batch, or with the problem that there is none.
async fn view(call: &Call, batch: Option<Batch>, id: Id) -> ApiResult {
    let batch = batch.ok_or_else(|| {
        let detail = format!(
            "there is no batch {id}; GET /v1/batches lists them, and what was settled long ago is forgotten"
        );
        Problem::new(Code::UnknownBatch, detail)
    })?;
    Ok(HttpResponse::Ok().json(call.app.batches().view(batch).await?))
}

/// `GET /v1/batches`
async fn page(call: Call) -> ApiResult {
    let filter = BatchFilter {
        user: call.parameter("user")?,
        key: call.parameter("key")?,
        state: call.parameter("state")?,
        before: call.parameter("before")?,
    };
    let limit = call.page_limit(20, 200)?;
    let book = call.app.batches();
    let page = book.list(&filter, limit).await?;
    let next = page.last().filter(|_| page.len() == limit);
    let next = next.map(|last| last.id);
    let batches = book.views(page).await?;
    Ok(HttpResponse::Ok().json(BatchPage { batches, next }))
}

/// `GET /v1/batches/{id}`
async fn get(call: Call) -> ApiResult {
    let id: Id = call.segment("id")?;
    view(&call, call.app.batches().batch(id).await?, id).await
}

/// `POST /v1/batches/{id}/close`
async fn close(call: Call) -> ApiResult {
    end(call, End::Close).await
}

/// `POST /v1/batches/{id}/cancel`
async fn cancel(call: Call) -> ApiResult {
    end(call, End::Cancel).await
}

async fn end(mut call: Call, how: End) -> ApiResult {
    let id: Id = call.segment("id")?;
    let Nothing {} = call.one_if_any().await?;
    let ended = call.app.batches().end(id, how).await;
    let ended = ended.map_err(|error| match error {
        Error::Conflict(why) => Problem::new(Code::BatchEnded, why),
        other => other.into(),
    })?;
    view(&call, ended, id).await
}
