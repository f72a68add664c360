//! What mail providers post: `POST /hooks/{provider}`.
//!
//! The rule (P8): not under the server key, but under each provider's own signature, over the bytes
//! as they came. The status says what the provider's retries make of it: whatever may succeed later
//! (our store is away) is asked for again, and what never will is not.

use actix_web::web::{Data, Payload};
use actix_web::{HttpMessage as _, HttpRequest, HttpResponse};

use super::body;
use super::problem::{Code, Problem};
use super::uri::NoQuery;
use crate::app::App;
use crate::services::feedback::{Error, posts_text, takes_406_for_never};

/// `POST /hooks/{provider}`
pub(super) async fn post(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let provider = req.match_info().get("provider").unwrap_or_default();
    let provider = provider.to_owned();
    let taken = take(&provider, &req, payload, &app).await;
    match taken {
        Err(problem) if takes_406_for_never(&provider) => Err(never(problem)),
        answer => answer,
    }
}

async fn take(
    provider: &str,
    req: &HttpRequest,
    payload: Payload,
    app: &App,
) -> Result<HttpResponse, Problem> {
    let desk = app.feedback();
    desk.expects(provider).map_err(problem)?;
    let body = match posts_text(provider) && req.content_type() == "text/plain" {
        true => body::bytes(req, payload, body::LIMIT).await?,
        false => body::read(req, payload, body::LIMIT).await?,
    };
    let header = |name: &str| req.headers().get(name)?.to_str().ok();
    let reports = desk.verify(provider, &header, &body).await;
    let reports = reports.map_err(problem)?;
    let taken = desk.take(reports).await.map_err(problem)?;
    Ok(HttpResponse::Ok().json(taken))
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

/// The same, where it would be no better another time.
fn never(problem: Problem) -> Problem {
    match problem.code {
        Code::Unverified | Code::InvalidBody | Code::UnsupportedMediaType | Code::BodyTooLarge => {
            problem.with(Code::HookRejected)
        }
        _ => problem,
    }
}
