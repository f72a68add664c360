//! `GET /u/{token}/preferences` shows a user's choices; `POST` saves them and shows the result.
//!
//! `?unfollow=KEY` redirects to the page that confirms an unfollow: emails with one body for many
//! users link to it. A form is applied whole or not at all (P7, P10). Types that left the page
//! meanwhile are ignored, and fields that the form lacks stay unchanged. An unmute has a form.
//! [`crate::engine::users::service`] defines the effect of a choice on earlier events.

use std::collections::HashMap;
use std::str::FromStr;

use actix_web::http::StatusCode;
use actix_web::web::{Data, Path, Payload};
use actix_web::{HttpRequest, HttpResponse};

use super::page_request::{FormFields, PageFailure, PageRequest, redirect, shortened};
use crate::app::App;
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::{
    EventType, FollowKey, InvalidValue, Object, ObjectKey, QuietHours, StopAction, Subject, User,
};
use crate::engine::access::links::Link;
use crate::engine::digest::due_scan::next_digest;
use crate::engine::json_fields::JsonObject;
use crate::engine::users::input::{Change, PreferencesChange, TypeChange};
use crate::render::WebPage;
use crate::render::pages::{Notice, PageUser, PreferencesPage, TYPE_FIELD, UNFOLLOW, UNMUTE_FIELD};

/// The fields of the quiet hours.
const QUIET_FROM: &str = "quiet-from";
const QUIET_TO: &str = "quiet-to";

/// `GET /u/{token}/preferences`
pub(super) async fn show(req: HttpRequest, token: Path<String>, app: Data<App>) -> HttpResponse {
    let mut page_request = PageRequest::new(&req, app);
    let mut query = form_urlencoded::parse(req.query_string().as_bytes());
    let unfollow = query.find(|(name, _)| name == UNFOLLOW);
    let response = async {
        let (link, user) = page_request.open(&token).await?;
        let user = user.ok_or(Notice::UnknownUser)?;
        match unfollow {
            Some((_, key)) => unfollow_page(&page_request, &link, FollowKey::stored(key)).await,
            None => page(&page_request, &link, user, false).await,
        }
    }
    .await;
    response.unwrap_or_else(|failure| page_request.failure(failure))
}

/// Redirects to the page that ends this follow, if there is one.
async fn unfollow_page(
    page_request: &PageRequest,
    link: &Link,
    key: FollowKey,
) -> Result<HttpResponse, PageFailure> {
    let app = &page_request.app;
    if !app.users().is_following(&link.user, &key).await? {
        return Err(Notice::NotFollowed.into());
    }
    let link = Link {
        stop: StopAction::Follow(key),
        address: None,
        issued_at: app.context.clock.now(),
        ..link.clone()
    };
    let token = app.identities.default.links.seal(&link).await?;
    Ok(redirect(&format!("../{token}")))
}

/// `POST /u/{token}/preferences`
pub(super) async fn save(
    req: HttpRequest,
    token: Path<String>,
    payload: Payload,
    app: Data<App>,
) -> HttpResponse {
    let mut page_request = PageRequest::new(&req, app);
    let response = async {
        let (link, user) = page_request.open(&token).await?;
        user.ok_or(Notice::UnknownUser)?;
        let (people, policies) = (page_request.app.users(), &page_request.app.config.policies);
        let form = FormFields::read(&req, payload).await?;
        let user = match unmuted_subject(&form)? {
            Some(subject) => people.unmute(&link.user, &subject).await?,
            None => {
                let change = preferences_change(&form, |kind| policies.is_configured(kind))?;
                people.change_preferences(&link.user, change).await?
            }
        };
        page(&page_request, &link, user.ok_or(Notice::UnknownUser)?, true).await
    }
    .await;
    response.unwrap_or_else(|failure| page_request.failure(failure))
}

/// Renders the page.
async fn page(
    page_request: &PageRequest,
    link: &Link,
    mut user: User,
    saved: bool,
) -> Result<HttpResponse, PageFailure> {
    let app = &page_request.app;
    user.mutes.remove_ended(app.context.clock.now());
    name_muted(app, &mut user).await;
    // Unsubscribes from everything, independent of the opened link.
    let all = Link { stop: StopAction::All, ..link.clone() };
    let page = WebPage::Preferences(PreferencesPage {
        page_user: PageUser::new(&user, &app.config.digest.schedule, &app.config.policies),
        token: &app.identities.default.links.seal(&all).await?,
        is_saved: saved,
        next_digest: next_digest(&app.context, &user).await?,
    });
    Ok(page_request.page(StatusCode::OK, &page))
}

/// Names mutes without a title by their objects' titles. If the objects cannot be read, the page
/// shows the subjects instead.
async fn name_muted(app: &App, user: &mut User) {
    let unnamed = user.mutes.iter().filter(|(_, mute)| mute.title.is_none());
    let keys: Vec<ObjectKey> =
        unnamed.map(|(subject, _)| ObjectKey::stored(subject.as_str())).collect();
    if keys.is_empty() {
        return;
    }
    let objects = match app.objects().get_many(&keys).await {
        Ok(objects) => objects,
        Err(error) => {
            return tracing::warn!(%error, "a page cannot show the titles of muted subjects");
        }
    };
    let title = |(key, object): (&ObjectKey, Option<Object>)| {
        let title = Title::cut(object?.title.as_deref()?)?;
        Some((Subject::stored(key.as_str()), title))
    };
    let titles: HashMap<Subject, Title> = keys.iter().zip(objects).filter_map(title).collect();
    user.mutes.fill_titles(|subject| titles.get(subject).cloned());
}

/// Returns the subject to unmute, if this is an unmute form.
fn unmuted_subject(form: &FormFields) -> Result<Option<Subject>, PageFailure> {
    let Some(subject) = form.get(UNMUTE_FIELD) else {
        return Ok(None);
    };
    if form.pairs().count() > 1 {
        let why = "The form unmutes something and contains other choices as well.";
        return Err(PageFailure::form(why));
    }
    Ok(Some(Subject::new(subject)?))
}

/// Returns the changes of a form. It ignores types that the page does not offer: they may have been
/// offered earlier, and accepting any name could fill a record. Their names are not validated, as
/// older writers did not validate theirs.
fn preferences_change(
    form: &FormFields,
    is_offered: impl Fn(&EventType) -> bool,
) -> Result<PreferencesChange, PageFailure> {
    let mut change = PreferencesChange { quiet: quiet(form)?, ..PreferencesChange::default() };
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
                        "The form contains {:?}, which is not a field of this page.",
                        shortened(name)
                    );
                    return Err(PageFailure::form(&why));
                };
                if !is_offered(&kind) {
                    continue;
                }
                // The page has no field for the window.
                let choice = TypeChange { route: value.parse()?, window: None };
                types.insert(kind, Some(JsonObject(choice)));
            }
        }
    }
    Ok(change)
}

/// Parses the quiet hours of a form. Both times are set, or both are empty.
fn quiet(form: &FormFields) -> Result<Change<QuietHours>, PageFailure> {
    Ok(match (form.get(QUIET_FROM), form.get(QUIET_TO)) {
        (None, None) => None,
        (Some(""), Some("")) => Some(None),
        (None | Some(""), _) | (_, None | Some("")) => {
            return Err(Notice::IncompleteQuietHours.into());
        }
        (Some(from), Some(to)) => Some(Some(QuietHours::new(from.parse()?, to.parse()?)?)),
    })
}

fn parse<T: FromStr>(what: &'static str, value: &str) -> Result<T, InvalidValue> {
    value.parse().map_err(|_| InvalidValue::new(what, value, "is not known"))
}
