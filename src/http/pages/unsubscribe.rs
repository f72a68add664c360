//! `GET /u/{token}` asks for confirmation; `POST /u/{token}` unsubscribes, also as the one click of
//! RFC 8058.
//!
//! GET changes nothing (P7). One POST ends the scope of the link and nothing else; repeating it has
//! no effect. [`crate::engine::delivery`] checks again before it sends an email. Types that became
//! mandatory cannot be ended, and the page says why.

use actix_web::HttpRequest;
use actix_web::HttpResponse;
use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, Payload};
use chrono::TimeDelta;

use super::answer::{Failure, failure, page};
use super::asked::Asked;
use super::form::{Form, Unreadable};
use crate::app::App;
use crate::domain::{Address, FollowKey, ObjectKey, Policies, Reason, Stop, User, UserId};
use crate::engine;
use crate::engine::access::links::{Opened, Refused};
use crate::engine::directory::input::FollowInput;
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::render::Page;
use crate::render::pages::{Others, Stopping, Tokens};

/// Returns the user and the scope of a link.
pub(super) async fn opened(app: &App, token: &str) -> Result<Opened, Failure> {
    let opened = app
        .identities
        .default
        .links
        .open(token, app.context.clock.now())
        .await?;
    opened.map_err(Failure::Link)
}

/// Returns the user of a link. A link from before the start of the record has none.
pub(super) async fn holder(app: &App, opened: &Opened) -> Result<Option<User>, Failure> {
    let user = app.people().get(&opened.user).await?;
    let is_theirs = |user: &User| user.start.is_none_or(|start| !start.rejects(opened.issued));
    Ok(user.filter(is_theirs))
}

/// Returns the page's tokens: the link's own, and tokens that stop digests and all emails.
pub(super) async fn tokens(app: &App, own: &str, opened: &Opened) -> Result<Tokens, Failure> {
    let links = &app.identities.default.links;
    Ok(Tokens {
        own: own.to_owned(),
        digest: links.instead(opened, &Stop::Digest).await?,
        all: links.instead(opened, &Stop::All).await?,
    })
}

/// Returns the part of the scope that can be ended. Fails if all of it is mandatory.
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

/// How long an ended follow can be restored. Later, the application may have removed it.
const UNDO: TimeDelta = TimeDelta::hours(1);

/// The maximum number of other records that one POST stops.
const RECORDS: usize = 20;

/// Returns the other records to stop, at most `limit`. `None` if the link does not name the user's
/// current address: then its reader may not receive email there. Also `None` for a follow.
async fn others(
    app: &App,
    opened: &Opened,
    user: &User,
    stop: &Stop,
    limit: usize,
) -> engine::Result<Option<Vec<UserId>>> {
    let folded = |address: &Option<Address>| address.as_ref().map(Address::folded);
    let is_theirs = opened.address.is_some() && folded(&opened.address) == folded(&user.email);
    if !is_theirs || matches!(stop, Stop::Follow(_)) {
        return Ok(None);
    }
    let people = app.people();
    let others = people.others_to_stop(user, stop, limit).await?;
    Ok(Some(others))
}

