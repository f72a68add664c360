//! Size and time limits: input within them is stored by both stores, and input beyond them is
//! rejected with the limit.

use serde_json::{Value, json};

use super::{Answer, Api};
use crate::support::town::on_both_stores;
use crate::support::{Fresh, Shorthand, lease};

on_both_stores! {
    an_event_outside_the_window_is_rejected_with_the_valid_range
    an_audience_may_have_a_hundred_thousand_long_ids
    data_within_the_limit_is_stored_and_larger_data_is_rejected
    a_thousand_choices_are_stored_and_more_are_rejected
}

fn on(at: &str) -> Value {
    json!({"type": "Loan", "objects": ["o1"], "to": ["ada"], "at": at})
}

fn detail(answer: &Answer) -> &str {
    answer.body["detail"].as_str().unwrap()
}

async fn an_event_outside_the_window_is_rejected_with_the_valid_range(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let first = api.post("/v1/events", on("2014-04-12T00:00:00Z")).await;
    let soon = api.post("/v1/events", on("2014-04-19T10:05:00Z")).await;
    let early = api.post("/v1/events", on("2014-04-11T23:59:59Z")).await;
    let late = api.post("/v1/events", on("2014-04-19T10:05:01Z")).await;
    let seconds = api.post("/v1/events", on("1970-01-17T04:18:00Z")).await;
    let listed = json!({"events": [on("2014-04-19T10:00:00Z"), on("2014-03-01T00:00:00Z")]});
    let listed = api.post("/v1/events", listed).await;

    assert_eq!((first.status, soon.status), (202, 202), "{}", soon.body);
    for refused in [&early, &late, &seconds, &listed] {
        let problem = (refused.status, refused.code());
        assert_eq!(problem, (422, "time_out_of_range"), "{}", refused.body);
        assert!(detail(refused).contains("2014-04-12T00:00:00"), "{}", detail(refused));
        assert!(detail(refused).contains("2014-04-19T10:05:00"), "{}", detail(refused));
    }
    assert!(detail(&early).contains("2014-04-11T23:59:59"), "{}", detail(&early));
    assert!(detail(&seconds).contains("milliseconds"), "{}", detail(&seconds));
    assert_eq!(listed.body["location"], "events[1]");
    let backlog = api.town.store.backlog().await;
    assert_eq!(backlog.pending, 2);
    api.stop().await;
}

async fn an_audience_may_have_a_hundred_thousand_long_ids(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let named =
        |count: usize| -> Vec<String> { (0..count).map(|n| format!("{n:0>100}")).collect() };
    let event = |field: &str, people: Vec<String>| {
        let mut event = json!({"type": "Loan", "objects": ["o1"], "key": "k", "to": ["ada"]});
        event[field] = json!(people);
        event
    };

    let first = api.post("/v1/events", event("to", named(100_000))).await;
    let again = api.post("/v1/events", event("to", named(100_000))).await;
    let fewer = api.post("/v1/events", event("to", named(99_999))).await;
    let except = api.post("/v1/events", event("except", named(20_000))).await;
    let longer: Vec<String> = named(100_000).iter().map(|id| format!("{id}-longer")).collect();
    let longer = api.post("/v1/events", event("to", longer)).await;
    let many: Vec<u32> = (0..100_001).collect();
    let many = json!({"type": "Loan", "objects": ["o1"], "to": many});
    let many = api.post("/v1/events", many).await;

    assert_eq!((first.status, again.status), (202, 202), "{}", first.body);
    assert_eq!(again.body["duplicate"], true);
    fewer.assert_problem(409, "idempotency_key_reused", &"");
    for (refused, limit) in [(&except, "10000"), (&longer, "10485760"), (&many, "100000")] {
        let problem = (refused.status, refused.code());
        assert_eq!(problem, (413, "limit_exceeded"), "{}", refused.body);
        assert!(detail(refused).contains(limit), "{}", detail(refused));
    }
    let claimed = api.town.store;
    let now = crate::support::town::saturday();
    let claimed = claimed.claim_fanouts(&lease("one", now), now, 10.into()).await.unwrap().fanouts;
    let audience = named(100_000).into_iter().map(|id| crate::support::user(&id));
    let audience = tidings::domain::Audience::users(audience).unwrap();
    assert!(claimed.len() == 1 && claimed[0].audience == audience);
}

async fn data_within_the_limit_is_stored_and_larger_data_is_rejected(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let with = |numbers: usize| json!({"id": "Show:1", "data": vec![1; numbers]});
    // A list of n numbers is 2n + 1 bytes.
    let most = (1 << 19) - 1;

    let largest = api.post("/v1/objects", json!([with(most)])).await;
    let larger = api.post("/v1/objects", json!([with(most + 1)])).await;
    let huge = api.post("/v1/objects", json!([with(3_000_000)])).await;
    let title = json!([{"id": "Show:1", "title": "x".repeat(15 << 20)}]);
    let title = api.post("/v1/objects", title).await;

    assert_eq!(largest.status, 200, "{}", largest.body);
    for refused in [&larger, &huge, &title] {
        let problem = (refused.status, refused.code());
        assert_eq!(problem, (413, "limit_exceeded"), "{}", refused.body);
        assert_eq!(refused.body["location"], "objects[0]");
    }
    assert!(detail(&huge).contains("data") && detail(&huge).contains("1048576"));
    assert!(detail(&title).contains("title"), "{}", detail(&title));
    let shown = api.get("/v1/objects/Show/1").await;
    assert_eq!(shown.body["data"].as_array().unwrap().len(), most);
    api.stop().await;
}

async fn a_thousand_choices_are_stored_and_more_are_rejected(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let types = |from: usize, to: usize| -> Value {
        let choice = |n: usize| (format!("t{n}"), json!({"route": "never"}));
        Value::Object((from..to).map(choice).collect())
    };
    let prefer = |types: Value| json!({"types": types});
    let path = "/v1/users/ada/preferences";

    let whole = json!([{"id": "eve", "types": types(0, 500_000)}]);
    let whole = api.post("/v1/users", whole).await;
    let thousand = api.put(path, prefer(types(0, 1_000))).await;
    let more = api.put(path, prefer(types(1_000, 1_001))).await;
    let other = api.put(path, prefer(types(0, 1))).await;
    let name = api.put("/v1/users/eve", json!({"name": "x".repeat(2_000)})).await;

    for refused in [&whole, &more, &name] {
        let problem = (refused.status, refused.code());
        assert_eq!(problem, (413, "limit_exceeded"), "{}", refused.body);
    }
    assert!(detail(&more).contains("1000"), "{}", detail(&more));
    assert_eq!((thousand.status, other.status), (200, 200));
    assert_eq!(api.get("/v1/users/eve").await.status, 404);
    let stopped = api.post("/v1/users", json!([{"id": "ada", "unsubscribed": true}])).await;
    assert_eq!(stopped.status, 200, "{}", stopped.body);
    api.stop().await;
}
