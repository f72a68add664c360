//! A person's feed, made for polling, and what they did to its items.
//!
//! The rule: an unchanged page costs the reader an empty 304. The tag is the page's own digest, so
//! that a withdrawn or renamed object is a change like any other.

use actix_web::http::header::{self, EntityTag, Header, IfNoneMatch};
use actix_web::web::{Data, Payload};
use actix_web::{HttpRequest, HttpResponse};
use sha2::{Digest, Sha256};

use super::body;
use super::problem::Problem;
use super::uri::{NoQuery, Query, refuse, segment};
use crate::app::App;
use crate::domain::{UserId, feed};
use crate::services::Error;
use crate::services::feed::{MarksInput, Request};

/// Items on a page unless asked otherwise.
const LIMIT: u32 = 20;
/// How long readers are asked to wait between two polls, in seconds.
const POLL_INTERVAL: u32 = 30;

/// `GET /v1/users/{id}/feed`
pub(super) async fn page(req: HttpRequest, app: Data<App>) -> Result<HttpResponse, Problem> {
    let query = Query::of(&req, &["after", "before", "limit", "type", "state", "days"])?;
    let request = Request {
        user: segment(&req, "id")?,
        query: feed::Query {
            after: query.get("after")?,
            before: query.get("before")?,
            kind: query.get("type")?,
            state: query.get("state")?.unwrap_or_default(),
        },
        limit: query.number("limit")?.unwrap_or(LIMIT) as usize,
        days: query.number("days")?,
    };
    let page = app
        .feeds()
        .page(&request)
        .await
        .map_err(|error| match error {
            Error::Invalid(invalid) => refuse(invalid.what, &invalid),
            other => other.into(),
        })?;
    polled(&req, serde_json::to_vec(&page))
}

/// `GET /v1/users/{id}/feed/count`
pub(super) async fn count(
    _: NoQuery,
    req: HttpRequest,
    app: Data<App>,
) -> Result<HttpResponse, Problem> {
    let user: UserId = segment(&req, "id")?;
    let counts = app.feeds().counts(&user).await?;
    polled(&req, serde_json::to_vec(&counts))
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

/// What is asked for again and again: empty where it is what the reader has.
fn polled(req: &HttpRequest, body: serde_json::Result<Vec<u8>>) -> Result<HttpResponse, Problem> {
    let body = body.expect("what is on the wire is always JSON");
    let tag = tag(&body);
    let known = is_known(req, &tag);
    let mut response = if known {
        HttpResponse::NotModified()
    } else {
        HttpResponse::Ok()
    };
    response
        .insert_header(header::ETag(tag))
        .insert_header((header::CACHE_CONTROL, "private, no-cache"))
        .insert_header(("X-Poll-Interval", POLL_INTERVAL));
    Ok(if known {
        response.finish()
    } else {
        response.content_type("application/json").body(body)
    })
}

fn tag(body: &[u8]) -> EntityTag {
    EntityTag::new_strong(hex::encode(&Sha256::digest(body)[..16]))
}

/// Whether the reader has this page already (RFC 9110, 13.1.2). A header that cannot be read names
/// no page.
pub(super) fn is_known(req: &HttpRequest, tag: &EntityTag) -> bool {
    match IfNoneMatch::parse(req) {
        Ok(IfNoneMatch::Any) => true,
        Ok(IfNoneMatch::Items(tags)) => tags.iter().any(|known| known.weak_eq(tag)),
        Err(_) => false,
    }
}
