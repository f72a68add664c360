//! Feed polling and streams: unchanged polls do not read the store, and changes by any process are
//! seen. Streams send the feed's counts when they change.

use std::time::Duration;

use chrono::TimeDelta;
use futures::StreamExt;
use reqwest::{RequestBuilder, Response};
use serde_json::{Value, json};

use super::{Answer, Api, KEY, access, answer};
use crate::support::town::{Town, on_both_stores};
use crate::support::{FailingStore, Fresh};

on_both_stores! {
    an_unchanged_poll_does_not_read_the_store
    a_change_by_another_process_invalidates_the_cache
    a_stream_reports_changes_by_another_process
    a_cached_answer_expires
    a_page_built_from_cached_data_expires_with_it
    reloading_a_page_in_a_browser_does_not_read_the_store
}

on_sqlite! {
    a_stream_ends_with_its_token
    streams_are_limited_and_end_with_the_server
}

pub(super) const FRESH: &str =
    "server.listen = \"127.0.0.1:0\"\nfeed.fresh = \"30s\"\nfeed.streams = 7";
const FEED: &str = "/v1/users/ada/feed";
/// The time limit for a change to be seen. It takes milliseconds unless the machine is busy.
const PATIENCE: Duration = Duration::from_secs(20);

fn loan(object: &str) -> Value {
    json!({"type": "Loan", "objects": object, "to": "ada"})
}

async fn post_event(api: &Api, object: &str) {
    assert_eq!(api.post("/v1/events", loan(object)).await.status, 202);
    api.fan_out_elsewhere().await;
}

async fn ask(api: &Api, path: &str, tag: &str) -> Answer {
    answer(api.ask("GET", path).header("If-None-Match", tag)).await
}

