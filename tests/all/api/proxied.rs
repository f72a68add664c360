//! A server behind a proxy that publishes it under the path of `server.public_url`.

use reqwest::Method;
use serde_json::{Value, json};

use super::{Api, KEY};
use crate::support::town::Town;
use crate::support::{Fresh, assert_starts_with};

on_sqlite! {
    urls_in_responses_start_with_the_public_path
    requests_with_the_public_path_are_served
    without_a_public_path_urls_start_at_the_root
}

async fn behind(fresh: &Fresh, public_url: &str) -> Api {
    let config = format!("server.listen = \"127.0.0.1:0\"\nserver.public_url = \"{public_url}\"\n");
    Api::of(Town::found(fresh, true, &config).await)
}

/// Sends a request with the key. Returns the response's status, `Location` and body.
async fn ask(api: &Api, method: &str, path: &str, body: Value) -> (u16, String, Value) {
    let method: Method = method.parse().unwrap();
    let url = format!("http://{}{path}", api.addr);
    let request = api.client.request(method, url).bearer_auth(KEY);
    let request = if body.is_null() { request } else { request.json(&body) };
    let response = request.send().await.unwrap();
    let location = response.headers().get("location");
    let location = location.map_or("", |value| value.to_str().unwrap()).to_owned();
    let status = response.status().as_u16();
    (status, location, response.json().await.unwrap_or_default())
}

/// Posts one event. Returns its `Location`, the `items_url` of its group, and the server URL of the
/// API description.
async fn urls(api: &Api) -> [String; 3] {
    api.put("/v1/objects/Comment/c1", json!({"title": "A comment"})).await;
    let event = json!({"type": "Comment", "objects": "Comment:c1", "to": "ada"});
    let (_, location, _) = ask(api, "POST", "/v1/events", event).await;
    api.fan_out().await;
    let page = api.get("/v1/users/ada/feed?group=about").await;
    let (_, _, described) = ask(api, "GET", "/openapi.json", Value::Null).await;
    let text = |value: &Value| value.as_str().unwrap().to_owned();
    let items_url = text(&page.body["groups"][0]["items_url"]);
    [location, items_url, text(&described["servers"][0]["url"])]
}

async fn urls_in_responses_start_with_the_public_path(fresh: Fresh) {
    let api = behind(&fresh, "https://x.example/tidings").await;

    let [location, items_url, server] = urls(&api).await;

    assert!(location.starts_with("/tidings/v1/events/"), "{location}");
    assert_starts_with!(items_url, "/tidings/v1/users/ada/feed?");
    assert_eq!(server, "/tidings");
    let (_, _, missing) = ask(&api, "GET", "/nothing", Value::Null).await;
    let detail = missing["detail"].as_str().unwrap();
    assert!(detail.contains("/tidings/openapi.json"), "{detail}");
    // The paths also work for a caller that reaches the server directly.
    assert_eq!(ask(&api, "GET", &location, Value::Null).await.0, 200);
    let (status, _, page) = ask(&api, "GET", &items_url, Value::Null).await;
    assert_eq!((status, page["items"].as_array().unwrap().len()), (200, 1));
    api.stop().await;
}

async fn requests_with_the_public_path_are_served(fresh: Fresh) {
    let api = behind(&fresh, "https://x.example/news/tidings").await;

    for (path, status) in [
        ("/news/tidings/v1/users/ad%2Fa/feed/count?", 200),
        ("/news/tidings/healthz", 200),
        ("/news/tidings/widget.js", 200),
        ("/news/tidings/u/none", 404),
        ("/news/tidingsv1/users/ada/feed", 404),
        ("/news/tidings", 404),
        ("/news/tidings/", 404),
        ("/healthz", 200),
    ] {
        assert_eq!(ask(&api, "GET", path, Value::Null).await.0, status, "{path}");
    }
    api.stop().await;
}

async fn without_a_public_path_urls_start_at_the_root(fresh: Fresh) {
    let api = behind(&fresh, "https://x.example").await;

    let [location, items_url, server] = urls(&api).await;

    assert!(location.starts_with("/v1/events/"), "{location}");
    assert!(items_url.starts_with("/v1/users/ada/feed?"), "{items_url}");
    assert_eq!(server, "/");
    api.stop().await;
}
