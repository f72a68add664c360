//! Suppressed addresses, and the reports of email providers that suppress them.
//!
//! Answers mask addresses (P8). Requests for a single address contain it in full. A report is
//! authenticated by the provider's signature, not by a server key (P8). A verified report gets a
//! success only after it is recorded; until then, the provider retries. An unverified report gets
//! 401, which is retried as well, because our key or clock may be wrong.

use actix_web::HttpResponse;

use super::problem::{ApiResult, Code, Problem};
use super::request::ApiRequest;
use super::route::routes;
use crate::app::App;
use crate::domain::Address;
use crate::domain::address::AddressCursor;
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::engine::feedback::{Error, HookRejection};
use crate::wire::AcceptedCount;
use crate::wire::delivery::{SuppressionPage, SuppressionView};

routes! {SUPPRESSIONS under "/v1":
    "/suppressions" => {get read ["after", "limit"]: page, post admin bulk: post}
    "/suppressions/{address}" => {get read: get, delete admin: delete}
}

routes! {HOOKS under "":
    "/hooks/{provider}" => {post open: report}
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

/// `POST /hooks/{provider}`
async fn report(mut request: ApiRequest) -> ApiResult {
    let name = request.http.match_info().get("provider").unwrap_or_default();
    let service = request.app.feedback();
    let provider = service.find_provider(name).map_err(problem)?;
    let uses_sns = provider.locate_certificate.is_some();
    let body = if uses_sns && request.has_content_type("text/plain") {
        request.read_bytes().await?
    } else {
        request.read_json().await?
    };
    let header = |name: &str| request.http.headers().get(name)?.to_str().ok();
    let recorded = service.receive(provider.name, &header, &body).await;
    let outcome = recorded.map_err(|error| match error {
        Error::Rejected(HookRejection::Unreadable(why)) => {
            unreadable(provider.name, uses_sns, why, &request.app)
        }
        error => problem(error),
    })?;
    request.app.metrics.count_unreadable_reports(outcome.unreadable);
    Ok(HttpResponse::Ok().json(outcome))
}

/// Answers a verified report without a readable item, so that the provider retries it. SNS gives
/// up after a 4xx status.
fn unreadable(provider: &str, uses_sns: bool, why: String, app: &App) -> Problem {
    app.metrics.count_unreadable_reports(1);
    tracing::warn!(provider, "a verified report cannot be read: {why}");
    Problem::new(if uses_sns { Code::Internal } else { Code::InvalidBody }, why)
}

fn problem(error: Error) -> Problem {
    let code = match error {
        Error::Service(error) => return error.into(),
        Error::UnknownProvider => Code::UnknownProvider,
        Error::Unconfigured(_) => Code::HookNotConfigured,
        Error::Rejected(HookRejection::Unverified(_)) => Code::Unverified,
        Error::Rejected(HookRejection::Unreadable(_)) => Code::InvalidBody,
        Error::Rejected(HookRejection::Unreached(_)) => Code::ProviderUnavailable,
    };
    Problem::new(code, error.to_string())
}
