//! P10: bad input gets a clear error and changes nothing. It does not even reach the store.

use std::fmt::Write;

use serde_json::json;
use tidings::http::api;

use super::{Answer, Api, KEY, answer};
use crate::support::town::Town;
use crate::support::{FailingStore, Fresh};

on_sqlite! {
    bad_input_gets_a_clear_error_and_never_reaches_the_store
    every_route_rejects_unknown_parameters
    invalid_paths_are_rejected
    a_body_must_be_json_of_a_limited_size
    every_path_lists_its_allowed_methods
}

/// Invalid bodies: method, path, body.
const BODIES: &[(&str, &str, &str)] = &[
    ("POST", "/v1/events", ""),
    ("POST", "/v1/events", "{"),
    ("POST", "/v1/events", "null"),
    ("POST", "/v1/events", "{\"type\": \"Loan\"}"),
    ("POST", "/v1/events", "{\"type\": {\"$ne\": \"\"}, \"objects\": [\"o1\"], \"to\": [\"ada\"]}"),
    ("POST", "/v1/events", "{\"type\": \"Loan\", \"objects\": {\"$gt\": \"\"}, \"to\": [\"ada\"]}"),
    ("POST", "/v1/events", "{\"type\": \"Loan\", \"objects\": [\"o1\"], \"to\": {\"$ne\": \"\"}}"),
    (
        "POST",
        "/v1/events",
        "{\"type\": \"Loan\", \"objects\": [\"o1\"], \"to\": [{\"$ne\": \"\"}]}",
    ),
    ("POST", "/v1/events", "{\"type\": \"Loan\", \"objects\": [\"o1\"], \"to\": []}"),
    ("POST", "/v1/events", "{\"type\": \"Loan\", \"objects\": [\"o1\"]}"),
    ("POST", "/v1/events", "{\"type\": \"Loan\", \"objects\": [\"\"], \"to\": [\"ada\"]}"),
    (
        "POST",
        "/v1/events",
        "{\"type\": \"Loan\", \"objects\": [\"o1\"], \"to\": [\"ada\"], \"$where\": \"1\"}",
    ),
    (
        "POST",
        "/v1/events",
        "{\"type\": \"Loan\", \"type\": \"Show\", \"objects\": [\"o1\"], \"to\": [\"ada\"]}",
    ),
    (
        "POST",
        "/v1/events",
        "{\"type\": \"Loan\", \"objects\": [\"o1\"], \"near\": {\"point\": [2.3, 91], \"km\": 5}}",
    ),
    (
        "POST",
        "/v1/events",
        "{\"type\": \"Loan\", \"objects\": [\"o1\"], \"to\": [\"ada\"], \"at\": \"yesterday\"}",
    ),
    ("POST", "/v1/events", "{\"events\": [], \"to\": []}"),
    ("POST", "/v1/events", "[{\"type\": \"Loan\",\n  \"objects\": [\"o1\"] \"to\": [\"ada\"]}]"),
    ("POST", "/v1/events", "[[\"Loan\", [\"o1\"], [\"ada\"], [], null, [], null, null]]"),
    ("PUT", "/v1/users/eve", "[]"),
    ("PUT", "/v1/users/eve", "[\"eve\", null, null, true, null, null, null, null, null, null]"),
    ("PUT", "/v1/users/eve", "{\"email\": \"eve at example.org\"}"),
    ("PUT", "/v1/users/eve", "{\"email\": {\"$ne\": null}}"),
    ("PUT", "/v1/users/eve", "{\"digest\": {\"hour\": 24}}"),
    ("PUT", "/v1/users/eve", "{\"tz\": \"Mars/Base\"}"),
    ("PUT", "/v1/users/eve", "{\"color\": \"red\"}"),
    ("PUT", "/v1/users/eve", "{} {}"),
    ("PUT", "/v1/users/ada/preferences", "{\"digest\": {\"cadence\": \"hourly\"}}"),
    ("PUT", "/v1/users/ada/preferences", "{\"digest\": {\"hour\": 99}}"),
    ("POST", "/v1/users", "{\"id\": \"eve\"}"),
    ("POST", "/v1/users", "[{\"id\": \"eve\"}, {\"id\": null}]"),
    ("POST", "/v1/follows", "[{\"user\": \"eve\", \"key\": {\"$ne\": \"\"}}]"),
    ("PUT", "/v1/objects/Artwork/1", "{\"notifiable\": \"no\"}"),
    ("PUT", "/v1/objects/Artwork/1", "{\"url\": \"javascript:alert(1)\"}"),
    ("PUT", "/v1/objects/Artwork/1", "{\"id\": \"Artwork:2\"}"),
    ("POST", "/v1/objects", "{\"objects\": [{\"title\": \"no id\"}]}"),
    ("DELETE", "/v1/events", ""),
    ("DELETE", "/v1/events", "{\"type\": \"Loan\"}"),
    ("DELETE", "/v1/events", "{\"type\": \"Loan\", \"objects\": []}"),
    ("DELETE", "/v1/events", "{\"type\": \"Loan\", \"objects\": {\"$ne\": \"\"}}"),
    ("DELETE", "/v1/events", "{\"type\": {\"$ne\": \"\"}, \"objects\": [\"o1\"]}"),
    ("DELETE", "/v1/events", "{\"type\": \"Loan\", \"objects\": [\"o1\"], \"user\": \"ada\"}"),
    ("DELETE", "/v1/events", "[{\"type\": \"Loan\", \"objects\": [\"o1\"]}]"),
    ("POST", "/v1/batches/0123456789abcdef01234567/close", "{\"at\": \"2014-04-19T10:00:00Z\"}"),
    ("POST", "/v1/batches/0123456789abcdef01234567/cancel", "[]"),
];

