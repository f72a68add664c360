//! Objects over HTTP. A withdrawn object disappears from feeds.

use serde_json::{Value, json};

use super::Api;
use crate::support::Fresh;
use crate::support::town::{Town, mostly_on_sqlite};

mostly_on_sqlite! {
    an_object_is_returned_as_it_was_stored
    a_withdrawn_object_leaves_every_feed_at_once
    an_unknown_object_can_be_withdrawn
    the_last_of_duplicate_objects_in_a_list_is_stored
}

on_sqlite! {
    model_names_cannot_contain_a_colon
    objects_in_the_applications_own_collection_are_read_only
    a_link_that_is_not_a_web_address_is_rejected
}

async fn an_object_is_returned_as_it_was_stored(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let mut work = json!({
        "title": "Nocturne", "url": "https://example.org/n", "image": "https://example.org/n.jpg", "by": "J. Whistler",
        "at": "2014-04-01T00:00:00Z", "place": [-0.13, 51.5], "data": {"$where": 1, "year": 1875},
    });

    let put = api.put("/v1/objects/Artwork/A%2F1:2", work.clone()).await;
    let shown = api.get("/v1/objects/Artwork/A%2F1:2").await;
    let back = api.put("/v1/objects/Artwork/A%2F1:2", shown.body.clone()).await;

    assert_eq!((put.status, back.status), (204, 204));
    work["id"] = json!("Artwork:A/1:2");
    work["notifiable"] = json!(true);
    assert_eq!(shown.body, work);
    let unknown = api.get("/v1/objects/Artwork/A2").await;
    assert_eq!((unknown.status, unknown.code()), (404, "unknown_object"));
    api.stop().await;
}

async fn a_withdrawn_object_leaves_every_feed_at_once(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    api.put("/v1/objects/Artwork/A1", json!({"title": "Nocturne"})).await;
    let event = json!({"type": "Loan", "objects": ["Artwork:A1", "o2"], "to": ["ada"]});
    api.post("/v1/events", event).await;
    api.fan_out().await;
    assert_eq!(api.feed("/v1/users/ada/feed").await, ["o2", "Artwork:A1"]);

    let gone = api.delete("/v1/objects/Artwork/A1").await;

    assert_eq!(gone.status, 204);
    assert_eq!(api.feed("/v1/users/ada/feed").await, ["o2"]);
    let record = api.get("/v1/objects/Artwork/A1").await.body;
    assert_eq!((&record["notifiable"], &record["title"]), (&json!(false), &Value::Null));
    api.stop().await;
}

async fn an_unknown_object_can_be_withdrawn(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let event = json!({"type": "Loan", "objects": "Artwork:A7", "to": "ada"});
    api.post("/v1/events", event).await;
    api.fan_out().await;
    assert_eq!(api.feed("/v1/users/ada/feed").await, ["Artwork:A7"]);

    let gone = api.delete("/v1/objects/Artwork/A7").await;
    let again = api.delete("/v1/objects/Artwork/A7").await;

    assert_eq!((gone.status, again.status), (204, 204));
    assert_eq!(api.feed("/v1/users/ada/feed").await, [""; 0]);
    api.stop().await;
}

async fn the_last_of_duplicate_objects_in_a_list_is_stored(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let objects: Vec<Value> = (0..1_000)
        .map(|n| json!({"id": format!("Artwork:{}", n % 999), "title": format!("W{n}")}))
        .collect();

    let accepted = api.post("/v1/objects", json!({"objects": objects})).await;

    assert_eq!((accepted.status, accepted.body), (200, json!({"taken": 1_000})));
    assert_eq!(api.get("/v1/objects/Artwork/0").await.body["title"], "W999");
    assert_eq!(api.get("/v1/objects/Artwork/998").await.body["title"], "W998");
    api.stop().await;
}

async fn model_names_cannot_contain_a_colon(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let refused = api.put("/v1/objects/Art:work/1", json!({})).await;

    assert_eq!((refused.status, refused.code()), (400, "invalid_parameter"));
    api.stop().await;
}

async fn objects_in_the_applications_own_collection_are_read_only(fresh: Fresh) {
    let config = "server.listen = \"127.0.0.1:0\"\nstore = \"mongodb://localhost/gallery\"\nmodels.Show.collection = \"shows\"";
    let api = Api::of(Town::found(&fresh, true, config).await);

    let put = api.put("/v1/objects/Show/1", json!({"title": "T"})).await;
    let gone = api.delete("/v1/objects/Show/1").await;
    let listed = api.post("/v1/objects", json!([{"id": "Artwork:1"}, {"id": "Show:1"}])).await;

    for refused in [put, gone, listed] {
        assert_eq!((refused.status, refused.code()), (400, "invalid_body"));
        assert!(refused.body["detail"].as_str().unwrap().contains("own collection"));
    }
    assert_eq!(api.get("/v1/objects/Artwork/1").await.status, 404);
    api.stop().await;
}

async fn a_link_that_is_not_a_web_address_is_rejected(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let put = api.put("/v1/objects/Artwork/1", json!({"url": "javascript:alert(1)"})).await;
    let listed = json!([{"id": "Artwork:1"}, {"id": "Artwork:2", "image": "data:text/html,x"}]);
    let listed = api.post("/v1/objects", listed).await;

    assert_eq!((put.status, listed.status), (400, 400));
    assert_eq!(listed.body["location"], "objects[1]");
    assert_eq!(api.get("/v1/objects/Artwork/1").await.status, 404);
    api.stop().await;
}
