//! Suppressed addresses, which get no email.
//!
//! Answers mask addresses (P8). Requests for a single address contain it in full.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};

use super::body;
use super::problem::{Code, Problem};
use super::shared::taken;
use super::uri::{NoQuery, Query, segment};
use crate::app::App;
use crate::domain::Address;
use crate::domain::address::Cursor;
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::wire::delivery::{SuppressionPage, SuppressionView};

fn not_suppressed(address: &Address) -> Problem {
    Problem::new(Code::NotSuppressed, format!("{address} is not suppressed"))
}

/// `GET /v1/suppressions`
pub(super) async fn page(req: HttpRequest, app: Data<App>) -> Result<HttpResponse, Problem> {
    let query = Query::of(&req, &["after", "limit"])?;
    let after: Option<Cursor> = query.get("after")?;
    let limit = query.page_limit()?;
    let after = after.map(|Cursor(address)| address);
    let book = app.suppressions();
    let page = book.page(after.as_ref(), limit).await?;
    let full = page.len() == limit;
    let next = page.last().filter(|_| full);
    let next = next.map(|last| Cursor(last.address.clone()).to_string());
    let suppressions = page.into_iter().map(SuppressionView::from).collect();
    Ok(HttpResponse::Ok().json(SuppressionPage { suppressions, next }))
}

/// `POST /v1/suppressions`
pub(super) async fn post(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let body = body::read(&req, payload, body::BULK_LIMIT).await?;
    let read = |body: &[u8]| match body::is_many(body, "suppressions") {
        true => body::many(body, "suppressions"),
        false => Ok(vec![body::one(body)?]),
    };
    let inputs: Vec<SuppressionInput> = body::aside(body, read).await?;
    let count = inputs.len();
    app.suppressions().add(inputs).await?;
    Ok(taken(count))
}

/// `GET /v1/suppressions/{address}`
pub(super) async fn get(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let address: Address = segment(&req, "address")?;
    let found = app.suppressions().get(&address).await?;
    let found = found.ok_or_else(|| not_suppressed(&address))?;
    Ok(HttpResponse::Ok().json(SuppressionView::from(found)))
}

/// `DELETE /v1/suppressions/{address}`
pub(super) async fn delete(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let address: Address = segment(&req, "address")?;
    match app.suppressions().lift(&address).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(not_suppressed(&address)),
    }
}
