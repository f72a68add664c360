//! People: records, choices and follows over HTTP.

use chrono::{DateTime, TimeDelta};
use serde_json::{Value, json};
use tidings::clock::Clock;
use tidings::domain::{Cadence, User};

use super::Api;
use crate::support::town::on_both_stores;
use crate::support::{Fresh, Shorthand, key, kind, user};

on_both_stores! {
    a_record_is_shown_with_its_address_masked
    a_record_again_keeps_what_the_person_chose
    only_a_record_that_says_so_lifts_a_suppression
    a_changed_preference_keeps_the_rest
    turning_a_type_on_again_begins_now
    a_window_of_their_own_stays_until_it_is_taken_back
    a_deleted_person_is_gone_with_what_they_follow
    names_of_any_characters_have_records_follows_and_feeds
    many_are_put_at_once
    a_patch_changes_what_it_names_and_nothing_else
    people_and_what_they_follow_are_listed_in_pages
}

on_sqlite! {
    a_shown_address_is_not_taken_back
    the_id_in_a_body_is_that_of_the_path
    one_bad_record_in_a_list_and_nothing_is_put
    a_preference_that_cannot_be_changes_nothing
    a_window_that_cannot_be_is_refused_with_what_to_write
}

async fn stored(api: &Api, id: &str) -> User {
    let found = api.town.store.users(&[user(id)]).await.unwrap();
    found.into_iter().next().unwrap().unwrap()
}

fn eve() -> Value {
    json!({
        "email": "eve@example.org", "name": "Eve", "confirmed": true, "tz": "Europe/Paris", "locale": "fr", "loc": [2.35, 48.85],
        "digest": {"cadence": "daily", "hour": 7}, "types": {"Loan": {"route": "never"}},
    })
}

async fn a_record_is_shown_with_its_address_masked(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let put = api.put("/v1/users/eve", eve()).await;
    let shown = api.get("/v1/users/eve").await;

    assert_eq!((put.status, put.body), (204, Value::Null));
    assert_eq!(
        shown.body,
        json!({
            "id": "eve", "email": "e…@example.org", "name": "Eve", "confirmed": true, "tz": "Europe/Paris", "locale": "fr",
            "loc": [2.35, 48.85], "digest": {"cadence": "daily", "weekday": null, "hour": 7},
            "types": {"Loan": {"route": "never", "window": null}}, "suppressed": false, "unsubscribed": false,
        })
    );
    assert_eq!(api.get("/v1/users/nobody").await.code(), "unknown_user");
    api.stop().await;
}

async fn a_record_again_keeps_what_the_person_chose(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    api.put("/v1/users/eve", eve()).await;

    api.put(
        "/v1/users/eve",
        json!({"email": "eve@example.com", "confirmed": true}),
    )
    .await;

    let record = stored(&api, "eve").await;
    assert_eq!(record.email.unwrap().to_string(), "e…@example.com");
    assert_eq!(
        (record.name, record.tz),
        (None, Some(chrono_tz::Europe::Paris))
    );
    assert_eq!(
        (record.digest.cadence, record.digest.hour),
        (Some(Cadence::Daily), Some(7))
    );
    assert_eq!(record.types[&kind("Loan")].since, DateTime::UNIX_EPOCH);
    api.stop().await;
}

async fn only_a_record_that_says_so_lifts_a_suppression(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let since = api.town.clock.now();
    api.put("/v1/users/eve", json!({"suppressed": true})).await;
    api.town.clock.advance(TimeDelta::hours(1));

    api.put("/v1/users/eve", json!({"name": "Eve"})).await;
    assert_eq!(stored(&api, "eve").await.suppressed, Some(since));
    api.put("/v1/users/eve", json!({"suppressed": true})).await;
    assert_eq!(stored(&api, "eve").await.suppressed, Some(since));
    api.put("/v1/users/eve", json!({"suppressed": false})).await;
    assert_eq!(stored(&api, "eve").await.suppressed, None);

    api.stop().await;
}

async fn a_changed_preference_keeps_the_rest(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    api.put("/v1/users/eve", eve()).await;
    let path = "/v1/users/eve/preferences";

    let change = json!({"digest": {"cadence": "weekly", "weekday": "fri"}, "types": {"Show": {"route": "never"}}});
    let changed = api.put(path, change).await;
    let taken_back = api
        .put(
            path,
            json!({"digest": {"hour": null}, "tz": null, "types": {"Show": null}}),
        )
        .await;

    assert_eq!(changed.status, 200);
    assert_eq!(
        changed.body["digest"],
        json!({"cadence": "weekly", "weekday": "fri", "hour": 7})
    );
    assert_eq!(changed.body["tz"], "Europe/Paris");
    assert_eq!(
        changed.body["types"],
        json!({"Loan": {"route": "never", "window": null}, "Show": {"route": "never", "window": null}})
    );
    let digest = json!({"cadence": "weekly", "weekday": "fri", "hour": null});
    assert_eq!(
        (&taken_back.body["digest"], &taken_back.body["tz"]),
        (&digest, &Value::Null)
    );
    assert_eq!(
        taken_back.body["types"]["Show"],
        json!({"route": "digest", "window": null})
    );
    let record = stored(&api, "eve").await;
    assert_eq!(
        (record.email.is_some(), record.confirmed, record.name),
        (true, true, Some("Eve".into()))
    );
    let nobody = api.put("/v1/users/nobody/preferences", json!({})).await;
    assert_eq!((nobody.status, nobody.code()), (404, "unknown_user"));
    api.stop().await;
}

