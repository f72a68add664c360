//! Marks over HTTP: seen, read and archived items, with exact counts in every process.

use std::collections::{BTreeMap, BTreeSet};

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{Answer, Api, objects};
use crate::support::town::{Town, on_both_stores, saturday};
use crate::support::{FailingStore, Fresh};

on_both_stores! {
    counts_fall_as_items_are_seen_read_and_archived
    a_mark_excludes_items_newer_than_its_cursor
    a_mark_on_one_id_remains_after_an_older_day_expires
    withdrawn_objects_are_not_counted
    concurrent_marks_are_all_stored
    events_before_feed_since_are_seen
    counts_match_a_model_of_sets
    a_mark_on_a_cached_page_does_not_read_it_again
    a_mark_applies_to_a_page_of_another_process
}

on_sqlite! {
    invalid_marks_are_rejected_and_change_nothing
    a_mark_on_an_empty_feed_is_not_an_error
}

/// Lets the feed cache serve entries for 30 s.
const FRESH: &str = "server.listen = \"127.0.0.1:0\"\nfeed.fresh = \"30s\"";

async fn post_event(api: &Api, names: &[&str]) {
    let event = json!({"type": "Loan", "objects": names, "to": "ada"});
    assert_eq!(api.post("/v1/events", event).await.status, 202);
    api.fan_out().await;
}

pub(super) async fn mark(api: &Api, marks: Value) -> Answer {
    api.post("/v1/users/ada/feed/marks", marks).await
}

pub(super) async fn feed(api: &Api, query: &str) -> Answer {
    let page = api.get(&format!("/v1/users/ada/feed{query}")).await;
    assert_eq!(page.status, 200, "{}", page.body);
    page
}

/// Returns the unseen and unread counts.
pub(super) fn counts(answer: &Answer) -> (u64, u64) {
    assert_eq!(answer.status, 200, "{}", answer.body);
    let count = |name: &str| answer.body[name].as_u64().unwrap();
    (count("unseen"), count("unread"))
}

fn ids(page: &Answer) -> BTreeMap<String, String> {
    let items = page.body["items"].as_array().unwrap().iter();
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let object = |item: &Value| item["object"]["id"].as_str().unwrap().to_owned();
    items.map(|item| (object(item), text(&item["id"]))).collect()
}

fn states(page: &Answer) -> Vec<&str> {
    let items = page.body["items"].as_array().unwrap().iter();
    items.map(|item| item["state"].as_str().unwrap()).collect()
}

async fn counts_fall_as_items_are_seen_read_and_archived(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_event(&api, &["o1", "o2", "o3"]).await;
    let page = feed(&api, "").await;
    let id = ids(&page);
    let tag = page.header("ETag").to_owned();

    let seen = mark(&api, json!({"mark": "seen", "to": page.body["cursor"]})).await;
    let read = mark(&api, json!({"mark": "read", "ids": [id["o1"], id["o2"]]})).await;
    let archived = mark(&api, json!({"mark": "archive", "ids": [id["o3"]]})).await;
    let after = feed(&api, "").await;
    let count = api.get("/v1/users/ada/feed/count").await;

    let all = [counts(&page), counts(&seen), counts(&read), counts(&archived)];
    assert_eq!(all, [(3, 3), (0, 3), (0, 1), (0, 0)]);
    assert_eq!(
        (objects(&after), states(&after)),
        (vec!["o2".into(), "o1".into()], vec!["read"; 2])
    );
    assert_eq!(count.body, json!({"unseen": 0, "unread": 0, "cursor": page.body["cursor"]}));
    assert_ne!(after.header("ETag"), tag);
    let of = |state: &'static str| {
        let api = &api;
        async move { objects(&feed(api, &format!("?state={state}")).await) }
    };
    assert_eq!(of("archived").await, ["o3"]);
    assert_eq!(of("read").await, ["o2", "o1"]);
    assert_eq!(of("unread").await, [""; 0]);
    assert_eq!(of("all").await, ["o3", "o2", "o1"]);
    let back = mark(&api, json!({"mark": "restore", "ids": [id["o3"]]})).await;
    let unread = mark(&api, json!({"mark": "unread", "ids": [id["o1"]]})).await;
    assert_eq!((counts(&back), counts(&unread)), ((0, 1), (0, 2)));
    assert_eq!(of("unread").await, ["o3", "o1"]);
    api.stop().await;
}

