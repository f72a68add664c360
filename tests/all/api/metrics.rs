//! `/metrics`: access, timeliness, and labels without personal data.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde_json::json;
use tidings::http::api::MetricsServer;
use tokio::sync::watch;

use super::{Api, KEY, answer};
use crate::support::town::{Town, mostly_on_sqlite};
use crate::support::{FailingStore, Fault, Fresh, Then, sum};

mostly_on_sqlite! {
    a_scrape_reports_requests_and_pending_work
}

on_sqlite! {
    labels_have_few_values_and_name_no_user
    while_the_store_is_down_a_scrape_reports_the_last_values
    a_scrape_answers_within_seconds_if_the_store_hangs
    the_next_scrape_reports_the_answer_of_a_slow_store
    metrics_on_their_own_address_need_no_key
    a_request_keeps_its_valid_request_id_or_gets_a_new_one
}

/// Scrapes the metrics.
async fn scrape(api: &Api) -> String {
    let response = api.ask("GET", "/metrics").send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let kind = response.headers()["content-type"].to_str().unwrap();
    let wanted = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(kind, wanted);
    response.text().await.unwrap()
}

/// Asserts that a line is present. An empty label set may be absent or `{}`.
fn has(text: &str, line: &str) {
    let text = text.replace("{} ", " ");
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
}

async fn a_scrape_reports_requests_and_pending_work(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let event = json!({"type": "Loan", "objects": ["o1"], "to": ["ada"]});
    for _ in 0..2 {
        assert_eq!(api.post("/v1/events", event.clone()).await.status, 202);
    }
    api.get("/v1/users/ada/feed").await;
    let tag = api.get("/v1/users/ada/feed").await;
    let same = api.ask("GET", "/v1/users/ada/feed");
    let same = answer(same.header("If-None-Match", tag.header("ETag"))).await;
    assert_eq!(same.status, 304);
    api.town.clock.advance(TimeDelta::seconds(90));

    let text = scrape(&api).await;

    let posted = "route=\"/v1/events\",method=\"POST\"";
    let answered = format!("tidings_http_requests_total{{{posted},status=\"202\"}} 2");
    has(&text, &answered);
    let timed = sum(&text, "tidings_http_request_duration_seconds_count", posted);
    assert_eq!(timed, 2);
    has(&text, "tidings_events_accepted_total{type=\"(other)\"} 2");
    has(&text, "tidings_store_up 1");
    has(&text, "tidings_fanouts_pending 2");
    has(&text, "tidings_fanouts_oldest_pending_age_seconds 90.0");
    has(&text, "tidings_paused 0");
    let made = "tidings_feed_answers_total{kind=\"made\"} 2";
    has(&text, made);
    assert_eq!(sum(&text, "tidings_feed_answers_total", ""), 3);
    let accepts = "verb=\"accept\"";
    assert_eq!(sum(&text, "tidings_store_call_duration_seconds_count", accepts), 2);
    api.fan_out().await;
    api.town.clock.advance(TimeDelta::seconds(6));
    let text = scrape(&api).await;
    has(&text, "tidings_fanouts_pending 0");
    has(&text, "tidings_fanouts_oldest_pending_age_seconds 0.0");
    has(&text, "tidings_fanout_lag_seconds_sum 180.0");
    api.stop().await;
}

async fn labels_have_few_values_and_name_no_user(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    const PERSON: &str = "who-is-this";
    for n in 0..20 {
        let person = format!("{PERSON}{n}");
        let event = json!({"type": person, "objects": [person], "to": [person]});
        assert_eq!(api.post("/v1/events", event).await.status, 202);
        api.get(&format!("/v1/users/{person}/feed")).await;
        api.get(&format!("/{person}")).await;
        api.get(&format!("/v1/{person}")).await;
        answer(api.anonymous("BREW", &format!("/v1/users/{person}"))).await;
    }
    api.fan_out().await;

    let text = scrape(&api).await;

    assert!(!text.contains("who-is"), "{text}");
    let series = |name: &str| {
        let lines = text.lines();
        lines.filter(|line| line.starts_with(name)).count()
    };
    assert!(series("tidings_http_requests_total") <= 6, "{text}");
    assert_eq!(series("tidings_events_accepted_total"), 1, "{text}");
    api.stop().await;
}

