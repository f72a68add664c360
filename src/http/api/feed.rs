//! A user's feed for polling clients, and the marks that users set on its items.
//!
//! An unchanged poll gets an empty 304, without a read of the store if the feed cache knows the
//! page ([`crate::engine::feed::cache`]). The entity tag is a hash of the page, so a withdrawn or
//! renamed object changes it too.

use actix_web::http::header::{self, ContentEncoding};
use actix_web::{HttpMessage, HttpResponse, HttpResponseBuilder};

use super::caching::{Compression, accepts_gzip, entity_tag, gzip, hash, is_known};
use super::callers::Caller;
use super::problem::{ApiResult, Problem};
use super::request::{ApiRequest, invalid_parameter};
use super::route::routes;
use crate::domain::feed_page::KindFilter;
use crate::domain::{InvalidValue, NoticeKey, UserId, feed_page};
use crate::engine::Error;
use crate::engine::feed::cache::ResponseHash;
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
const DEFAULT_LIMIT: u32 = 20;
/// The smallest body that is compressed, in bytes. Smaller ones fit into one packet anyway.
const MIN_COMPRESSED_BYTES: usize = 1_200;

/// `GET /v1/users/{id}/feed`
async fn page(request: ApiRequest) -> ApiResult {
    let user: UserId = request.segment("id")?;
    polled(&request, &user, async {
        let feed_request = feed_request(&request, &user)?;
        let (feeds, base) = (request.app.feeds(), request.app.config.server.public_path());
        let response = match request.text("group") {
            None => feeds.page(&feed_request).await.map(|mut page| {
                describe(&request, &mut page.answer.items);
                page.map(|page| to_json(&page))
            }),
            Some("about") => feeds.groups(&feed_request).await.map(|mut page| {
                for group in &mut page.answer.groups {
                    group.items_url.insert_str(0, base);
                    describe(&request, &mut group.items);
                }
                page.map(|page| to_json(&page))
            }),
            Some(other) => {
                let why = "is unknown; the feed is grouped by about only";
                return Err(invalid_parameter("group", &InvalidValue::new("group", other, why)));
            }
        };
        response.map_err(|error| match error {
            Error::Invalid(invalid) => invalid_parameter(invalid.what, &invalid),
            other => other.into(),
        })
    })
    .await
}

/// Adds the words for their types to items, if the request names a language.
fn describe(request: &ApiRequest, items: &mut [FeedItem]) {
    let Some(lang) = request.text("lang") else {
        return;
    };
    let catalogs = request.app.identities.default.pages.catalogs();
    let policies = &request.app.config.policies;
    for item in items {
        let (heading, phrase) = catalogs.feed_texts(Some(lang), &item.kind, policies);
        item.words = Some(ItemWords {
            heading,
            phrase: phrase.filter(|_| item.by().is_some()),
            topic_title: item.record.topic_title(),
        });
    }
}

fn feed_request(request: &ApiRequest, user: &UserId) -> Result<FeedRequest, Problem> {
    let (category, policies) = (request.parameter("category")?, &request.app.config.policies);
    Ok(FeedRequest {
        user: user.clone(),
        query: feed_page::FeedQuery {
            after: request.parameter("after")?,
            before: request.parameter("before")?,
            kinds: KindFilter::selecting(request.parameter("type")?, category.as_ref(), policies),
            day: request.parameter("day")?,
            topic: request.text("about").map(str::to_owned),
            state: request.parameter("state")?.unwrap_or_default(),
        },
        limit: request.number("limit")?.unwrap_or(DEFAULT_LIMIT) as usize,
        accepts_cached: may_use_cache(request),
    })
}

/// Returns whether cached data may be used: only with a user token and without an entity tag.
///
/// The application expects to see its own writes, which may have bypassed this process. An entity
/// tag may come from another process with newer data.
fn may_use_cache(request: &ApiRequest) -> bool {
    let is_conditional = request.http.headers().contains_key(header::IF_NONE_MATCH);
    !is_conditional && matches!(request.http.extensions().get(), Some(Caller::User(_)))
}

/// `GET /v1/users/{id}/feed/count`
async fn count(request: ApiRequest) -> ApiResult {
    let user: UserId = request.segment("id")?;
    polled(&request, &user, async {
        let counts = request.app.feeds().counts(&user, may_use_cache(&request)).await?;
        Ok(counts.map(|counts| to_json(&counts)))
    })
    .await
}

/// `POST /v1/users/{id}/feed/marks`
async fn mark(mut request: ApiRequest) -> ApiResult {
    let user: UserId = request.segment("id")?;
    let marks: MarksInput = request.parse_one().await?;
    let counts = request.app.feeds().mark(&user, marks).await?;
    Ok(HttpResponse::Ok().json(counts))
}

/// Answers a poll with 304 if the client's entity tag is current. Skips `build`, which builds the
/// answer, if the feed cache knows that.
async fn polled(
    request: &ApiRequest,
    user: &UserId,
    build: impl Future<Output = Result<FeedResponse<Vec<u8>>, Problem>>,
) -> ApiResult {
    let (app, http, cache) = (&request.app, &request.http, &request.app.feed_cache);
    let uri = http.uri().path_and_query().map_or("", |uri| uri.as_str());
    let start = |mut response: HttpResponseBuilder, tag: &ResponseHash, outcome| {
        app.metrics.count_feed_request(outcome);
        response
            .insert_header(header::ETag(entity_tag(tag)))
            .insert_header((header::CACHE_CONTROL, "private, no-cache"))
            .append_header((header::VARY, "Accept-Encoding"))
            .insert_header(("X-Poll-Interval", poll_interval(user)));
        response
    };
    let is_conditional = http.headers().contains_key(header::IF_NONE_MATCH);
    let cached = is_conditional.then(|| cache.tag(user, uri)).flatten();
    if let Some(tag) = cached.filter(|tag| is_known(http, tag)) {
        return Ok(start(HttpResponse::NotModified(), &tag, "known").finish());
    }
    let version = cache.version_of_user(user);
    let FeedResponse { answer: body, depends_on, as_of } = build.await?;
    let tag = hash(&body);
    if let Some(version) = version {
        cache.put_tag(user, uri, tag, version, &depends_on, as_of);
    }
    if is_known(http, &tag) {
        return Ok(start(HttpResponse::NotModified(), &tag, "unchanged").finish());
    }
    let mut response = start(HttpResponse::Ok(), &tag, "made");
    response.content_type("application/json");
    if body.len() < MIN_COMPRESSED_BYTES || !accepts_gzip(http) {
        return Ok(response.body(body));
    }
    response.insert_header(ContentEncoding::Gzip);
    Ok(response.body(gzip(&body, Compression::fast())))
}

/// Returns how many seconds this user's client should wait between two polls: 30 with 10 % more or
/// less, so that clients do not poll in step.
fn poll_interval(user: &UserId) -> u32 {
    27 + NoticeKey::from_name(user.as_str()).0 % 7
}
