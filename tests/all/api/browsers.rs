//! Browsers on other origins (CORS), and rate limits.

use chrono::TimeDelta;
use reqwest::RequestBuilder;
use tidings::domain::Scope;

use super::access::{key, token, town};
use super::{Answer, Api, KEY, answer};
use crate::support::{Fresh, assert_contains};

on_sqlite! {
    only_configured_origins_may_call_the_api
    a_star_allows_any_origin
    an_unlisted_origin_learns_which_option_to_set
    a_same_origin_page_needs_a_key
    only_the_user_over_the_rate_limit_gets_a_429
    a_rate_limited_key_does_not_limit_other_callers
}

const APP: &str = "https://app.example";

async fn send(request: RequestBuilder) -> (u16, reqwest::header::HeaderMap) {
    let response = request.send().await.unwrap();
    (response.status().as_u16(), response.headers().clone())
}

fn preflight(api: &Api, origin: &str, path: &str) -> RequestBuilder {
    api.anonymous("OPTIONS", path)
        .header("Origin", origin)
        .header("Access-Control-Request-Method", "PUT")
        .header(
            "Access-Control-Request-Headers",
            "authorization,content-type,if-none-match,idempotency-key",
        )
}

fn names(headers: &reqwest::header::HeaderMap, header: &str) -> Vec<String> {
    let value = headers[header].to_str().unwrap().to_lowercase();
    let mut names: Vec<String> = value.split(", ").map(str::to_owned).collect();
    names.sort_unstable();
    names
}

async fn only_configured_origins_may_call_the_api(fresh: Fresh) {
    let config = format!("server.cors_origins = [\"{APP}\", \"http://localhost:5173\"]");
    let api = Api::of(town(&fresh, &config).await);
    let feed = "/v1/users/ada/feed";

    let (status, headers) = send(preflight(&api, APP, feed)).await;
    let (other, none) = send(preflight(&api, "https://evil.example", feed)).await;

    assert_eq!(status, 200);
    assert_eq!(headers["access-control-allow-origin"], APP);
    assert_eq!(headers["access-control-max-age"], "7200");
    assert!(!headers.contains_key("access-control-allow-credentials"));
    let methods = names(&headers, "access-control-allow-methods");
    assert_eq!(methods, ["delete", "get", "head", "patch", "post", "put"]);
    assert_eq!(other, 403);
    assert!(!none.contains_key("access-control-allow-origin"));

    // A page of this origin can read the headers it needs, and the reason for a rejection.
    let token = token(&api, "ada");
    for (bearer, status) in [(token.as_str(), 200), ("nobody's", 401)] {
        let response = api.anonymous("GET", feed).bearer_auth(bearer);
        let response = answer(response.header("Origin", APP)).await;
        assert_eq!(response.status, status);
        assert_eq!(response.header("access-control-allow-origin"), APP);
        let exposed = names(&response.headers, "access-control-expose-headers");
        for header in ["etag", "x-poll-interval", "retry-after"] {
            assert!(exposed.iter().any(|name| name == header), "{header}");
        }
        let vary = response.header("vary").to_lowercase();
        assert!(vary.contains("origin"), "{vary}");
    }
    let response = api.ask("GET", feed).header("Origin", "https://evil.example");
    assert_eq!(answer(response).await.header("access-control-allow-origin"), "");
    for path in ["/healthz", "/openapi.json"] {
        let open = api.anonymous("GET", path).header("Origin", APP);
        assert_eq!(answer(open).await.header("access-control-allow-origin"), "");
    }
    api.stop().await;
}

async fn a_star_allows_any_origin(fresh: Fresh) {
    let api = Api::of(town(&fresh, "server.cors_origins = [\"*\"]").await);

    let (status, headers) = send(preflight(&api, APP, "/v1/users/ada/feed")).await;

    assert_eq!((status, headers["access-control-allow-origin"].as_bytes()), (200, &b"*"[..]));
    assert!(!headers.contains_key("access-control-allow-credentials"));
    api.stop().await;
}

