//! Feed pages: paging is stable, unchanged pages get a 304, and parameters never become query
//! operators.

use std::collections::BTreeSet;
use std::io::Read;

use chrono::TimeDelta;
use flate2::read::GzDecoder;
use serde_json::json;

use super::access::town;
use super::{Answer, Api, answer, objects};
use crate::support::town::mostly_on_sqlite;
use crate::support::{Fresh, assert_contains};

mostly_on_sqlite! {
    pages_do_not_shift_or_overlap_while_events_arrive
    after_a_cursor_a_feed_returns_only_newer_items
    an_unchanged_page_is_a_304
    a_feed_can_be_filtered_by_type_and_days
    an_item_shows_its_object
    an_item_shows_its_text_data_actor_and_reason
    a_page_of_large_objects_ends_early_and_has_a_next_page
}

on_sqlite! {
    a_user_without_a_record_has_an_empty_feed
    a_long_page_is_compressed_if_the_client_accepts_gzip
    head_returns_the_headers_of_get
    invalid_feed_parameters_are_rejected_by_name
    with_a_language_items_have_a_heading_and_a_phrase
}

async fn a_page_of_large_objects_ends_early_and_has_a_next_page(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let works: Vec<String> = (0..5).map(|n| format!("Artwork:A{n}")).collect();
    let data = "x".repeat(900 << 10);
    for n in 0..5 {
        let path = format!("/v1/objects/Artwork/A{n}");
        let put = api.put(&path, json!({"by": path, "data": data})).await;
        assert_eq!(put.status, 204);
    }
    post_events(&api, "Loan", &works).await;

    for (form, list) in [("", "items"), ("&group=about", "groups")] {
        let (mut before, mut sizes, mut found) = (String::new(), Vec::new(), BTreeSet::new());
        loop {
            let path = format!("/v1/users/ada/feed?limit=200{form}{before}");
            let page = api.get(&path).await.body;
            let shown = page[list].as_array().unwrap();
            sizes.push(shown.len());
            found.extend(shown.iter().map(|one| one["id"].to_string()));
            let Some(next) = page["next"].as_str() else {
                break;
            };
            before = format!("&before={next}");
        }
        assert_eq!((sizes, found.len()), (vec![2, 2, 1], 5), "{list}");
    }
    api.stop().await;
}

async fn post_events(api: &Api, kind: &str, ids: &[String]) {
    let event = json!({"type": kind, "objects": ids, "to": ["ada"]});
    assert_eq!(api.post("/v1/events", event).await.status, 202);
    api.fan_out().await;
}

fn works(range: std::ops::Range<u32>) -> Vec<String> {
    range.map(|n| format!("o{n}")).collect()
}

fn text<'a>(page: &'a Answer, field: &str) -> &'a str {
    page.body[field].as_str().unwrap()
}

async fn an_item_shows_its_text_data_actor_and_reason(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let follows = json!({"follows": [{"user": "ada", "key": "artist:7"}]});
    assert_eq!(api.post("/v1/follows", follows).await.status, 200);
    let events = json!([
        {"type": "Comment", "objects": "c1", "to": "ada", "text": "line 3 is too high", "data": {"line": 3},
         "actor": {"id": "ben", "name": "Ben", "url": "https://a.example/ben"}},
        {"type": "Loan", "objects": "o1", "followers_of": "artist:7"},
        {"type": "Loan", "objects": "o2", "followers_of": ["artist:7", "artist:8"]},
    ]);
    assert_eq!(api.post("/v1/events", events).await.status, 202);
    api.fan_out().await;

    let page = api.get("/v1/users/ada/feed").await;

    let item_field = |n: usize, field: &str| page.body["items"][n][field].clone();
    assert_eq!(item_field(2, "text"), "line 3 is too high");
    assert_eq!(item_field(2, "data"), json!({"line": 3}));
    let ben = json!({"id": "ben", "name": "Ben", "url": "https://a.example/ben"});
    assert_eq!(item_field(2, "actor"), ben);
    let reasons = [0, 1, 2].map(|n| item_field(n, "reason"));
    assert_eq!(reasons, ["follows", "follows artist:7", "named"]);
    assert!(page.body["items"][1].get("text").is_none());
    api.stop().await;
}

