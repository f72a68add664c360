//! P8: nothing is read or changed without the key.

use serde_json::json;
use tidings::http::api;

use super::{Api, KEY, answer};
use crate::support::town::{Town, mostly_on_sqlite};
use crate::support::{FailingStore, Fresh, user};

mostly_on_sqlite! {
    without_the_key_nothing_is_read_or_changed
}

on_sqlite! {
    unknown_paths_need_the_key_too
    the_authorization_scheme_is_case_insensitive
    an_empty_key_is_rejected
    an_address_in_use_is_named_in_the_error
}

async fn without_the_key_nothing_is_read_or_changed(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    let counting = FailingStore::counting(town.store.clone());
    let api = Api::with_store(town, &(counting.clone() as _));
    let almost = &KEY[..KEY.len() - 1];
    let keys = [
        None,
        Some(String::new()),
        Some("Bearer ".into()),
        Some("Bearer wrong".into()),
        Some(format!("Bearer {almost}")),
        Some(format!("Bearer {KEY}{KEY}")),
        Some(format!("Basic {KEY}")),
        Some(KEY.into()),
    ];

    for api::Route { method, path, .. } in api::V1_ROUTES.iter().flat_map(|table| table.routes) {
        let path = path.replace("{id}", "ada").replace("{key}", "artist:9");
        for key in &keys {
            let mut request = api.anonymous(method, &path.replace("{model}", "Artwork"));
            if let Some(key) = key {
                request = request.header("Authorization", key);
            }
            let refused = answer(request.json(&json!({"confirmed": true}))).await;

            refused.assert_problem(401, "unauthorized", &format_args!("{method} {path}"));
            assert_eq!(refused.header("WWW-Authenticate"), "Bearer");
            assert_eq!(refused.header("Content-Type"), "application/problem+json");
        }
    }

    assert_eq!(counting.calls(), 0, "the store was asked");
    assert!(fresh.users(&[user("ada")]).await.unwrap()[0].is_some());
    api.stop().await;
}

async fn unknown_paths_need_the_key_too(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let without = answer(api.anonymous("GET", "/v1/nothing")).await;
    let with = api.get("/v1/nothing").await;

    assert_eq!((without.status, without.code()), (401, "unauthorized"));
    assert_eq!((with.status, with.code()), (404, "not_found"));
    api.stop().await;
}

async fn the_authorization_scheme_is_case_insensitive(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    for scheme in ["Bearer", "bearer", "BEARER"] {
        let request = api.anonymous("GET", "/v1/users/ada");
        let shown = answer(request.header("Authorization", format!("{scheme} {KEY}"))).await;
        assert_eq!(shown.status, 200, "{scheme}");
    }

    api.stop().await;
}

async fn an_empty_key_is_rejected(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;

    for key in ["", " "] {
        let refused = api::bind(town.process(), key).err().unwrap();
        assert!(refused.to_string().contains("key is empty"), "{refused}");
    }
}

async fn an_address_in_use_is_named_in_the_error(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let config = format!("server.listen = \"{}\"", api.addr);
    let town = Town::found(&fresh, true, &config).await;

    let refused = api::bind(town.process(), KEY).err().unwrap();

    assert!(format!("{refused:#}").contains(&api.addr.to_string()), "{refused:#}");
    api.stop().await;
}
