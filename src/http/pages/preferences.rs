//! `GET /u/{token}/preferences` shows a user's choices; `POST` saves them and shows the result.
//!
//! `?unfollow=KEY` redirects to the page that confirms an unfollow: emails with one body for many
//! users link to it. A form is applied whole or not at all (P7, P10). Types that left the page
//! meanwhile are ignored, and fields that the form lacks stay unchanged. An unmute has a form.
//! [`crate::engine::directory::people`] defines the effect of a choice on earlier events.

use std::collections::HashMap;
use std::str::FromStr;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse};
use chrono::{DateTime, Utc};

use super::answer::{Failure, elsewhere, failure, page};
use super::asked::Asked;
use super::form::{Form, Unreadable, short};
use super::link_path::LinkPath;
use super::unsubscribe::{holder, opened};
use crate::app::App;
use crate::domain::preferences::Title;
use crate::domain::{EventType, FollowKey, Invalid, ObjectKey, Quiet, Stop, Subject, User};
use crate::engine::access::links::Opened;
use crate::engine::directory::input::{Change, PreferencesChange, TypeChange};
use crate::render::Page;
use crate::render::pages::{TYPE_FIELD, UNFOLLOW, UNMUTE_FIELD};

/// The fields of the quiet hours.
const QUIET_FROM: &str = "quiet-from";
const QUIET_TO: &str = "quiet-to";

/// `GET /u/{token}/preferences`
pub(super) async fn show(req: HttpRequest, link: Path<LinkPath>, app: Data<App>) -> HttpResponse {
    let mut asked = Asked::of(&req, &app);
    let mut query = form_urlencoded::parse(req.query_string().as_bytes());
    let unfollow = query.find(|(name, _)| name == UNFOLLOW);
    let found = async {
        let opened = opened(&app, &link.token).await?;
        asked.from(&opened);
        let user = holder(&app, &opened).await?.ok_or(Failure::Gone)?;
        asked.by(&user, &app);
        if let Some((_, key)) = unfollow {
            return unfollowing(&app, &opened, FollowKey::stored(key))
                .await
                .map(Err);
        }
        shown(&app, &opened, user).await.map(Ok)
    };
    match found.await {
        Ok(Ok(found)) => answer(&app, &asked, Ok(found), false),
        Ok(Err(token)) => elsewhere(&format!("../{token}")),
        Err(why) => failure(&app, &asked, why),
    }
}

/// Returns the token of a link that ends this follow. The follow must exist: otherwise, undoing the
/// link would create it.
async fn unfollowing(app: &App, opened: &Opened, key: FollowKey) -> Result<String, Failure> {
    if !app.people().is_following(&opened.user, &key).await? {
        return Err(Failure::NotFollowed);
    }
    let (stop, now) = (Stop::Follow(key), app.context.clock.now());
    Ok(app.identities.default.links.now(opened, &stop, now).await?)
}

/// `POST /u/{token}/preferences`
pub(super) async fn save(
    req: HttpRequest,
    link: Path<LinkPath>,
    payload: Payload,
    app: Data<App>,
) -> HttpResponse {
    let mut asked = Asked::of(&req, &app);
    let saved = async {
        let opened = opened(&app, &link.token).await?;
        asked.from(&opened);
        let (id, people) = (&opened.user, app.people());
        let user = holder(&app, &opened).await?.ok_or(Failure::Gone)?;
        asked.by(&user, &app);
        let form = Form::read(&req, payload).await?;
        if let Some(subject) = unmuted(&form)? {
            let user = people.unmute(id, &subject).await?.ok_or(Failure::Gone)?;
            return shown(&app, &opened, user).await;
        }
        let policies = &app.config.policies;
        let change = change(&form, |kind| policies.is_configured(kind))?;
        let user = people.prefer(id, change).await?.ok_or(Failure::Gone)?;
        shown(&app, &opened, user).await
    };
    let saved = saved.await;
    answer(&app, &asked, saved, true)
}

/// The contents of the page.
struct Shown {
    user: User,
    /// When the next digest is due.
    next: Option<DateTime<Utc>>,
    /// The token that unsubscribes from everything, independent of the opened link.
    token: String,
}

