//! The page of `serve --demo` and its requests: the scene, new works, and sent emails.
//!
//! Only this machine may use it. [`mod@local`] requires a loopback name in every request, so no
//! other site can reach it through a name of its own. Requests that change something must come from
//! this page ([`Home`]). The routes exist only with `--demo`; [`Gallery`] does the work.

use actix_web::http::header;
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::TimeDelta;
use serde::Deserialize;

use super::body;
use super::problem::{Code, Problem};
use super::uri::{NoQuery, segment};
use crate::app::App;
use crate::demo::{self, Gallery};
use crate::domain::{ObjectId, Stop, UserId};
use crate::wire::local::Visit;

mod local;

pub(super) use local::{Home, local};

const PAGE: &str = include_str!("demo/page.html");
const SCRIPT: &str = include_str!("demo/page.js");
const STYLE: &str = include_str!("demo/page.css");

/// The lifetime of a user's token. The page requests a new one before it ends.
const TOKEN: TimeDelta = TimeDelta::minutes(10);
/// The largest body, more than any form of the page sends.
const LIMIT: usize = 16 << 10;

/// Shows an email as email programs do: pictures and links, but no scripts.
const OF_MAIL: &str = "default-src 'none'; style-src 'unsafe-inline'; img-src http: https: data:; \
                       sandbox allow-popups allow-popups-to-escape-sandbox; frame-ancestors 'self'";
const OF_PICTURE: &str = "default-src 'none'; sandbox";

/// Allows only resources of this server, and no inline scripts or styles.
fn policy(gallery: &Gallery) -> String {
    format!(
        "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' {}; connect-src 'self'; \
         frame-src 'self'; base-uri 'none'; form-action 'none'; frame-ancestors 'none'; \
         require-trusted-types-for 'script'; trusted-types 'none'",
        gallery.url()
    )
}

fn shown(kind: &str, policy: &str, body: impl Into<String>) -> HttpResponse {
    HttpResponse::Ok()
        .content_type(kind)
        .insert_header((header::CACHE_CONTROL, "no-store"))
        .insert_header((header::REFERRER_POLICY, "same-origin"))
        .insert_header((header::CONTENT_SECURITY_POLICY, policy))
        .body(body.into())
}

/// `GET /demo`
pub(super) async fn page(_: NoQuery, gallery: Data<Gallery>) -> HttpResponse {
    shown("text/html; charset=utf-8", &policy(&gallery), PAGE)
}

/// `GET /demo/page.js`
pub(super) async fn script(_: NoQuery, gallery: Data<Gallery>) -> HttpResponse {
    shown("text/javascript; charset=utf-8", &policy(&gallery), SCRIPT)
}

/// `GET /demo/page.css`
pub(super) async fn style(_: NoQuery, gallery: Data<Gallery>) -> HttpResponse {
    shown("text/css; charset=utf-8", &policy(&gallery), STYLE)
}

/// `GET /demo/scene`
pub(super) async fn scene(
    _: NoQuery,
    app: Data<App>,
    gallery: Data<Gallery>,
) -> Result<HttpResponse, Problem> {
    Ok(fresh().json(gallery.scene(&app).await?))
}

/// `POST /demo/people/{id}`: a token of this user, and their links. An application would know its
/// signed-in user.
pub(super) async fn play(
    _: NoQuery,
    _: Home,
    req: HttpRequest,
    app: Data<App>,
    gallery: Data<Gallery>,
) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    let unknown = || {
        let detail = format!("{id:?} is no user of the demo; /demo/scene lists them");
        Problem::new(Code::UnknownUser, detail)
    };
    let id = gallery.person(id.as_str()).ok_or_else(unknown)?;
    let now = app.context.clock.now();
    let token = app.tokens().make(&id, now, TOKEN)?;
    let maker = app.identities.default.links.maker().await?;
    // A demo's configuration has both.
    let (Some(token), Some(maker)) = (token, maker) else {
        let detail = "the demo's tidings.toml has lost its address or its secret; start it again";
        return Err(Problem::new(Code::Internal, detail));
    };
    let links = maker.personal(&id, Some(&Stop::All), None, now);
    Ok(fresh().json(Visit {
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
pub(super) async fn publish(
    _: NoQuery,
    _: Home,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
    gallery: Data<Gallery>,
) -> Result<HttpResponse, Problem> {
    let NewWork { artist, title } = body::one(&body::read(&req, payload, LIMIT).await?)?;
    Ok(fresh().json(gallery.publish(&app, &artist, &title).await?))
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewComment {
    who: String,
    work: String,
    text: String,
}

/// `POST /demo/comments`
pub(super) async fn comment(
    _: NoQuery,
    _: Home,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
    gallery: Data<Gallery>,
) -> Result<HttpResponse, Problem> {
    let NewComment { who, work, text } = body::one(&body::read(&req, payload, LIMIT).await?)?;
    let published = gallery.comment(&app, &who, &work, &text).await?;
    Ok(fresh().json(published))
}

/// `POST /demo/digests`
pub(super) async fn send_digests(
    _: NoQuery,
    _: Home,
    app: Data<App>,
    gallery: Data<Gallery>,
) -> Result<HttpResponse, Problem> {
    Ok(fresh().json(gallery.send_digests(&app).await?))
}

/// `GET /demo/mails`
pub(super) async fn mails(
    _: NoQuery,
    app: Data<App>,
    gallery: Data<Gallery>,
) -> Result<HttpResponse, Problem> {
    Ok(fresh().json(gallery.mails(&app).await?))
}

/// `GET /demo/mails/{number}`
pub(super) async fn mail(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
    gallery: Data<Gallery>,
) -> Result<HttpResponse, Problem> {
    let number: ObjectId = segment(&req, "number")?;
    let html = match number.as_str().parse() {
        Ok(number) => gallery.mail(&app, number).await?,
        Err(_) => None,
    };
    let Some(html) = html else {
        let detail = format!("there is no email {number:?}; /demo/mails lists them");
        return Err(Problem::new(Code::NotFound, detail));
    };
    Ok(shown("text/html; charset=utf-8", OF_MAIL, html))
}

/// `GET /demo/pictures/{name}`
pub(super) async fn picture(_: NoQuery, req: HttpRequest) -> Result<HttpResponse, Problem> {
    let name: ObjectId = segment(&req, "name")?;
    let drawn = demo::picture(name.as_str());
    Ok(shown("image/svg+xml", OF_PICTURE, drawn))
}

/// Starts an answer that no cache keeps.
fn fresh() -> actix_web::HttpResponseBuilder {
    let mut response = HttpResponse::Ok();
    response.insert_header((header::CACHE_CONTROL, "no-store"));
    response
}
