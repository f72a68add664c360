//! The page of `serve --demo` and its requests: the scene, new works, and sent emails.
//!
//! Only this machine may use it, and requests that change something must come from this page
//! ([`super::local_only`]). The routes exist only with `--demo`; [`Gallery`] does the work.

use actix_web::HttpResponse;
use actix_web::web::Data;
use chrono::TimeDelta;
use serde::Deserialize;

use super::local_only::{EMAIL_POLICY, FILE_POLICY, local_response, page_policy, uncached};
use super::problem::{ApiResult, Code, Problem};
use super::request::ApiRequest;
use super::route::routes;
use crate::demo::{self, Gallery, USER_IDS};
use crate::domain::{ObjectId, StopAction, UserId};
use crate::wire::local_pages::LocalVisit;

routes! {ROUTES under "":
    "/demo" => {get open: page}
    "/demo/page.js" => {get open: script}
    "/demo/page.css" => {get open: style}
    "/demo/scene" => {get open: scene}
    "/demo/people/{id}" => {post open: play}
    "/demo/works" => {post open: publish}
    "/demo/digests" => {post open: send_digests}
    "/demo/mails" => {get open: emails}
    "/demo/mails/{number}" => {get open: email}
    "/demo/pictures/{name}" => {get open: picture}
}

const PAGE: &str = include_str!("demo/page.html");
const SCRIPT: &str = include_str!("demo/page.js");
const STYLE: &str = include_str!("demo/page.css");

/// The lifetime of a user's token. The page requests a new one before it ends.
const TOKEN_LIFETIME: TimeDelta = TimeDelta::minutes(10);

/// `GET /demo`
async fn page(_: ApiRequest, gallery: Data<Gallery>) -> HttpResponse {
    let policy = page_policy(&gallery.url);
    local_response("text/html; charset=utf-8", &policy, PAGE)
}

/// `GET /demo/page.js`
async fn script(_: ApiRequest) -> HttpResponse {
    local_response("text/javascript; charset=utf-8", FILE_POLICY, SCRIPT)
}

/// `GET /demo/page.css`
async fn style(_: ApiRequest) -> HttpResponse {
    local_response("text/css; charset=utf-8", FILE_POLICY, STYLE)
}

/// `GET /demo/scene`
async fn scene(request: ApiRequest, gallery: Data<Gallery>) -> ApiResult {
    Ok(uncached().json(gallery.scene(&request.app).await?))
}

/// `POST /demo/people/{id}`: a token of this user, and their links. An application would know its
/// signed-in user.
async fn play(request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    if !USER_IDS.contains(&id.as_str()) {
        let detail = format!("{id:?} is no user of the demo; /demo/scene lists them");
        return Err(Problem::new(Code::UnknownUser, detail));
    }
    let now = request.app.context.clock.now();
    let token = request.app.tokens().issue(&id, now, TOKEN_LIFETIME)?;
    let maker = request.app.identities.default.links.link_maker().await?;
    // A demo's configuration has both.
    let (Some(token), Some(maker)) = (token, maker) else {
        let detail = "the demo's tidings.toml has lost its address or its secret; start it again";
        return Err(Problem::new(Code::Internal, detail));
    };
    let links = maker.recipient_links(&id, None, Some(&StopAction::All), None, now);
    Ok(uncached().json(LocalVisit {
        token: token.expose(),
        preferences: &links.preferences,
        unsubscribe: links.unsubscribe.as_deref(),
    }))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewWork {
    artist: String,
    title: String,
}

/// `POST /demo/works`
async fn publish(mut request: ApiRequest, gallery: Data<Gallery>) -> ApiResult {
    let NewWork { artist, title } = request.parse_one().await?;
    Ok(uncached().json(gallery.publish(&request.app, &artist, &title).await?))
}

/// `POST /demo/digests`
async fn send_digests(request: ApiRequest, gallery: Data<Gallery>) -> ApiResult {
    Ok(uncached().json(gallery.send_digests(&request.app).await?))
}

/// `GET /demo/mails`
async fn emails(request: ApiRequest, gallery: Data<Gallery>) -> ApiResult {
    Ok(uncached().json(gallery.emails(&request.app).await?))
}

/// `GET /demo/mails/{number}`
async fn email(request: ApiRequest, gallery: Data<Gallery>) -> ApiResult {
    let number: ObjectId = request.segment("number")?;
    let html = match number.as_str().parse() {
        Ok(number) => gallery.email(&request.app, number).await?,
        Err(_) => None,
    };
    let Some(html) = html else {
        let detail = format!("there is no email {number:?}; /demo/mails lists them");
        return Err(Problem::new(Code::NotFound, detail));
    };
    Ok(local_response("text/html; charset=utf-8", EMAIL_POLICY, html))
}

/// `GET /demo/pictures/{name}`
async fn picture(request: ApiRequest) -> ApiResult {
    let name: ObjectId = request.segment("name")?;
    Ok(local_response("image/svg+xml", FILE_POLICY, demo::picture(name.as_str())))
}