async fn pages_do_not_shift_or_overlap_while_events_arrive(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_events(&api, "Loan", &works(0..25)).await;
    let mut seen = Vec::new();
    let mut path = "/v1/users/ada/feed?limit=10".to_owned();

    for arriving in 100.. {
        let page = api.get(&path).await;
        seen.extend(objects(&page));
        post_events(&api, "Loan", &works(arriving..arriving + 1)).await;
        let Some(next) = page.body["next"].as_str() else {
            break;
        };
        path = format!("/v1/users/ada/feed?limit=10&before={next}");
    }

    let mut all = works(0..25);
    all.reverse();
    assert_eq!(seen, all);
    api.stop().await;
}

async fn after_a_cursor_a_feed_returns_only_newer_items(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_events(&api, "Loan", &works(0..3)).await;
    let first = api.get("/v1/users/ada/feed").await;
    api.town.clock.advance(TimeDelta::days(1));
    post_events(&api, "Loan", &works(3..5)).await;

    let since = format!("/v1/users/ada/feed?after={}", text(&first, "cursor"));
    let second = api.get(&since).await;
    let nothing = format!("/v1/users/ada/feed?after={}", text(&second, "cursor"));

    assert_eq!(objects(&second), ["o4", "o3"]);
    assert_eq!(api.feed(&nothing).await, [""; 0]);
    api.stop().await;
}

async fn an_unchanged_page_is_a_304(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    api.put("/v1/objects/Artwork/A1", json!({"title": "Nocturne"})).await;
    post_events(&api, "Loan", &["Artwork:A1".into()]).await;
    let poll = |tags: String| {
        let request = api.ask("GET", "/v1/users/ada/feed");
        answer(request.header("If-None-Match", tags))
    };
    let first = api.get("/v1/users/ada/feed").await;
    let tag = first.header("ETag").to_owned();

    for tags in [tag.clone(), tag.replace("W/", ""), format!("\"other\", {tag}"), "*".into()] {
        let unchanged = poll(tags).await;
        assert_eq!((unchanged.status, &unchanged.body), (304, &serde_json::Value::Null));
        assert_eq!(unchanged.header("ETag"), tag);
        let seconds: u32 = unchanged.header("X-Poll-Interval").parse().unwrap();
        assert!((27..=33).contains(&seconds), "{seconds}");
    }
    assert_eq!(first.header("Cache-Control"), "private, no-cache");
    assert_eq!(poll("garbled".into()).await.status, 200);

    api.put("/v1/objects/Artwork/A1", json!({"title": "Nocturne in Blue"})).await;
    let renamed = poll(tag).await;
    post_events(&api, "Loan", &works(0..1)).await;
    let grown = poll(renamed.header("ETag").to_owned()).await;
    api.delete("/v1/objects/Artwork/A1").await;
    let withdrawn = poll(grown.header("ETag").to_owned()).await;

    assert_eq!((renamed.status, grown.status, withdrawn.status), (200, 200, 200));
    assert_eq!(objects(&withdrawn), ["o0"]);
    api.stop().await;
}

async fn a_feed_can_be_filtered_by_type_and_days(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_events(&api, "Loan", &works(0..1)).await;
    api.town.clock.advance(TimeDelta::days(2));
    post_events(&api, "Show & Tell+", &works(1..2)).await;
    post_events(&api, "Loan", &works(2..3)).await;

    assert_eq!(api.feed("/v1/users/ada/feed").await, ["o2", "o1", "o0"]);
    assert_eq!(api.feed("/v1/users/ada/feed?type=Loan").await, ["o2", "o0"]);
    assert_eq!(api.feed("/v1/users/ada/feed?type=Show+%26%20Tell%2B").await, ["o1"]);
    assert_eq!(api.feed("/v1/users/ada/feed?type=$ne").await, [""; 0]);
    api.stop().await;
}

