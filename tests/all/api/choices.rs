//! What can be chosen, on a person's page and over the API.

use super::Api;
use super::pages::{api, path};
use crate::support::Fresh;
use crate::support::town::{on_both_stores, saturday};

on_both_stores! {
    a_type_that_nobody_configured_can_be_turned_off_on_the_page_and_over_the_api
}

/// What the page says.
async fn browse(api: &Api, path: &str) -> String {
    let response = api.anonymous("GET", path).send().await.unwrap();
    response.text().await.unwrap()
}

/// Turns loans off on the page; answers the status.
async fn choose(api: &Api, path: &str) -> u16 {
    let form = api
        .anonymous("POST", path)
        .header("Content-Type", "application/x-www-form-urlencoded")
        .body("type.Loan=never");
    form.send().await.unwrap().status().as_u16()
}

async fn a_type_that_nobody_configured_can_be_turned_off_on_the_page_and_over_the_api(
    fresh: Fresh,
) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await + "/preferences";
    let unseen = choose(&api, &path).await;
    let event = serde_json::json!({"type": "Loan", "objects": ["a1"], "to": ["ada"]});
    let posted = api.post("/v1/events", event).await;
    api.carry().await;

    let page = browse(&api, &path).await;
    let before = api.get("/v1/users/ada/preferences").await.body;
    let saved = choose(&api, &path).await;
    let after = api.get("/v1/users/ada/preferences").await.body;

    assert_eq!((unseen, posted.status, saved), (400, 202, 200));
    assert!(page.contains("name=\"type.Loan\""), "{}", page);
    let holds = |chosen: bool, route: &str| serde_json::json!({"heading": "Loan", "route": route, "window": null, "chosen": chosen});
    assert_eq!(before["types"]["Loan"], holds(false, "digest"));
    assert_eq!(after["types"]["Loan"], holds(true, "never"));
    assert_eq!(before["types"]["ArtworkPublished"]["heading"], "New works");
    assert_eq!(
        before["digest"],
        serde_json::json!({"cadence": "weekly", "weekday": "mon", "hour": 9})
    );
    assert_eq!(api.get("/v1/users/nobody/preferences").await.status, 404);
    api.stop().await;
}
