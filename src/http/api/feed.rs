//! A user's feed for polling clients, and the marks that users set on its items.
//!
//! An unchanged poll gets an empty 304, without a read of the store if the feed cache knows the
//! page ([`crate::engine::feed::polls`]). The entity tag is a hash of the page, so a withdrawn or
//! renamed object changes it too.

use std::str::FromStr;
use std::time::Instant;

use actix_web::http::header::{self, ContentEncoding, EntityTag, Header, IfNoneMatch};
use actix_web::web::{Data, Payload};
use actix_web::{HttpMessage, HttpRequest, HttpResponse, HttpResponseBuilder};
use sha2::{Digest, Sha256};

use super::body;
use super::caller::Caller;
use super::gzip;
use super::problem::Problem;
use super::uri::{NoQuery, Query, refuse, segment};
use crate::app::App;
use crate::domain::feed::Kinds;
use crate::domain::group::PageEnd;
use crate::domain::{Invalid, UserId, feed};
use crate::engine::Error;
use crate::engine::feed::polls::Tag;
use crate::engine::feed::{Answer, MarksInput, Request};
use crate::metrics::FeedAnswer;

/// The default number of items on a page.
const LIMIT: u32 = 20;

/// `GET /v1/users/{id}/feed`
pub(super) async fn page(req: HttpRequest, app: Data<App>) -> Result<HttpResponse, Problem> {
    let user: UserId = segment(&req, "id")?;
    let query = Query::of(&req, &PARAMETERS)?;
    polled(&req, &app, &user, async {
        let (grouped, request) = (query.get("group")?, asked(&req, &user, &query, &app)?);
        let feeds = app.feeds();
        let page = match grouped {
            None => feeds
                .page(&request)
                .await
                .map(|page| page.map(|page| serde_json::to_vec(&page))),
            Some(GroupBy::About) => feeds.groups(&request).await.map(|page| {
                page.map(|mut page| {
                    for group in &mut page.groups {
                        let base = app.config.server.public_path();
                        group.items_url.insert_str(0, base);
                    }
                    serde_json::to_vec(&page)
                })
            }),
        };
        page.map_err(|error| match error {
            Error::Invalid(invalid) => refuse(invalid.what, &invalid),
            other => other.into(),
        })
    })
    .await
}

const PARAMETERS: [&str; 10] = [
    "after", "before", "limit", "type", "category", "state", "days", "day", "about", "group",
];

fn asked(req: &HttpRequest, user: &UserId, query: &Query, app: &App) -> Result<Request, Problem> {
    let end: Option<PageEnd> = query.get("before")?;
    let category = query.get("category")?;
    Ok(Request {
        user: user.clone(),
        query: feed::Query {
            after: query.get("after")?,
            before: end.as_ref().map(|end| end.place),
            stood: end.and_then(|end| end.cursor),
            kinds: Kinds::of(query.get("type")?, category.as_ref(), &app.config.policies),
            day: query.get("day")?,
            about: query.text("about").map(str::to_owned),
            state: query.get("state")?.unwrap_or_default(),
        },
        limit: query.number("limit")?.unwrap_or(LIMIT) as usize,
        days: query.number("days")?,
        lately: lately(req),
    })
}

/// Returns whether cached data may be used: only with a user token and without an entity tag.
///
/// The application expects to see its own writes, which may have bypassed this process. An entity
/// tag may come from another process with newer data.
fn lately(req: &HttpRequest) -> bool {
    let loads = !req.headers().contains_key(header::IF_NONE_MATCH);
    let extensions = req.extensions();
    loads && matches!(extensions.get::<Caller>(), Some(Caller::Person { .. }))
}

enum GroupBy {
    About,
}

impl FromStr for GroupBy {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        match text {
            "about" => Ok(Self::About),
            _ => Err(Invalid::new(
                "group",
                text,
                "is unknown; the feed is grouped by about only",
            )),
        }
    }
}

