//! Users over HTTP: records, preferences and follows.

use chrono::{DateTime, TimeDelta};
use serde_json::{Value, json};
use tidings::clock::Clock;
use tidings::domain::{Cadence, User};

use super::Api;
use crate::support::town::mostly_on_sqlite;
use crate::support::{Fresh, Shorthand, key, kind, user};

mostly_on_sqlite! {
    a_record_is_shown_with_its_address_masked
    writing_a_record_again_keeps_the_users_choices
    only_an_explicit_field_lifts_a_suppression
    a_changed_preference_keeps_the_rest
    turning_a_type_on_again_starts_now
    a_chosen_window_remains_until_it_is_cleared
    deleting_a_user_removes_their_follows
    ids_may_contain_any_printable_characters
    a_list_of_a_thousand_is_stored
}

on_sqlite! {
    a_masked_address_is_rejected_as_input
    the_id_in_a_body_must_match_the_path
    one_bad_record_rejects_its_whole_list
    invalid_preferences_change_nothing
    an_invalid_window_is_rejected_with_advice
}

pub(super) async fn stored(api: &Api, id: &str) -> User {
    let found = api.town.store.users(&[user(id)]).await.unwrap();
    found.into_iter().next().unwrap().unwrap()
}

pub(super) fn eve() -> Value {
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
            "id": "eve", "email": "e…@example.org", "name": "Eve", "confirmed": true, "tz": "Europe/Paris", "quiet": null, "locale": "fr", "brand": null,
            "loc": [2.35, 48.85], "digest": {"cadence": "daily", "weekday": null, "hour": 7},
            "types": {"Loan": {"route": "never", "window": null}}, "suppressed": false, "unsubscribed": false,
        })
    );
    assert_eq!(api.get("/v1/users/nobody").await.code(), "unknown_user");
    api.stop().await;
}

async fn writing_a_record_again_keeps_the_users_choices(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    api.put("/v1/users/eve", eve()).await;

    api.put("/v1/users/eve", json!({"email": "eve@example.com", "confirmed": true})).await;

    let record = stored(&api, "eve").await;
    assert_eq!(record.email.unwrap().to_string(), "e…@example.com");
    assert_eq!((record.name, record.tz), (None, Some(chrono_tz::Europe::Paris)));
    assert_eq!((record.digest.cadence, record.digest.hour), (Some(Cadence::Daily), Some(7)));
    assert_eq!(record.types[&kind("Loan")].since, DateTime::UNIX_EPOCH);
    api.stop().await;
}

async fn only_an_explicit_field_lifts_a_suppression(fresh: Fresh) {
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
    let cleared =
        api.put(path, json!({"digest": {"hour": null}, "tz": null, "types": {"Show": null}})).await;

    assert_eq!(changed.status, 200);
    assert_eq!(changed.body["digest"], json!({"cadence": "weekly", "weekday": "fri", "hour": 7}));
    assert_eq!(changed.body["tz"], "Europe/Paris");
    assert_eq!(
        changed.body["types"],
        json!({"Loan": {"route": "never", "window": null}, "Show": {"route": "never", "window": null}})
    );
    let digest = json!({"cadence": "weekly", "weekday": "fri", "hour": null});
    assert_eq!((&cleared.body["digest"], &cleared.body["tz"]), (&digest, &Value::Null));
    assert_eq!(cleared.body["types"]["Show"], json!({"route": "digest", "window": null}));
    let record = stored(&api, "eve").await;
    assert_eq!(
        (record.email.is_some(), record.confirmed, record.name),
        (true, true, Some("Eve".into()))
    );
    let unknown = api.put("/v1/users/nobody/preferences", json!({})).await;
    assert_eq!((unknown.status, unknown.code()), (404, "unknown_user"));
    api.stop().await;
}

async fn turning_a_type_on_again_starts_now(fresh: Fresh) {
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

async fn a_chosen_window_remains_until_it_is_cleared(fresh: Fresh) {
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
    let cleared = choose(json!({"route": "batch", "window": null})).await;

    assert_eq!(slower, json!({"route": "batch", "window": "1d"}));
    assert_eq!((&same, &back), (&slower, &slower));
    assert_eq!(muted, json!({"route": "never", "window": "1d"}));
    assert_eq!(kept, Some(TimeDelta::days(1)));
    assert_eq!(cleared, json!({"route": "batch", "window": null}));
    choose(json!({"route": "batch", "window": "1h"})).await;
    assert_eq!(choose(Value::Null).await["window"], Value::Null);
    let replaced = json!({"confirmed": true, "types": {"Reply": {"route": "batch"}}});
    choose(json!({"route": "batch", "window": "1h"})).await;
    api.put("/v1/users/ada", replaced).await;
    assert_eq!(stored(&api, "ada").await.types[&kind("Reply")].window, None);
    api.stop().await;
}

async fn deleting_a_user_removes_their_follows(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let gone = api.delete("/v1/users/ada").await;
    let again = api.delete("/v1/users/ada").await;

    assert_eq!(gone.status, 204);
    assert_eq!((again.status, again.code()), (404, "unknown_user"));
    assert_eq!(api.get("/v1/users/ada").await.status, 404);
    let followers = fresh.followers(&key("artist:1"), None, 10).await;
    assert_eq!(followers, [user("ben"), user("dee")]);
    api.stop().await;
}

async fn ids_may_contain_any_printable_characters(fresh: Fresh) {
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
        let put = api.put(&format!("/v1/users/{encoded}"), json!({"name": "N"})).await;
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
        let followers = fresh.followers(&key(name), None, 10).await;
        assert!(followers.is_empty(), "{name}");
    }

    api.stop().await;
}

