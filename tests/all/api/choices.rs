//! What can be chosen, on a person's page and over the API.

use chrono::TimeDelta;
use tidings::domain::Cadence;
use tidings::services::Silent;
use tidings::services::notify::Request;

use super::Api;
use super::pages::{api, path};
use crate::support::town::{on_both_stores, request, saturday, to};
use crate::support::{Fresh, kind, user};

on_both_stores! {
    a_type_that_nobody_configured_can_be_turned_off_on_the_page_and_over_the_api
    a_type_that_left_the_page_meanwhile_costs_no_other_choice
}

/// What the page says.
async fn browse(api: &Api, path: &str) -> String {
    let response = api.anonymous("GET", path).send().await.unwrap();
    response.text().await.unwrap()
}

/// Turns loans off on the page; answers the status.
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

async fn a_type_that_nobody_configured_can_be_turned_off_on_the_page_and_over_the_api(
    fresh: Fresh,
) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await + "/preferences";
    // It is not offered yet, so nothing is kept of it.
    let unseen = choose(&api, &path).await;
    let event = serde_json::json!({"type": "Loan", "objects": ["a1"], "to": ["ada"]});
    let posted = api.post("/v1/events", event).await;
    api.fan_out().await;

    let page = browse(&api, &path).await;
    let before = api.get("/v1/users/ada/preferences").await.body;
    let saved = choose(&api, &path).await;
    let after = api.get("/v1/users/ada/preferences").await.body;

    assert_eq!((unseen, posted.status, saved), (200, 202, 200));
    assert!(page.contains("name=\"type.Loan\""), "{}", page);
    let holds = |chosen: bool, route: &str| serde_json::json!({"heading": "Loan", "category": null, "route": route, "window": null, "chosen": chosen, "mandatory": null, "feed": true});
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

async fn a_type_that_left_the_page_meanwhile_costs_no_other_choice(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = format!("{}/preferences", path(&api, "ada", saturday()).await);
    let loan = request(&["a1"], to(&["ada"]), None);
    let loan = Request {
        kind: kind("Loan"),
        ..loan
    };
    let app = api.town.process();
    app.notify().accept(vec![loan]).await.unwrap();
    app.fanouts().drain(&Silent).await.unwrap();
    let shown = browse(&api, &path).await;
    assert!(shown.contains("name=\"type.Loan\""), "{shown}");
    api.town.clock.advance(TimeDelta::days(10));

    let form = "cadence=daily&type.Loan=never&type.Alert=digest&type.+=digest";
    let saved = submit(&api, &path, form).await;

    assert_eq!(saved, 200);
    let found = app.store.users(&[user("ada")]).await.unwrap().remove(0);
    let ada = found.unwrap();
    assert_eq!(ada.digest.cadence, Some(Cadence::Daily));
    let chosen: Vec<&str> = ada.types.keys().map(|kind| kind.as_str()).collect();
    assert_eq!(chosen, ["Alert"], "nothing that is not offered is kept");
    api.stop().await;
}