/// `GET /v1/users/{id}/feed/count`
pub(super) async fn count(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let user: UserId = segment(&req, "id")?;
    polled(&req, &app, &user, async {
        let counts = app.feeds().counts(&user, lately(&req)).await?;
        Ok(counts.map(|counts| serde_json::to_vec(&counts)))
    })
    .await
}

/// `POST /v1/users/{id}/feed/marks`
pub(super) async fn mark(
    _: NoQuery,
    req: HttpRequest,
    payload: Payload,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let user: UserId = segment(&req, "id")?;
    let body = body::read(&req, payload, body::LIMIT).await?;
    let marks: MarksInput = body::aside(body, body::one).await?;
    let counts = app.feeds().mark(&user, marks).await?;
    Ok(HttpResponse::Ok().json(counts))
}

/// Answers a poll with 304 if the client's entity tag is current. Skips `make`, which builds the
/// answer, if the feed cache knows that.
async fn polled(
    req: &HttpRequest,
    app: &App,
    user: &UserId,
    make: impl Future<Output = Result<Answer<serde_json::Result<Vec<u8>>>, Problem>>,
) -> Result<HttpResponse, Problem> {
    let polls = &app.polls;
    let question = req
        .uri()
        .path_and_query()
        .map_or("", |asked| asked.as_str());
    let known = Known::of(req);
    let unchanged = || polls.is_unchanged(user, question, |tag| known.has(&entity(tag)));
    if let Some(tag) = (!known.is_empty()).then(unchanged).flatten() {
        app.metrics.fed(FeedAnswer::Known);
        return Ok(answered(HttpResponse::NotModified(), app, user, &tag).finish());
    }
    let (before, began) = (polls.glance(user), Instant::now());
    let Answer {
        answer,
        about,
        as_of,
    } = make.await?;
    polls.took(began.elapsed());
    let body = answer.expect("what is on the wire is always JSON");
    let mut tag: Tag = [0; 16];
    tag.copy_from_slice(&Sha256::digest(&body)[..16]);
    polls.keep(user, question, tag, before.as_of(as_of), &about);
    if known.has(&entity(&tag)) {
        app.metrics.fed(FeedAnswer::Unchanged);
        return Ok(answered(HttpResponse::NotModified(), app, user, &tag).finish());
    }
    app.metrics.fed(FeedAnswer::Made);
    let mut response = answered(HttpResponse::Ok(), app, user, &tag);
    response.content_type("application/json");
    if body.len() < gzip::WORTHWHILE || !gzip::is_taken(req) {
        return Ok(response.body(body));
    }
    let body = gzip::gzipped(&body, gzip::Compression::fast());
    Ok(response.insert_header(ContentEncoding::Gzip).body(body))
}

/// Adds the headers that all answers to polls have.
fn answered(
    mut response: HttpResponseBuilder,
    app: &App,
    user: &UserId,
    tag: &Tag,
) -> HttpResponseBuilder {
    response
        .insert_header(header::ETag(entity(tag)))
        .insert_header((header::CACHE_CONTROL, "private, no-cache"))
        .append_header((header::VARY, "Accept-Encoding"))
        .insert_header(("X-Poll-Interval", app.polls.interval(user)));
    response
}

/// Returns a weak tag, because it covers both content encodings (RFC 9110, 8.8.3).
fn entity(tag: &Tag) -> EntityTag {
    EntityTag::new_weak(hex::encode(tag))
}

/// The tags in `If-None-Match` (RFC 9110, 13.1.2). An unreadable header has none.
pub(super) struct Known(Option<IfNoneMatch>);

impl Known {
    pub(super) fn of(req: &HttpRequest) -> Self {
        let is_there = req.headers().contains_key(header::IF_NONE_MATCH);
        Self(is_there.then(|| IfNoneMatch::parse(req).ok()).flatten())
    }

    fn is_empty(&self) -> bool {
        self.0.is_none()
    }

    pub(super) fn has(&self, tag: &EntityTag) -> bool {
        match &self.0 {
            Some(IfNoneMatch::Any) => true,
            Some(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(tag)),
            None => false,
        }
    }
}