async fn an_item_shows_its_object(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let work = json!({"title": "Nocturne", "by": "J. Whistler", "data": {"year": 1875}});
    api.put("/v1/objects/Artwork/A1", work).await;
    post_events(&api, "Loan", &["Artwork:A1".into()]).await;

    let page = api.get("/v1/users/ada/feed").await;

    assert_eq!(
        page.body,
        json!({
            "items": [{
                "id": "20140419.0", "type": "Loan", "at": "2014-04-19T10:00:00Z", "reason": "named",
                "state": "unseen", "mailed": false,
                "object": {
                    "id": "Artwork:A1", "notifiable": true, "title": "Nocturne", "url": null, "image": null, "by": "J. Whistler",
                    "at": null, "place": null, "data": {"year": 1875},
                },
            }],
            "next": null,
            "unseen": 1,
            "unread": 1,
            "cursor": "c20140419.1",
        })
    );
    api.stop().await;
}

async fn a_user_without_a_record_has_an_empty_feed(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let page = api.get("/v1/users/nobody/feed").await;

    assert_eq!(
        page.body,
        json!({"items": [], "next": null, "unseen": 0, "unread": 0, "cursor": "c"})
    );
    assert_eq!(api.feed("/v1/users/nobody/feed?after=c").await, [""; 0]);
    api.stop().await;
}

async fn a_long_page_is_compressed_if_the_client_accepts_gzip(fresh: Fresh) {
    let config = "server.cors_origins = [\"https://app.example\"]";
    let api = Api::of(town(&fresh, config).await);
    post_events(&api, "Loan", &works(0..20)).await;
    let fetch = async |path: &str, accepted_encodings: &str| {
        let request = api.ask("GET", path).header("Origin", "https://app.example");
        let answer = request.header("Accept-Encoding", accepted_encodings).send();
        let answer = answer.await.unwrap();
        let header = |name: &str| {
            let values = answer.headers().get_all(name).iter();
            let values: Vec<&str> = values.map(|value| value.to_str().unwrap()).collect();
            values.join(", ")
        };
        let headers = ["Content-Encoding", "ETag", "Vary"].map(header);
        (headers, answer.bytes().await.unwrap())
    };
    let page = "/v1/users/ada/feed";

    let ([encoding, tag, vary], plain) = fetch(page, "identity").await;
    let ([small_encoding, small_tag, small_vary], small) = fetch(page, "br;q=1, gzip;q=0.5").await;
    let ([short_encoding, ..], _) = fetch("/v1/users/ada/feed/count", "gzip").await;

    assert_eq!([encoding.as_str(), &small_encoding, &short_encoding], ["", "gzip", ""]);
    assert!(small.len() * 3 < plain.len(), "{} of {}", small.len(), plain.len());
    let mut read = Vec::new();
    GzDecoder::new(&small[..]).read_to_end(&mut read).unwrap();
    assert_eq!(read, plain);
    // Both encodings share one tag, so it must be weak (RFC 9110, section 8.8.3).
    assert_eq!(small_tag, tag);
    assert!(tag.starts_with("W/"), "{tag}");
    for vary in [vary, small_vary] {
        let vary = vary.to_lowercase();
        assert_contains!(vary, "accept-encoding");
        assert_contains!(vary, "origin");
    }
    api.stop().await;
}

async fn head_returns_the_headers_of_get(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let page = api.get("/v1/users/ada/feed").await;

    let head = answer(api.ask("HEAD", "/v1/users/ada/feed")).await;

    assert_eq!((head.status, head.body), (200, serde_json::Value::Null));
    assert_eq!(head.headers.get("ETag"), page.headers.get("ETag"));
    api.stop().await;
}