/// Stops the same for other records with the address of a link, at most [`RECORDS`]. Returns
/// whether the page may offer this ([`others`]).
async fn stop_others(app: &App, opened: &Opened, user: &User, stop: &Stop) -> engine::Result<bool> {
    let Some(address) = &opened.address else {
        return Ok(false);
    };
    let Some(others) = others(app, opened, user, stop, RECORDS).await? else {
        return Ok(false);
    };
    for other in &others {
        match app.people().stop_at(other, address, stop).await {
            Ok(_) => {}
            // The record has the maximum number of mutes. The page offers to stop it again.
            Err(engine::Error::Invalid(why)) => {
                tracing::warn!(%why, "another record with the address of a link cannot be stopped");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(true)
}

/// The contents of a page.
struct Found {
    stop: Stop,
    tokens: Tokens,
    user: User,
    /// The user's record before this request ended something.
    before: Option<User>,
    /// The name of the followed key.
    name: Option<String>,
    /// Whether this request restored something.
    again: bool,
    /// Whether the scope is ended.
    ended: bool,
    /// Whether this request stopped other records with the address.
    has_stopped_others: bool,
    /// Whether other records are left to stop. `None` if the scope is not ended, or if they cannot
    /// be read.
    others_left: Option<bool>,
}

impl Found {
    /// Reads the user's record and the state of the link's scope.
    async fn now(app: &App, token: &str, opened: &Opened, user: User) -> Result<Self, Failure> {
        let stop = optional(&opened.stop, &app.config.policies)?;
        let (follows, name) = match &stop {
            Stop::Follow(key) => {
                let follows = app.people().is_following(&opened.user, key).await?;
                (follows, Some(called(app, key).await?))
            }
            _ => (false, None),
        };
        let (default, policies) = (&app.config.digest.schedule, &app.config.policies);
        let ended = stop.holds(&user, follows, default, policies);
        let others_left = match ended {
            true => others_left(app, opened, &user, &stop).await,
            false => None,
        };
        Ok(Self {
            tokens: tokens(app, token, opened).await?,
            user,
            before: None,
            stop,
            name,
            again: false,
            ended,
            has_stopped_others: false,
            others_left,
        })
    }

    /// Returns the statement of the page about other records with the address.
    fn others(&self) -> Others {
        match self.others_left {
            Some(true) => Others::Offered,
            Some(false) if self.has_stopped_others => Others::Ended,
            Some(false) | None => Others::Silent,
        }
    }
}

/// Returns whether other records are left to stop. Logs an error and returns `None` if they cannot
/// be read.
async fn others_left(app: &App, opened: &Opened, user: &User, stop: &Stop) -> Option<bool> {
    match others(app, opened, user, stop, 1).await {
        Ok(others) => Some(others.is_some_and(|others| !others.is_empty())),
        Err(error) => {
            tracing::warn!(%error, "other records with an address cannot be looked up");
            None
        }
    }
}

/// Returns the title of a followed key, or the key itself.
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
        let user = holder(&app, &opened).await?;
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
        // The page offers to restore this state. The write below keeps concurrent changes.
        let before = holder(&app, &opened).await?;
        before.iter().for_each(|user| asked.by(user, &app));
        let form = Form::read(&req, payload).await?;
        let asked_for = form.get("List-Unsubscribe").map(str::trim_ascii_end);
        if asked_for != Some("One-Click") {
            let why = "The form does not say List-Unsubscribe=One-Click; please use the button on the page.";
            return Err(Unreadable::bad(why).into());
        }
        if before.is_none() {
            // The reader gets no email at this address any more, also if another record has it.
            if let Some(address) = opened.address.clone()
                && !matches!(opened.stop, Stop::Subject(..))
            {
                let stop = SuppressionInput {
                    source: Some("link".into()),
                    ..SuppressionInput::new(address, Reason::Unsubscribe)
                };
                app.suppressions().add(vec![stop]).await?;
            }
            return Err(Failure::Gone);
        }
        let again = match &opened.stop {
            Stop::Follow(key) => Some(key).filter(|_| form.get("follow") == Some("again")),
            _ => None,
        };
        if again.is_some() && app.context.clock.now() - opened.issued > UNDO {
            return Err(Failure::Link(Refused::Expired));
        }
        // The button of a page. Email programs send one field only (RFC 8058).
        let everywhere = form.get("records") == Some("all");
        let mut has_stopped_others = false;
        let user = match again {
            // The link was made a moment ago and proves that the user followed the key.
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
                let user = people.stop(&opened.user, &stop).await?;
                if let Some(user) = user.as_ref().filter(|_| everywhere) {
                    has_stopped_others = stop_others(&app, &opened, user, &stop).await?;
                }
                user
            }
        };
        let found = Found::now(&app, &token, &opened, user.ok_or(Failure::Gone)?).await?;
        Ok(Found {
            before,
            again: again.is_some(),
            has_stopped_others,
            ..found
        })
    };
    let done = done.await;
    match done {
        Ok(found) => shown(&app, &asked, &found),
        // An unknown user gets no emails, so the request succeeds.
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
    let shown = if found.ended {
        Page::Stopped {
            stopping,
            before: found.before.as_ref(),
            others: found.others(),
        }
    } else {
        Page::Stop(stopping)
    };
    page(app, asked, StatusCode::OK, &shown)
}
