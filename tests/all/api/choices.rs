//! The choices that the preferences page and the API offer a user.

use tidings::domain::Cadence;

use super::Api;
use super::pages::{api, path};
use crate::support::town::{mostly_on_sqlite, saturday};
use crate::support::{Fresh, Shorthand, user};

mostly_on_sqlite! {
    an_unconfigured_type_is_never_offered
    a_type_that_is_not_offered_does_not_affect_other_choices
}

async fn browse(api: &Api, path: &str) -> String {
    let response = api.anonymous("GET", path).send().await.unwrap();
    response.text().await.unwrap()
}

/// Turns loans off on the page. Returns the status.
async fn choose(api: &Api, path: &str) -> u16 {
    submit(api, path, "type.Loan=never").await
}

async fn submit(api: &Api, path: &str, form: &'static str) -> u16 {
    let form = api
        .anonymous("POST", path)
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body(form);
    form.send().await.unwrap().status().as_u16()
}

async fn an_unconfigured_type_is_never_offered(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await + "/preferences";
    let event = serde_json::json!({"type": "Loan", "objects": ["a1"], "to": ["ada"]});
    let posted = api.post("/v1/events", event).await;
    api.fan_out().await;
    let chosen = serde_json::json!({"types": {"Loan": {"route": "never"}}});
    let patched = api.put("/v1/users/ada/preferences", chosen).await;

    let page = browse(&api, &path).await;
    let saved = choose(&api, &path).await;
    let preferences = api.get("/v1/users/ada/preferences").await.body;

    assert_eq!((posted.status, patched.status, saved), (202, 200, 200));
    assert!(!page.contains("Loan"), "{page}");
    assert_eq!(preferences["types"]["Loan"], serde_json::Value::Null);
    assert_eq!(preferences["types"]["ArtworkPublished"]["heading"], "New works");
    assert_eq!(
        preferences["digest"],
        serde_json::json!({"cadence": "weekly", "weekday": "mon", "hour": 9})
    );
    assert_eq!(api.get("/v1/users/nobody/preferences").await.status, 404);
    api.stop().await;
}

async fn a_type_that_is_not_offered_does_not_affect_other_choices(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = format!("{}/preferences", path(&api, "ada", saturday()).await);
    let form = "cadence=daily&type.Loan=never&type.Alert=digest&type.+=digest";
    let saved = submit(&api, &path, form).await;

    assert_eq!(saved, 200);
    let found = api.town.store.user_record(&user("ada")).await;
    let ada = found.unwrap();
    assert_eq!(ada.digest.cadence, Some(Cadence::Daily));
    let chosen: Vec<&str> = ada.types.keys().map(|kind| kind.as_str()).collect();
    assert_eq!(chosen, ["Alert"], "nothing that is not offered is kept");
    api.stop().await;
}
