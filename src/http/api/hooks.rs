//! Reports that email providers post: `POST /hooks/{provider}`.
//!
//! A report is authenticated by the provider's signature, not by a server key (P8). A verified
//! report gets a success only after it is recorded; until then, the provider retries. An unverified
//! report gets 401, which is retried as well, because our key or clock may be wrong.

use actix_web::web::{Data, Payload};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};

use super::body;
use super::problem::{Code, Problem};
use super::uri::NoQuery;
use crate::app::App;
use crate::engine::feedback::{Error, gives_up_on_4xx, posts_text};

/// `POST /hooks/{provider}`
pub(super) async fn post(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let provider = req.match_info().get("provider").unwrap_or_default();
    let desk = app.feedback();
    desk.expects(provider).map_err(problem)?;
    let body = match posts_text(provider) && req.content_type().eq_ignore_ascii_case("text/plain") {
        true => body::bytes(&req, payload, body::LIMIT).await?,
        false => body::read(&req, payload, body::LIMIT).await?,
    };
    let header = |name: &str| req.headers().get(name)?.to_str().ok();
    let reports = desk.verify(provider, &header, &body).await;
    let reports = reports.map_err(|error| match error {
        Error::Unreadable(why) => unreadable(provider, why, &app),
        error => problem(error),
    })?;
    let taken = desk.take(reports).await.map_err(problem)?;
    app.metrics.unreadable_reports(taken.unreadable);
    Ok(HttpResponse::Ok().json(taken))
}

/// Answers a verified report without a readable item, so that the provider retries it.
fn unreadable(provider: &str, why: String, app: &App) -> Problem {
    app.metrics.unreadable_reports(1);
    tracing::warn!(provider, "a verified report cannot be read: {why}");
    match gives_up_on_4xx(provider) {
        true => Problem::new(Code::Internal, why),
        false => problem(Error::Unreadable(why)),
    }
}

fn problem(error: Error) -> Problem {
    let code = match &error {
        Error::UnknownProvider => Code::UnknownProvider,
        Error::Unconfigured(_) => Code::HookNotConfigured,
        Error::Unverified(_) => Code::Unverified,
        Error::Unreadable(_) => Code::InvalidBody,
        Error::Unreached(_) => Code::ProviderUnavailable,
        Error::Service(_) => Code::Internal,
    };
    match error {
        Error::Service(error) => error.into(),
        error => Problem::new(code, error.to_string()),
    }
}