/// Polls until a response needs no store call. Returns its tag.
async fn poll_until_cached(api: &Api, store: &FailingStore, path: &str) -> String {
    let poll_loop = async {
        loop {
            let tag = api.get(path).await.header("ETag").to_owned();
            let before = store.calls();
            let poll = ask(api, path, &tag).await;
            if poll.status == 304 && store.calls() == before {
                return tag;
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, poll_loop).await;
    found.expect("no poll was ever answered from memory")
}

/// Polls with this tag until a 304 needs no store call. Change notices of another process may
/// arrive a moment later and cause a read.
async fn poll_until_not_modified(api: &Api, store: &FailingStore, path: &str, tag: &str) {
    let poll_loop = async {
        loop {
            let before = store.calls();
            if ask(api, path, tag).await.status == 304 && store.calls() == before {
                return;
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, poll_loop).await;
    found.expect("no poll was answered from memory");
}

async fn until_changed(api: &Api, path: &str, tag: &str) -> Answer {
    let poll_loop = async {
        loop {
            let poll = ask(api, path, tag).await;
            if poll.status != 304 {
                return poll;
            }
        }
    };
    let found = tokio::time::timeout(PATIENCE, poll_loop).await;
    found.expect("the change was never seen")
}

/// Starts a server whose store counts its calls.
async fn counted(fresh: &Fresh) -> (Api, std::sync::Arc<FailingStore>) {
    let town = Town::found(fresh, true, FRESH).await;
    let store = FailingStore::counting(town.store.clone());
    (Api::with_store(town, &(store.clone() as _)), store)
}

async fn an_unchanged_poll_does_not_read_the_store(fresh: Fresh) {
    let (api, store) = counted(&fresh).await;
    post_event(&api, "Artwork:a1").await;

    let tag = poll_until_cached(&api, &store, FEED).await;
    let count = poll_until_cached(&api, &store, "/v1/users/ada/feed/count").await;

    poll_until_not_modified(&api, &store, FEED, &tag.replace("W/", "")).await;
    poll_until_not_modified(&api, &store, FEED, "*").await;
    for (path, tags) in [
        (FEED, count.as_str()),
        ("/v1/users/ada/feed?state=read", &tag),
        ("/v1/users/ben/feed", &tag),
    ] {
        assert_eq!(ask(&api, path, tags).await.status, 200, "{path}");
    }
    api.stop().await;
}

async fn a_change_by_another_process_invalidates_the_cache(fresh: Fresh) {
    let (api, store) = counted(&fresh).await;
    let other = api.beside(&fresh, FRESH);
    other.put("/v1/objects/Artwork/b1", json!({"title": "Old"})).await;
    post_event(&api, "Artwork:b1").await;
    let by_id = json!({"mark": "read", "ids": ["20140419.0"]});

    let tag = poll_until_cached(&api, &store, FEED).await;
    assert_eq!(other.post("/v1/events", loan("o2")).await.status, 202);
    api.fan_out_elsewhere().await;
    let pushed = until_changed(&api, FEED, &tag).await;
    let tag = poll_until_cached(&api, &store, FEED).await;
    let marked = other.post("/v1/users/ada/feed/marks", by_id).await;
    let read = until_changed(&api, FEED, &tag).await;
    let tag = poll_until_cached(&api, &store, FEED).await;
    other.put("/v1/objects/Artwork/b1", json!({"title": "New"})).await;
    let renamed = until_changed(&api, FEED, &tag).await;

    let unread = |answer: &Answer| answer.body["unread"].clone();
    assert_eq!((unread(&pushed), unread(&marked), unread(&read)), (json!(2), json!(1), json!(1)));
    assert_eq!(renamed.body["items"][1]["object"]["title"], "New");
    other.stop().await;
    api.stop().await;
}

async fn a_cached_answer_expires(fresh: Fresh) {
    let (api, store) = counted(&fresh).await;
    post_event(&api, "o1").await;
    let tag = poll_until_cached(&api, &store, FEED).await;
    let before = store.calls();
    api.town.clock.advance(TimeDelta::seconds(30));

    ask(&api, FEED, &tag).await;

    assert!(store.calls() > before);
    api.stop().await;
}

async fn a_page_built_from_cached_data_expires_with_it(fresh: Fresh) {
    let (api, store) = counted(&fresh).await;
    post_event(&api, "o1").await;
    poll_until_cached(&api, &store, FEED).await;
    let other = "/v1/users/ada/feed?limit=5";
    api.town.clock.advance(TimeDelta::seconds(20));
    let tag = api.get(other).await.header("ETag").to_owned();
    poll_until_not_modified(&api, &store, other, &tag).await;
    let before = store.calls();
    api.town.clock.advance(TimeDelta::seconds(15));

    ask(&api, other, &tag).await;

    assert!(store.calls() > before);
    api.stop().await;
}

async fn reloading_a_page_in_a_browser_does_not_read_the_store(fresh: Fresh) {
    let town = access::town(&fresh, "server.rate_limit_token = 0\nfeed.fresh = \"30s\"").await;
    let store = FailingStore::counting(town.store.clone());
    let api = Api::with_store(town, &(store.clone() as _));
    let other = api.beside(&fresh, FRESH);
    post_event(&api, "o1").await;
    let bearer = access::token(&api, "ada");
    let load = async |path: &str| {
        let before = store.calls();
        let answer = answer(api.anonymous("get", path).bearer_auth(&bearer)).await;
        assert_eq!(answer.status, 200);
        (answer.body, store.calls() > before)
    };
    // Change notices of another process arrive a moment later.
    let until = async |path: &str, is_expected: &dyn Fn(&(Value, bool)) -> bool| {
        let loading = async { while !is_expected(&load(path).await) {} };
        let loaded = tokio::time::timeout(PATIENCE, loading).await;
        loaded.unwrap_or_else(|_| panic!("{path} was never so"));
    };
    let (count, groups) = (&*format!("{FEED}/count"), &*format!("{FEED}?group=about"));
    let by_id = json!({"mark": "read", "ids": ["20140419.0"]});

    for path in [FEED, count, groups] {
        until(path, &|(_, hit_store)| !hit_store).await;
    }
    let marked = other.post("/v1/users/ada/feed/marks", by_id).await;
    assert_eq!(marked.body["unread"], 0);
    for path in [FEED, count, groups] {
        until(path, &|(page, hit_store)| page["unread"] == 0 && !hit_store).await;
    }
    // Without `If-None-Match`, a request by server key reads the store.
    let before = store.calls();
    api.get(FEED).await;
    assert!(store.calls() > before);
    until(FEED, &|(_, hit_store)| !hit_store).await;
    // An unknown tag may belong to a newer answer of another process, so the store is read.
    let before = store.calls();
    let with_unknown_tag = api.anonymous("get", FEED).bearer_auth(&bearer);
    let with_unknown_tag = with_unknown_tag.header("If-None-Match", "W/\"another\"");
    assert_eq!(answer(with_unknown_tag).await.status, 200);
    assert!(store.calls() > before);
    until(FEED, &|(_, hit_store)| !hit_store).await;
    api.town.clock.advance(TimeDelta::seconds(30));
    assert!(load(FEED).await.1);
    other.stop().await;
    api.stop().await;
}

/// Reads a stream event by event.
pub(super) struct Events {
    response: Response,
    read: String,
}

impl Events {
    pub(super) async fn of(api: &Api, person: &str) -> Self {
        let path = format!("/v1/users/{person}/feed/stream");
        Self::by(api.ask("GET", &path)).await
    }

    async fn by(request: RequestBuilder) -> Self {
        let response = request.send().await.unwrap();
        assert_eq!(response.status(), 200);
        let kind = response.headers()["content-type"].to_str().unwrap();
        assert_eq!(kind, "text/event-stream");
        let buffers = response.headers().get("x-accel-buffering");
        assert_eq!(buffers.unwrap(), "no", "nginx would hold events back");
        let read = String::new();
        Self { response, read }
    }

    /// Returns the next event's id and data, or `None` at the end of the stream.
    pub(super) async fn next(&mut self) -> Option<(String, Value)> {
        loop {
            if let Some((event, rest)) = self.read.split_once("\n\n") {
                let (event, rest) = (event.to_owned(), rest.to_owned());
                self.read = rest;
                let Some((id, data)) = event.split_once("\ndata: ") else {
                    continue;
                };
                let id = id.strip_prefix("id: ").unwrap().to_owned();
                return Some((id, serde_json::from_str(data).unwrap()));
            }
            let chunk = tokio::time::timeout(PATIENCE, self.response.chunk());
            let chunk = chunk.await.expect("nothing came").unwrap()?;
            self.read += std::str::from_utf8(&chunk).unwrap();
        }
    }
}

async fn a_stream_reports_changes_by_another_process(fresh: Fresh) {
    let api = Api::of(Town::found(&fresh, true, FRESH).await);
    let other = api.beside(&fresh, FRESH);
    post_event(&api, "o1").await;
    let mut events = Events::of(&api, "ada").await;
    let at_first = events.next().await.unwrap();

    assert_eq!(other.post("/v1/events", loan("o2")).await.status, 202);
    api.fan_out_elsewhere().await;
    let pushed = events.next().await.unwrap();
    let to = json!({"mark": "seen", "to": pushed.0});
    other.post("/v1/users/ada/feed/marks", to).await;
    let seen = events.next().await.unwrap();

    let page = api.get(FEED).await;
    let cursor = page.body["cursor"].as_str().unwrap();
    let counts = |unseen: u64, unread: u64, cursor: &str| json!({"unseen": unseen, "unread": unread, "cursor": cursor});
    assert_eq!(at_first, ("c20140419.1".into(), counts(1, 1, "c20140419.1")));
    assert_eq!(pushed, (cursor.into(), counts(2, 2, cursor)));
    assert_eq!(seen, (cursor.into(), counts(0, 2, cursor)));
    // A stream ends with its server.
    api.stop().await;
    assert_eq!(events.next().await, None);
    other.stop().await;
}

async fn a_stream_ends_with_its_token(fresh: Fresh) {
    let api = Api::of(access::town(&fresh, "feed.streams = 7").await);
    let token = access::token(&api, "ada");
    // The token expires in 300 ms. The stream waits for that in real time.
    api.town.clock.advance(TimeDelta::hours(1) - TimeDelta::milliseconds(300));
    let request = api.anonymous("GET", "/v1/users/ada/feed/stream");
    let mut events = Events::by(request.bearer_auth(token)).await;

    let (first, end) = (events.next().await, events.next().await);

    assert!(first.is_some());
    assert_eq!(end, None);
    api.stop().await;
}

async fn streams_are_limited_and_end_with_the_server(fresh: Fresh) {
    let api = Api::of(Town::found(&fresh, true, FRESH).await);
    let mut of_ada: Vec<Events> =
        futures::stream::iter(0..6).then(|_| Events::of(&api, "ada")).collect().await;
    for events in &mut of_ada {
        assert!(events.next().await.is_some());
    }
    // The sixth stream of a user closes the first.
    assert_eq!(of_ada[0].next().await, None);
    let (ben, mut cem) = (Events::of(&api, "ben").await, Events::of(&api, "cem").await);
    let beyond = api.get("/v1/users/dee/feed/stream").await;

    assert_eq!((beyond.status, beyond.code()), (429, "too_many_streams"));
    assert_eq!(beyond.header("Retry-After"), "30");
    assert!(cem.next().await.is_some());
    let wrong = api.anonymous("GET", "/v1/users/ada/feed/stream").bearer_auth(format!("{KEY}x"));
    assert_eq!(answer(wrong).await.status, 401);
    api.stop().await;
    assert!(cem.next().await.is_none());
    for events in &mut of_ada[1..] {
        assert_eq!(events.next().await, None);
    }
    drop(ben);
}