async fn a_list_of_a_thousand_is_stored(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let users: Vec<Value> = (0..1_000).map(|n| json!({"id": n, "name": format!("P{n}")})).collect();
    let follows: Vec<Value> = (0..1_000).map(|n| json!({"user": n, "key": "artist:9"})).collect();

    let named = api.post("/v1/users", json!({"users": users})).await;
    let listed = api.post("/v1/users", json!(users)).await;
    let followed = api.post("/v1/follows", json!({"follows": follows})).await;

    for accepted in [named, listed, followed] {
        assert_eq!((accepted.status, accepted.body), (200, json!({"taken": 1_000})));
    }
    assert_eq!(stored(&api, "999").await.name.as_deref(), Some("P999"));
    let followers = fresh.followers(&key("artist:9"), None, 2_000).await;
    assert_eq!(followers.len(), 1_000);
    api.stop().await;
}

async fn a_masked_address_is_rejected_as_input(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let mut shown = api.get("/v1/users/ada").await.body;

    let masked = api.put("/v1/users/ada", shown.clone()).await;
    shown["email"] = json!("ada@example.net");
    let whole = api.put("/v1/users/ada", shown).await;

    assert_eq!((masked.status, masked.code()), (400, "invalid_body"));
    assert!(masked.body["detail"].as_str().unwrap().contains("is masked"));
    assert_eq!(whole.status, 204, "{}", whole.body);
    api.stop().await;
}

async fn the_id_in_a_body_must_match_the_path(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let same = api.put("/v1/users/eve", json!({"id": "eve"})).await;
    let other = api.put("/v1/users/eve", json!({"id": "ada"})).await;

    assert_eq!(same.status, 204);
    assert_eq!((other.status, other.code()), (400, "invalid_body"));
    api.stop().await;
}

async fn one_bad_record_rejects_its_whole_list(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    for bad in [
        json!({"name": "no id"}),
        json!({"id": "x", "digest": {"hour": 24}}),
        json!({"id": "x", "tz": "Mars/Base"}),
        json!({"id": {"$ne": ""}}),
        json!({"id": ""}),
    ] {
        let refused = api.post("/v1/users", json!([{"id": "eve"}, bad])).await;
        refused.assert_problem(400, "invalid_body", &bad);
        assert!(refused.body.to_string().contains("users[1]"), "{}", refused.body);
    }
    let follows = json!([{"user": "eve", "key": "artist:9"}, {"user": "eve"}]);
    let refused = api.post("/v1/follows", follows).await;
    assert!(refused.body.to_string().contains("follows[1]"), "{}", refused.body);

    assert_eq!(fresh.users(&[user("eve")]).await.unwrap(), [None]);
    assert!(fresh.followers(&key("artist:9"), None, 1).await.is_empty());
    api.stop().await;
}

async fn invalid_preferences_change_nothing(fresh: Fresh) {
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
        refused.assert_problem(400, "invalid_body", &bad);
    }

    assert_eq!(stored(&api, "ada").await, before);
    api.stop().await;
}

async fn an_invalid_window_is_rejected_with_advice(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let before = stored(&api, "ada").await;

    for bad in ["", "0", "0s", "999ms", "1", "1.5h", "-1h", "1h30m", "31d", "false", "soon"] {
        let types = json!({"types": {"Reply": {"route": "batch", "window": bad}}});
        for path in ["/v1/users/ada/preferences", "/v1/users/ada"] {
            let refused = api.put(path, types.clone()).await;
            refused.assert_problem(400, "invalid_body", &bad);
            let why = match bad {
                "0s" | "999ms" => "is shorter than 1s",
                "31d" => "is longer than 30d",
                _ => "is not a duration such as 90s, 5m, 2h or 30d, from 1s to 30d",
            };
            let expected = format!("window {bad:?} {why}");
            assert_eq!(refused.body["detail"], expected);
            let place = refused.body["location"].as_str().unwrap();
            assert!(place.starts_with("types.Reply.window"), "{place}");
        }
    }
    for bad in [json!(0), json!(3600), json!(1.5), json!(false), json!({}), json!(["1h"])] {
        let types = json!({"types": {"Reply": {"route": "batch", "window": bad}}});
        let refused = api.put("/v1/users/ada/preferences", types).await;
        let expected = "expected a duration as text, such as \"1h\", or null";
        assert_eq!((refused.status, &refused.body["detail"]), (400, &json!(expected)), "{bad}");
    }

    assert_eq!(stored(&api, "ada").await, before);
    api.stop().await;
}
