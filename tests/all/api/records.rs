//! User records over HTTP: partial changes and lists.

use serde_json::{Value, json};
use tidings::domain::Route;

use super::users::{eve, stored};
use super::{Api, answer};
use crate::support::town::mostly_on_sqlite;
use crate::support::{Fresh, kind};

mostly_on_sqlite! {
    a_patch_changes_only_the_fields_it_names
    users_and_their_follows_are_listed_in_pages
}

async fn a_patch_changes_only_the_fields_it_names(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let patch = |patch: Value| {
        let request = api.ask("PATCH", "/v1/users/eve").json(&patch);
        async { answer(request).await }
    };
    assert_eq!(patch(json!({"name": "Eve"})).await.code(), "unknown_user");
    api.put("/v1/users/eve", eve()).await;
    let before = stored(&api, "eve").await;

    let nothing = patch(json!({})).await;
    assert_eq!((nothing.status, stored(&api, "eve").await), (200, before.clone()));
    let renamed =
        patch(json!({"name": "Eva", "digest": {"hour": 9}, "types": {"Show": {"route": "never"}}}))
            .await;
    assert_eq!(renamed.body["name"], "Eva");
    let after = stored(&api, "eve").await;
    let mut expected = before.clone();
    expected.name = Some("Eva".into());
    expected.digest.hour = Some(9);
    expected.types.insert(kind("Show"), after.types[&kind("Show")]);
    assert_eq!(after.types[&kind("Show")].route, Route::Never);
    expected.revision = after.revision;
    assert_eq!(after, expected);

    patch(json!({"name": null, "loc": null, "email": "eva@example.org"})).await;
    let moved = stored(&api, "eve").await;
    assert_eq!((moved.name, moved.loc, moved.confirmed), (None, None, false));
    patch(json!({"confirmed": true, "unsubscribed": true, "suppressed": true})).await;
    let ended = stored(&api, "eve").await;
    assert!(ended.confirmed && ended.unsubscribed.is_some() && ended.suppressed.is_some());
    patch(json!({"digest": {"cadence": "weekly"}, "types": {"Show": {"route": "digest"}}})).await;
    patch(json!({"confirmed": null, "suppressed": null})).await;
    let ended = stored(&api, "eve").await;
    assert!(!ended.confirmed && ended.unsubscribed.is_some() && ended.suppressed.is_none());
    for wrong in [
        json!({"unsubscribed": null}),
        json!({"nme": "Eve"}),
        json!({"digest": {"hour": 24}}),
        json!({"id": "eve"}),
        json!([]),
    ] {
        let refused = patch(wrong.clone()).await;
        refused.assert_problem(400, "invalid_body", &wrong);
    }
    assert_eq!(stored(&api, "eve").await, ended);
    api.stop().await;
}

async fn users_and_their_follows_are_listed_in_pages(fresh: Fresh) {
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
    assert_eq!(api.get("/v1/users?limit=1001").await.code(), "invalid_parameter");
    assert_eq!(
        api.get("/v1/users/nobody/follows").await.body,
        json!({"follows": [], "next": null})
    );
    api.stop().await;
}
