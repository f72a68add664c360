//! Suppressed addresses.
//!
//! Answers mask addresses (P8). Requests for a single address contain it in full.

use actix_web::HttpResponse;

use super::problem::{ApiResult, Code, Problem};
use super::request::ApiRequest;
use super::route::routes;
use crate::domain::Address;
use crate::domain::address::AddressCursor;
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::wire::AcceptedCount;
use crate::wire::suppression::{SuppressionPage, SuppressionView};

routes! {ROUTES under "/v1":
    "/suppressions" => {get read ["after", "limit"]: page, post admin bulk: post}
    "/suppressions/{address}" => {get read: get, delete admin: delete}
}

fn not_suppressed(address: &Address) -> Problem {
    Problem::new(Code::NotSuppressed, format!("{address} is not suppressed"))
}

/// `GET /v1/suppressions`
async fn page(request: ApiRequest) -> ApiResult {
    let cursor: Option<AddressCursor> = request.parameter("after")?;
    let limit = request.page_limit(100, 1_000)?;
    let after = cursor.as_ref().map(|AddressCursor(address)| address);
    let page = request.app.suppressions().page(after, limit).await?;
    let last = page.last().filter(|_| page.len() == limit);
    let next = last.map(|last| AddressCursor(last.address.clone()).to_string());
    let suppressions = page.into_iter().map(SuppressionView::from).collect();
    Ok(HttpResponse::Ok().json(SuppressionPage { suppressions, next }))
}

/// `POST /v1/suppressions`
async fn post(mut request: ApiRequest) -> ApiResult {
    let (inputs, _) = request.parse_one_or_many::<SuppressionInput>("suppressions").await?;
    let accepted = inputs.len();
    request.app.suppressions().add(inputs).await?;
    Ok(HttpResponse::Ok().json(AcceptedCount { accepted }))
}

/// `GET /v1/suppressions/{address}`
async fn get(request: ApiRequest) -> ApiResult {
    let address: Address = request.segment("address")?;
    let suppression = request.app.suppressions().get(&address).await?;
    let suppression = suppression.ok_or_else(|| not_suppressed(&address))?;
    Ok(HttpResponse::Ok().json(SuppressionView::from(suppression)))
}

/// `DELETE /v1/suppressions/{address}`
async fn delete(request: ApiRequest) -> ApiResult {
    let address: Address = request.segment("address")?;
    if request.app.suppressions().lift(&address).await? {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(not_suppressed(&address))
    }
}
