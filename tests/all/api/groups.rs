//! Feeds in groups: a group counts its items and can be opened, and pages of groups do not shift.

use chrono::TimeDelta;
use serde_json::{Value, json};

use super::{Answer, Api};
use crate::support::town::mostly_on_sqlite;
use crate::support::{Fresh, assert_contains};

mostly_on_sqlite! {
    a_group_has_one_day_one_type_and_one_subject
    pages_of_groups_repeat_no_group_while_events_arrive
    items_url_opens_a_group_with_any_characters_in_its_names
    a_state_filter_applies_to_the_items_of_groups
    marking_a_group_covers_its_items_up_to_the_shown_cursor
    comments_on_one_page_form_one_group
}

on_sqlite! {
    invalid_group_parameters_are_rejected
}

/// Posts one event for each comment. Each pair is a comment id and its thread.
async fn post_comments(api: &Api, person: &str, comments: &[(&str, &str)]) {
    for (id, thread) in comments {
        let object = json!({"title": format!("Comment {id}"), "data": {"about": thread}});
        let put = api.put(&format!("/v1/objects/Comment/{id}"), object).await;
        assert!([200, 204].contains(&put.status), "{}", put.status);
        let key = format!("Comment:{id}");
        let event =
            json!({"type": "Comment", "objects": key, "to": person, "text": format!("word {id}")});
        assert_eq!(api.post("/v1/events", event).await.status, 202);
        api.fan_out().await;
    }
}

async fn groups(api: &Api, query: &str) -> Answer {
    let page = api.get(&format!("/v1/users/ada/feed?group=about{query}")).await;
    assert_eq!(page.status, 200, "{}", page.body);
    page
}

/// Returns `about × count` for each group, in page order.
fn summaries(page: &Answer) -> Vec<String> {
    let groups = page.body["groups"].as_array().unwrap().iter();
    let summaries =
        groups.map(|group| format!("{} × {}", group["about"].as_str().unwrap(), group["count"]));
    summaries.collect()
}

fn ids(items: &Value) -> Vec<&str> {
    let items = items.as_array().unwrap().iter();
    items.map(|item| item["object"]["id"].as_str().unwrap()).collect()
}

async fn a_group_has_one_day_one_type_and_one_subject(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_comments(&api, "ada", &[("c1", "thread:9"), ("c2", "thread:7")]).await;
    api.town.clock.advance(TimeDelta::days(1));
    post_comments(
        &api,
        "ada",
        &[
            ("c3", "thread:9"),
            ("c4", "thread:9"),
            ("c5", "thread:7"),
            ("c6", "thread:9"),
            ("c7", "thread:9"),
        ],
    )
    .await;
    let loan = json!({"type": "Loan", "objects": "Comment:c1", "to": "ada"});
    api.post("/v1/events", loan).await;
    api.fan_out().await;

    let page = groups(&api, "").await;

    assert_eq!(
        summaries(&page),
        ["thread:9 × 1", "thread:9 × 4", "thread:7 × 1", "thread:7 × 1", "thread:9 × 1"]
    );
    let group = &page.body["groups"][1];
    assert_eq!(ids(&group["items"]), ["Comment:c7", "Comment:c6", "Comment:c4"]);
    assert_eq!(group["items"][0]["text"], "word c7");
    assert_eq!((&group["id"], &group["at"]), (&group["items"][0]["id"], &group["items"][0]["at"]));
    assert_eq!((&group["unseen"], &group["unread"]), (&json!(4), &json!(4)));
    // The page counts items, not groups.
    assert_eq!((&page.body["unseen"], &page.body["unread"]), (&json!(8), &json!(8)));
    let all = api.get(group["items_url"].as_str().unwrap()).await;
    assert_eq!(ids(&all.body["items"]), ["Comment:c7", "Comment:c6", "Comment:c4", "Comment:c3"]);
    api.delete("/v1/objects/Comment/c6").await;
    assert_eq!(
        summaries(&groups(&api, "&type=Comment&day=20140420").await),
        ["thread:9 × 3", "thread:7 × 1"]
    );
    api.stop().await;
}

