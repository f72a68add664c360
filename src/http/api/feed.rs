//! A user's feed for polling clients, and the marks that users set on its items.
//!
//! An unchanged poll gets an empty 304, without a read of the store if the feed cache knows the
//! page ([`crate::engine::feed::cache`]). The entity tag is a hash of the page, so a withdrawn or
//! renamed object changes it too.

use actix_web::http::header::{self, ContentEncoding};
use actix_web::{HttpMessage, HttpResponse, HttpResponseBuilder};

use super::caching::{Compression, accepts_gzip, entity_tag, gzipped, hash, is_known};
use super::callers::Caller;
use super::problem::{ApiResult, Problem};
use super::request::{Call, refuse};
use super::route::routes;
use crate::domain::feed_page::Kinds;
use crate::domain::{Invalid, NoticeKey, UserId, feed_page};
use crate::engine::Error;
use crate::engine::feed::cache::Tag;
use crate::engine::feed::{FeedRequest, FeedResponse, MarksInput};
use crate::wire::feed::{FeedItem, ItemWords};
use crate::wire::to_json;

routes! {ROUTES under "/v1":
    "/users/{id}/feed" => {get read own [
        "after", "before", "limit", "type", "category", "state", "day", "about", "group", "lang"
    ]: page}
    "/users/{id}/feed/count" => {get read own: count}
    "/users/{id}/feed/marks" => {post write own: mark}
}

/// The default number of items on a page.
const LIMIT: u32 = 20;
/// The smallest body that is compressed, in bytes. Smaller ones fit into one packet anyway.
const WORTH_COMPRESSING: usize = 1_200;

/// `GET /v1/users/{id}/feed`
async fn page(call: Call) -> ApiResult {
    let user: UserId = call.segment("id")?;
    polled(&call, &user, async {
        let request = request(&call, &user)?;
        let (feeds, base) = (call.app.feeds(), call.app.config.server.public_path());
        let page = match call.text("group") {
            None => feeds.page(&request).await.map(|mut page| {
                describe(&call, &mut page.answer.items);
                page.map(|page| to_json(&page))
            }),
            Some("about") => feeds.groups(&request).await.map(|mut page| {
                for group in &mut page.answer.groups {
                    group.items_url.insert_str(0, base);
                    describe(&call, &mut group.items);
                }
                page.map(|page| to_json(&page))
            }),
            Some(other) => {
                let why = "is unknown; the feed is grouped by about only";
                return Err(refuse("group", &Invalid::new("group", other, why)));
            }
        };
        page.map_err(|error| match error {
            Error::Invalid(invalid) => refuse(invalid.what, &invalid),
            other => other.into(),
        })
    })
    .await
}

/// Adds the words for their types to items, if the request names a language.
fn describe(call: &Call, items: &mut [FeedItem]) {
    let Some(lang) = call.text("lang") else {
        return;
    };
    let catalogs = call.app.identities.default.pages.catalogs();
    let policies = &call.app.config.policies;
    for item in items {
        let (heading, phrase) = catalogs.feed_words(Some(lang), &item.kind, policies);
        item.words = Some(ItemWords {
            heading,
            phrase: phrase.filter(|_| item.by().is_some()),
            about: item.about.topic_title(),
        });
    }
}

fn request(call: &Call, user: &UserId) -> Result<FeedRequest, Problem> {
    let (category, policies) = (call.parameter("category")?, &call.app.config.policies);
    Ok(FeedRequest {
        user: user.clone(),
        query: feed_page::Query {
            after: call.parameter("after")?,
            before: call.parameter("before")?,
            kinds: Kinds::of(call.parameter("type")?, category.as_ref(), policies),
            day: call.parameter("day")?,
            about: call.text("about").map(str::to_owned),
            state: call.parameter("state")?.unwrap_or_default(),
        },
        limit: call.number("limit")?.unwrap_or(LIMIT) as usize,
        accepts_cached: may_use_cache(call),
    })
}

/// Returns whether cached data may be used: only with a user token and without an entity tag.
///
/// The application expects to see its own writes, which may have bypassed this process. An entity
/// tag may come from another process with newer data.
fn may_use_cache(call: &Call) -> bool {
    let loads = !call.req.headers().contains_key(header::IF_NONE_MATCH);
    loads && matches!(call.req.extensions().get(), Some(Caller::User(_)))
}

/// `GET /v1/users/{id}/feed/count`
async fn count(call: Call) -> ApiResult {
    let user: UserId = call.segment("id")?;
    polled(&call, &user, async {
        let counts = call.app.feeds().counts(&user, may_use_cache(&call)).await?;
        Ok(counts.map(|counts| to_json(&counts)))
    })
    .await
}

/// `POST /v1/users/{id}/feed/marks`
async fn mark(mut call: Call) -> ApiResult {
    let user: UserId = call.segment("id")?;
    let marks: MarksInput = call.one().await?;
    let counts = call.app.feeds().mark(&user, marks).await?;
    Ok(HttpResponse::Ok().json(counts))
}

/// Answers a poll with 304 if the client's entity tag is current. Skips `make`, which builds the
/// answer, if the feed cache knows that.
async fn polled(
    call: &Call,
    user: &UserId,
    make: impl Future<Output = Result<FeedResponse<Vec<u8>>, Problem>>,
) -> ApiResult {
    let (app, cache) = (&call.app, &call.app.feed_cache);
    let question = call.req.uri().path_and_query();
    let question = question.map_or("", |question| question.as_str());
    let respond = |mut response: HttpResponseBuilder, tag: &Tag, answer| {
        app.metrics.fed(answer);
        response
            .insert_header(header::ETag(entity_tag(tag)))
            .insert_header((header::CACHE_CONTROL, "private, no-cache"))
            .append_header((header::VARY, "Accept-Encoding"))
            .insert_header(("X-Poll-Interval", poll_interval(user)));
        response
    };
    let is_conditional = call.req.headers().contains_key(header::IF_NONE_MATCH);
    let cached = is_conditional.then(|| cache.tag(user, question)).flatten();
    if let Some(tag) = cached.filter(|tag| is_known(&call.req, tag)) {
        return Ok(respond(HttpResponse::NotModified(), &tag, "known").finish());
    }
    let before = cache.version_of_user(user);
    let made = make.await?;
    let (tag, body) = (hash(&made.answer), made.answer);
    if let Some(before) = before {
        cache.put_tag(user, question, tag, before, &made.about, made.as_of);
    }
    if is_known(&call.req, &tag) {
        return Ok(respond(HttpResponse::NotModified(), &tag, "unchanged").finish());
    }
    let mut response = respond(HttpResponse::Ok(), &tag, "made");
    response.content_type("application/json");
    if body.len() < WORTH_COMPRESSING || !accepts_gzip(&call.req) {
        return Ok(response.body(body));
    }
    let body = gzipped(&body, Compression::fast());
    Ok(response.insert_header(ContentEncoding::Gzip).body(body))
}

/// Returns how many seconds this user's client should wait between two polls: 30 with 10 % more or
/// less, so that clients do not poll in step.
fn poll_interval(user: &UserId) -> u32 {
    27 + NoticeKey::of(user.as_str()).0 % 7
}