async fn invalid_feed_parameters_are_rejected_by_name(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_events(&api, "Loan", &works(0..3)).await;

    for (query, name) in [
        ("limit[$ne]=1", "limit[$ne]"),
        ("limit%5B%24ne%5D=1", "limit[$ne]"),
        ("type[$regex]=.*", "type[$regex]"),
        ("$where=1", "$where"),
        ("color=red", "color"),
        ("seen=true", "seen"),
        ("Limit=1", "Limit"),
        ("limit=1&limit=2", "limit"),
        ("limit=", "limit"),
        ("limit", "limit"),
        ("limit=0", "limit"),
        ("limit=201", "limit"),
        ("limit=-1", "limit"),
        ("limit=+1", "limit"),
        ("limit=%2B1", "limit"),
        ("limit=1e1", "limit"),
        ("limit=0x1", "limit"),
        ("limit=99999999999999999999", "limit"),
        ("limit={\"$gt\":0}", "limit"),
        ("before=", "before"),
        ("before=20140419", "before"),
        ("before=20140499.1", "before"),
        ("before[$gt]=20140419.1", "before[$gt]"),
        ("after=20140419.1", "after"),
        ("after=c20140419.x", "after"),
        ("after=c20140419.1-{$ne:1}", "after"),
        ("type=", "type"),
        ("type=a%00b", "type"),
    ] {
        let refused = api.get(&format!("/v1/users/ada/feed?{query}")).await;

        refused.assert_problem(400, "invalid_parameter", &query);
        assert_eq!(refused.body["location"], format!("query parameter {name}"), "{query}");
    }
    for query in ["limit=%FF", "limit=%zz", "%E0%80=1"] {
        let refused = api.get(&format!("/v1/users/ada/feed?{query}")).await;
        refused.assert_problem(400, "invalid_parameter", &query);
    }

    api.stop().await;
}

async fn with_a_language_items_have_a_heading_and_a_phrase(fresh: Fresh) {
    let config = "types.Comment.phrase = \"commented on\"\ntypes.Comment.heading = \"Comments\"\n\
                  types.Loan.heading = \"Loans\"";
    let api = Api::of(town(&fresh, config).await);
    let about = json!({"title": "Yes", "by": "Ben", "data": {"about": {"title": "Budget"}}});
    for (id, object) in [("c1", about), ("c2", json!({"title": "No"}))] {
        let path = format!("/v1/objects/Comment/{id}");
        assert_eq!(api.put(&path, object).await.status, 204);
    }
    post_events(&api, "Comment", &["Comment:c1".into()]).await;
    post_events(&api, "Comment", &["Comment:c2".into()]).await;
    post_events(&api, "Loan", &["Comment:c1".into()]).await;
    let words = |item: &serde_json::Value| {
        ["heading", "phrase", "about"].map(|name| item[name].as_str().unwrap_or("-").to_owned())
    };

    let plain = api.get("/v1/users/ada/feed").await.body;
    let english = api.get("/v1/users/ada/feed?lang=en-GB").await.body;
    let german = api.get("/v1/users/ada/feed?lang=de").await.body;
    let grouped = api.get("/v1/users/ada/feed?lang=en&group=about").await.body;

    let all = |page: &serde_json::Value| {
        page["items"].as_array().unwrap().iter().map(words).collect::<Vec<_>>()
    };
    assert_eq!(all(&plain), [["-", "-", "-"]; 3]);
    let sentence = "{who} commented on {what}";
    assert_eq!(
        all(&english),
        [["Loans", "-", "Budget"], ["Comments", "-", "-"], ["Comments", sentence, "Budget"]]
    );
    // The configured phrase is English, so another language does not use it.
    assert_eq!(
        all(&german),
        [["Loans", "-", "Budget"], ["Comments", "-", "-"], ["Comments", "-", "Budget"]]
    );
    assert_eq!(words(&grouped["groups"][0]["items"][0])[0], "Loans");
    api.stop().await;
}
