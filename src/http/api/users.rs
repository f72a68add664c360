//! Users' records, preferences and follows.
//!
//! Responses mask addresses (P8). [`crate::engine::directory::people`] decides what a change does.

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};

use super::body;
use super::problem::Problem;
use super::shared::{taken, unknown};
use super::uri::{NoQuery, Query, segment};
use crate::app::App;
use crate::domain::{FollowKey, UserId};
use crate::engine::directory::input::{FollowInput, PreferencesChange, UserInput, UserPatch};
use crate::wire::user::{FollowPage, PreferencesView, UserPage, UserView};

/// `PUT /v1/users/{id}`
pub(super) async fn put(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    let body = body::read(&req, payload, body::LIMIT).await?;
    let mut user: UserInput = body::aside(body, body::one).await?;
    if let Some(other) = user.id.replace(id.clone()).filter(|other| *other != id) {
        return Err(Problem::body(format!(
            "id {other:?} is not the user of the path, {id:?}; leave it out"
        )));
    }
    app.people().put(vec![user]).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/users`
pub(super) async fn post(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let body = body::read(&req, payload, body::BULK_LIMIT).await?;
    let many = |body: &[u8]| body::many(body, "users");
    let users: Vec<UserInput> = body::aside(body, many).await?;
    for (index, user) in users.iter().enumerate() {
        user.check()
            .map_err(|why| body::of_record("users", index, why))?;
    }
    let count = users.len();
    app.people().put(users).await?;
    Ok(taken(count))
}

/// `GET /v1/users/{id}`
pub(super) async fn get(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    let user = app.people().get(&id).await?;
    let user = user.ok_or_else(|| unknown(&id))?;
    Ok(HttpResponse::Ok().json(UserView::of(user, &app.config.policies)))
}

/// `PATCH /v1/users/{id}`
pub(super) async fn patch(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    let body = body::read(&req, payload, body::LIMIT).await?;
    let patch: UserPatch = body::aside(body, body::one).await?;
    let user = app.people().patch(&id, patch).await?;
    let user = user.ok_or_else(|| unknown(&id))?;
    Ok(HttpResponse::Ok().json(UserView::of(user, &app.config.policies)))
}

/// `GET /v1/users`
pub(super) async fn page(req: HttpRequest, app: Data<App>) -> Result<HttpResponse, Problem> {
    let query = Query::of(&req, &["after", "limit"])?;
    let (after, limit) = (query.get::<UserId>("after")?, query.page_limit()?);
    let (users, next) = app.people().page(after.as_ref(), limit).await?;
    let users = users.into_iter();
    let view = |user| UserView::of(user, &app.config.policies);
    let users = users.map(view).collect();
    Ok(HttpResponse::Ok().json(UserPage { users, next }))
}

/// `GET /v1/users/{id}/follows`
pub(super) async fn follows(req: HttpRequest, app: Data<App>) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    let query = Query::of(&req, &["after", "limit"])?;
    let (after, limit) = (query.get::<FollowKey>("after")?, query.page_limit()?);
    let follows = app.people().follows(&id, after.as_ref(), limit).await?;
    let next = follows.last().filter(|_| follows.len() == limit).cloned();
    Ok(HttpResponse::Ok().json(FollowPage { follows, next }))
}

/// `DELETE /v1/users/{id}`
pub(super) async fn delete(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    match app.people().delete(&id).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(unknown(&id)),
    }
}

/// `PUT /v1/users/{id}/preferences`
pub(super) async fn prefer(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    let body = body::read(&req, payload, body::LIMIT).await?;
    let change: PreferencesChange = body::aside(body, body::one).await?;
    let user = app.people().prefer(&id, change).await?;
    let user = user.ok_or_else(|| unknown(&id))?;
    Ok(HttpResponse::Ok().json(UserView::of(user, &app.config.policies)))
}

/// `GET /v1/users/{id}/preferences`
pub(super) async fn preferences(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let id: UserId = segment(&req, "id")?;
    let user = app.people().get(&id).await?;
    let user = user.ok_or_else(|| unknown(&id))?;
    let (default, policies) = (&app.config.digest.schedule, &app.config.policies);
    Ok(HttpResponse::Ok().json(PreferencesView::of(&user, default, policies)))
}

fn follow_of(req: &HttpRequest) -> Result<Vec<FollowInput>, Problem> {
    let (user, key) = (segment(req, "id")?, segment(req, "key")?);
    Ok(vec![FollowInput { user, key }])
}

/// `PUT /v1/users/{id}/follows/{key}`
pub(super) async fn follow(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    app.people().follow(follow_of(&req)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `DELETE /v1/users/{id}/follows/{key}`
pub(super) async fn unfollow(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    app.people().unfollow(follow_of(&req)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/follows`
pub(super) async fn follow_many(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let body = body::read(&req, payload, body::BULK_LIMIT).await?;
    let many = |body: &[u8]| body::many(body, "follows");
    let follows: Vec<FollowInput> = body::aside(body, many).await?;
    let count = follows.len();
    app.people().follow(follows).await?;
    Ok(taken(count))
}
