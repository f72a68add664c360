//! Batches over HTTP: inspect, close and cancel them, and retract events from them.

use serde_json::{Value, json};

use super::{Answer, Api};
use crate::support::Fresh;
use crate::support::town::{Town, mostly_on_sqlite};

mostly_on_sqlite! {
    a_batch_shows_its_items_and_its_delivery
    batches_are_filtered_by_user_key_and_state_and_paged
    an_open_batch_can_be_closed_or_canceled_but_an_ended_one_conflicts
    retracted_events_leave_open_batches_and_feeds
    a_lead_is_shown_apart_from_the_items_after_it
    a_batch_closed_before_its_lead_was_sent_emails_both
}

on_sqlite! {
    invalid_batch_requests_are_rejected_with_advice
}

const COMMENTS: &str = r#"
server.listen = "127.0.0.1:0"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
types.ArtworkPublished.keep = "last 2"
"#;

async fn serve_batches(fresh: &Fresh, more: &str) -> Api {
    Api::of(Town::found(fresh, true, &format!("{COMMENTS}{more}")).await)
}

/// Posts one event to these users, with an optional batch key, and fans it out.
async fn post_event(api: &Api, object: &str, to: &[&str], batch_key: Option<&str>) {
    let mut event = json!({"type": "ArtworkPublished", "objects": object, "to": to});
    if let Some(key) = batch_key {
        event["batch_key"] = json!(key);
    }
    assert_eq!(api.post("/v1/events", event).await.status, 202);
    api.fan_out().await;
}

async fn list_batches(api: &Api, query: &str) -> Vec<Value> {
    let page = api.get(&format!("/v1/batches{query}")).await;
    assert_eq!(page.status, 200, "{query}: {}", page.body);
    page.body["batches"].as_array().unwrap().clone()
}

fn id(batch: &Value) -> &str {
    batch["id"].as_str().unwrap()
}

fn refusal(answer: &Answer) -> (u16, &str, &str) {
    let detail = answer.body["detail"].as_str().unwrap_or("");
    (answer.status, answer.code(), detail)
}

async fn a_batch_shows_its_items_and_its_delivery(fresh: Fresh) {
    let api = serve_batches(&fresh, "").await;
    for object in ["a1", "a2", "unheard-of"] {
        post_event(&api, object, &["ada"], None).await;
    }

    let open = list_batches(&api, "").await.remove(0);
    api.town.send_due_in(5).await;
    let closed = api.get(&format!("/v1/batches/{}", id(&open))).await.body;

    let expected = json!({
        "id": id(&open), "user": "ada", "key": "type:ArtworkPublished", "state": "open",
        "count": 3, "more": 1,
        "items": [
            {"type": "ArtworkPublished", "object": "a2", "title": "Work a2.", "at": "2014-04-19T10:00:00Z"},
            {"type": "ArtworkPublished", "object": "unheard-of", "title": null, "at": "2014-04-19T10:00:00Z"},
        ],
        "lead_sent": false,
        "opened_at": "2014-04-19T10:00:00Z", "last_event_at": "2014-04-19T10:00:00Z",
        "closes_at": "2014-04-19T10:05:00Z", "held_until": null, "settled_at": null, "delivery": null,
    });
    assert_eq!(open, expected);
    let outcome =
        |batch: &Value| ["state", "settled_at", "delivery"].map(|field| batch[field].clone());
    let delivery = json!({"id": format!("batch:{}", id(&open)), "state": "sent", "reason": null});
    assert_eq!(outcome(&closed), [json!("closed"), json!("2014-04-19T10:05:00Z"), delivery]);
    assert_eq!(closed["items"], open["items"]);
    api.stop().await;
}

async fn batches_are_filtered_by_user_key_and_state_and_paged(fresh: Fresh) {
    let api = serve_batches(&fresh, "").await;
    post_event(&api, "a1", &["ada", "ben"], None).await;
    post_event(&api, "a2", &["ada", "cem"], Some("acme & sons/0")).await;
    post_event(&api, "a3", &["ada"], Some("type:ArtworkPublished")).await;
    let whose = |batches: &[Value]| {
        let owners = |one: &Value| {
            format!("{} {}", one["user"].as_str().unwrap(), one["key"].as_str().unwrap())
        };
        let mut owners: Vec<String> = batches.iter().map(owners).collect();
        owners.sort();
        owners
    };

    assert_eq!(list_batches(&api, "?user=ada").await.len(), 3);
    let of_type = list_batches(&api, "?key=type:ArtworkPublished").await;
    assert_eq!(whose(&of_type), ["ada type:ArtworkPublished", "ben type:ArtworkPublished"]);
    let of_key = list_batches(&api, "?key=key%3Aacme+%26+sons%2F0&user=cem").await;
    assert_eq!(whose(&of_key), ["cem key:acme & sons/0"]);
    assert_eq!(list_batches(&api, "?key=key:acme").await.len(), 0, "it is no prefix");
    assert_eq!(list_batches(&api, "?user=nobody").await.len(), 0);
    let canceled = api.post(&format!("/v1/batches/{}/cancel", id(&of_key[0])), json!({})).await;
    assert_eq!(canceled.status, 200, "{}", canceled.body);
    assert_eq!(whose(&list_batches(&api, "?state=canceled").await), ["cem key:acme & sons/0"]);
    assert_eq!(list_batches(&api, "?state=open").await.len(), 4);

    let (mut paged, mut path) = (Vec::new(), "/v1/batches?limit=2".to_owned());
    loop {
        let page = api.get(&path).await;
        assert_eq!(page.status, 200, "{path}: {}", page.body);
        paged.extend(page.body["batches"].as_array().unwrap().iter().map(|one| id(one).to_owned()));
        let Some(next) = page.body["next"].as_str() else {
            break;
        };
        path = format!("/v1/batches?limit=2&before={next}");
    }
    let all: Vec<String> =
        list_batches(&api, "").await.iter().map(|one| id(one).to_owned()).collect();
    assert_eq!((paged.len(), &paged), (5, &all));
    assert!(all.is_sorted_by(|newer, older| newer > older), "{all:?}");
    api.stop().await;
}

