//! Tests the text of a scrape, and that the dashboard, the alerts and the docs name its metrics.

use std::collections::BTreeSet;

use chrono::TimeDelta;

use super::*;
use crate::store::WaitingItems;

const ALERTS: &str = include_str!("../../ops/tidings.rules.yml");
const DASHBOARD: &str = include_str!("../../ops/tidings.dashboard.json");
const GUIDE: &str = include_str!("../../docs/guides/monitoring.md");
const REFERENCE: &str = include_str!("../../docs/reference/metrics.md");

fn metrics() -> Metrics {
    Metrics::new(BuildInfo {
        version: "1.2.3",
        store: "sqlite",
        provider: "outbox".into(),
        types: HashSet::from(["Comment".to_owned()]),
    })
}

fn text(metrics: &Metrics) -> String {
    metrics.export(&StoreGauges::default()).unwrap()
}

#[test]
fn a_scrape_contains_the_build_info_and_ends_with_eof() {
    let text = text(&metrics());

    let build = "tidings_build_info{version=\"1.2.3\",store=\"sqlite\",provider=\"outbox\"} 1\n";
    assert!(text.contains(build), "{text}");
    assert!(text.ends_with("# EOF\n"), "{text}");
}

#[test]
fn unconfigured_types_share_one_label() {
    let metrics = metrics();

    for kind in ["Comment", "ada@example.org", "Whatever", "Comment"] {
        metrics.count_accepted_event(kind);
    }

    let text = text(&metrics);
    for line in [
        "tidings_events_accepted_total{type=\"Comment\"} 2\n",
        "tidings_events_accepted_total{type=\"(other)\"} 2\n",
    ] {
        assert!(text.contains(line), "{text}");
    }
    assert!(!text.contains("ada"), "{text}");
}

#[test]
fn unknown_methods_share_one_label() {
    let metrics = metrics();

    for method in ["GET", "BREW", "ada@example.org"] {
        metrics.record_request("/healthz".into(), method, 200, Duration::from_millis(3));
    }

    let text = text(&metrics);
    let brew =
        "tidings_http_requests_total{route=\"/healthz\",method=\"(other)\",status=\"200\"} 2\n";
    assert!(text.contains(brew), "{text}");
    let within = "tidings_http_request_duration_seconds_bucket{le=\"0.005\",route=\"/healthz\",method=\"GET\"} 1\n";
    assert!(text.contains(within), "{text}");
}

#[test]
fn store_gauges_appear_after_the_first_reading_and_keep_the_last_value() {
    let metrics = metrics();
    let fanouts = WaitingItems { count: 3, since: Some(DateTime::UNIX_EPOCH) };
    let state = StoreState {
        outstanding: OutstandingWork { fanouts, ..OutstandingWork::default() },
        ..StoreState::default()
    };
    let now = DateTime::UNIX_EPOCH + TimeDelta::milliseconds(4_500);
    let scrape = |up, state| {
        let text = metrics.export(&StoreGauges { is_up: up, now, state }).unwrap();
        // A series without labels may be written without braces or with empty ones.
        text.replace("{} ", " ")
    };

    let never = scrape(false, None);
    let first = scrape(true, Some(state));
    let away = scrape(false, Some(state));

    assert!(never.contains("tidings_store_up 0\n"), "{never}");
    assert!(!never.contains("\ntidings_fanouts_pending"), "{never}");
    for (text, up) in [(first, "tidings_store_up 1\n"), (away, "tidings_store_up 0\n")] {
        let age = "tidings_fanouts_oldest_pending_age_seconds 4.5\n";
        for line in [up, "tidings_fanouts_pending 3\n", age] {
            assert!(text.contains(line), "{line}: {text}");
        }
    }
}