async fn shown(app: &App, opened: &Opened, mut user: User) -> Result<Shown, Failure> {
    user.mutes.forget(app.context.clock.now());
    name_muted(app, &mut user).await;
    Ok(Shown {
        next: app.next_digest().of(&user).await?,
        token: app
            .identities
            .default
            .links
            .instead(opened, &Stop::All)
            .await?,
        user,
    })
}

/// Names mutes without a title by their objects' titles. If the objects cannot be read, the page
/// shows the subjects instead.
async fn name_muted(app: &App, user: &mut User) {
    let unnamed = user.mutes.all().filter(|(_, mute)| mute.title.is_none());
    let unnamed = unnamed.map(|(subject, _)| ObjectKey::stored(subject.as_str()));
    let unnamed: Vec<ObjectKey> = unnamed.collect();
    if unnamed.is_empty() {
        return;
    }
    let found = match app.objects().many(&unnamed).await {
        Ok(found) => found,
        Err(error) => return tracing::warn!(%error, "what is muted cannot be named on a page"),
    };
    let titles = unnamed.iter().zip(found).filter_map(|(key, object)| {
        let title = Title::cut(object?.title.as_deref()?)?;
        Some((Subject::stored(key.as_str()), title))
    });
    let titles: HashMap<Subject, Title> = titles.collect();
    user.mutes.name(|subject| titles.get(subject).cloned());
}

/// Returns the subject to unmute, if this is an unmute form.
fn unmuted(form: &Form) -> Result<Option<Subject>, Failure> {
    let Some(subject) = form.get(UNMUTE_FIELD) else {
        return Ok(None);
    };
    if form.pairs().count() > 1 {
        let why = "The form unmutes something and holds other choices as well.";
        return Err(Unreadable::bad(why).into());
    }
    Ok(Some(Subject::new(subject)?))
}

fn answer(app: &App, asked: &Asked, found: Result<Shown, Failure>, saved: bool) -> HttpResponse {
    match found {
        Ok(Shown { user, next, token }) => {
            let shown = Page::Preferences {
                user: &user,
                token: &token,
                default: &app.config.digest.schedule,
                policies: &app.config.policies,
                saved,
                next,
            };
            page(app, asked, StatusCode::OK, &shown)
        }
        Err(why) => failure(app, asked, why),
    }
}

/// Returns the changes of a form. It ignores types that the page does not offer: they may have been
/// offered earlier, and accepting any name could fill a record. Their names are not validated, as
/// older writers did not validate theirs.
fn change(form: &Form, offered: impl Fn(&EventType) -> bool) -> Result<PreferencesChange, Failure> {
    let mut change = PreferencesChange {
        quiet: quiet(form)?,
        ..PreferencesChange::default()
    };
    let digest = change.digest.get_or_insert_default();
    let types = change.types.get_or_insert_default();
    for (name, value) in form.pairs() {
        match name {
            "cadence" => digest.cadence = Some(Some(value.parse()?)),
            "weekday" => digest.weekday = Some(Some(parse("weekday", value)?)),
            "hour" => digest.hour = Some(Some(parse("hour", value)?)),
            QUIET_FROM | QUIET_TO => {}
            "tz" => change.tz = Some(Some(parse("time zone", value)?)),
            _ => {
                let Some(kind) = name.strip_prefix(TYPE_FIELD).map(EventType::stored) else {
                    let why = format!(
                        "The form holds {:?}, which is nothing to choose.",
                        short(name)
                    );
                    return Err(Unreadable::bad(why).into());
                };
                if !offered(&kind) {
                    continue;
                }
                let chosen = TypeChange {
                    route: value.parse()?,
                    // The page has no field for it.
                    window: None,
                };
                types.insert(kind, Some(chosen));
            }
        }
    }
    Ok(change)
}

/// Parses the quiet hours of a form. Both times are set, or both are empty.
fn quiet(form: &Form) -> Result<Change<Quiet>, Failure> {
    Ok(match (form.get(QUIET_FROM), form.get(QUIET_TO)) {
        (None, None) => None,
        (Some(""), Some("")) => Some(None),
        (None | Some(""), _) | (_, None | Some("")) => return Err(Failure::QuietHours),
        (Some(from), Some(to)) => Some(Some(Quiet::new(from.parse()?, to.parse()?)?)),
    })
}

fn parse<T: FromStr>(what: &'static str, value: &str) -> Result<T, Invalid> {
    value
        .parse()
        .map_err(|_| Invalid::new(what, value, "is not known"))
}