async fn an_open_batch_can_be_closed_or_canceled_but_an_ended_one_conflicts(fresh: Fresh) {
    let api = serve_batches(&fresh, "").await;
    post_event(&api, "a1", &["ada", "ben"], None).await;
    let of = async |person: &str| {
        let batch = list_batches(&api, &format!("?user={person}")).await.remove(0);
        format!("/v1/batches/{}", id(&batch))
    };
    let (ada, ben) = (of("ada").await, of("ben").await);

    // The body is optional.
    let closed = api.post(&format!("{ada}/close"), json!({})).await;
    let canceled = super::answer(api.ask("POST", &format!("{ben}/cancel"))).await;
    let twice = api.post(&format!("{ada}/close"), json!({})).await;
    api.town.send_due().await;
    let late = [
        api.post(&format!("{ada}/cancel"), json!({})).await,
        api.post(&format!("{ben}/close"), json!({})).await,
    ];

    assert_eq!((closed.status, &closed.body["state"]), (200, &json!("closing")));
    assert_eq!(closed.body["closes_at"], "2014-04-19T10:00:00Z");
    assert_eq!((canceled.status, &canceled.body["state"]), (200, &json!("canceled")));
    assert_eq!(canceled.body["settled_at"], "2014-04-19T10:00:00Z");
    let name = |path: &str| path.rsplit('/').next().unwrap().to_owned();
    let (ada, ben) = (name(&ada), name(&ben));
    let why = format!("batch {ada} is closing: its email may be on its way");
    assert_eq!(refusal(&twice), (409, "batch_ended", why.as_str()));
    assert_eq!(refusal(&late[0]), (409, "batch_ended", format!("batch {ada} is closed").as_str()));
    assert_eq!(
        refusal(&late[1]),
        (409, "batch_ended", format!("batch {ben} is canceled").as_str())
    );
    let recipients: Vec<String> =
        api.town.emails().iter().map(|email| email.to.reveal().to_owned()).collect();
    assert_eq!(recipients, ["ada@example.org"]);
    api.stop().await;
}

async fn retracted_events_leave_open_batches_and_feeds(fresh: Fresh) {
    let api = serve_batches(&fresh, "").await;
    post_event(&api, "a1", &["ada", "ben"], None).await;
    post_event(&api, "a2", &["ada"], None).await;
    post_event(&api, "a3", &["ada"], None).await;
    post_event(&api, "a3", &["cem"], Some("acme")).await;
    let retract = async |objects: Value| {
        let body = json!({"type": "ArtworkPublished", "objects": objects});
        super::answer(api.ask("DELETE", "/v1/events").json(&body)).await
    };

    let other_type = json!({"type": "Comment", "objects": ["a1", "a3"]});
    let other_type = super::answer(api.ask("DELETE", "/v1/events").json(&other_type)).await;
    // Ada's batch keeps its last two items: it counts a1, but does not keep it.
    let out = retract(json!(["a1", "a3", "x"])).await;
    let again = retract(json!("a3")).await;

    let not_configured =
        "type \"Comment\" is not configured, though others are: check its spelling";
    assert_eq!(
        other_type.body,
        json!({"taken": 0, "omitted": 0, "objects": ["a1", "a3"], "warnings": [not_configured]})
    );
    assert_eq!(
        (out.status, &out.body),
        (
            200,
            &json!({"taken": 3, "omitted": 1, "objects": ["a1", "a3", "x"], "warnings": [
                "there is no record of \"x\"; check the ids"
            ]})
        )
    );
    assert_eq!(again.body, json!({"taken": 0, "omitted": 0, "objects": ["a3"]}));
    let summary = |one: &Value| (one["user"].clone(), one["state"].clone(), one["count"].clone());
    let mut batches: Vec<_> = list_batches(&api, "").await.iter().map(summary).collect();
    batches.sort_by_key(|(user, ..)| user.to_string());
    let expected = [("ada", "open", 2), ("ben", "canceled", 0), ("cem", "canceled", 0)];
    assert_eq!(
        batches,
        expected.map(|(user, state, count)| (json!(user), json!(state), json!(count)))
    );
    assert_eq!(api.feed("/v1/users/cem/feed").await, [""; 0]);
    assert_eq!(api.feed("/v1/users/ada/feed").await, ["a2"]);
    let count = api.get("/v1/users/ada/feed/count").await.body;
    assert_eq!((&count["unseen"], &count["unread"]), (&json!(1), &json!(1)));
    api.stop().await;
}

