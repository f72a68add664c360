//! What Prometheus is told: to whom, how soon, and about nobody.

use std::time::{Duration, Instant};

use chrono::TimeDelta;
use serde_json::json;
use tidings::http::api::Watched;
use tokio::sync::watch;

use super::{Api, KEY, answer};
use crate::support::town::{Town, on_both_stores};
use crate::support::{FailingStore, Fault, Fresh, Then, sum};

on_both_stores! {
    a_scrape_tells_how_requests_were_answered_and_what_is_to_be_done
}

on_sqlite! {
    labels_name_nobody_and_take_few_values
    with_the_store_away_a_scrape_says_so_and_tells_what_is_known
    with_a_store_that_says_nothing_a_scrape_is_answered_all_the_same
    what_a_slow_store_says_is_told_by_the_next_scrape
    at_an_address_of_their_own_metrics_are_told_without_a_key
    a_request_keeps_the_id_it_brought_and_gets_one_otherwise
}

/// A scrape's text.
async fn scraped(api: &Api) -> String {
    let response = api.ask("GET", "/metrics").send().await.unwrap();
    assert_eq!(response.status().as_u16(), 200);
    let kind = response.headers()["content-type"].to_str().unwrap();
    let wanted = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(kind, wanted);
    response.text().await.unwrap()
}

/// No labels may be written as none, or in empty braces.
fn has(text: &str, line: &str) {
    let text = text.replace("{} ", " ");
    assert!(text.lines().any(|found| found == line), "{line}\n{text}");
}

async fn a_scrape_tells_how_requests_were_answered_and_what_is_to_be_done(fresh: Fresh) {
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

    let text = scraped(&api).await;

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
    assert_eq!(
        sum(&text, "tidings_store_call_duration_seconds_count", accepts),
        2
    );
    api.fan_out().await;
    api.town.clock.advance(TimeDelta::seconds(6));
    let text = scraped(&api).await;
    has(&text, "tidings_fanouts_pending 0");
    has(&text, "tidings_fanouts_oldest_pending_age_seconds 0.0");
    has(&text, "tidings_fanout_lag_seconds_sum 180.0");
    api.stop().await;
}

async fn labels_name_nobody_and_take_few_values(fresh: Fresh) {
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

    let text = scraped(&api).await;

    assert!(!text.contains("who-is"), "{text}");
    let series = |name: &str| {
        let lines = text.lines();
        lines.filter(|line| line.starts_with(name)).count()
    };
    assert!(series("tidings_http_requests_total") <= 6, "{text}");
    assert_eq!(series("tidings_events_accepted_total"), 1, "{text}");
    api.stop().await;
}

async fn with_the_store_away_a_scrape_says_so_and_tells_what_is_known(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    // One look at the store, then it goes.
    let calls = {
        let counting = FailingStore::counting(town.store.clone());
        let app = town.process_on(&(counting.clone() as _));
        app.scrape().text().await.unwrap();
        counting.calls()
    };
    let down = FailingStore::new(town.store.clone(), calls, Fault::Refused, Then::StaysDown);
    let api = Api::with_store(town, &(down as _));
    let known = scraped(&api).await;
    has(&known, "tidings_store_up 1");

    let fresh = scraped(&api).await;
    api.town.clock.advance(TimeDelta::seconds(60));
    let away = scraped(&api).await;

    has(&fresh, "tidings_store_up 1");
    has(&away, "tidings_store_up 0");
    has(&away, "tidings_store_gauges_age_seconds 60.0");
    has(&away, "tidings_fanouts_pending 0");
    api.stop().await;
}

async fn with_a_store_that_says_nothing_a_scrape_is_answered_all_the_same(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    let silent = FailingStore::waiting(
        town.store.clone(),
        Box::new(|_| Box::pin(std::future::pending())),
    );
    let api = Api::with_store(town, &(silent as _));
    let began = Instant::now();

    let texts = futures::future::join_all((0..5).map(|_| scraped(&api))).await;

    assert!(
        began.elapsed() < Duration::from_secs(5),
        "{:?}",
        began.elapsed()
    );
    for text in texts {
        has(&text, "tidings_store_up 0");
        assert!(!text.contains("\ntidings_fanouts_pending"), "{text}");
        assert!(text.contains("tidings_build_info"), "{text}");
    }
    api.stop().await;
}

async fn what_a_slow_store_says_is_told_by_the_next_scrape(fresh: Fresh) {
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

    let nothing = scraped(&api).await;
    open.send(true).unwrap();
    // It is still being asked, and what it says is waited for.
    let late = scraped(&api).await;
    api.town.clock.advance(TimeDelta::seconds(60));
    open.send(false).unwrap();
    let slow_again = scraped(&api).await;
    api.town.clock.advance(TimeDelta::seconds(61));
    let too_long = scraped(&api).await;

    has(&nothing, "tidings_store_up 0");
    has(&late, "tidings_store_up 1");
    has(&late, "tidings_fanouts_pending 0");
    has(&slow_again, "tidings_store_up 1");
    has(&too_long, "tidings_store_up 0");
    open.send(true).unwrap();
    api.stop().await;
}

async fn at_an_address_of_their_own_metrics_are_told_without_a_key(fresh: Fresh) {
    let town = Town::found(&fresh, true, "metrics.listen = \"127.0.0.1:0\"").await;
    let app = town.process();
    let watched = Watched::bind(&app).unwrap().unwrap();
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
        Watched::bind(&Town::on(fresh.handle(), tidings::email::Certainty::Never, "").process())
            .unwrap()
            .is_none()
    );
    stop.send(true).unwrap();
    running.await.unwrap().unwrap();
}

async fn a_request_keeps_the_id_it_brought_and_gets_one_otherwise(fresh: Fresh) {
    let api = Api::on(&fresh).await;
    let id = async |brought: &str, key: &str| {
        let request = api.anonymous("GET", "/v1/users/ada").bearer_auth(key);
        let asked = answer(request.header("X-Request-Id", brought)).await;
        asked.header("X-Request-Id").to_owned()
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
