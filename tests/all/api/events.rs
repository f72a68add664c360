//! Events over HTTP: each is accepted once and completely, and reports its progress.

use serde_json::{Value, json};
use tidings::domain::Id;

use super::{Api, answer};
use crate::support::town::{Town, mostly_on_sqlite};
use crate::support::{Fresh, Shorthand};

mostly_on_sqlite! {
    an_accepted_event_reaches_the_feeds_of_its_audience
    a_repeated_idempotency_key_returns_the_same_event
    reusing_a_key_for_another_event_conflicts_and_changes_nothing
    a_list_is_accepted_in_order
    an_actor_is_not_notified_by_default
    any_text_is_a_batch_key_and_is_stored_unchanged
    unknown_types_and_objects_cause_warnings
    users_without_a_record_cause_a_warning
    strict_types_reject_unconfigured_types
    concurrent_requests_each_get_their_own_receipt
}

on_sqlite! {
    one_bad_event_rejects_its_whole_list
    a_list_has_1_to_1000_events
    the_idempotency_key_header_is_for_one_event
    an_event_that_was_never_posted_is_unknown
    invalid_batch_keys_are_rejected_with_advice
}

async fn users_without_a_record_cause_a_warning(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let event = |to: Value| json!({"type": "Loan", "objects": "a1", "to": to});

    let one = api.post("/v1/events", event(json!(["ada", "zoe"]))).await;
    let many: Vec<String> = (0..7).map(|n| format!("u{n}")).collect();
    let many = api.post("/v1/events", json!([event(json!("ada")), event(json!(many))]));
    let many = many.await;

    let warnings = |answer: &Value| answer["warnings"].to_string();
    let warning = "there is no record of zoe: events are in their feeds, and nothing is emailed to";
    assert!(warnings(&one.body).contains(warning), "{}", one.body);
    assert_eq!(many.body["events"][0]["warnings"], Value::Null);
    let named = "u0, u1, u2, u3, u4 and 2 more: events are in their feeds";
    let text = warnings(&many.body["events"][1]);
    assert!(text.contains(named), "{text}");
    api.stop().await;
}

async fn strict_types_reject_unconfigured_types(fresh: Fresh) {
    let config = "strict_types = true\nserver.listen = \"127.0.0.1:0\"\n[types.Loan]\n";
    let api = Api::of(Town::found(&fresh, true, config).await);
    let event = |kind: &str| json!({"type": kind, "objects": "a1", "to": "ada"});

    let known = api.post("/v1/events", event("Loan")).await;
    let one = api.post("/v1/events", event("Laon")).await;
    let list = api.post("/v1/events", json!([event("Loan"), event("Laon")])).await;

    assert_eq!(known.status, 202);
    for (answer, place) in [(one, "type"), (list, "events[1].type")] {
        assert_eq!(
            (answer.status, &answer.body["code"], &answer.body["location"]),
            (422, &json!("unknown_type"), &json!(place))
        );
        let detail = answer.body["detail"].as_str().unwrap();
        assert!(detail.contains("did you mean \"Loan\"?"), "{detail}");
    }
    assert_eq!(backlog(&api).await, 1);
    api.stop().await;
}

fn loan() -> Value {
    json!({"type": "Loan", "objects": ["o1", "o2"], "followers_of": "artist:2"})
}

async fn backlog(api: &Api) -> u64 {
    let backlog = api.town.store.backlog().await;
    backlog.pending + backlog.done
}