async fn a_lead_is_shown_apart_from_the_items_after_it(fresh: Fresh) {
    let api = serve_batches(&fresh, "types.ArtworkPublished.leading = true").await;
    post_event(&api, "a1", &["ada"], None).await;
    let open = list_batches(&api, "?state=open").await.remove(0);
    api.town.send_due().await;
    post_event(&api, "a2", &["ada"], None).await;

    let rest = api.get(&format!("/v1/batches/{}", id(&open))).await.body;
    let lead = list_batches(&api, "?state=closed").await.remove(0);

    assert_eq!((&open["count"], &open["lead_sent"]), (&json!(0), &json!(true)));
    assert_eq!((&rest["count"], &rest["lead_sent"]), (&json!(1), &json!(true)));
    assert_eq!(
        (&lead["items"][0]["object"], &lead["delivery"]["state"]),
        (&json!("a1"), &json!("sent"))
    );
    api.stop().await;
}

async fn a_batch_closed_before_its_lead_was_sent_emails_both(fresh: Fresh) {
    let api = serve_batches(&fresh, "types.ArtworkPublished.leading = true").await;
    post_event(&api, "a1", &["ada", "ben"], None).await;
    post_event(&api, "a2", &["ada"], None).await;

    for batch in list_batches(&api, "?state=open").await {
        let path = format!("/v1/batches/{}/close", id(&batch));
        let closed = api.post(&path, json!({})).await;
        assert_eq!(closed.body["lead_sent"], true, "{}", closed.body);
    }
    api.town.send_due().await;

    assert_eq!(api.town.emails().len(), 3);
    let summary = |one: &Value| (one["user"].clone(), one["state"].clone(), one["count"].clone());
    let mut ended: Vec<_> = list_batches(&api, "").await.iter().map(summary).collect();
    ended.sort_by_key(|ended| format!("{ended:?}"));
    let expected =
        [("ada", "closed", 1), ("ada", "closed", 1), ("ben", "canceled", 0), ("ben", "closed", 1)];
    assert_eq!(
        ended,
        expected.map(|(user, state, count)| (json!(user), json!(state), json!(count)))
    );
    api.stop().await;
}

async fn invalid_batch_requests_are_rejected_with_advice(fresh: Fresh) {
    let api = serve_batches(&fresh, "").await;
    for (query, why) in [
        ("user=", "user id \"\" is empty"),
        ("key=Comment", "batch key \"Comment\" does not begin with type: or key:"),
        ("key=key:", "batch key \"\" is empty"),
        ("state=done", "batch state \"done\" is not open, closing, closed or canceled"),
        (
            "state[$ne]=open",
            "parameter \"state[$ne]\" is not known; there are user, key, state, limit, before",
        ),
        ("limit=0", "limit \"0\" is not from 1 to 200"),
        ("limit=201", "limit \"201\" is not from 1 to 200"),
        ("before=1", "id \"1\" is not 24 hexadecimal digits"),
        ("state=open&state=open", "is given twice"),
    ] {
        let refused = api.get(&format!("/v1/batches?{query}")).await;
        let (status, code, detail) = refusal(&refused);
        assert_eq!((status, code), (400, "invalid_parameter"), "{query}");
        assert!(detail.contains(why), "{query}: {detail}");
    }
    let unknown_id = "0123456789abcdef01234567";
    for (method, end) in [("GET", ""), ("POST", "/close"), ("POST", "/cancel")] {
        let missing =
            super::answer(api.ask(method, &format!("/v1/batches/{unknown_id}{end}"))).await;
        let garbled =
            super::answer(api.ask(method, &format!("/v1/batches/%7B%22$ne%22:1%7D{end}"))).await;
        let stranger =
            super::answer(api.anonymous(method, &format!("/v1/batches/{unknown_id}{end}"))).await;
        missing.assert_problem(404, "unknown_batch", &format_args!("{method} {end}"));
        garbled.assert_problem(400, "invalid_parameter", &format_args!("{method} {end}"));
        assert_eq!(stranger.status, 401, "{method} {end}");
    }
    for (method, path, allow) in [
        ("DELETE", "/v1/batches", "GET, HEAD"),
        ("DELETE", "/v1/batches/1", "GET, HEAD"),
        ("GET", "/v1/batches/1/close", "POST"),
        ("PUT", "/v1/batches/1/cancel", "POST"),
        ("PUT", "/v1/events", "POST, DELETE"),
    ] {
        let refused = super::answer(api.ask(method, path)).await;
        assert_eq!((refused.status, refused.header("Allow")), (405, allow), "{method} {path}");
    }
    api.stop().await;
}
