//! What every answer says of itself, and what is no object though it would do for the derived code.

use serde_json::json;

use super::{Api, answer};
use crate::support::Fresh;

on_sqlite! {
    every_answer_says_that_its_type_is_not_to_be_guessed
    values_in_a_row_are_no_object
}

async fn every_answer_says_that_its_type_is_not_to_be_guessed(fresh: Fresh) {
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
        let known = answer(api.ask(method, path)).await;
        let stranger = answer(api.anonymous(method, path)).await;

        for came in [known, stranger] {
            let said = came.header("X-Content-Type-Options");
            assert_eq!(said, "nosniff", "{method} {path}: {}", came.status);
        }
    }
    api.stop().await;
}

async fn values_in_a_row_are_no_object(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    for (method, path, body) in [
        (
            "PUT",
            "/v1/users/ada",
            json!({"digest": ["weekly", "mon", 9]}),
        ),
        (
            "PUT",
            "/v1/users/ada",
            json!({"types": {"Reply": ["batch"]}}),
        ),
        ("PUT", "/v1/users/ada", json!(["ada"])),
        (
            "POST",
            "/v1/users",
            json!([{"id": "ada", "digest": ["weekly"]}]),
        ),
        (
            "PUT",
            "/v1/users/ada/preferences",
            json!({"digest": ["weekly", "mon", 9]}),
        ),
        (
            "PUT",
            "/v1/users/ada/preferences",
            json!({"types": {"Reply": ["batch", "1h"]}}),
        ),
        (
            "POST",
            "/v1/events",
            json!({"type": "T", "objects": ["a"], "near": [[0, 0], 5]}),
        ),
        ("POST", "/v1/events", json!([["T", ["a"], ["ada"]]])),
        (
            "POST",
            "/v1/events",
            json!({"type": "T", "objects": ["a"], "to": ["ada"], "actor": ["bob"]}),
        ),
        ("POST", "/v1/follows", json!([["ada", "artist:1"]])),
        ("POST", "/v1/suppressions", json!(["ada@example.org"])),
        ("DELETE", "/v1/events", json!(["T", ["a"]])),
        (
            "POST",
            "/v1/batches/535254a00000000000000001/cancel",
            json!([]),
        ),
    ] {
        let came = answer(api.ask(method, path).json(&body)).await;

        assert_eq!(
            (came.status, came.code()),
            (400, "invalid_body"),
            "{path} {body}: {}",
            came.body
        );
    }
    api.stop().await;
}