async fn turning_a_type_on_again_begins_now(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let path = "/v1/users/ada/preferences";
    let route = |route: &str| json!({"types": {"ArtworkPublished": {"route": route}}});
    api.put(path, route("never")).await;
    api.town.clock.advance(TimeDelta::hours(1));
    let now = api.town.clock.now();

    api.put(path, route("digest")).await;
    api.town.clock.advance(TimeDelta::hours(1));
    api.put(path, route("digest")).await;

    let record = stored(&api, "ada").await;
    assert_eq!(record.types[&kind("ArtworkPublished")].since, now);
    api.stop().await;
}

async fn a_window_of_their_own_stays_until_it_is_taken_back(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let path = "/v1/users/ada/preferences";
    let choose = async |chosen: Value| {
        let change = json!({"types": {"Reply": chosen}});
        api.put(path, change).await.body["types"]["Reply"].clone()
    };
    api.put(
        "/v1/users/ada",
        json!({"confirmed": true, "types": {"Reply": {"route": "batch", "window": "60m"}}}),
    )
    .await;
    let since = async || stored(&api, "ada").await.types[&kind("Reply")].since;
    let began = since().await;
    api.town.clock.advance(TimeDelta::hours(1));

    let slower = choose(json!({"route": "batch", "window": "1d"})).await;
    let same = choose(json!({"route": "batch"})).await;
    assert_eq!(since().await, began, "another window is no other route");
    let muted = choose(json!({"route": "never"})).await;
    let back = choose(json!({"route": "batch"})).await;
    api.put("/v1/users/ada", json!({"confirmed": true})).await;
    let kept = stored(&api, "ada").await.types[&kind("Reply")].window;
    let taken_back = choose(json!({"route": "batch", "window": null})).await;

    assert_eq!(slower, json!({"route": "batch", "window": "1d"}));
    assert_eq!((&same, &back), (&slower, &slower));
    assert_eq!(muted, json!({"route": "never", "window": "1d"}));
    assert_eq!(kept, Some(TimeDelta::days(1)));
    assert_eq!(taken_back, json!({"route": "batch", "window": null}));
    choose(json!({"route": "batch", "window": "1h"})).await;
    assert_eq!(choose(Value::Null).await["window"], Value::Null);
    let replaced = json!({"confirmed": true, "types": {"Reply": {"route": "batch"}}});
    choose(json!({"route": "batch", "window": "1h"})).await;
    api.put("/v1/users/ada", replaced).await;
    assert_eq!(stored(&api, "ada").await.types[&kind("Reply")].window, None);
    api.stop().await;
}

async fn a_deleted_person_is_gone_with_what_they_follow(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let gone = api.delete("/v1/users/ada").await;
    let again = api.delete("/v1/users/ada").await;

    assert_eq!(gone.status, 204);
    assert_eq!((again.status, again.code()), (404, "unknown_user"));
    assert_eq!(api.get("/v1/users/ada").await.status, 404);
    let followers = fresh.followers(&key("artist:1"), None, 10).await.unwrap();
    assert_eq!(followers, [user("ben"), user("dee")]);
    api.stop().await;
}

async fn names_of_any_characters_have_records_follows_and_feeds(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let names = [
        ("artist:558", "artist:558"),
        ("a%2Fb", "a/b"),
        ("100%25", "100%"),
        ("%2541", "%41"),
        ("a+b", "a+b"),
        ("%2B", "+"),
        ("%C3%A9ve%E2%80%94%F0%9F%8E%A8", "éve—🎨"),
        ("$where", "$where"),
        ("%7B%22$ne%22:%20%22%22%7D", "{\"$ne\": \"\"}"),
        ("a;b,c=d&e@f", "a;b,c=d&e@f"),
        ("0", "0"),
        ("feed", "feed"),
    ];

    for (encoded, name) in names {
        let put = api
            .put(&format!("/v1/users/{encoded}"), json!({"name": "N"}))
            .await;
        assert_eq!(put.status, 204, "{name}");
        let shown = api.get(&format!("/v1/users/{encoded}")).await;
        assert_eq!(shown.body["id"], name);
        assert_eq!(stored(&api, name).await.id.as_str(), name);

        let path = format!("/v1/users/{encoded}/follows/{encoded}");
        assert_eq!(api.put(&path, Value::Null).await.status, 204);
        let event = json!({"type": name, "objects": [name], "followers_of": name});
        assert_eq!(api.post("/v1/events", event).await.status, 202);
        api.fan_out().await;
        assert_eq!(api.feed(&format!("/v1/users/{encoded}/feed")).await, [name]);
        assert_eq!(api.delete(&path).await.status, 204);
        assert_eq!(api.delete(&path).await.status, 204);
        let followers = fresh.followers(&key(name), None, 10).await.unwrap();
        assert!(followers.is_empty(), "{name}");
    }

    api.stop().await;
}