async fn while_the_store_is_down_a_scrape_reports_the_last_values(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    // The store answers the calls of one scrape, then fails.
    let calls = {
        let counting = FailingStore::counting(town.store.clone());
        let app = town.process_on(&(counting.clone() as _));
        app.scrape().metrics_text().await.unwrap();
        counting.calls()
    };
    let down = FailingStore::new(town.store.clone(), calls, Fault::Refused, Then::StaysDown);
    let api = Api::with_store(town, &(down as _));
    let known = scrape(&api).await;
    has(&known, "tidings_store_up 1");

    let fresh = scrape(&api).await;
    api.town.clock.advance(TimeDelta::seconds(60));
    let away = scrape(&api).await;

    has(&fresh, "tidings_store_up 1");
    has(&away, "tidings_store_up 0");
    has(&away, "tidings_fanouts_pending 0");
    api.stop().await;
}

async fn a_scrape_answers_within_seconds_if_the_store_hangs(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    let silent =
        FailingStore::waiting(town.store.clone(), Box::new(|_| Box::pin(std::future::pending())));
    let api = Api::with_store(town, &(silent as _));
    let began = Instant::now();

    let texts = futures::future::join_all((0..5).map(|_| scrape(&api))).await;

    assert!(began.elapsed() < Duration::from_secs(5), "{:?}", began.elapsed());
    for text in texts {
        has(&text, "tidings_store_up 0");
        assert!(!text.contains("\ntidings_fanouts_pending"), "{text}");
        assert!(text.contains("tidings_build_info"), "{text}");
    }
    api.stop().await;
}

async fn the_next_scrape_reports_the_answer_of_a_slow_store(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    let (open, opened) = tokio::sync::watch::channel(false);
    let slow = FailingStore::waiting(
        town.store.clone(),
        Box::new(move |_| {
            let mut opened = opened.clone();
            Box::pin(async move {
                opened.wait_for(|open| *open).await.unwrap();
            })
        }),
    );
    let api = Api::with_store(town, &(slow as _));

    let nothing = scrape(&api).await;
    open.send(true).unwrap();
    // The earlier query still runs, and this scrape waits for it.
    let late = scrape(&api).await;
    api.town.clock.advance(TimeDelta::seconds(60));
    open.send(false).unwrap();
    let slow_again = scrape(&api).await;
    api.town.clock.advance(TimeDelta::seconds(61));
    let too_long = scrape(&api).await;

    has(&nothing, "tidings_store_up 0");
    has(&late, "tidings_store_up 1");
    has(&late, "tidings_fanouts_pending 0");
    has(&slow_again, "tidings_store_up 1");
    has(&too_long, "tidings_store_up 0");
    open.send(true).unwrap();
    api.stop().await;
}

async fn metrics_on_their_own_address_need_no_key(fresh: Fresh) {
    let town = Town::found(&fresh, true, "metrics.listen = \"127.0.0.1:0\"").await;
    let app = town.process();
    let watched = MetricsServer::bind(&app).unwrap().unwrap();
    let (addr, (stop, stopped)) = (watched.addr, watch::channel(false));
    let running = tokio::spawn(watched.run(stopped));
    let client = crate::support::client();
    let get = async |path: &str| {
        let response = client.get(format!("http://{addr}{path}")).send();
        let response = response.await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };

    let (status, text) = get("/metrics").await;
    let others = [get("/healthz").await.0, get("/v1/users/ada").await.0];

    assert_eq!(status, 200);
    has(&text, "tidings_store_up 1");
    assert_eq!(others, [200, 404]);
    assert!(
        MetricsServer::bind(
            &Town::on(fresh.handle(), tidings::email::Resolution::Impossible, "").process()
        )
        .unwrap()
        .is_none()
    );
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
}

async fn a_request_keeps_its_valid_request_id_or_gets_a_new_one(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let id = async |given: &str, key: &str| {
        let request = api.anonymous("GET", "/v1/users/ada").bearer_auth(key);
        let response = answer(request.header("X-Request-Id", given)).await;
        response.header("X-Request-Id").to_owned()
    };

    let kept = [id("b7ad6b71.4c1f", KEY).await, id("r-1", "no key").await];
    let made = [id("ada@example.org", KEY).await, id("", KEY).await];

    assert_eq!(kept, ["b7ad6b71.4c1f", "r-1"]);
    assert_ne!(made[0], made[1]);
    for made in made {
        assert!(made.len() == 24 && !made.contains('@'), "{made}");
    }
    api.stop().await;
}
