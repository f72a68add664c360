//! `GET /u/{token}` asks for confirmation; `POST /u/{token}` unsubscribes, also as the one click of
//! RFC 8058.
//!
//! GET changes nothing (P7). One POST ends the scope of the link and nothing else; repeating it has
//! no effect. [`crate::engine::delivery`] checks again before it sends an email. Types that became
//! mandatory cannot be ended, and the page says why.

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::TimeDelta;

use super::form::{Form, Unreadable};
use super::visit::{Failure, Visit};
use crate::app::App;
use crate::domain::{Address, FollowKey, ObjectKey, Policies, Reason, Stop, User};
use crate::engine;
use crate::engine::access::links::{Link, LinkError};
use crate::engine::directory::input::FollowInput;
use crate::engine::feedback::suppressions::SuppressionInput;
use crate::render::Page;
use crate::render::pages::{Others, Stopping, Tokens};

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

/// Returns the address whose other records a link may stop: that of its email, if it is still the
/// user's. Otherwise the reader may not receive email there. Never ends a follow of other records.
fn shared_address<'a>(link: &'a Link, user: &User, stop: &Stop) -> Option<&'a Address> {
    let address = link.address.as_ref()?;
    let own = user.email.as_ref().map(Address::folded);
    let is_theirs = own == Some(address.folded());
    (is_theirs && !matches!(stop, Stop::Follow(_))).then_some(address)
}