async fn many_are_put_at_once(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let users: Vec<Value> = (0..1_000)
        .map(|n| json!({"id": n, "name": format!("P{n}")}))
        .collect();
    let follows: Vec<Value> = (0..1_000)
        .map(|n| json!({"user": n, "key": "artist:9"}))
        .collect();

    let named = api.post("/v1/users", json!({"users": users})).await;
    let listed = api.post("/v1/users", json!(users)).await;
    let followed = api.post("/v1/follows", json!({"follows": follows})).await;

    for taken in [named, listed, followed] {
        assert_eq!((taken.status, taken.body), (200, json!({"taken": 1_000})));
    }
    assert_eq!(stored(&api, "999").await.name.as_deref(), Some("P999"));
    let followers = fresh
        .followers(&key("artist:9"), None, 2_000)
        .await
        .unwrap();
    assert_eq!(followers.len(), 1_000);
    api.stop().await;
}

async fn a_patch_changes_what_it_names_and_nothing_else(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let patch = |patch: Value| {
        let request = api.ask("PATCH", "/v1/users/eve").json(&patch);
        async { super::answer(request).await }
    };
    assert_eq!(patch(json!({"name": "Eve"})).await.code(), "unknown_user");
    api.put("/v1/users/eve", eve()).await;
    let before = stored(&api, "eve").await;

    let nothing = patch(json!({})).await;
    assert_eq!(
        (nothing.status, stored(&api, "eve").await),
        (200, before.clone())
    );
    let renamed =
        patch(json!({"name": "Eva", "digest": {"hour": 9}, "types": {"Loan": null}})).await;
    assert_eq!(renamed.body["name"], "Eva");
    let after = stored(&api, "eve").await;
    let mut expected = before.clone();
    expected.name = Some("Eva".into());
    expected.digest.hour = Some(9);
    expected.types.remove(&kind("Loan"));
    expected.digest.since = after.digest.since;
    expected.revision = after.revision;
    assert_eq!(after, expected);

    patch(json!({"name": null, "loc": null, "email": "eva@example.org"})).await;
    let moved = stored(&api, "eve").await;
    assert_eq!(
        (moved.name, moved.loc, moved.confirmed),
        (None, None, false)
    );
    patch(json!({"confirmed": true, "unsubscribed": true, "suppressed": true})).await;
    let ended = stored(&api, "eve").await;
    assert!(ended.confirmed && ended.unsubscribed.is_some() && ended.suppressed.is_some());
    for wrong in [
        json!({"nme": "Eve"}),
        json!({"digest": {"hour": 24}}),
        json!({"id": "eve"}),
        json!([]),
    ] {
        let refused = patch(wrong.clone()).await;
        assert_eq!(
            (refused.status, refused.code()),
            (400, "invalid_body"),
            "{wrong}"
        );
    }
    assert_eq!(stored(&api, "eve").await, ended);
    api.stop().await;
}

async fn people_and_what_they_follow_are_listed_in_pages(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let listed = |path: &'static str, list: &'static str, name: fn(&Value) -> String| {
        let api = &api;
        async move {
            let (mut found, mut query) = (Vec::new(), "?limit=2".to_owned());
            loop {
                let page = api.get(&format!("{path}{query}")).await;
                assert_eq!(page.status, 200, "{}", page.body);
                found.extend(page.body[list].as_array().unwrap().iter().map(name));
                match page.body["next"].as_str() {
                    Some(next) => query = format!("?limit=2&after={}", next.replace(':', "%3A")),
                    None => return found,
                }
            }
        }
    };
    let id = |user: &Value| user["id"].as_str().unwrap().to_owned();
    let key = |key: &Value| key.as_str().unwrap().to_owned();

    let users = listed("/v1/users", "users", id).await;
    let follows = listed("/v1/users/ada/follows", "follows", key).await;

    assert_eq!(users, ["ada", "ben", "cem", "dee"]);
    assert_eq!(follows, ["artist:1", "artist:2"]);
    let first = api.get("/v1/users?limit=1").await;
    assert_eq!(first.body["users"][0]["email"], "a…@example.org");
    assert_eq!(
        api.get("/v1/users?limit=1001").await.code(),
        "invalid_parameter"
    );
    assert_eq!(
        api.get("/v1/users/nobody/follows").await.body,
        json!({"follows": [], "next": null})
    );
    api.stop().await;
}

