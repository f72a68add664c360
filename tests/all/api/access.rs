//! P8: permissions. Each route opens only to the callers that the route table lists.

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use chrono::TimeDelta;
use serde_json::json;
use tidings::clock::Clock;
use tidings::domain::secrets::KeyMaterial;
use tidings::domain::{Scope, Secret, TokenKey};
use tidings::engine::access::tokens::UserTokens;
use tidings::http::api;

use super::{Answer, Api, answer};
use crate::support::town::{Town, mostly_on_sqlite};
use crate::support::{FailingStore, Fault, Fresh, Then, user};

mostly_on_sqlite! {
    every_route_opens_only_to_the_callers_in_the_route_table
    a_new_or_revoked_key_takes_effect_within_seconds
    cached_keys_work_while_the_store_is_unavailable
}

on_sqlite! {
    a_token_is_compared_with_the_decoded_user_id_in_the_path
    tokens_are_rejected_if_no_token_keys_are_configured
}

/// A token secret that only these tests use.
const SECRET: &str = "a-secret-that-only-these-tests-have";

/// Creates a town with a key for tokens. `more` is added to its configuration.
pub(super) async fn town(fresh: &Fresh, more: &str) -> Town {
    let config = format!(
        "server.listen = \"127.0.0.1:0\"\n{more}\n[tokens.keys.one]\nsecret = \"{SECRET}\"\n"
    );
    Town::found(fresh, true, &config).await
}

/// Returns a token for this user that is valid for one hour, from `ahead` hours in the future.
fn token_of(api: &Api, id: &str, ahead: i64) -> String {
    let now = api.town.clock.now() + TimeDelta::hours(ahead);
    let tokens = api.town.process().tokens();
    let token = tokens.issue(&user(id), now, TimeDelta::hours(1)).unwrap();
    token.unwrap().expose().to_owned()
}

pub(super) fn token(api: &Api, id: &str) -> String {
    token_of(api, id, 0)
}

pub(super) async fn key(api: &Api, name: &str, scope: Scope) -> String {
    let keys = api.town.process().keys();
    let key = keys.create(&name.parse().unwrap(), scope).await.unwrap();
    key.expose().to_owned()
}

async fn ask(api: &Api, method: &str, path: &str, bearer: &str) -> Answer {
    let request = api.anonymous(method, path).bearer_auth(bearer);
    let request = match method {
        "get" | "head" => request,
        _ => request.json(&json!({})),
    };
    let is_json = !path.ends_with("/stream") && path != "/metrics";
    let answer = match method != "get" || is_json {
        true => answer(request).await,
        false => head_of(request).await,
    };
    let response = format!("{} {:?}", answer.body, answer.headers);
    assert!(!response.contains(bearer), "{method} {path} repeats {bearer}");
    answer
}

/// Reads a response that is not JSON or may never end. Only an error's body is read.
async fn head_of(request: reqwest::RequestBuilder) -> Answer {
    let response = request.send().await.unwrap();
    let (status, headers) = (response.status().as_u16(), response.headers().clone());
    let body = match status {
        200 => json!(null),
        _ => response.json().await.unwrap(),
    };
    Answer { status, headers, body }
}

/// Returns every route that needs a key or token.
fn guarded_routes() -> impl Iterator<Item = &'static api::Route> {
    let tables = api::V1_ROUTES.iter().chain(api::METRICS_ROUTES);
    tables.flat_map(|table| table.routes)
}

fn filled(path: &str) -> String {
    let path = path.replace("{id}", "ada").replace("{key}", "artist:9");
    let path = path.replace("{model}", "Artwork");
    path.replace("{address}", "ada@example.org")
}