async fn a_mark_excludes_items_newer_than_its_cursor(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_event(&api, &["o1"]).await;
    let page = feed(&api, "").await;
    post_event(&api, &["o2"]).await;

    let marked = mark(&api, json!({"mark": "read", "to": page.body["cursor"]})).await;

    assert_eq!(counts(&marked), (1, 1));
    assert_eq!(states(&feed(&api, "").await), ["unseen", "read"]);
    api.stop().await;
}

async fn a_mark_on_one_id_remains_after_an_older_day_expires(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_event(&api, &["o1"]).await;
    api.town.clock.advance(TimeDelta::days(2));
    post_event(&api, &["o1", "o2"]).await;
    let recent = ids(&feed(&api, "").await);

    let marked = mark(&api, json!({"mark": "read", "ids": [recent["o1"]]})).await;

    assert_eq!(counts(&marked), (1, 1));
    assert_eq!(states(&feed(&api, "").await), ["unseen", "read"]);
    api.town.clock.advance(TimeDelta::days(6));
    let later = feed(&api, "").await;
    assert_eq!(
        (objects(&later), states(&later)),
        (vec!["o2".into(), "o1".into()], vec!["unseen", "read"])
    );
    api.stop().await;
}

async fn withdrawn_objects_are_not_counted(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_event(&api, &["Artwork:A1", "Artwork:A2"]).await;
    assert_eq!(counts(&feed(&api, "").await), (2, 2));

    let gone = api.delete("/v1/objects/Artwork/A1").await;

    assert_eq!(gone.status, 204);
    assert_eq!(counts(&feed(&api, "").await), (1, 1));
    assert_eq!(counts(&api.get("/v1/users/ada/feed/count").await), (1, 1));
    api.stop().await;
}

async fn concurrent_marks_are_all_stored(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let names: Vec<String> = (0..16).map(|n| format!("o{n}")).collect();
    post_event(&api, &names.iter().map(String::as_str).collect::<Vec<_>>()).await;
    let id = ids(&feed(&api, "").await);

    let marks = id.values().map(|id| mark(&api, json!({"mark": "read", "ids": [id]})));
    let answers = futures::future::join_all(marks).await;

    assert!(answers.iter().all(|answer| answer.status == 200));
    assert_eq!(counts(&feed(&api, "").await), (0, 0));
    api.stop().await;
}

async fn events_before_feed_since_are_seen(fresh: Fresh) {
    let since = (saturday() + TimeDelta::hours(1)).to_rfc3339();
    let config = format!("server.listen = \"127.0.0.1:0\"\nfeed.since = \"{since}\"");
    let api = Api::of(Town::found(&fresh, true, &config).await);
    post_event(&api, &["o1"]).await;
    api.town.clock.advance(TimeDelta::hours(2));
    post_event(&api, &["o2"]).await;

    let page = feed(&api, "").await;

    let expected = ((1, 2), vec!["unseen", "seen"]);
    assert_eq!((counts(&page), states(&page)), expected);
    api.stop().await;
}

async fn counts_match_a_model_of_sets(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let (mut posted, mut seen, mut read, mut archived) =
        (BTreeSet::new(), BTreeSet::new(), BTreeSet::new(), BTreeSet::new());
    let mut random = 7_u64;
    let mut next = |below: u64| {
        random =
            random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (random >> 33) % below
    };
    for step in 0..60 {
        if step % 6 == 0 {
            api.town.clock.advance(TimeDelta::hours(5));
            let name = format!("o{}", next(12));
            post_event(&api, &[&name]).await;
            posted.insert(name);
        }
        let page = feed(&api, "?state=all&limit=200").await;
        let id = ids(&page);
        let names: Vec<&String> = id.keys().collect();
        let name = names[next(names.len() as u64) as usize].clone();
        let done = ["seen", "read", "unread", "archive", "restore"][next(5) as usize];
        let (which, affected) = match next(4) {
            0 => (json!({"mark": done, "to": page.body["cursor"]}), posted.clone()),
            _ => (json!({"mark": done, "ids": [id[&name]]}), BTreeSet::from([name])),
        };
        let answer = mark(&api, which).await;
        for name in affected {
            match done {
                "read" => drop(read.insert(name.clone())),
                "unread" => drop(read.remove(&name)),
                "archive" => drop(archived.insert(name.clone())),
                "restore" => drop(archived.remove(&name)),
                _ => {}
            }
            if !["archive", "restore"].contains(&done) {
                seen.insert(name);
            }
        }
        let unread =
            posted.iter().filter(|name| !read.contains(*name) && !archived.contains(*name));
        let unseen = unread.clone().filter(|name| !seen.contains(*name));
        let expected = (unseen.count() as u64, unread.count() as u64);
        assert_eq!(counts(&answer), expected, "after {done}, step {step}");
        assert_eq!(counts(&feed(&api, "").await), expected);
    }
    api.stop().await;
}

