//! Every response forbids content sniffing. JSON arrays are rejected where objects are expected
//! (serde's derived code would accept them).

use serde_json::json;

use super::{Api, answer};
use crate::support::Fresh;

on_sqlite! {
    every_response_forbids_content_sniffing
    arrays_are_rejected_where_objects_are_expected
}

async fn every_response_forbids_content_sniffing(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    for (method, path) in [
        ("GET", "/healthz"),
        ("GET", "/readyz"),
        ("GET", "/openapi.json"),
        ("GET", "/v1/users/ada/feed"),
        ("GET", "/v1/users/ada/feed?limit=x"),
        ("GET", "/v1/users/nobody"),
        ("DELETE", "/v1/users/ada/follows/x"),
        ("PATCH", "/v1/users/ada"),
        ("POST", "/hooks/nobody"),
        ("GET", "/nowhere"),
    ] {
        let authorized = answer(api.ask(method, path)).await;
        let anonymous = answer(api.anonymous(method, path)).await;

        for response in [authorized, anonymous] {
            let value = response.header("X-Content-Type-Options");
            assert_eq!(value, "nosniff", "{method} {path}: {}", response.status);
        }
    }
    api.stop().await;
}

async fn arrays_are_rejected_where_objects_are_expected(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    for (method, path, body) in [
        ("PUT", "/v1/users/ada", json!({"digest": ["weekly", "mon", 9]})),
        ("PUT", "/v1/users/ada", json!({"types": {"Reply": ["batch"]}})),
        ("PUT", "/v1/users/ada", json!(["ada"])),
        ("POST", "/v1/users", json!([{"id": "ada", "digest": ["weekly"]}])),
        ("PUT", "/v1/users/ada/preferences", json!({"digest": ["weekly", "mon", 9]})),
        ("PUT", "/v1/users/ada/preferences", json!({"types": {"Reply": ["batch", "1h"]}})),
        ("POST", "/v1/events", json!({"type": "T", "objects": ["a"], "near": [[0, 0], 5]})),
        ("POST", "/v1/events", json!([["T", ["a"], ["ada"]]])),
        (
            "POST",
            "/v1/events",
            json!({"type": "T", "objects": ["a"], "to": ["ada"], "actor": ["bob"]}),
        ),
        ("POST", "/v1/follows", json!([["ada", "artist:1"]])),
        ("POST", "/v1/suppressions", json!(["ada@example.org"])),
        ("DELETE", "/v1/events", json!(["T", ["a"]])),
        ("POST", "/v1/batches/535254a00000000000000001/cancel", json!([])),
    ] {
        let response = answer(api.ask(method, path).json(&body)).await;

        assert_eq!(
            (response.status, response.code()),
            (400, "invalid_body"),
            "{path} {body}: {}",
            response.body
        );
    }
    api.stop().await;
}