/// Returns invalid tokens that resemble a token of ada's.
fn bad_tokens(api: &Api) -> Vec<(&'static str, String)> {
    let now = api.town.clock.now();
    let other = |audience: &str, id: &str, secret: &str| {
        let key = TokenKey { id: id.into(), material: KeyMaterial::Hs256(Secret::new(secret)) };
        let tokens = UserTokens::new(audience, vec![key]);
        let token = tokens.issue(&user("ada"), now, TimeDelta::hours(1)).unwrap();
        token.unwrap().expose().to_owned()
    };
    let good = token(api, "ada");
    let parts: Vec<&str> = good.split('.').collect();
    let none = BASE64_URL_SAFE_NO_PAD.encode(json!({"alg": "none", "kid": "one"}).to_string());
    let ben = token(api, "ben");
    let bens_claims = ben.split('.').nth(1).unwrap();
    vec![
        ("expired", token_of(api, "ada", -2)),
        ("of the future", token_of(api, "ada", 2)),
        ("of another audience", other("others", "one", SECRET)),
        ("of another key", other("tidings", "two", SECRET)),
        ("of another secret", other("tidings", "one", "another-secret-of-these-tests-alone")),
        ("of no algorithm", format!("{none}.{}.", parts[1])),
        ("of no algorithm, signed", format!("{none}.{}.{}", parts[1], parts[2])),
        ("without a signature", format!("{}.{}.", parts[0], parts[1])),
        ("with other claims", format!("{}.{bens_claims}.{}", parts[0], parts[2])),
    ]
}

async fn every_route_opens_only_to_the_callers_in_the_route_table(fresh: Fresh) {
    let town = town(&fresh, "").await;
    let counting = FailingStore::counting(town.store.clone());
    let api = Api::with_store(town, &(counting.clone() as _));
    let mut keys = Vec::new();
    for scope in Scope::ALL {
        keys.push((scope, key(&api, scope.as_str(), scope).await));
    }
    let (ada, ben, bad) = (token(&api, "ada"), token(&api, "ben"), bad_tokens(&api));
    // The keys are read once, and not again before the clock advances.
    assert_eq!(ask(&api, "get", "/v1/nothing", &keys[0].1).await.status, 404);
    assert_eq!(counting.calls(), 1);
    let with_head = |route: &api::Route| match route.method {
        "get" => vec!["get", "head"],
        method => vec![method],
    };

    for route in guarded_routes() {
        let path = filled(route.path);
        let needed = route.scope.expect("none of these is open");
        for method in with_head(route) {
            let case = |who: &str| format!("{method} {path} by {who}");
            let anonymous = answer(api.anonymous(method, &path)).await;
            assert_eq!(anonymous.status, 401, "{}", case("nobody"));
            for (what, bad) in &bad {
                let refused = ask(&api, method, &path, bad).await;
                assert_eq!(refused.status, 401, "{}", case(what));
            }
            for (scope, key) in keys.iter().filter(|(scope, _)| *scope < needed) {
                let refused = ask(&api, method, &path, key).await;
                assert_eq!(refused.status, 403, "{}", case(scope.as_str()));
                if method != "head" {
                    assert_eq!(refused.code(), "forbidden");
                    let words = format!("needs a server key of the scope {needed}; the one given");
                    let detail = refused.body["detail"].as_str().unwrap();
                    assert!(detail.contains(&words), "{detail}");
                }
            }
            let another = ask(&api, method, &path, &ben).await;
            assert_eq!(another.status, 403, "{}", case("another person"));
            if !route.own {
                let own = ask(&api, method, &path, &ada).await;
                assert_eq!(own.status, 403, "{}", case("the person"));
            }
        }
    }
    assert_eq!(counting.calls(), 1, "the store was asked for who may not ask");

    for route in guarded_routes() {
        let path = filled(route.path);
        let needed = route.scope.unwrap();
        if route.own {
            assert!(route.path.starts_with("/v1/users/{id}/"), "whose is {}?", route.path);
        }
        for method in with_head(route) {
            // One of the routes deletes ada, which invalidates her earlier tokens.
            api.town.clock.advance(TimeDelta::seconds(1));
            let ada = token(&api, "ada");
            let fitting = keys.iter().filter(|(scope, _)| *scope >= needed);
            let mut fitting: Vec<&String> = fitting.map(|(_, key)| key).collect();
            fitting.extend(route.own.then_some(&ada));
            for bearer in fitting {
                let status = ask(&api, method, &path, bearer).await.status;
                assert!(![401, 403].contains(&status), "{method} {path}: {status}");
            }
        }
    }
    api.stop().await;
}

