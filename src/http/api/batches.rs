//! Batches: list, show, close now, cancel.
//!
//! Only an open batch can be changed. The email of a closing batch may already have been sent, so
//! a change is a conflict.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Deserialize;

use super::body;
use super::problem::{Code, Problem};
use super::uri::{NoQuery, Query, refuse, segment};
use crate::app::App;
use crate::domain::{Batch, Id, Invalid};
use crate::engine::Error;
use crate::engine::batches::{BatchFilter, End};
use crate::wire::batch::BatchPage;

/// The default and the maximum number of batches on a page.
const LIMIT: u32 = 20;
const MAX_LIMIT: u32 = 200;

/// The only body that these requests accept: an empty JSON object.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Nothing {}

fn unknown(id: Id) -> Problem {
    let detail = format!(
        "there is no batch {id}; GET /v1/batches lists them, and what was settled long ago is forgotten"
    );
    Problem::new(Code::UnknownBatch, detail)
}

/// `GET /v1/batches`
pub(super) async fn page(req: HttpRequest, app: Data<App>) -> Result<HttpResponse, Problem> {
    let query = Query::of(&req, &["user", "key", "state", "limit", "before"])?;
    let filter = BatchFilter {
        user: query.get("user")?,
        key: query.get("key")?,
        state: query.get("state")?,
    };
    let before: Option<Id> = query.get("before")?;
    let limit = query.number("limit")?.unwrap_or(LIMIT);
    if !(1..=MAX_LIMIT).contains(&limit) {
        let why = format!("is not from 1 to {MAX_LIMIT}");
        return Err(refuse("limit", &Invalid::new("limit", limit, why)));
    }
    let book = app.batches();
    let page = book.list(&filter, before, limit as usize).await?;
    let full = page.len() == limit as usize;
    let next = page.last().filter(|_| full).map(|last| last.id);
    let batches = book.views(page).await?;
    Ok(HttpResponse::Ok().json(BatchPage { batches, next }))
}

/// `GET /v1/batches/{id}`
pub(super) async fn get(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: Id = segment(&req, "id")?;
    let found = app.batches().batch(id).await?;
    shown(&app, found.ok_or_else(|| unknown(id))?).await
}

/// `POST /v1/batches/{id}/close`
pub(super) async fn close(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    end(&req, payload, &app, End::Close).await
}

/// `POST /v1/batches/{id}/cancel`
pub(super) async fn cancel(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    end(&req, payload, &app, End::Cancel).await
}

async fn end(
    req: &HttpRequest,
    payload: Payload,
    app: &App,
    how: End,
) -> Result<HttpResponse, Problem> {
    let id: Id = segment(req, "id")?;
    let body = body::read(req, payload, body::LIMIT).await?;
    if !body.trim_ascii().is_empty() {
        let Nothing {} = body::aside(body, body::one).await?;
    }
    let ended = app.batches().end(id, how).await;
    let ended = ended.map_err(|error| match error {
        Error::Conflict(why) => Problem::new(Code::BatchEnded, why),
        other => other.into(),
    })?;
    shown(app, ended.ok_or_else(|| unknown(id))?).await
}

async fn shown(app: &App, batch: Batch) -> Result<HttpResponse, Problem> {
    Ok(HttpResponse::Ok().json(app.batches().view(batch).await?))
}