/// Stops the same for other records with the address of a link, at most [`RECORDS`]. Returns
/// whether the page may offer this ([`shared_address`]).
async fn stop_others(app: &App, link: &Link, user: &User, stop: &Stop) -> engine::Result<bool> {
    let Some(address) = shared_address(link, user, stop) else {
        return Ok(false);
    };
    let people = app.people();
    for other in people.others_to_stop(user, stop, RECORDS).await? {
        match people.stop_at(&other, Some(address), stop).await {
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
struct Contents {
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
    /// The statement about other records with the address.
    others: Others,
}

impl Contents {
    /// Reads the state of the link's scope. `has_stopped_others` states whether this request
    /// stopped other records with the address.
    async fn load(
        app: &App,
        token: &str,
        link: &Link,
        user: User,
        has_stopped_others: bool,
    ) -> Result<Self, Failure> {
        let stop = optional(&link.stop, &app.config.policies)?;
        let (follows, name) = match &stop {
            Stop::Follow(key) => {
                let follows = app.people().is_following(&link.user, key).await?;
                (follows, Some(title_of(app, key).await?))
            }
            _ => (false, None),
        };
        let (default, policies) = (&app.config.digest.schedule, &app.config.policies);
        let ended = stop.holds(&user, follows, default, policies);
        let others = match shared_address(link, &user, &stop) {
            Some(_) if ended => {
                let left = app.people().others_to_stop(&user, &stop, 1).await;
                let left = left.inspect_err(|error| {
                    tracing::warn!(%error, "other records with an address cannot be looked up");
                });
                match left {
                    Ok(left) if !left.is_empty() => Others::Offered,
                    Ok(_) if has_stopped_others => Others::Ended,
                    _ => Others::Silent,
                }
            }
            _ => Others::Silent,
        };
        let with = |stop| Link {
            stop,
            ..link.clone()
        };
        let links = &app.identities.default.links;
        let tokens = Tokens {
            own: token.to_owned(),
            digest: links.seal(&with(Stop::Digest)).await?,
            all: links.seal(&with(Stop::All)).await?,
        };
        Ok(Self {
            stop,
            tokens,
            user,
            before: None,
            name,
            again: false,
            ended,
            others,
        })
    }
}

/// Returns the title of a followed key, or the key itself.
async fn title_of(app: &App, key: &FollowKey) -> Result<String, Failure> {
    let object = app.objects().get(&ObjectKey::stored(key.as_str())).await?;
    let title = object.and_then(|object| object.title);
    let title = title.filter(|title| !title.trim().is_empty());
    Ok(title.unwrap_or_else(|| key.to_string()))
}

/// `GET /u/{token}`
pub(super) async fn ask(req: HttpRequest, token: Path<String>, app: Data<App>) -> HttpResponse {
    let mut visit = Visit::new(&req, app);
    let contents = async {
        let (link, user) = visit.open(&token).await?;
        let user = user.ok_or(Failure::Gone)?;
        Contents::load(&visit.app, &token, &link, user, false).await
    };
    let contents = contents.await;
    answer(&visit, contents)
}

/// `POST /u/{token}`
pub(super) async fn act(
    req: HttpRequest,
    token: Path<String>,
    payload: Payload,
    app: Data<App>,
) -> HttpResponse {
    let mut visit = Visit::new(&req, app);
    match stop(&mut visit, &req, &token, payload).await {
        // An unknown user gets no emails, so the request succeeds.
        Err(Failure::Gone) => {
            let mut response = visit.failure(Failure::Gone);
            *response.status_mut() = StatusCode::OK;
            response
        }
        contents => answer(&visit, contents),
    }
}

/// Ends the scope of a link, or restores a follow that it has just ended.
async fn stop(
    visit: &mut Visit,
    req: &HttpRequest,
    token: &str,
    payload: Payload,
) -> Result<Contents, Failure> {
    // The page offers to restore this state. The write below keeps concurrent changes.
    let (link, before) = visit.open(token).await?;
    let (app, people) = (&visit.app, visit.app.people());
    let form = Form::read(req, payload).await?;
    if form.get("List-Unsubscribe").map(str::trim_ascii_end) != Some("One-Click") {
        let why =
            "The form does not say List-Unsubscribe=One-Click; please use the button on the page.";
        return Err(Unreadable::bad(why).into());
    }
    if before.is_none() {
        // The reader gets no email at this address any more, also if another record has it.
        if let Some(address) = link.address.clone()
            && !matches!(link.stop, Stop::Subject(..))
        {
            let stop = SuppressionInput {
                source: Some("link".into()),
                ..SuppressionInput::new(address, Reason::Unsubscribe)
            };
            app.suppressions().add(vec![stop]).await?;
        }
        return Err(Failure::Gone);
    }
    let again = match &link.stop {
        Stop::Follow(key) if form.get("follow") == Some("again") => Some(key),
        _ => None,
    };
    if again.is_some() && app.context.clock.now() - link.issued > UNDO {
        return Err(Failure::Link(LinkError::Expired));
    }
    let mut has_stopped_others = false;
    let user = match again {
        // The link was made a moment ago and proves that the user followed the key.
        Some(key) => {
            let (user, key) = (link.user.clone(), key.clone());
            people.follow(vec![FollowInput { user, key }]).await?;
            people.get(&link.user).await?
        }
        None => {
            let stop = optional(&link.stop, &app.config.policies)?;
            let user = people.stop(&link.user, &stop).await?;
            // The button of a page. Email programs send one field only (RFC 8058).
            if let Some(user) = &user
                && form.get("records") == Some("all")
            {
                has_stopped_others = stop_others(app, &link, user, &stop).await?;
            }
            user
        }
    };
    let user = user.ok_or(Failure::Gone)?;
    let contents = Contents::load(app, token, &link, user, has_stopped_others).await?;
    Ok(Contents {
        before,
        again: again.is_some(),
        ..contents
    })
}

fn answer(visit: &Visit, contents: Result<Contents, Failure>) -> HttpResponse {
    let contents = match contents {
        Ok(contents) => contents,
        Err(why) => return visit.failure(why),
    };
    let stopping = Stopping {
        user: &contents.user,
        stop: &contents.stop,
        tokens: &contents.tokens,
        default: &visit.app.config.digest.schedule,
        policies: &visit.app.config.policies,
        name: contents.name.as_deref(),
        again: contents.again,
    };
    let page = match contents.ended {
        true => Page::Stopped {
            stopping,
            before: contents.before.as_ref(),
            others: contents.others,
        },
        false => Page::Stop(stopping),
    };
    visit.page(StatusCode::OK, &page)
}
