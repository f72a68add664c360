//! `GET /u/{token}` asks, `POST /u/{token}` ends what the link ends: the page behind the link of a
//! mail, and the one click of RFC 8058.
//!
//! The rule (P7): asking changes nothing; one POST ends what the mail was about and nothing else,
//! and a second one finds that it is so. Mails that are on their way out are stopped by
//! [`crate::services::mailing`], which asks once more. What became mandatory since the mail left
//! cannot be ended, and the page says why.

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, Payload};
use chrono::TimeDelta;

use super::answer::{Failure, failure, page};
use super::asked::Asked;
use super::form::{Form, Unreadable};
use crate::app::App;
use crate::domain::{FollowKey, ObjectKey, Policies, Stop, User};
use crate::render::Page;
use crate::render::pages::{Stopping, Tokens};
use crate::services::links::{Opened, Refused};
use crate::services::people::FollowInput;

/// Whose link this is, and what it ends.
pub(super) async fn opened(app: &App, token: &str) -> Result<Opened, Failure> {
    let opened = app.links().open(token, app.clock.now()).await?;
    opened.map_err(Failure::Link)
}

/// The tokens of the mail that a link is of.
pub(super) async fn tokens(app: &App, own: &str, opened: &Opened) -> Result<Tokens, Failure> {
    let links = app.links();
    Ok(Tokens {
        own: own.to_owned(),
        digest: links.instead(opened, &Stop::Digest).await?,
        all: links.instead(opened, &Stop::All).await?,
    })
}

/// What of it can be ended; why nothing, where all of it is mandatory by now.
fn optional(stop: &Stop, policies: &Policies) -> Result<Stop, Failure> {
    let Stop::Types(kinds) = stop else {
        return Ok(stop.clone());
    };
    let mandate = |kind| policies.of(kind).mandatory.as_ref();
    let optional = kinds.iter().filter(|kind| mandate(kind).is_none());
    let locked = kinds.iter().find_map(|kind| Some((kind, mandate(kind)?)));
    match (Stop::of_types(optional), locked) {
        (Stop::Types(left), Some((kind, why))) if left.is_empty() => {
            Err(Failure::Mandatory(kind.clone(), why.clone()))
        }
        (stop, _) => Ok(stop),
    }
}

/// A follow that a page ended can be undone for so long: later the application may have taken it
/// away.
const UNDO: TimeDelta = TimeDelta::hours(1);

/// What a page is about.
struct Found {
    stop: Stop,
    tokens: Tokens,
    user: User,
    /// Their record before it was ended, if that was just now.
    before: Option<User>,
    /// Whether they follow what the link ends, where it ends a follow.
    follows: bool,
    /// What that is called.
    name: Option<String>,
    /// Whether what was ended has just been undone.
    again: bool,
}

impl Found {
    /// What stands now of a person and what a link of theirs ends.
    async fn now(app: &App, token: &str, opened: &Opened, user: User) -> Result<Self, Failure> {
        let stop = optional(&opened.stop, &app.config.policies)?;
        let (follows, name) = match &stop {
            Stop::Follow(key) => {
                let follows = app.people().is_following(&opened.user, key).await?;
                (follows, Some(called(app, key).await?))
            }
            _ => (false, None),
        };
        Ok(Self {
            tokens: tokens(app, token, opened).await?,
            user,
            before: None,
            stop,
            follows,
            name,
            again: false,
        })
    }
}

/// What people know something by that they follow; its key, where nothing is known of it.
async fn called(app: &App, key: &FollowKey) -> Result<String, Failure> {
    let object = app.objects().get(&ObjectKey::stored(key.as_str())).await?;
    let title = object.and_then(|object| object.title);
    let title = title.filter(|title| !title.trim().is_empty());
    Ok(title.unwrap_or_else(|| key.to_string()))
}

/// `GET /u/{token}`
pub(super) async fn ask(req: HttpRequest, token: Path<String>, app: Data<App>) -> HttpResponse {
    let mut asked = Asked::of(&req, &app);
    let found = async {
        let opened = opened(&app, &token).await?;
        asked.from(&opened);
        let user = app.people().get(&opened.user).await?;
        user.iter().for_each(|user| asked.by(user, &app));
        Found::now(&app, &token, &opened, user.ok_or(Failure::Gone)?).await
    };
    let found = found.await;
    match found {
        Ok(found) => shown(&app, &asked, &found),
        Err(why) => failure(&app, &asked, why),
    }
}

/// `POST /u/{token}`
pub(super) async fn act(
    req: HttpRequest,
    token: Path<String>,
    payload: Payload,
    app: Data<App>,
) -> HttpResponse {
    let mut asked = Asked::of(&req, &app);
    let done = async {
        let opened = opened(&app, &token).await?;
        asked.from(&opened);
        let people = app.people();
        // What can be undone; another change at this moment is kept by what follows.
        let before = people.get(&opened.user).await?;
        before.iter().for_each(|user| asked.by(user, &app));
        let form = Form::read(&req, payload).await?;
        if form.get("List-Unsubscribe") != Some("One-Click") {
            let why = "The form does not say List-Unsubscribe=One-Click; please use the button on the page.";
            return Err(Unreadable::bad(why).into());
        }
        if before.is_none() {
            return Err(Failure::Gone);
        }
        let again = match &opened.stop {
            Stop::Follow(key) => Some(key).filter(|_| form.get("follow") == Some("again")),
            _ => None,
        };
        if again.is_some() && app.clock.now() - opened.issued > UNDO {
            return Err(Failure::Link(Refused::Expired));
        }
        let user = match again {
            // The link says that they followed it when it was made, a moment ago.
            Some(key) => {
                let follow = FollowInput {
                    user: opened.user.clone(),
                    key: key.clone(),
                };
                people.follow(vec![follow]).await?;
                people.get(&opened.user).await?
            }
            None => {
                let stop = optional(&opened.stop, &app.config.policies)?;
                people.stop(&opened.user, &stop).await?
            }
        };
        let found = Found::now(&app, &token, &opened, user.ok_or(Failure::Gone)?).await?;
        Ok(Found {
            before,
            again: again.is_some(),
            ..found
        })
    };
    let done = done.await;
    match done {
        Ok(found) => shown(&app, &asked, &found),
        // Whoever is unknown gets no mails: the wish is granted.
        Err(Failure::Gone) => {
            let mut response = failure(&app, &asked, Failure::Gone);
            *response.status_mut() = StatusCode::OK;
            response
        }
        Err(why) => failure(&app, &asked, why),
    }
}

fn shown(app: &App, asked: &Asked, found: &Found) -> HttpResponse {
    let (default, policies) = (&app.config.digest.schedule, &app.config.policies);
    let stopping = Stopping {
        user: &found.user,
        stop: &found.stop,
        tokens: &found.tokens,
        default,
        policies,
        name: found.name.as_deref(),
        again: found.again,
    };
    let shown = if found
        .stop
        .holds(&found.user, found.follows, default, policies)
    {
        let before = found.before.as_ref();
        Page::Stopped { stopping, before }
    } else {
        Page::Stop(stopping)
    };
    page(app, asked, StatusCode::OK, &shown)
}
