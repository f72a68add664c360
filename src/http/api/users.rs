//! Users' records, preferences, follows and mutes.
//!
//! Responses mask addresses (P8). [`crate::engine::users::records`] decides what a change does.
//! A muted subject may be any name: its object may be unknown, because the application can create
//! it later. [`crate::domain::Mutes`] documents the effect of a mute.

use actix_web::HttpResponse;

use super::problem::{ApiResult, Problem};
use super::request::{Call, of_record};
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

fn view(call: &Call, user: User) -> HttpResponse {
    HttpResponse::Ok().json(UserView::of(user, &call.app.config.policies))
}

/// `PUT /v1/users/{id}`
async fn put(mut call: Call) -> ApiResult {
    let id: UserId = call.segment("id")?;
    let mut user: UserInput = call.one().await?;
    if let Some(other) = user.id.replace(id.clone()).filter(|other| *other != id) {
        return Err(Problem::body(format!(
            "id {other:?} is not the user of the path, {id:?}; leave it out"
        )));
    }
    call.app.people().put(vec![user]).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/users`
async fn post(mut call: Call) -> ApiResult {
    let users: Vec<UserInput> = call.many("users").await?;
    for (index, user) in users.iter().enumerate() {
        user.check().map_err(|why| of_record("users", index, why))?;
    }
    let accepted = users.len();
    call.app.people().put(users).await?;
    Ok(HttpResponse::Ok().json(AcceptedCount { accepted }))
}

/// `GET /v1/users/{id}`
async fn get(call: Call) -> ApiResult {
    let id: UserId = call.segment("id")?;
    let user = call.app.people().get(&id).await?;
    Ok(view(&call, existing(user, &id)?))
}

/// `PATCH /v1/users/{id}`
async fn patch(mut call: Call) -> ApiResult {
    let id: UserId = call.segment("id")?;
    let patch: UserInput = call.one().await?;
    let user = call.app.people().patch(&id, patch).await?;
    Ok(view(&call, existing(user, &id)?))
}

/// `GET /v1/users`
async fn page(call: Call) -> ApiResult {
    let after: Option<UserId> = call.parameter("after")?;
    let limit = call.page_limit(100, 1_000)?;
    let (users, next) = call.app.people().page(after.as_ref(), limit).await?;
    let users = users.into_iter();
    let view = |user| UserView::of(user, &call.app.config.policies);
    let users = users.map(view).collect();
    Ok(HttpResponse::Ok().json(UserPage { users, next }))
}

/// `DELETE /v1/users/{id}`
async fn delete(call: Call) -> ApiResult {
    let id: UserId = call.segment("id")?;
    match call.app.people().erase(&id).await? {
        true => Ok(HttpResponse::NoContent().finish()),
        false => Err(Problem::unknown_user(&id)),
    }
}

/// `PUT /v1/users/{id}/preferences`
async fn prefer(mut call: Call) -> ApiResult {
    let id: UserId = call.segment("id")?;
    let change: PreferencesChange = call.one().await?;
    let user = call.app.people().prefer(&id, change).await?;
    Ok(view(&call, existing(user, &id)?))
}

/// `GET /v1/users/{id}/preferences`
async fn preferences(call: Call) -> ApiResult {
    let id: UserId = call.segment("id")?;
    let user = existing(call.app.people().get(&id).await?, &id)?;
    let (default, policies) = (&call.app.config.digest.schedule, &call.app.config.policies);
    Ok(HttpResponse::Ok().json(PreferencesView::of(&user, default, policies)))
}

/// `GET /v1/users/{id}/follows`
async fn follows(call: Call) -> ApiResult {
    let id: UserId = call.segment("id")?;
    let after: Option<FollowKey> = call.parameter("after")?;
    let limit = call.page_limit(100, 1_000)?;
    let people = call.app.people();
    let follows = people.follows(&id, after.as_ref(), limit).await?;
    let next = follows.last().filter(|_| follows.len() == limit).cloned();
    Ok(HttpResponse::Ok().json(FollowPage { follows, next }))
}

fn follow_of(call: &Call) -> Result<Vec<FollowInput>, Problem> {
    let (user, key) = (call.segment("id")?, call.segment("key")?);
    Ok(vec![FollowInput { user, key }])
}

/// `PUT /v1/users/{id}/follows/{key}`
async fn follow(call: Call) -> ApiResult {
    call.app.people().follow(follow_of(&call)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `DELETE /v1/users/{id}/follows/{key}`
async fn unfollow(call: Call) -> ApiResult {
    call.app.people().unfollow(follow_of(&call)?).await?;
    Ok(HttpResponse::NoContent().finish())
}

/// `POST /v1/follows`
async fn follow_many(mut call: Call) -> ApiResult {
    let follows: Vec<FollowInput> = call.many("follows").await?;
    let accepted = follows.len();
    call.app.people().follow(follows).await?;
    Ok(HttpResponse::Ok().json(AcceptedCount { accepted }))
}

/// `GET /v1/users/{id}/mutes`
async fn mutes(call: Call) -> ApiResult {
    let id: UserId = call.segment("id")?;
    let user = existing(call.app.people().get(&id).await?, &id)?;
    let now = call.app.context.clock.now();
    Ok(HttpResponse::Ok().json(MutesView::of(&user.mutes, now)))
}

/// `PUT /v1/users/{id}/mutes/{subject}`
async fn mute(mut call: Call) -> ApiResult {
    let (id, subject): (UserId, Subject) = (call.segment("id")?, call.segment("subject")?);
    let mute: MuteInput = call.one_if_any().await?;
    let user = call.app.people().mute(&id, &subject, mute).await?;
    existing(user, &id)?;
    Ok(HttpResponse::NoContent().finish())
}

/// `DELETE /v1/users/{id}/mutes/{subject}`
async fn unmute(call: Call) -> ApiResult {
    let (id, subject): (UserId, Subject) = (call.segment("id")?, call.segment("subject")?);
    let user = call.app.people().unmute(&id, &subject).await?;
    existing(user, &id)?;
    Ok(HttpResponse::NoContent().finish())
}