/// Returns the detail of a 403, after checking that the response allows the page nothing.
async fn refusal(request: RequestBuilder) -> String {
    let response = request.send().await.unwrap();
    let headers = response.headers();
    assert_eq!(response.status().as_u16(), 403);
    assert!(!headers.contains_key("access-control-allow-origin"));
    assert_eq!(headers["content-type"], "application/problem+json");
    let problem: serde_json::Value = response.json().await.unwrap();
    assert_eq!(problem["code"], "forbidden");
    assert_eq!(problem["location"], "header Origin");
    problem["detail"].as_str().unwrap().to_owned()
}

async fn an_unlisted_origin_learns_which_option_to_set(fresh: Fresh) {
    for listed in ["", "server.cors_origins = [\"http://localhost:5173\"]"] {
        let api = Api::of(town(&fresh, listed).await);
        let feed = "/v1/users/ada/feed";
        let simple = api.anonymous("GET", feed).header("Origin", APP);

        let preflighted = refusal(preflight(&api, APP, feed)).await;
        let without_token = refusal(simple.header("Sec-Fetch-Site", "same-site")).await;
        let of_a_file = refusal(preflight(&api, "null", feed)).await;

        let names_the_option = "add \"https://app.example\" to server.cors_origins";
        assert!(preflighted.contains(names_the_option), "{preflighted}");
        assert_eq!(without_token, preflighted);
        assert!(of_a_file.contains("server.cors_origins"), "{of_a_file}");
        assert_contains!(of_a_file, "serve the page over HTTP");
        let response = answer(api.ask("GET", feed).header("Origin", APP)).await;
        assert_eq!(response.header("access-control-allow-origin"), "");
        api.stop().await;
    }
}

async fn a_same_origin_page_needs_a_key(fresh: Fresh) {
    let api = Api::of(town(&fresh, "").await);
    let request = api.anonymous("POST", "/v1/users/ada/feed/marks");
    let request = request.header("Origin", APP);

    let response = answer(request.header("Sec-Fetch-Site", "same-origin")).await;

    assert_eq!((response.status, response.code()), (401, "unauthorized"));
    api.stop().await;
}

/// Sends requests until one is rejected. Returns how many succeeded, and the rejection.
async fn too_many(api: &Api, bearer: &str) -> (usize, Answer) {
    for count in 0..1_000 {
        let request = api.anonymous("GET", "/v1/users/ada/feed");
        let answer = answer(request.bearer_auth(bearer)).await;
        match answer.status {
            429 => return (count, answer),
            _ => assert_eq!(answer.status, 200),
        }
    }
    panic!("a thousand requests were not too many");
}

async fn only_the_user_over_the_rate_limit_gets_a_429(fresh: Fresh) {
    let api = Api::of(town(&fresh, "server.rate_limit_token = 1").await);
    let (ada, ben) = (token(&api, "ada"), token(&api, "ben"));

    let (count, refused) = too_many(&api, &ada).await;
    api.town.clock.advance(TimeDelta::minutes(1));
    let (again, _) = too_many(&api, &token(&api, "ada")).await;
    let other = answer(api.anonymous("GET", "/v1/users/ben/feed").bearer_auth(&ben)).await;

    assert!(count >= 5, "{count}");
    assert_eq!((refused.code(), refused.header("Retry-After")), ("too_many_requests", "1"));
    assert_eq!(refused.header("Content-Type"), "application/problem+json");
    // A second token of the same user shares the limit of the first.
    assert!(again < 5, "{again}");
    assert_eq!(other.status, 200);
    let unlimited = answer(api.ask("GET", "/v1/users/ada/feed")).await;
    assert_eq!(unlimited.status, 200);
    api.stop().await;
}

async fn a_rate_limited_key_does_not_limit_other_callers(fresh: Fresh) {
    let api = Api::of(town(&fresh, "server.rate_limit_key = 1\nserver.rate_limit_token = 0").await);
    let app = key(&api, "app", Scope::Read).await;

    let _ = too_many(&api, &app).await;
    let configured = answer(api.anonymous("GET", "/v1/users/ada").bearer_auth(KEY)).await;
    let person = api.anonymous("GET", "/v1/users/ada/feed");
    let person = answer(person.bearer_auth(token(&api, "ada"))).await;

    assert_eq!((configured.status, person.status), (200, 200));
    api.stop().await;
}
