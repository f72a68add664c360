//! Brands over HTTP: unknown brands are rejected, and a brand's link leads to its own pages.

use serde_json::json;
use tidings::domain::{BrandName, StopAction};
use tidings::engine::access::links::Links;

use super::Api;
use super::pages::{SECRET, config};
use crate::support::town::{Town, mostly_on_sqlite, saturday};
use crate::support::{Fresh, Shorthand, assert_contains, user};

mostly_on_sqlite! {
    a_brand_can_be_set_and_cleared_and_an_unknown_one_is_rejected
    a_brand_link_opens_the_pages_of_its_brand_and_unsubscribes
}

const BRANDS: &str = "\n[types.Comment]\nroute = \"batch\"\nbranded = true\n\
    [brands.acme]\nsite.name = \"Acmeish\"\nsite.postal_address = \"1 Acme Road\"\n[brands.umbra]\n";

async fn api(fresh: &Fresh) -> Api {
    let config = format!("site.name = \"Kiosk\"\n{}{BRANDS}", config());
    Api::of(Town::found(fresh, true, &config).await)
}

async fn a_brand_can_be_set_and_cleared_and_an_unknown_one_is_rejected(fresh: Fresh) {
    let api = api(&fresh).await;
    let eve = "/v1/users/eve";

    let put = api.put(eve, json!({"brand": "acme"})).await;
    let shown = api.get(eve).await;
    let unknown = api.put(eve, json!({"brand": "gone"})).await;
    let odd = api.put(eve, json!({"brand": "A b"})).await;
    let patch = |body| api.ask("PATCH", eve).json(&body).send();
    let refused = patch(json!({"brand": "gone"})).await.unwrap().status();
    let changed = patch(json!({"brand": null})).await.unwrap().status();
    let event = |kind: &str, brand: &str| json!({"type": kind, "objects": ["o1"], "to": ["eve"], "brand": brand});
    let accepted = api.post("/v1/events", event("Comment", "umbra")).await;
    let unconfigured = api.post("/v1/events", event("Comment", "gone")).await;
    let digest = api.post("/v1/events", event("ArtworkPublished", "umbra")).await;
    let choice = json!({"types": {"Comment": {"route": "digest"}}});
    let choice = api.put("/v1/users/eve/preferences", choice).await;

    api.fan_out().await;
    let batches = api.get("/v1/batches?key=brand:umbra:type:Comment").await;
    let none = api.get("/v1/batches?key=brand:acme:type:Comment").await;
    let keys = |answer: &super::Answer| answer.body["batches"].as_array().map(Vec::len);

    assert_eq!((keys(&batches), keys(&none)), (Some(1), Some(0)));
    assert_eq!((put.status, &shown.body["brand"]), (204, &json!("acme")));
    assert_eq!((refused.as_u16(), changed.is_success()), (400, true));
    assert_eq!(api.get(eve).await.body["brand"], json!(null));
    assert_eq!(accepted.status, 202, "{}", accepted.body);
    for (answer, why) in [
        (unknown, "the brands are acme, umbra"),
        (odd, "lower-case letters, digits, - and _"),
        (unconfigured, "brand \"gone\" is not configured; the brands are acme, umbra"),
        (digest, "set types.ArtworkPublished.branded = true"),
        (choice, "has events of several brands"),
    ] {
        assert_eq!((answer.status, answer.code()), (400, "invalid_body"));
        let detail = answer.body["detail"].as_str().unwrap_or_default();
        assert!(detail.contains(why), "{why} in {}", answer.body);
    }
}

async fn a_brand_link_opens_the_pages_of_its_brand_and_unsubscribes(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = async |brand: Option<&str>| {
        let mut links = Links::new(fresh.handle(), Some(String::new()), Some(SECRET.into()));
        links.brand = brand.map(|brand| BrandName::new(brand).unwrap());
        let maker = links.link_maker().await.unwrap().unwrap();
        let personal =
            maker.recipient_links(&user("ada"), None, Some(&StopAction::Digest), None, saturday());
        personal.unsubscribe.unwrap()
    };
    let (acme, gone, none) = (path(Some("acme")).await, path(Some("gone")).await, path(None).await);

    let page = api.browse(&acme).await.html;
    let preferences = api.browse(&format!("{acme}/preferences")).await.html;
    let done = api.submit(&acme, "List-Unsubscribe=One-Click").await;

    for html in [&page, &preferences, &done.html] {
        assert_contains!(html, "Acmeish");
        assert_contains!(html, "1 Acme Road");
        assert!(!html.contains("Kiosk"), "{html}");
    }
    let select = preferences.split("name=\"type.Comment\">").nth(1).unwrap();
    let select = select.split("</select>").next().unwrap();
    assert!(select.contains("value=\"batch\"") && !select.contains("value=\"digest\""));
    let never = fresh.user_record(&user("ada")).await.unwrap();
    assert_eq!(never.digest.cadence, Some(tidings::domain::Cadence::Never));
    for other in [gone, none] {
        let html = api.browse(&other).await.html;
        assert!(html.contains("Kiosk") && !html.contains("Acmeish"), "{html}");
    }
}
