//! `GET /u/{token}` asks for confirmation; `POST /u/{token}` unsubscribes, also as the one click of
//! RFC 8058.
//!
//! GET changes nothing (P7). One POST ends the scope of the link and nothing else; repeating it has
//! no effect. [`crate::engine::delivery`] checks again before it sends an email. Types that became
//! mandatory cannot be ended, and the page says why.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse};

use super::page_request::{FormFields, PageFailure, PageRequest};
use crate::app::App;
use crate::domain::{FollowKey, ObjectKey, Policies, StopAction, SuppressionReason, User};
use crate::engine::access::links::Link;
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::render::WebPage;
use crate::render::pages::{EmailTokens, Notice, PageUser, StopPage};

/// Returns the part of the scope that can be ended. Fails if all of it is mandatory.
fn optional(stop: &StopAction, policies: &Policies) -> Result<StopAction, PageFailure> {
    let StopAction::Types(kinds) = stop else {
        return Ok(stop.clone());
    };
    let mandate = |kind| policies.policy(kind).mandatory.as_ref();
    let optional = kinds.iter().filter(|kind| mandate(kind).is_none());
    let mandatory = kinds.iter().find_map(|kind| Some((kind, mandate(kind)?)));
    match (StopAction::for_types(optional), mandatory) {
        (StopAction::Types(kinds), Some((kind, mandate))) if kinds.is_empty() => {
            Err(Notice::Mandatory(kind.clone(), mandate.clone()).into())
        }
        (stop, _) => Ok(stop),
    }
}

/// Shows the state of the link's scope. `before` is the user's record before this request ended
/// something.
async fn page(
    page_request: &PageRequest,
    token: &str,
    link: &Link,
    user: &User,
    before: Option<&User>,
) -> Result<HttpResponse, PageFailure> {
    let app = &page_request.app;
    let (default, policies) = (&app.config.digest.schedule, &app.config.policies);
    let stop = &optional(&link.stop, policies)?;
    let (is_following, name) = match stop {
        StopAction::Follow(key) => {
            let is_following = app.users().is_following(&link.user, key).await?;
            (is_following, Some(title_of(app, key).await?))
        }
        _ => (false, None),
    };
    let with = |stop| Link { stop, ..link.clone() };
    let links = &app.identities.default.links;
    let tokens = &EmailTokens {
        own: token.to_owned(),
        digest: links.seal(&with(StopAction::Digest)).await?,
        all: links.seal(&with(StopAction::All)).await?,
    };
    let page = WebPage::Stop(StopPage {
        page_user: PageUser::new(user, default, policies),
        stop,
        is_stopped: stop.is_in_effect(user, is_following, default, policies),
        previous_user: before,
        tokens,
        follow_name: name.as_deref(),
    });
    Ok(page_request.page(StatusCode::OK, &page))
}

/// Returns the title of a followed key, or the key itself.
async fn title_of(app: &App, key: &FollowKey) -> Result<String, PageFailure> {
    let object = app.objects().get(&ObjectKey::stored(key.as_str())).await?;
    let title = object.and_then(|object| object.title).filter(|title| !title.trim().is_empty());
    Ok(title.unwrap_or_else(|| key.to_string()))
}

/// `GET /u/{token}`
pub(super) async fn confirm(req: HttpRequest, token: Path<String>, app: Data<App>) -> HttpResponse {
    let mut page_request = PageRequest::new(&req, app);
    let response = async {
        let (link, user) = page_request.open(&token).await?;
        let user = user.ok_or(Notice::UnknownUser)?;
        page(&page_request, &token, &link, &user, None).await
    }
    .await;
    response.unwrap_or_else(|failure| page_request.failure(failure))
}

/// `POST /u/{token}`
pub(super) async fn unsubscribe(
    req: HttpRequest,
    token: Path<String>,
    payload: Payload,
    app: Data<App>,
) -> HttpResponse {
    let mut page_request = PageRequest::new(&req, app);
    let response = stop(&mut page_request, &req, &token, payload).await;
    response.unwrap_or_else(|failure| page_request.failure(failure))
}

/// Ends the scope of a link.
async fn stop(
    page_request: &mut PageRequest,
    req: &HttpRequest,
    token: &str,
    payload: Payload,
) -> Result<HttpResponse, PageFailure> {
    // The page offers to restore this state. The write below keeps concurrent changes.
    let (link, before) = page_request.open(token).await?;
    let (app, people) = (&page_request.app, page_request.app.users());
    let form = FormFields::read(req, payload).await?;
    if form.get("List-Unsubscribe").map(str::trim_ascii_end) != Some("One-Click") {
        let why =
            "The form does not say List-Unsubscribe=One-Click; please use the button on the page.";
        return Err(PageFailure::form(why));
    }
    // An unknown user gets no emails, so the request succeeds.
    let gone = || PageFailure { status: StatusCode::OK, ..Notice::UnknownUser.into() };
    let Some(before) = before else {
        // The reader gets no email at this address any more, also if another record has it.
        if let Some(address) = link.address.clone()
            && !matches!(link.stop, StopAction::Subject(..))
        {
            let suppression = SuppressionInput {
                source: Some("link".into()),
                ..SuppressionInput::new(address, SuppressionReason::Unsubscribe)
            };
            app.suppressions().add(vec![suppression]).await?;
        }
        return Err(gone());
    };
    let stop = optional(&link.stop, &app.config.policies)?;
    let user = people.stop_emails(&link.user, &stop).await?;
    let user = user.ok_or_else(gone)?;
    page(page_request, token, &link, &user, Some(&before)).await
}