async fn pages_of_groups_repeat_no_group_while_events_arrive(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    for thread in ["t1", "t2", "t3", "t4", "t5"] {
        let comments = [format!("{thread}a"), format!("{thread}b")];
        post_comments(&api, "ada", &[(&comments[0], thread), (&comments[1], thread)]).await;
    }
    let first = groups(&api, "&limit=2").await;
    assert_eq!(summaries(&first), ["t5 × 2", "t4 × 2"]);

    post_comments(&api, "ada", &[("t3c", "t3"), ("t1c", "t1"), ("new", "t6")]).await;

    let next = first.body["next"].as_str().unwrap();
    let second = groups(&api, &format!("&limit=2&before={next}")).await;
    assert_eq!(summaries(&second), ["t2 × 2"]);
    assert_eq!(second.body["next"], Value::Null);
    assert_eq!(second.body["unread"], 13);
    // Groups with new events have moved to the first page.
    assert_eq!(summaries(&groups(&api, "&limit=3").await), ["t6 × 1", "t1 × 3", "t3 × 3"]);
    api.stop().await;
}

async fn items_url_opens_a_group_with_any_characters_in_its_names(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let person = "a b/c+d?&%é";
    post_comments(
        &api,
        person,
        &[("x", "what & why+? 100% é"), ("y", "what & why+? 100% é"), ("z", "else")],
    )
    .await;

    let page = api.get("/v1/users/a%20b%2Fc+d%3F&%25%C3%A9/feed?group=about&state=all").await;

    let url = page.body["groups"][1]["items_url"].as_str().unwrap();
    assert!(url.ends_with("&state=all"), "{url}");
    assert_eq!(ids(&api.get(url).await.body["items"]), ["Comment:y", "Comment:x"]);
    api.stop().await;
}

async fn a_state_filter_applies_to_the_items_of_groups(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_comments(&api, "ada", &[("c1", "t"), ("c2", "t"), ("c3", "t"), ("c4", "u")]).await;
    let page = groups(&api, "").await;
    let id = |n: usize| page.body["groups"][1]["items"][n]["id"].clone();
    let marks = "/v1/users/ada/feed/marks";
    api.post(marks, json!({"mark": "read", "ids": [id(0)]})).await;
    api.post(marks, json!({"mark": "archive", "ids": [id(1)]})).await;

    let current = groups(&api, "").await;
    let unread = groups(&api, "&state=unread").await;
    let all = groups(&api, "&state=all").await;

    assert_eq!(summaries(&current), ["u × 1", "t × 2"]);
    let group = &current.body["groups"][1];
    assert_eq!((&group["unseen"], &group["unread"]), (&json!(1), &json!(1)));
    assert_eq!(summaries(&unread), ["u × 1", "t × 1"]);
    assert_eq!(summaries(&all), ["u × 1", "t × 3"]);
    api.stop().await;
}

async fn invalid_group_parameters_are_rejected(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    for (query, named, why) in [
        ("group=by", "group", "is unknown; the feed is grouped by about only"),
        ("group=about&before=20140422.1~x", "before", "YYYYMMDD.INDEX"),
        ("before=20140422", "before", "YYYYMMDD.INDEX"),
        ("group=about&limit=0", "limit", "is not a number from 1 to 200"),
        ("day=yesterday", "day", "YYYYMMDD"),
    ] {
        let answer = api.get(&format!("/v1/users/ada/feed?{query}")).await;
        assert_eq!(answer.status, 400, "{query}");
        let problem = answer.body.to_string();
        assert_contains!(problem, &format!("query parameter {named}"));
        assert_contains!(problem, why);
    }
    api.stop().await;
}