async fn counted(fresh: &Fresh) -> (Api, std::sync::Arc<FailingStore>) {
    let town = Town::found(fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    let counting = FailingStore::counting(town.store.clone());
    (Api::with_store(town, &(counting.clone() as _)), counting)
}

async fn bad_input_gets_a_clear_error_and_never_reaches_the_store(fresh: Fresh) {
    let (api, counting) = counted(&fresh).await;
    let mut report = String::new();

    for (method, path, body) in BODIES {
        let request = api.ask(method, path).header("Content-Type", "application/json");
        let refused = answer(request.body(*body)).await;

        assert_eq!(refused.header("Content-Type"), "application/problem+json", "{body}");
        refused.assert_problem(400, "invalid_body", &body);
        let (detail, place) = (&refused.body["detail"], &refused.body["location"]);
        writeln!(report, "{method} {path} {body}\n    {detail}\n    at {place}").unwrap();
    }

    assert_eq!(counting.calls(), 0, "the store was requested");
    insta::assert_snapshot!("bodies", report);
    api.stop().await;
}

async fn every_route_rejects_unknown_parameters(fresh: Fresh) {
    let (api, counting) = counted(&fresh).await;

    for api::Route { method, path, .. } in api::V1_ROUTES.iter().flat_map(|table| table.routes) {
        let path = path.replace("{id}", "ada").replace("{key}", "artist:9");
        let path = format!("{}?limit[$ne]=1", path.replace("{model}", "Artwork"));
        let refused = answer(api.ask(method, &path)).await;

        refused.assert_problem(400, "invalid_parameter", &format_args!("{method} {path}"));
        assert_eq!(refused.body["location"], "query parameter limit[$ne]");
    }

    assert_eq!(counting.calls(), 0, "the store was requested");
    api.stop().await;
}

async fn invalid_paths_are_rejected(fresh: Fresh) {
    let (api, counting) = counted(&fresh).await;
    let long = "x".repeat(257);

    for path in [
        "/v1/users/%FF",
        "/v1/users/%zz",
        "/v1/users/100%",
        "/v1/users/%00",
        "/v1/users/%20a",
        "/v1/users/a%0Ab/feed",
        "/v1/objects/Art:work/1",
        "/v1/objects/Artwork/%C3",
        "/v1/events/%7B%22$ne%22:1%7D",
        &format!("/v1/users/{long}"),
    ] {
        let refused = api.get(path).await;
        refused.assert_problem(400, "invalid_parameter", &path);
    }
    for path in [
        "/",
        "/v1",
        "/v1/",
        "/v1/users/",
        "/v1/users//feed",
        "/v1/users/a/b",
        "/v2/users/ada",
        "/V1/users/ada",
    ] {
        let nothing = api.get(path).await;
        nothing.assert_problem(404, "not_found", &path);
    }

    assert_eq!(counting.calls(), 0, "the store was requested");
    api.stop().await;
}

async fn a_body_must_be_json_of_a_limited_size(fresh: Fresh) {
    let (api, counting) = counted(&fresh).await;
    let padded = |mib: usize| format!("{}{{}}", " ".repeat(mib << 20));
    let send = |method: &str, path: &str, kind: &str, body: String| {
        let request = api.ask(method, path).header("Content-Type", kind.to_owned());
        answer(request.body(body))
    };

    let form = send("PUT", "/v1/users/eve", "application/x-www-form-urlencoded", "{}".into()).await;
    let packed = api.ask("PUT", "/v1/users/eve").header("Content-Encoding", "gzip");
    let packed = answer(packed.body("{}")).await;
    let large = send("PUT", "/v1/users/eve", "application/json", padded(1)).await;
    let larger = send("POST", "/v1/users", "application/json", padded(16)).await;

    for refused in [&form, &packed] {
        refused.assert_problem(415, "unsupported_media_type", &"");
    }
    for refused in [&large, &larger] {
        assert_eq!((refused.status, refused.code()), (413, "body_too_large"));
    }
    assert_eq!(counting.calls(), 0, "the store was requested");
    let json = "application/vnd.example+json; charset=utf-8";
    assert_eq!(send("PUT", "/v1/users/eve", json, "{}".into()).await.status, 204);
    let bare = answer(api.ask("PUT", "/v1/users/eve").body("{}")).await;
    assert_eq!(bare.status, 204);
    let capitals = "Application/JSON; Charset=UTF-8";
    let capitals = send("PUT", "/v1/users/eve", capitals, "{}".into()).await;
    assert_eq!(capitals.status, 204);
    api.stop().await;
}

async fn every_path_lists_its_allowed_methods(fresh: Fresh) {
    let (api, _) = counted(&fresh).await;

    let wrong: Answer = api.post("/v1/users/ada", json!({})).await;
    let open = answer(api.anonymous("DELETE", "/healthz")).await;

    assert_eq!((wrong.status, wrong.header("Allow")), (405, "PUT, PATCH, GET, HEAD, DELETE"));
    assert_eq!((open.status, open.header("Allow")), (405, "GET, HEAD"));
    let nothing = api.get("/v1/nothing").await;
    let stranger = answer(api.anonymous("GET", "/v1/users/ada").bearer_auth(KEY.repeat(2))).await;
    let unknown = api.get("/v1/users/nobody").await;
    let report = [wrong, open, nothing, stranger, unknown].map(|problem| {
        let pretty = serde_json::to_string_pretty(&problem.body);
        pretty.unwrap()
    });
    insta::assert_snapshot!("problems", report.join("\n"));
    api.stop().await;
}
