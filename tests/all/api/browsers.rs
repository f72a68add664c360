//! Requests of pages on other origins, and rate limits.

use chrono::TimeDelta;
use reqwest::RequestBuilder;
use tidings::domain::Scope;

use super::access::{key, token, town};
use super::{Answer, Api, KEY, answer};
use crate::support::Fresh;

on_sqlite! {
    a_page_of_a_configured_origin_can_ask_and_read_and_no_other
    any_origin_must_be_asked_for_by_a_star
    a_page_of_an_unlisted_origin_learns_the_name_of_the_option
    a_page_of_the_same_origin_is_asked_for_a_key
    who_asks_too_often_is_told_when_to_ask_again_and_nobody_else_waits
    a_key_that_asks_too_often_is_held_back_alone
}

const APP: &str = "https://app.example";

async fn told(request: RequestBuilder) -> (u16, reqwest::header::HeaderMap) {
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

async fn a_page_of_a_configured_origin_can_ask_and_read_and_no_other(fresh: Fresh) {
    let config = format!("server.cors_origins = [\"{APP}\", \"http://localhost:5173\"]");
    let api = Api::of(town(&fresh, &config).await);
    let feed = "/v1/users/ada/feed";

    let (status, headers) = told(preflight(&api, APP, feed)).await;
    let (other, none) = told(preflight(&api, "https://evil.example", feed)).await;

    assert_eq!(status, 200);
    assert_eq!(headers["access-control-allow-origin"], APP);
    assert_eq!(headers["access-control-max-age"], "7200");
    assert!(!headers.contains_key("access-control-allow-credentials"));
    let methods = names(&headers, "access-control-allow-methods");
    assert_eq!(methods, ["delete", "get", "head", "patch", "post", "put"]);
    assert_eq!(other, 403);
    assert!(!none.contains_key("access-control-allow-origin"));

    // What it reads, and why it is refused.
    let token = token(&api, "ada");
    for (bearer, status) in [(token.as_str(), 200), ("nobody's", 401)] {
        let asked = api.anonymous("GET", feed).bearer_auth(bearer);
        let asked = answer(asked.header("Origin", APP)).await;
        assert_eq!(asked.status, status);
        assert_eq!(asked.header("access-control-allow-origin"), APP);
        let exposed = names(&asked.headers, "access-control-expose-headers");
        for header in [
            "etag",
            "x-poll-interval",
            "retry-after",
            "ratelimit",
            "ratelimit-policy",
        ] {
            assert!(exposed.iter().any(|name| name == header), "{header}");
        }
        let vary = asked.header("vary").to_lowercase();
        assert!(vary.contains("origin"), "{vary}");
    }
    let asked = api
        .ask("GET", feed)
        .header("Origin", "https://evil.example");
    assert_eq!(
        answer(asked).await.header("access-control-allow-origin"),
        ""
    );
    for path in ["/healthz", "/openapi.json"] {
        let open = api.anonymous("GET", path).header("Origin", APP);
        assert_eq!(answer(open).await.header("access-control-allow-origin"), "");
    }
    api.stop().await;
}

async fn any_origin_must_be_asked_for_by_a_star(fresh: Fresh) {
    let api = Api::of(town(&fresh, "server.cors_origins = [\"*\"]").await);

    let (status, headers) = told(preflight(&api, APP, "/v1/users/ada/feed")).await;

    assert_eq!(
        (status, headers["access-control-allow-origin"].as_bytes()),
        (200, &b"*"[..])
    );
    assert!(!headers.contains_key("access-control-allow-credentials"));
    api.stop().await;
}

/// The detail of a refusal, which must not allow the page anything.
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

async fn a_page_of_an_unlisted_origin_learns_the_name_of_the_option(fresh: Fresh) {
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
        assert!(
            of_a_file.contains("serve the page over HTTP"),
            "{of_a_file}"
        );
        let asked = answer(api.ask("GET", feed).header("Origin", APP)).await;
        assert_eq!(asked.header("access-control-allow-origin"), "");
        api.stop().await;
    }
}

async fn a_page_of_the_same_origin_is_asked_for_a_key(fresh: Fresh) {
    let api = Api::of(town(&fresh, "").await);
    let request = api.anonymous("POST", "/v1/users/ada/feed/marks");
    let request = request.header("Origin", APP);

    let asked = answer(request.header("Sec-Fetch-Site", "same-origin")).await;

    assert_eq!((asked.status, asked.code()), (401, "unauthorized"));
    api.stop().await;
}

/// Asks until there was one request too many.
async fn too_many(api: &Api, bearer: &str) -> (usize, Answer) {
    for asked in 0..1_000 {
        let request = api.anonymous("GET", "/v1/users/ada/feed");
        let answer = answer(request.bearer_auth(bearer)).await;
        match answer.status {
            429 => return (asked, answer),
            _ => assert_eq!(answer.status, 200),
        }
    }
    panic!("a thousand requests were not too many");
}

async fn who_asks_too_often_is_told_when_to_ask_again_and_nobody_else_waits(fresh: Fresh) {
    let api = Api::of(town(&fresh, "server.rate_limit_token = 1").await);
    let (ada, ben) = (token(&api, "ada"), token(&api, "ben"));
    let first = api.anonymous("GET", "/v1/users/ada/feed").bearer_auth(&ada);

    let first = answer(first).await;
    let (asked, refused) = too_many(&api, &ada).await;
    let again = api.anonymous("GET", "/v1/users/ada/feed");
    api.town.clock.advance(TimeDelta::minutes(1));
    let again = answer(again.bearer_auth(token(&api, "ada"))).await;
    let other = answer(api.anonymous("GET", "/v1/users/ben/feed").bearer_auth(&ben)).await;

    let (policy, left) = (first.header("RateLimit-Policy"), first.header("RateLimit"));
    assert_eq!((policy, left), ("\"token\";q=6;w=6", "\"token\";r=5;t=1"));
    assert!(asked >= 5, "{asked}");
    assert_eq!(
        (refused.code(), refused.header("Retry-After")),
        ("too_many_requests", "1")
    );
    assert_eq!(refused.header("Content-Type"), "application/problem+json");
    assert_eq!(refused.header("RateLimit"), "\"token\";r=0;t=6");
    // Another token of hers is no other measure.
    assert_ne!(again.header("RateLimit"), "\"token\";r=5;t=1");
    assert_eq!(
        (other.status, other.header("RateLimit")),
        (200, "\"token\";r=5;t=1")
    );
    let unlimited = answer(api.ask("GET", "/v1/users/ada/feed")).await;
    assert_eq!((unlimited.status, unlimited.header("RateLimit")), (200, ""));
    api.stop().await;
}

async fn a_key_that_asks_too_often_is_held_back_alone(fresh: Fresh) {
    let api = Api::of(
        town(
            &fresh,
            "server.rate_limit_key = 1\nserver.rate_limit_token = 0",
        )
        .await,
    );
    let app = key(&api, "app", Scope::Read).await;

    let (_, refused) = too_many(&api, &app).await;
    let configured = answer(api.anonymous("GET", "/v1/users/ada").bearer_auth(KEY)).await;
    let person = api.anonymous("GET", "/v1/users/ada/feed");
    let person = answer(person.bearer_auth(token(&api, "ada"))).await;

    assert_eq!(refused.header("RateLimit-Policy"), "\"key\";q=6;w=6");
    assert_eq!((configured.status, person.status), (200, 200));
    assert_eq!(person.header("RateLimit"), "");
    api.stop().await;
}