/// Returns a scrape of a process that has recorded every metric.
fn everything() -> String {
    let (metrics, some) = (metrics(), Duration::from_millis(1));
    metrics.record_request("/v1/events".into(), "POST", 202, some);
    metrics.count_accepted_event("Comment");
    metrics.count_repeated_event();
    metrics.record_fan_out(some, 1, 1, 1);
    metrics.count_feed_request("known");
    metrics.record_store_call("accept", some, false);
    metrics.count_opened_delivery("digest");
    metrics.count_settled_delivery("digest", "sent", "");
    metrics.count_deferral("digest");
    metrics.record_provider_call(some, ["accepted"]);
    metrics.count_report("bounced");
    metrics.count_unreadable_reports(1);
    metrics.record_round("mail", true, DateTime::UNIX_EPOCH);
    let gauges =
        StoreGauges { is_up: true, state: Some(StoreState::default()), ..StoreGauges::default() };
    metrics.export(&gauges).unwrap()
}

/// Returns the names of all series, without labels.
fn names() -> BTreeSet<String> {
    let text = everything();
    let series = text.lines().filter(|line| !line.starts_with('#'));
    let name = |line: &str| line.split([' ', '{']).next().unwrap().to_owned();
    series.map(name).collect()
}

/// Returns the words in a text that look like names of our metrics.
fn named(text: &str) -> BTreeSet<String> {
    let words = text.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
    let ours = words.filter(|word| word.starts_with("tidings_"));
    ours.map(str::to_owned).collect()
}

#[test]
fn metric_names_follow_the_prometheus_conventions() {
    let text = everything();

    let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
    for (name, kind) in types.map(|line| line.split_once(' ').unwrap()) {
        assert!(name.starts_with("tidings_"), "{name}");
        let timed = ["duration", "lag", "age", "timestamp"];
        let is_timed = timed.iter().any(|time| name.contains(time));
        assert_eq!(is_timed, name.ends_with("_seconds"), "{name}");
        let counted = text.contains(&format!("\n{name}_total"));
        assert_eq!(kind == "counter", counted, "{name} is a {kind}");
    }
}

#[test]
fn the_dashboard_and_the_alerts_use_existing_metrics() {
    let names = names();

    for (what, text) in [("the dashboard", DASHBOARD), ("the alerts", ALERTS)] {
        let named = named(text);
        assert!(named.len() > 10, "{what}: {named:?}");
        let unknown: Vec<_> = named.difference(&names).collect();
        assert!(unknown.is_empty(), "{what} names {unknown:?}");
    }
}

#[test]
fn the_reference_lists_exactly_the_existing_metrics() {
    let base = |name: &String| {
        let ends = ["_bucket", "_sum", "_count"];
        let base = ends.iter().find_map(|end| name.strip_suffix(end));
        base.unwrap_or(name).to_owned()
    };

    let existing: BTreeSet<String> = names().iter().map(base).collect();

    assert_eq!(named(REFERENCE), existing);
}

#[test]
fn every_alert_has_a_section_in_the_guide_and_every_section_an_alert() {
    let alerts = ALERTS.lines().filter_map(|line| {
        let (_, name) = line.split_once("- alert: ")?;
        Some(name.to_owned())
    });
    let runbooks = ALERTS.lines().filter_map(|line| {
        let (_, place) = line.split_once("runbook: docs/guides/monitoring.md#")?;
        Some(place.to_owned())
    });
    let sections = GUIDE.split("\n### ").skip(1);
    let sections: Vec<(&str, &str)> = sections
        .filter_map(|section| section.split_once('\n'))
        .filter(|(title, _)| title.starts_with("Tidings"))
        .collect();

    let alerts: Vec<String> = alerts.collect();
    let titles: Vec<&str> = sections.iter().map(|(title, _)| *title).collect();
    assert_eq!(alerts, titles);
    let places: Vec<String> = alerts.iter().map(|name| name.to_lowercase()).collect();
    assert_eq!(runbooks.collect::<Vec<_>>(), places);
    for (title, text) in sections {
        for part in ["Meaning: ", "Look at: ", "Do: "] {
            assert!(text.contains(&format!("\n{part}")), "{title}: {part}");
        }
    }
}

#[test]
fn the_dashboard_is_json_and_no_two_panels_overlap() {
    let dashboard: serde_json::Value = serde_json::from_str(DASHBOARD).unwrap();

    let panels = dashboard["panels"].as_array().unwrap();
    let places: BTreeSet<String> = panels
        .iter()
        .map(|panel| format!("{} {}", panel["gridPos"]["x"], panel["gridPos"]["y"]))
        .collect();
    assert_eq!(places.len(), panels.len());
}