async fn a_shown_address_is_not_taken_back(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let mut shown = api.get("/v1/users/ada").await.body;

    let masked = api.put("/v1/users/ada", shown.clone()).await;
    shown["email"] = json!("ada@example.net");
    let whole = api.put("/v1/users/ada", shown).await;

    assert_eq!((masked.status, masked.code()), (400, "invalid_body"));
    assert!(
        masked.body["detail"]
            .as_str()
            .unwrap()
            .contains("is masked")
    );
    assert_eq!(whole.status, 204, "{}", whole.body);
    api.stop().await;
}

async fn the_id_in_a_body_is_that_of_the_path(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let same = api.put("/v1/users/eve", json!({"id": "eve"})).await;
    let other = api.put("/v1/users/eve", json!({"id": "ada"})).await;

    assert_eq!(same.status, 204);
    assert_eq!((other.status, other.code()), (400, "invalid_body"));
    api.stop().await;
}

async fn one_bad_record_in_a_list_and_nothing_is_put(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    for bad in [
        json!({"name": "no id"}),
        json!({"id": "x", "digest": {"hour": 24}}),
        json!({"id": "x", "tz": "Mars/Base"}),
        json!({"id": {"$ne": ""}}),
        json!({"id": ""}),
    ] {
        let refused = api.post("/v1/users", json!([{"id": "eve"}, bad])).await;
        assert_eq!(
            (refused.status, refused.code()),
            (400, "invalid_body"),
            "{bad}"
        );
        assert!(
            refused.body.to_string().contains("users[1]"),
            "{}",
            refused.body
        );
    }
    let follows = json!([{"user": "eve", "key": "artist:9"}, {"user": "eve"}]);
    let refused = api.post("/v1/follows", follows).await;
    assert!(
        refused.body.to_string().contains("follows[1]"),
        "{}",
        refused.body
    );

    assert_eq!(fresh.users(&[user("eve")]).await.unwrap(), [None]);
    assert!(
        fresh
            .followers(&key("artist:9"), None, 1)
            .await
            .unwrap()
            .is_empty()
    );
    api.stop().await;
}

async fn a_preference_that_cannot_be_changes_nothing(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let before = stored(&api, "ada").await;

    for bad in [
        json!({"cadence": "daily"}),
        json!({"digest": {"cadence": "hourly"}}),
        json!({"digest": {"hour": 24}}),
        json!({"digest": null}),
        json!({"tz": "Mars/Base"}),
        json!({"types": {"Loan": {"route": "pigeon"}}}),
        json!({"types": {"": {"route": "never"}}}),
        json!({"confirmed": true}),
    ] {
        let refused = api.put("/v1/users/ada/preferences", bad.clone()).await;
        assert_eq!(
            (refused.status, refused.code()),
            (400, "invalid_body"),
            "{bad}"
        );
    }

    assert_eq!(stored(&api, "ada").await, before);
    api.stop().await;
}

async fn a_window_that_cannot_be_is_refused_with_what_to_write(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let before = stored(&api, "ada").await;

    for bad in [
        "", "0", "0s", "999ms", "1", "1.5h", "-1h", "1h30m", "31d", "false", "soon",
    ] {
        let types = json!({"types": {"Reply": {"route": "batch", "window": bad}}});
        for path in ["/v1/users/ada/preferences", "/v1/users/ada"] {
            let refused = api.put(path, types.clone()).await;
            assert_eq!(
                (refused.status, refused.code()),
                (400, "invalid_body"),
                "{bad}"
            );
            let told = format!(
                "window {bad:?} is not a duration such as 90s, 5m, 2h or 30d, from 1s to 30d"
            );
            assert_eq!(refused.body["detail"], told);
            let place = refused.body["location"].as_str().unwrap();
            assert!(place.starts_with("types.Reply.window"), "{place}");
        }
    }
    for bad in [
        json!(0),
        json!(3600),
        json!(1.5),
        json!(false),
        json!({}),
        json!(["1h"]),
    ] {
        let types = json!({"types": {"Reply": {"route": "batch", "window": bad}}});
        let refused = api.put("/v1/users/ada/preferences", types).await;
        let told = "expected a duration as text, such as \"1h\", or null";
        assert_eq!(
            (refused.status, &refused.body["detail"]),
            (400, &json!(told)),
            "{bad}"
        );
    }

    assert_eq!(stored(&api, "ada").await, before);
    api.stop().await;
}
