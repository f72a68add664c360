//! The webhooks of email providers, which report the outcomes of emails.
//!
//! A report is authenticated by the provider's signature, not by a server key (P8). A verified
//! report gets a success only after it is recorded; until then, the provider retries. An unverified
//! report gets 401, which is retried as well, because our key or clock may be wrong.

use actix_web::HttpResponse;

use super::problem::{ApiResult, Code, Problem};
use super::request::ApiRequest;
use super::route::routes;
use crate::app::App;
use crate::engine::feedback::{Error, HookRejection};

routes! {ROUTES under "":
    "/hooks/{provider}" => {post open: report}
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