async fn an_accepted_event_reaches_the_feeds_of_its_audience(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let receipt = api.post("/v1/events", loan()).await;

    assert_eq!((receipt.status, &receipt.body["duplicate"]), (202, &json!(false)));
    let path = receipt.header("Location").to_owned();
    assert_eq!(path, format!("/v1/events/{}", receipt.body["id"].as_str().unwrap()));
    let waiting = api.get(&path).await;
    assert_eq!(waiting.body["state"], "pending");
    api.fan_out().await;
    let done = api.get(&path).await;
    assert_eq!(
        done.body,
        json!({
            "id": receipt.body["id"], "type": "Loan", "objects": ["o1", "o2"], "batch_key": null, "at": "2014-04-19T10:00:00Z", "day": "20140419",
            "state": "done", "counts": {"people": 2, "pushed": 4, "capped": 0},
        })
    );
    assert_eq!(api.feed("/v1/users/cem/feed").await, ["o2", "o1"]);
    assert_eq!(api.feed("/v1/users/ben/feed").await, [""; 0]);
    api.stop().await;
}

async fn a_repeated_idempotency_key_returns_the_same_event(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let with_key = |key: &str| {
        let request = api.ask("POST", "/v1/events").json(&loan());
        answer(request.header("Idempotency-Key", key))
    };
    let mut in_body = loan();
    in_body["key"] = json!("k-1");

    let first = with_key("\"k-1\"").await;
    let bare = with_key("k-1").await;
    let field = api.post("/v1/events", in_body).await;

    assert_eq!(first.body["duplicate"], false);
    for again in [bare, field] {
        assert_eq!((again.status, &again.body["duplicate"]), (202, &json!(true)));
        assert_eq!(again.body["id"], first.body["id"]);
    }
    assert_eq!(backlog(&api).await, 1);
    api.stop().await;
}

async fn reusing_a_key_for_another_event_conflicts_and_changes_nothing(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let with_key = |body: Value| {
        let request = api.ask("POST", "/v1/events").json(&body);
        answer(request.header("Idempotency-Key", "k-1"))
    };

    let first = with_key(loan()).await;
    let other = with_key(json!({"type": "Loan", "objects": ["o3"], "to": ["ben"]})).await;

    other.assert_problem(409, "idempotency_key_reused", &"");
    let detail = other.body["detail"].as_str().unwrap();
    assert!(
        detail.contains("k-1") && detail.contains(first.body["id"].as_str().unwrap()),
        "{detail}"
    );
    assert_eq!(backlog(&api).await, 1);
    api.fan_out().await;
    assert_eq!(api.feed("/v1/users/ben/feed").await, [""; 0]);
    api.stop().await;
}

async fn an_actor_is_not_notified_by_default(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let by = |object: &str, actor: serde_json::Value, tell: bool| json!({"type": "Loan", "objects": object, "to": ["ada", "ben", "7"], "actor": actor, "notify_actor": tell});
    let events = json!([
        by("o1", json!("ada"), false),
        by("o2", json!({"id": "ben"}), false),
        by("o3", json!("ada"), true),
        by("o4", json!(7), false),
    ]);
    let odd = by("o5", json!({"id": "ada", "image": "data:x"}), false);

    assert_eq!(api.post("/v1/events", events).await.status, 202);
    let refused = api.post("/v1/events", odd).await;
    api.fan_out().await;

    assert_eq!(api.feed("/v1/users/ada/feed").await, ["o4", "o3", "o2"]);
    assert_eq!(api.feed("/v1/users/ben/feed").await, ["o4", "o3", "o1"]);
    assert_eq!(api.feed("/v1/users/7/feed").await, ["o3", "o2", "o1"]);
    assert_eq!(refused.status, 400, "{}", refused.body);
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("actor image"), "{detail}");
    api.stop().await;
}

async fn a_list_is_accepted_in_order(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let events: Vec<Value> = (0..1_000)
        .map(|n| json!({"type": "Loan", "objects": [n], "to": ["ada"], "key": format!("k-{n}")}))
        .collect();

    let named = api.post("/v1/events", json!({"events": events})).await;
    let bare = api.post("/v1/events", json!(events)).await;

    assert_eq!((named.status, bare.status), (202, 202));
    let receipts = named.body["events"].as_array().unwrap();
    assert_eq!(receipts.len(), 1_000);
    let ids = |receipts: &Vec<Value>| receipts.iter().map(|r| r["id"].clone()).collect::<Vec<_>>();
    assert_eq!(ids(receipts), ids(bare.body["events"].as_array().unwrap()));
    let last: Id = receipts[999]["id"].as_str().unwrap().parse().unwrap();
    let last = api.town.store.fanout(last).await.unwrap().unwrap();
    assert_eq!(last.objects[0].as_str(), "999");
    api.stop().await;
}

