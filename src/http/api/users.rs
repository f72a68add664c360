//! Users' records, preferences, follows and mutes.
//!
//! Responses mask addresses (P8). [`crate::engine::users::service`] decides what a change does.
//! A muted subject may be any name: its object may be unknown, because the application can create
//! it later. [`crate::domain::Mutes`] documents the effect of a mute.

use actix_web::HttpResponse;

use super::problem::{ApiResult, Problem};
use super::request::{ApiRequest, record_problem};
use super::route::routes;
use crate::domain::{FollowKey, Subject, User, UserId};
use crate::engine::users::input::{FollowInput, MuteInput, PreferencesChange, UserInput};
use crate::wire::AcceptedCount;
use crate::wire::user::{FollowPage, MutesView, PreferencesView, UserPage, UserView};

routes! {ROUTES under "/v1":
    "/users" => {post write bulk: post, get read ["after", "limit"]: page}
    "/users/{id}" => {put write: put, patch write: patch, get read: get, delete write: delete}
    "/users/{id}/preferences" => {put write own: prefer, get read own: preferences}
    "/users/{id}/follows" => {get read ["after", "limit"]: follows}
    "/users/{id}/follows/{key}" => {put write: follow, delete write: unfollow}
    "/users/{id}/mutes" => {get read own: mutes}
    "/users/{id}/mutes/{subject}" => {put write own: mute, delete write own: unmute}
    "/follows" => {post write bulk: follow_many}
}

/// Returns the user of the path, or the problem that there is none.
fn existing(user: Option<User>, id: &UserId) -> Result<User, Problem> {
    user.ok_or_else(|| Problem::unknown_user(id))
}

fn view(request: &ApiRequest, user: User) -> HttpResponse {
    HttpResponse::Ok().json(UserView::from_user(user, &request.app.config.policies))
}

/// `PUT /v1/users/{id}`
async fn put(mut request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    let mut user: UserInput = request.parse_one().await?;
    if let Some(other) = user.id.replace(id.clone()).filter(|other| *other != id) {
        return Err(Problem::body(format!(
            "id {other:?} is not the user of the path, {id:?}; leave it out"
        )));
    }
    request.app.users().put_users(vec![user]).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/users`
async fn post(mut request: ApiRequest) -> ApiResult {
    let users: Vec<UserInput> = request.parse_many("users").await?;
    for (index, user) in users.iter().enumerate() {
        user.check().map_err(|why| record_problem("users", index, why))?;
    }
    let accepted = users.len();
    request.app.users().put_users(users).await?;
    Ok(HttpResponse::Ok().json(AcceptedCount { accepted }))
}

/// `GET /v1/users/{id}`
async fn get(request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    let user = request.app.users().user(&id).await?;
    Ok(view(&request, existing(user, &id)?))
}

/// `PATCH /v1/users/{id}`
async fn patch(mut request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    let patch: UserInput = request.parse_one().await?;
    let user = request.app.users().patch(&id, patch).await?;
    Ok(view(&request, existing(user, &id)?))
}

/// `GET /v1/users`
async fn page(request: ApiRequest) -> ApiResult {
    let after: Option<UserId> = request.parameter("after")?;
    let limit = request.page_limit(100, 1_000)?;
    let (users, next) = request.app.users().users_page(after.as_ref(), limit).await?;
    let view = |user| UserView::from_user(user, &request.app.config.policies);
    let users = users.into_iter().map(view).collect();
    Ok(HttpResponse::Ok().json(UserPage { users, next }))
}

/// `DELETE /v1/users/{id}`
async fn delete(request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    if request.app.users().erase(&id).await? {
        Ok(HttpResponse::NoContent().finish())
    } else {
        Err(Problem::unknown_user(&id))
    }
}

/// `PUT /v1/users/{id}/preferences`
async fn prefer(mut request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    let change: PreferencesChange = request.parse_one().await?;
    let user = request.app.users().change_preferences(&id, change).await?;
    Ok(view(&request, existing(user, &id)?))
}

/// `GET /v1/users/{id}/preferences`
async fn preferences(request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    let user = existing(request.app.users().user(&id).await?, &id)?;
    let (default, policies) = (&request.app.config.digest.schedule, &request.app.config.policies);
    Ok(HttpResponse::Ok().json(PreferencesView::from_user(&user, default, policies)))
}

/// `GET /v1/users/{id}/follows`
async fn follows(request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    let after: Option<FollowKey> = request.parameter("after")?;
    let limit = request.page_limit(100, 1_000)?;
    let follows = request.app.users().follows(&id, after.as_ref(), limit).await?;
    let next = follows.last().filter(|_| follows.len() == limit).cloned();
    Ok(HttpResponse::Ok().json(FollowPage { follows, next }))
}

/// Returns the follow that the path names.
fn path_follow(request: &ApiRequest) -> Result<Vec<FollowInput>, Problem> {
    let (user, key) = (request.segment("id")?, request.segment("key")?);
    Ok(vec![FollowInput { user, key }])
}

/// `PUT /v1/users/{id}/follows/{key}`
async fn follow(request: ApiRequest) -> ApiResult {
    request.app.users().follow(path_follow(&request)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `DELETE /v1/users/{id}/follows/{key}`
async fn unfollow(request: ApiRequest) -> ApiResult {
    request.app.users().unfollow(path_follow(&request)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/follows`
async fn follow_many(mut request: ApiRequest) -> ApiResult {
    let follows: Vec<FollowInput> = request.parse_many("follows").await?;
    let accepted = follows.len();
    request.app.users().follow(follows).await?;
    Ok(HttpResponse::Ok().json(AcceptedCount { accepted }))
}

/// `GET /v1/users/{id}/mutes`
async fn mutes(request: ApiRequest) -> ApiResult {
    let id: UserId = request.segment("id")?;
    let user = existing(request.app.users().user(&id).await?, &id)?;
    let now = request.app.context.clock.now();
    Ok(HttpResponse::Ok().json(MutesView::from_mutes(&user.mutes, now)))
}

/// `PUT /v1/users/{id}/mutes/{subject}`
async fn mute(mut request: ApiRequest) -> ApiResult {
    let (id, subject): (UserId, Subject) = (request.segment("id")?, request.segment("subject")?);
    let mute: MuteInput = request.parse_one_or_default().await?;
    let user = request.app.users().mute(&id, &subject, mute).await?;
    existing(user, &id)?;
    Ok(HttpResponse::NoContent().finish())
}

/// `DELETE /v1/users/{id}/mutes/{subject}`
async fn unmute(request: ApiRequest) -> ApiResult {
    let (id, subject): (UserId, Subject) = (request.segment("id")?, request.segment("subject")?);
    let user = request.app.users().unmute(&id, &subject).await?;
    existing(user, &id)?;
    Ok(HttpResponse::NoContent().finish())
}