async fn marking_a_group_covers_its_items_up_to_the_shown_cursor(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    post_comments(&api, "ada", &[("c1", "thread:9")]).await;
    api.town.clock.advance(TimeDelta::days(1));
    let today = [("c2", "thread:9"), ("c3", "thread:7"), ("c4", "thread:9")];
    post_comments(&api, "ada", &today).await;
    let loan = json!({"type": "Loan", "objects": "Comment:c2", "to": "ada"});
    api.post("/v1/events", loan).await;
    api.fan_out().await;
    let page = groups(&api, "").await;
    post_comments(&api, "ada", &[("c5", "thread:9")]).await;
    let mark = async |mark: &str, group: &Value| {
        let marks = json!({
            "mark": mark, "to": page.body["cursor"],
            "type": group["type"], "day": group["day"], "about": group["about"],
        });
        let marked = api.post("/v1/users/ada/feed/marks", marks).await;
        assert_eq!(marked.status, 200, "{}", marked.body);
        marked.body["unread"].as_u64().unwrap()
    };
    let ids_in_state = async |state: &str| {
        let page = api.get(&format!("/v1/users/ada/feed?type=Comment&state={state}")).await;
        let mut ids: Vec<String> = ids(&page.body["items"]).into_iter().map(Into::into).collect();
        ids.sort_unstable();
        ids.join(" ").replace("Comment:", "")
    };
    let group = page.body["groups"].as_array().unwrap().iter();
    let group = group.clone().find(|group| group["count"] == 2).unwrap();
    assert_eq!((&group["type"], &group["about"]), (&json!("Comment"), &json!("thread:9")));

    assert_eq!(mark("read", group).await, 4);
    assert_eq!(ids_in_state("read").await, "c2 c4");
    assert_eq!(mark("archive", group).await, 4);
    assert_eq!(ids_in_state("archived").await, "c2 c4");
    assert_eq!(mark("restore", group).await, 4);
    assert_eq!(mark("unread", group).await, 6);
    assert_eq!(ids_in_state("unread").await, "c1 c2 c3 c4 c5");

    // Marks by day alone, then by `about` alone.
    let to = &page.body["cursor"];
    let of_day = json!({"mark": "read", "to": to, "day": group["day"]});
    api.post("/v1/users/ada/feed/marks", of_day).await;
    assert_eq!(ids_in_state("read").await, "c2 c3 c4");
    let about = json!({"mark": "read", "to": to, "about": "thread:9"});
    api.post("/v1/users/ada/feed/marks", about).await;
    assert_eq!(ids_in_state("unread").await, "c5");
    for beside in [json!({"day": group["day"]}), json!({"about": "thread:9"})] {
        let mut marks = json!({"mark": "read", "ids": [group["id"]]});
        marks.as_object_mut().unwrap().extend(beside.as_object().unwrap().clone());
        let refused = api.post("/v1/users/ada/feed/marks", marks).await;
        assert_eq!(refused.status, 400, "{}", refused.body);
    }
}

async fn comments_on_one_page_form_one_group(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let budget = "https://a.example/docs/1?tab=a b&c";
    let comments = [
        ("c1", "Ada", json!({"title": "Budget", "url": budget})),
        ("c2", "Ben", json!({"title": "Untitled", "url": "https://a.example/docs/2"})),
        ("c3", "Cy", json!({"title": "Untitled"})),
        ("c4", "Ben", json!({"title": "Budget 2027", "url": budget})),
    ];
    for (id, by, about) in comments {
        let object = json!({"by": by, "data": {"about": about}});
        api.put(&format!("/v1/objects/Comment/{id}"), object).await;
        let key = format!("Comment:{id}");
        let event = json!({"type": "Comment", "objects": key, "to": "ada"});
        api.post("/v1/events", event).await;
        api.fan_out().await;
    }

    let page = groups(&api, "").await;

    let expected = [(budget, 2), ("Untitled", 1), ("https://a.example/docs/2", 1)];
    assert_eq!(summaries(&page), expected.map(|(about, count)| format!("{about} × {count}")));
    let group = &page.body["groups"][0];
    let all = api.get(group["items_url"].as_str().unwrap()).await;
    assert_eq!(ids(&all.body["items"]), ["Comment:c4", "Comment:c1"]);
    let mark = json!({
        "mark": "read", "to": page.body["cursor"], "type": "Comment", "day": group["day"],
        "about": group["about"],
    });
    let marked = api.post("/v1/users/ada/feed/marks", mark).await;
    assert_eq!((marked.status, &marked.body["unread"]), (200, &json!(2)));
    api.stop().await;
}