async fn any_text_is_a_batch_key_and_is_stored_unchanged(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let with = |batch_key: &str, key: &str| {
        let mut event = loan();
        (event["batch_key"], event["key"]) = (json!(batch_key), json!(key));
        event
    };
    let longest = "x".repeat(256);
    let keys = ["0", "false", "null", "a.b", "$ne", " ", "type:Loan", &longest];
    let events: Vec<Value> = keys.iter().map(|key| with(key, key)).collect();

    let many = api.post("/v1/events", json!(events)).await;
    let one = api.post("/v1/events", with("acme", "k")).await;
    let again = api.post("/v1/events", with("acme", "k")).await;
    let other = api.post("/v1/events", with("ACME", "k")).await;
    let mut without = loan();
    without["key"] = json!("k");
    let without = api.post("/v1/events", without).await;

    let receipts = many.body["events"].as_array().unwrap().iter();
    for (receipt, key) in receipts.chain([&one.body]).zip(keys.iter().chain(&["acme"])) {
        let path = format!("/v1/events/{}", receipt["id"].as_str().unwrap());
        assert_eq!(api.get(&path).await.body["batch_key"], json!(key));
    }
    assert_eq!((again.status, &again.body["duplicate"]), (202, &json!(true)));
    for another in [other, without] {
        another.assert_problem(409, "idempotency_key_reused", &"");
    }
    assert_eq!(backlog(&api).await, 9);
    api.stop().await;
}

async fn invalid_batch_keys_are_rejected_with_advice(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let long = "x".repeat(257);

    for (bad, reason) in [
        (json!(0), "batch key 0 is not text; if it is meant, write \"0\""),
        (json!(-1.5), "batch key -1.5 is not text; if it is meant, write \"-1.5\""),
        (json!(false), "batch key false is not text; if it is meant, write \"false\""),
        (Value::Null, "batch key null is no key; leave it out for the type's own batch"),
        (json!(""), "batch key \"\" is empty; leave it out for the type's own batch"),
        (json!(long), "is longer than 256 bytes"),
        (json!("a\u{0}b"), "holds a control character"),
        (json!({"$ne": ""}), "batch key is not text; expected a string"),
        (json!(["a"]), "batch key is not text; expected a string"),
    ] {
        let mut event = loan();
        event["batch_key"] = bad.clone();
        let one = api.post("/v1/events", event.clone()).await;
        let many = api.post("/v1/events", json!([loan(), event])).await;

        for (refused, place) in [(one, "batch_key"), (many, "events[1].batch_key")] {
            refused.assert_problem(400, "invalid_body", &bad);
            let detail = refused.body["detail"].as_str().unwrap();
            assert!(detail.contains(reason), "{detail}");
            let location = refused.body["location"].as_str().unwrap();
            assert!(location.starts_with(place), "{location}");
        }
    }

    assert_eq!(backlog(&api).await, 0);
    api.stop().await;
}

async fn one_bad_event_rejects_its_whole_list(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    for bad in [
        json!({"type": "Loan", "objects": ["o1"]}),
        json!({"type": "Loan", "objects": [], "to": ["ada"]}),
        json!({"type": "Loan", "objects": ["o1"], "to": ["ada"], "typo": 1}),
        json!({"type": "Loan", "objects": ["o1"], "to": ["ada"], "followers_of": ["artist:1"]}),
        json!({"type": "Loan", "objects": ["o1"], "near": {"point": [181, 0], "km": 1}}),
        json!({"type": "Loan", "objects": ["o1"], "to": ["ada"], "key": ""}),
        json!("Loan"),
    ] {
        let refused = api.post("/v1/events", json!({"events": [loan(), bad]})).await;

        refused.assert_problem(400, "invalid_body", &bad);
        assert!(refused.body.to_string().contains("events[1]"), "{}", refused.body);
    }

    assert_eq!(backlog(&api).await, 0);
    api.stop().await;
}