async fn a_token_is_compared_with_the_decoded_user_id_in_the_path(fresh: Fresh) {
    let api = Api::of(town(&fresh, "").await);
    let (ada, slash) = (token(&api, "ada"), token(&api, "a/b"));

    for (path, bearer, status) in [
        ("/v1/users/ada/feed", &ada, 200),
        ("/v1/users/%61da/feed", &ada, 200),
        ("/v1/users/a%2Fb/feed", &slash, 200),
        ("/v1/users/Ada/feed", &ada, 403),
        ("/v1/users/ada%00/feed", &ada, 400),
        ("/v1/users/ben/feed?id=ada", &ada, 403),
        ("/v1/users/ada%2F..%2Fben/feed", &ada, 403),
        ("/v1/users/ben%2Fada/feed", &ada, 403),
        ("/v1/users/a%252Fb/feed", &slash, 403),
        ("/v1/users/ada", &ada, 403),
        ("/v1/users/ada/feed/", &ada, 404),
        ("/v1//users/ada/feed", &ada, 404),
        ("/v1/nothing", &ada, 404),
    ] {
        let response = ask(&api, "get", path, bearer).await;
        assert_eq!(response.status, status, "{path}: {}", response.body);
    }
    let chosen = api.anonymous("PUT", "/v1/users/ada/preferences");
    let chosen = chosen.bearer_auth(&ada);
    let chosen = answer(chosen.json(&json!({"digest": {"cadence": "daily"}}))).await;
    assert_eq!((chosen.status, &chosen.body["digest"]["cadence"]), (200, &json!("daily")));
    api.stop().await;
}

async fn tokens_are_rejected_if_no_token_keys_are_configured(fresh: Fresh) {
    let with = Api::of(town(&fresh, "").await);
    let api = Api::on(&fresh).await;

    let refused = ask(&api, "get", "/v1/users/ada/feed", &token(&with, "ada")).await;

    assert_eq!((refused.status, refused.code()), (401, "unauthorized"));
    let detail = refused.body["detail"].as_str().unwrap();
    assert!(detail.contains("tokens.keys"), "{detail}");
    with.stop().await;
    api.stop().await;
}

async fn a_new_or_revoked_key_takes_effect_within_seconds(fresh: Fresh) {
    let api = Api::of(town(&fresh, "").await);
    let early = key(&api, "early", Scope::Read).await;
    let status = async |bearer: &str| ask(&api, "get", "/v1/users/ada", bearer).await.status;
    assert_eq!(status(&early).await, 200);
    let late = key(&api, "late", Scope::Read).await;

    let at_once = status(&late).await;
    api.town.clock.advance(TimeDelta::seconds(5));
    let soon = status(&late).await;
    let keys = api.town.process().keys();
    assert!(keys.revoke(&"early".parse().unwrap()).await.unwrap());
    assert!(!keys.revoke(&"early".parse().unwrap()).await.unwrap());
    api.town.clock.advance(TimeDelta::seconds(5));
    let (revoked, other) = (status(&early).await, status(&late).await);

    assert_eq!((at_once, soon, revoked, other), (401, 200, 401, 200));
    let duplicate = keys.create(&"late".parse().unwrap(), Scope::Admin).await;
    assert!(duplicate.unwrap_err().to_string().contains("\"late\" is taken"));
    let listed: Vec<_> = keys.list().await.unwrap();
    let listed: Vec<_> = listed.iter().map(|key| (key.name.as_str(), key.scope)).collect();
    assert_eq!(listed, [("late", Scope::Read)]);
    api.stop().await;
}

async fn cached_keys_work_while_the_store_is_unavailable(fresh: Fresh) {
    let town = town(&fresh, "").await;
    let keys = town.process().keys();
    let key = keys.create(&"app".parse().unwrap(), Scope::Read).await.unwrap();
    let key = key.expose();
    // The first read of the keys succeeds; every later call fails.
    let down = FailingStore::new(town.store.clone(), 1, Fault::Refused, Then::StaysDown);
    let api = Api::with_store(town, &(down as _));
    assert_eq!(ask(&api, "get", "/v1/nothing", key).await.status, 404);

    api.town.clock.advance(TimeDelta::minutes(1));
    let known = ask(&api, "get", "/v1/nothing", key).await.status;
    let down = FailingStore::new(api.town.store.clone(), 0, Fault::Refused, Then::StaysDown);
    let other = api::bind(api.town.process_on(&(down as _)), super::KEY).unwrap();
    let (addr, (stop, stopped)) = (other.addr, tokio::sync::watch::channel(false));
    let running = tokio::spawn(other.run(stopped));
    let never = api.client.get(format!("http://{addr}/v1/nothing"));
    let never = answer(never.bearer_auth(key)).await;

    assert_eq!(known, 404);
    assert_eq!((never.status, never.code()), (503, "store_unavailable"));
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
    api.stop().await;
}
