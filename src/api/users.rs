//! People, what they chose, and what they follow.
//!
//! The rule (P8): a record is shown with its address masked. What replacing a record means is
//! [`crate::services::people`]'s to say.

use std::collections::BTreeMap;

use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use serde::Serialize;

use super::body;
use super::problem::{Code, Problem};
use super::taken;
use super::uri::{NoQuery, segment};
use crate::app::App;
use crate::domain::{Cadence, EventType, Point, Route, User, UserId, duration};
use crate::services::people::{FollowInput, PreferencesInput, UserInput};

#[derive(Serialize)]
struct UserView {
    id: UserId,
    /// Masked.
    email: Option<String>,
    name: Option<String>,
    confirmed: bool,
    tz: Option<chrono_tz::Tz>,
    locale: Option<String>,
    loc: Option<Point>,
    digest: DigestView,
    types: BTreeMap<EventType, TypeView>,
    suppressed: bool,
    unsubscribed: bool,
}

#[derive(Serialize)]
struct DigestView {
    cadence: Option<Cadence>,
    weekday: Option<String>,
    hour: Option<u8>,
}

#[derive(Serialize)]
struct TypeView {
    route: Route,
    window: Option<String>,
}

impl From<User> for UserView {
    fn from(user: User) -> Self {
        let types = user.types.into_iter();
        Self {
            id: user.id,
            email: user.email.map(|address| address.to_string()),
            name: user.name,
            confirmed: user.confirmed,
            tz: user.tz,
            locale: user.locale,
            loc: user.loc,
            digest: DigestView {
                cadence: user.digest.cadence,
                weekday: user
                    .digest
                    .weekday
                    .map(|day| day.to_string().to_lowercase()),
                hour: user.digest.hour,
            },
            types: types
                .map(|(kind, chosen)| {
                    let (route, window) = (chosen.route, chosen.window.map(duration::show));
                    (kind, TypeView { route, window })
                })
                .collect(),
            suppressed: user.suppressed.is_some(),
            unsubscribed: user.unsubscribed.is_some(),
        }
    }
}

fn unknown(id: &UserId) -> Problem {
    Problem::new(
        Code::UnknownUser,
        format!("there is no record of user {id:?}"),
    )
}

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
    Ok(HttpResponse::Ok().json(UserView::from(user)))
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
    let change: PreferencesInput = body::aside(body, body::one).await?;
    let user = app.people().prefer(&id, change).await?;
    let user = user.ok_or_else(|| unknown(&id))?;
    Ok(HttpResponse::Ok().json(UserView::from(user)))
}

/// What a user can choose, and what holds.
#[derive(Serialize)]
struct PreferencesView {
    digest: ScheduleView,
    tz: chrono_tz::Tz,
    types: BTreeMap<EventType, ChoiceView>,
}

#[derive(Serialize)]
struct ScheduleView {
    cadence: Cadence,
    weekday: String,
    hour: u8,
}

#[derive(Serialize)]
struct ChoiceView {
    /// How it is called on the page.
    heading: String,
    route: Route,
    /// Of their own.
    window: Option<String>,
    /// Whether they chose it, or it is what the configuration says.
    chosen: bool,
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
    let seen = app.feeds().types(&id).await?;
    let policies = &app.config.policies;
    let schedule = user.schedule(&app.config.digest.schedule);
    let choice = |kind: &EventType| {
        let chosen = user.types.get(kind);
        let view = ChoiceView {
            heading: policies.heading(kind).to_owned(),
            route: chosen.map_or(policies.of(kind).route, |chosen| chosen.route),
            window: chosen.and_then(|chosen| chosen.window).map(duration::show),
            chosen: chosen.is_some(),
        };
        (kind.clone(), view)
    };
    Ok(HttpResponse::Ok().json(PreferencesView {
        digest: ScheduleView {
            cadence: schedule.cadence,
            weekday: schedule.weekday.to_string().to_lowercase(),
            hour: schedule.hour,
        },
        tz: schedule.tz,
        types: policies
            .offered(user.types.keys(), &seen)
            .into_iter()
            .map(choice)
            .collect(),
    }))
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
