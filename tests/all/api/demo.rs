//! A server that shows no demo has nothing of one. What is there with `--demo` is tried as the
//! program runs it (`tests/all/cli/serve_demo.rs`).

use tidings::http::api::DEMO_ROUTES;

use super::Api;
use crate::support::Fresh;

on_sqlite! {
    without_a_demo_none_of_its_routes_is_there
    without_a_demo_any_name_is_answered
}

async fn without_a_demo_none_of_its_routes_is_there(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let routes: Vec<_> = DEMO_ROUTES.iter().flat_map(|table| table.routes).collect();
    assert!(routes.len() > 8);

    for route in routes {
        let request = api.ask(route.method, route.path).json(&serde_json::json!({}));
        let request = request.header("Origin", format!("http://{}", api.addr));
        let answer = request.send().await.unwrap();

        assert_eq!(answer.status(), 404, "{} {}", route.method, route.path);
        let problem = answer.text().await.unwrap();
        assert!(problem.contains("\"not_found\""), "{problem}");
    }
    api.stop().await;
}

async fn without_a_demo_any_name_is_answered(fresh: Fresh) {
    let api = Api::on(&fresh).await;

    let request = api.anonymous("GET", "/healthz").header("Host", "news.example.org");

    assert_eq!(request.send().await.unwrap().status(), 200);
    api.stop().await;
}