async fn a_list_has_1_to_1000_events(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    for count in [0, 1_001] {
        let refused = api.post("/v1/events", json!(vec![loan(); count])).await;
        refused.assert_problem(400, "invalid_body", &count);
    }

    assert_eq!(backlog(&api).await, 0);
    api.stop().await;
}

async fn the_idempotency_key_header_is_for_one_event(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let mut keyed = loan();
    keyed["key"] = json!("other");

    for (body, keys) in [
        (json!([loan()]), vec!["k"]),
        (keyed, vec!["k"]),
        (loan(), vec!["k", "k"]),
        (loan(), vec![""]),
        (loan(), vec!["\"k"]),
    ] {
        let mut request = api.ask("POST", "/v1/events").json(&body);
        for key in keys {
            request = request.header("Idempotency-Key", key);
        }
        let refused = answer(request).await;

        assert_eq!((refused.status, refused.code()), (400, "invalid_parameter"));
        assert_eq!(refused.body["location"], "header Idempotency-Key");
    }

    assert_eq!(backlog(&api).await, 0);
    api.stop().await;
}

async fn an_event_that_was_never_posted_is_unknown(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let unknown = api.get("/v1/events/535254000000000000000001").await;
    let garbled = api.get("/v1/events/1").await;

    assert_eq!((unknown.status, unknown.code()), (404, "unknown_event"));
    assert_eq!((garbled.status, garbled.code()), (400, "invalid_parameter"));
    api.stop().await;
}

async fn unknown_types_and_objects_cause_warnings(fresh: Fresh) {
    let config = "server.listen = \"127.0.0.1:0\"\n[types.Show]\nheading = \"Shows\"";
    let api = Api::of(Town::found(&fresh, true, config).await);
    let event =
        |kind: &str, object: &str| json!({"type": kind, "objects": [object], "to": ["ada"]});

    let known = api.post("/v1/events", event("Show", "a1")).await;
    let misspelled = api.post("/v1/events", event("Shwo", "a1")).await;
    let list = json!([event("Show", "a1"), event("Show", "nowhere")]);
    let list = api.post("/v1/events", list).await;

    assert_eq!([known.status, misspelled.status, list.status], [202; 3]);
    assert_eq!(known.body["warnings"], Value::Null);
    assert!(
        misspelled.body["warnings"][0].as_str().unwrap().contains("\"Shwo\" is not configured")
    );
    let events = list.body["events"].as_array().unwrap();
    assert_eq!(events[0]["warnings"], Value::Null);
    assert!(events[1]["warnings"][0].as_str().unwrap().contains("such as \"nowhere\""));
    api.stop().await;
}

async fn concurrent_requests_each_get_their_own_receipt(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let posts = (0..60).map(|n| {
        // Every third object exists.
        let object = if n % 3 == 0 { "a1".to_owned() } else { format!("x{n}") };
        let event = json!({"type": "ArtworkPublished", "objects": object, "to": ["ada"]});
        let api = &api;
        async move { (n, object, api.post("/v1/events", event).await) }
    });

    let answers = futures::future::join_all(posts).await;

    for (n, object, answer) in answers {
        assert_eq!(answer.status, 202, "{}", answer.body);
        let warning = answer.body["warnings"][0].as_str();
        let is_right = match warning {
            Some(warning) => n % 3 > 0 && warning.contains(&format!("such as {object:?}")),
            None => n % 3 == 0,
        };
        assert!(is_right, "{object}: {}", answer.body);
        let stored = api.get(answer.header("location")).await;
        assert_eq!(stored.body["objects"], json!([object]), "{}", stored.body);
    }
    assert_eq!(backlog(&api).await, 60);
    api.stop().await;
}