async fn invalid_marks_are_rejected_and_change_nothing(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_event(&api, &["o1"]).await;
    let cursor = feed(&api, "").await.body["cursor"].clone();
    let many: Vec<String> = (0..1_001).map(|n| format!("20140422.{n}")).collect();
    for (marks, what) in [
        (json!({"mark": "opened", "to": cursor}), "opened"),
        (json!({"mark": "read"}), "names no items: give to"),
        (json!({"mark": "read", "to": cursor, "ids": ["20140422.0"]}), "has both to and ids"),
        (json!({"mark": "read", "ids": []}), "ids \"[]\" names none"),
        (json!({"mark": "read", "ids": many}), "1001"),
        (json!({"mark": "read", "ids": ["first"]}), "first"),
        (json!({"mark": "read", "to": "c1x"}), "c1x"),
        (json!({"mark": "read", "ids": ["20140422.0"], "type": "Loan"}), "type"),
        (json!({"mark": "read", "to": cursor, "until": 7}), "until"),
        (json!(["read", cursor]), "object"),
    ] {
        let refused = mark(&api, marks.clone()).await;

        let detail = refused.body["detail"].as_str().unwrap_or("").to_owned();
        refused.assert_problem(400, "invalid_body", &marks);
        assert!(detail.contains(what), "{marks}: {detail}");
    }
    let refused = api.get("/v1/users/ada/feed?state=opened").await;
    assert_eq!((refused.status, refused.code()), (400, "invalid_parameter"));
    assert_eq!(counts(&feed(&api, "").await), (1, 1));
    api.stop().await;
}

async fn a_mark_on_an_empty_feed_is_not_an_error(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let by_cursor = mark(&api, json!({"mark": "read", "to": "c20140419.9"})).await;
    let by_id = mark(&api, json!({"mark": "read", "ids": ["20140419.9"]})).await;

    assert_eq!((counts(&by_cursor), counts(&by_id)), ((0, 0), (0, 0)));
    api.stop().await;
}

async fn a_mark_on_a_cached_page_does_not_read_it_again(fresh: Fresh) {
    let town = Town::found(&fresh, true, FRESH).await;
    let store = FailingStore::counting(town.store.clone());
    let api = Api::with_store(town, &(store.clone() as _));
    post_event(&api, &["o1", "o2"]).await;

    // Without a subscription to change notices, the cache reads everything. A late notice of the
    // previous mark also causes a read, so the test repeats.
    let repeat = async {
        for mark_ in ["read", "unread"].iter().cycle() {
            let page = feed(&api, "").await;
            let before = store.calls();
            let marked = mark(&api, json!({"mark": mark_, "to": page.body["cursor"]})).await;
            let unread = if *mark_ == "read" { 0 } else { 2 };
            assert_eq!(counts(&marked), (0, unread));
            if store.calls() == before + 1 {
                return;
            }
        }
    };
    let found = tokio::time::timeout(std::time::Duration::from_secs(20), repeat).await;

    found.expect("every mark read something again");
    api.stop().await;
}

async fn a_mark_applies_to_a_page_of_another_process(fresh: Fresh) {
    let api = Api::of(Town::found(&fresh, true, FRESH).await);
    let other = api.beside(&fresh, FRESH);
    for n in 0..10 {
        let (one, two) = (format!("o{n}"), format!("n{n}"));
        post_event(&api, &[&one]).await;
        assert_eq!(counts(&feed(&api, "").await).0, 1);
        let event = json!({"type": "Loan", "objects": two, "to": "ada"});
        assert_eq!(other.post("/v1/events", event).await.status, 202);
        other.fan_out().await;
        let shown = feed(&other, "").await;

        let marked = match n % 2 {
            0 => mark(&api, json!({"mark": "read", "to": shown.body["cursor"]})).await,
            _ => {
                let id = ids(&shown);
                mark(&api, json!({"mark": "read", "ids": [id[&one], id[&two]]})).await
            }
        };

        assert_eq!(counts(&marked), (0, 0), "{n}");
    }
    other.stop().await;
    api.stop().await;
}
