//! The subjects that a user has muted, such as threads, documents and followed keys.
//!
//! A subject may be any name. Its object may be unknown, because the application can create it
//! later. [`crate::domain::Mutes`] documents the effect of a mute.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};

use super::body;
use super::problem::Problem;
use super::shared::unknown;
use super::uri::{NoQuery, segment};
use crate::app::App;
use crate::domain::{Subject, UserId};
use crate::engine::directory::input::MuteInput;
use crate::wire::user::MutesView;

/// `GET /v1/users/{id}/mutes`
pub(super) async fn list(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    let user = app.people().get(&id).await?;
    let user = user.ok_or_else(|| unknown(&id))?;
    let mutes = MutesView::of(&user.mutes, app.context.clock.now());
    Ok(HttpResponse::Ok().json(mutes))
}

/// `PUT /v1/users/{id}/mutes/{subject}`
pub(super) async fn put(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let (id, subject): (UserId, Subject) = (segment(&req, "id")?, segment(&req, "subject")?);
    let body = body::read(&req, payload, body::LIMIT).await?;
    let mute = match body.trim_ascii() {
        [] => MuteInput::default(),
        _ => body::aside(body, body::one).await?,
    };
    let user = app.people().mute(&id, &subject, mute).await?;
    user.ok_or_else(|| unknown(&id))?;
    Ok(HttpResponse::NoContent().finish())
}

/// `DELETE /v1/users/{id}/mutes/{subject}`
pub(super) async fn delete(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let (id, subject): (UserId, Subject) = (segment(&req, "id")?, segment(&req, "subject")?);
    let user = app.people().unmute(&id, &subject).await?;
    user.ok_or_else(|| unknown(&id))?;
    Ok(HttpResponse::NoContent().finish())
}
