//! Liveness, readiness, and the responses while the store is unavailable.

use serde_json::json;

use super::{Api, answer};
use crate::support::town::{Town, on_both_stores};
use crate::support::{FailingStore, Fault, Fresh, Then};

on_both_stores! {
    a_server_is_alive_and_ready_without_a_key
}

on_sqlite! {
    without_its_store_a_server_is_alive_but_not_ready
    without_its_store_requests_get_a_503_without_internals
    without_its_store_an_event_may_be_accepted_twice
}

async fn a_server_is_alive_and_ready_without_a_key(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    for path in ["/healthz", "/readyz"] {
        for method in ["GET", "HEAD"] {
            let fine = answer(api.anonymous(method, path)).await;
            assert_eq!(fine.status, 200, "{method} {path}");
        }
    }

    api.stop().await;
}

async fn down(fresh: &Fresh) -> Api {
    let town = Town::found(fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    let down = FailingStore::new(town.store.clone(), 0, Fault::Refused, Then::StaysDown);
    Api::with_store(town, &(down as _))
}

async fn without_its_store_a_server_is_alive_but_not_ready(fresh: Fresh) {
    let api = down(&fresh).await;

    let alive = answer(api.anonymous("GET", "/healthz")).await;
    let ready = answer(api.anonymous("GET", "/readyz")).await;

    assert_eq!(alive.status, 200);
    assert_eq!((ready.status, ready.code()), (503, "store_unavailable"));
    api.stop().await;
}

async fn without_its_store_requests_get_a_503_without_internals(fresh: Fresh) {
    let api = down(&fresh).await;
    let event = json!({"type": "Loan", "objects": ["o1"], "to": ["ada"]});

    for refused in [
        api.get("/v1/users/ada/feed").await,
        api.get("/v1/users/ada").await,
        api.delete("/v1/objects/Artwork/A1").await,
        api.post("/v1/events", event).await,
    ] {
        assert_eq!((refused.status, refused.code()), (503, "store_unavailable"));
        assert_eq!(refused.header("Retry-After"), "1");
        let body = refused.body.to_string();
        assert!(!body.contains("calling") && !body.contains("the test wanted"), "{body}");
    }

    api.stop().await;
}

async fn without_its_store_an_event_may_be_accepted_twice(fresh: Fresh) {
    let api = down(&fresh).await;
    let event = json!({"type": "Loan", "objects": ["o1"], "to": ["ada"]});

    let refused = api.post("/v1/events", event).await;

    assert_eq!((refused.status, refused.code()), (503, "store_unavailable"));
    let detail = refused.body["detail"].as_str().unwrap();
    for expected in ["you can repeat it", "without a key"] {
        assert!(detail.contains(expected), "{detail}");
    }
    api.stop().await;
}
