//! Counts and times what a process does, and exports it to Prometheus.
//!
//! All names, units and buckets are here. A label has one of a few values that the program or its
//! configuration defines, never a user, object, address or id. Recording never fails, and never
//! waits for the store. The store's state comes in as one value ([`StoreGauges`]). A test compares
//! these metrics with `ops/` and `docs/reference/metrics.md`.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::time::Duration;

use chrono::{DateTime, Utc};
use prometheus_client::encoding::text::{encode_eof, encode_registry};
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::{Atomic, ConstGauge, Gauge};
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::store::OutstandingWork;

/// The content type of an exported text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label for event types that are not configured, and for unknown HTTP methods.
const OTHER: &str = "(other)";

/// Buckets for latencies, in seconds.
const LATENCY_BUCKETS: [f64; 15] =
    [0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0];
/// Buckets for the delay of a fan-out, in seconds. A backlog of hours can occur.
const LAG_BUCKETS: [f64; 12] =
    [1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0];

/// Facts about a process, known at its start.
#[derive(Debug, Clone, Default)]
pub struct BuildInfo {
    /// The program's version.
    pub version: &'static str,
    /// The kind of store.
    pub store: &'static str,
    /// The email provider.
    pub provider: String,
    /// The configured event types. All other types are counted together.
    pub types: HashSet<String>,
}

/// The state of the store, for its gauges.
#[derive(Debug, Clone, Default)]
pub struct StoreGauges {
    /// Whether the store is available: its last query succeeded, and the answer is recent.
    pub is_up: bool,
    /// The time of the scrape. Ages are exported, so that a reader need not compare clocks.
    pub now: DateTime<Utc>,
    /// The last answer; `None` if there was none.
    pub state: Option<StoreState>,
}

/// An answer of the store.
#[derive(Debug, Clone, Copy, Default)]
pub struct StoreState {
    /// The time of the answer.
    pub at: DateTime<Utc>,
    /// The unfinished work.
    pub outstanding: OutstandingWork,
    /// The start of the oldest day before the window that may hold unsent events.
    pub oldest_backlog: Option<DateTime<Utc>>,
    /// The unsent events of days before the window, as the last run found them.
    pub backlog_events: u64,
    /// The events of days before the window whose users cannot be emailed, as the last full run
    /// found them.
    pub blocked_events: u64,
    /// Events that expired after `digest.max_age`: of users who could be emailed, and of users who
    /// could not.
    pub expired_events: (u64, u64),
    /// Whether sending is paused until an operator resumes it.
    pub paused: bool,
}

/// The metrics of one process. Clones share their counters.
#[derive(Clone)]
pub struct Metrics {
    counters: Arc<Counters>,
    registry: Arc<Registry>,
    types: Arc<HashSet<String>>,
    provider: String,
}

type Label = (&'static str, Cow<'static, str>);
type Labels = Vec<Label>;
type CounterFamily = Family<Labels, Counter>;
type HistogramFamily = Family<Labels, Histogram, fn() -> Histogram>;

fn latency_histograms() -> HistogramFamily {
    Family::new_with_constructor(|| Histogram::new(LATENCY_BUCKETS))
}

fn observe<const N: usize>(family: &HistogramFamily, labels: [Label; N], duration: Duration) {
    family.get_or_create(&labels.into()).observe(duration.as_secs_f64());
}

fn increment<const N: usize>(family: &CounterFamily, labels: [Label; N]) {
    family.get_or_create(&labels.into()).inc();
}

fn register(registry: &mut Registry, name: &str, help: &str, metric: impl Metric) {
    match name.strip_suffix("_seconds") {
        Some(name) => registry.register_with_unit(name, help, Unit::Seconds, metric),
        None => registry.register(name, help, metric),
    }
}

/// Declares the counters and histograms, each with its name and its description. An expression
/// creates those that have no default.
macro_rules! counters {
    ($($field:ident: $kind:ty = $name:literal, $help:literal $(, $new:expr)?;)*) => {
        struct Counters {
            $($field: $kind,)*
        }

        impl Counters {
            fn registered(registry: &mut Registry) -> Self {
                $(
                    let $field: $kind = counters!(@ $($new)?);
                    register(registry, $name, $help, $field.clone());
                )*
                Self { $($field,)* }
            }
        }
    };
    (@) => { Default::default() };
    (@ $new:expr) => { $new };
}

counters! {
    http: CounterFamily = "http_requests", "Requests by route, method and status";
    http_time: HistogramFamily = "http_request_duration_seconds",
        "Time to the response; of a stream, to its start", latency_histograms();
    accepted: CounterFamily = "events_accepted", "New events in the journal";
    repeated: Counter = "events_repeated", "Events that were posted again under their key";
    fanned_out: Counter = "fanouts_done", "Fully fanned-out events";
    fanout_lag: Histogram = "fanout_lag_seconds",
        "Time from an event until it is fully fanned out", Histogram::new(LAG_BUCKETS);
    reached: Counter = "fanout_people", "Users of fanned-out events";
    pushed: Counter = "fanout_pushed", "Entries on stacks";
    capped: Counter = "fanout_capped", "Entries that were dropped because the day was full";
    feeds: CounterFamily = "feed_answers", "Feed requests, by how they were answered";
    store_time: HistogramFamily = "store_call_duration_seconds",
        "Time of a store call; of a stream, to its first chunk", latency_histograms();
    store_errors: CounterFamily = "store_call_errors", "Store calls that failed";
    opened: CounterFamily = "deliveries_opened", "New rows of the ledger";
    settled: CounterFamily = "deliveries_settled", "Rows of the ledger that ended";
    deferred: CounterFamily = "deliveries_deferred", "Deferrals of emails";
    provider_time: HistogramFamily = "provider_call_duration_seconds",
        "Time until the provider answered", latency_histograms();
    provider_emails: CounterFamily = "provider_mails",
        "Emails in calls to the provider, by outcome";
    reports: CounterFamily = "reports", "Later reports of providers";
    unreadable_reports: Counter = "reports_skipped",
        "Verified reports that do not have the documented form";
    rounds: CounterFamily = "worker_rounds", "Rounds of the worker";
    last_round: Family<Labels, Gauge<f64, AtomicU64>> = "worker_last_round_timestamp_seconds",
        "End of the last round of a part of the worker";
}

/// Registers gauges, each with its name, its description and its value.
macro_rules! gauges {
    ($registry:ident: $($name:literal, $help:literal = $gauge:expr;)*) => {
        $(register(&mut $registry, $name, $help, $gauge);)*
    };
}

/// Returns a gauge with these numbers, each for one value of a label.
fn by_label<N, const M: usize>(
    label: &'static str,
    numbers: [(&'static str, N); M],
) -> Family<Labels, Gauge<N, AtomicU64>>
where
    AtomicU64: Atomic<N>,
{
    let family = Family::<Labels, Gauge<N, AtomicU64>>::default();
    for (value, number) in numbers {
        family.get_or_create(&vec![(label, value.into())]).set(number);
    }
    family
}

/// Returns the gauges of the store. Before its first answer there is only `store_up`.
fn store_gauges(gauges: &StoreGauges) -> Registry {
    let mut registry = Registry::with_prefix("tidings");
    let count = ConstGauge::<u64>::new;
    gauges! { registry:
        "store_up", "Whether the store answered this scrape in time" = count(gauges.is_up.into());
    }
    let Some(state) = &gauges.state else {
        return registry;
    };
    let work = &state.outstanding;
    // An age is 0 if nothing waits.
    let seconds = |since: DateTime<Utc>| (gauges.now - since).as_seconds_f64().max(0.0);
    let age = |since: Option<DateTime<Utc>>| ConstGauge::new(since.map_or(0.0, seconds));
    let delivery_counts = [
        ("pending", work.pending.count),
        ("sending", work.sending.count),
        ("unknown", work.unknown.count),
    ];
    let delivery_ages = [("pending", work.pending), ("sending", work.sending)]
        .map(|(state, deliveries)| (state, deliveries.since.map_or(0.0, seconds)));
    let (reachable, blocked) = state.expired_events;
    let expired_counts = [("reachable", reachable), ("blocked", blocked)];
    gauges! { registry:
        "fanouts_pending", "Accepted events that are not fully fanned out"
            = count(work.fanouts.count);
        "fanouts_oldest_pending_age_seconds", "Time since the oldest of these events"
            = age(work.fanouts.since);
        "batches_open", "Open batches" = count(work.batches_open);
        "batches_due", "Batches that should have closed" = count(work.batches_due.count);
        "batches_oldest_due_age_seconds", "Time since the first of these should have closed"
            = age(work.batches_due.since);
        "deliveries", "Emails that are not settled, or unknown"
            = by_label("state", delivery_counts);
        "deliveries_oldest_age_seconds",
            "Time since the first of those that are not settled was opened"
            = by_label("state", delivery_ages);
        "backlog_oldest_age_seconds",
            "Time since the start of the oldest day before the window that may hold unsent events"
            = age(state.oldest_backlog);
        "backlog_events", "Unsent events of days before the window, as the last run found them"
            = count(state.backlog_events);
        "blocked_events", "Events of days before the window whose users cannot be emailed"
            = count(state.blocked_events);
        "expired_events", "Events that expired, by whether their users could be emailed"
            = by_label("users", expired_counts);
        "paused", "Whether sending is paused" = count(state.paused.into());
    }
    registry
}

impl Metrics {
    /// Creates metrics with all counters at zero.
    pub fn new(build: BuildInfo) -> Self {
        let mut registry = Registry::with_prefix("tidings");
        let labels = vec![
            ("version", build.version.to_owned()),
            ("store", build.store.to_owned()),
            ("provider", build.provider.clone()),
        ];
        registry.register("build", "This program and its parts", Info::new(labels));
        Self {
            counters: Arc::new(Counters::registered(&mut registry)),
            registry: Arc::new(registry),
            types: Arc::new(build.types),
            provider: build.provider,
        }
    }

    /// Records an HTTP request. `route` is the pattern in the routing table.
    pub fn record_request(
        &self,
        route: Cow<'static, str>,
        method: &str,
        status: u16,
        duration: Duration,
    ) {
        const METHODS: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        // Clients may send any text.
        let method = METHODS.into_iter().find(|known| *known == method).unwrap_or(OTHER);
        let [route, method] = [("route", route), ("method", method.into())];
        let status = ("status", status.to_string().into());
        let timed = [route.clone(), method.clone()];
        observe(&self.counters.http_time, timed, duration);
        increment(&self.counters.http, [route, method, status]);
    }

    /// Counts an event that is new in the journal.
    pub fn count_accepted_event(&self, kind: &str) {
        let label = self.types.get(kind).map_or(OTHER, String::as_str).to_owned();
        increment(&self.counters.accepted, [("type", label.into())]);
    }

    /// Counts an event that was posted again.
    pub fn count_repeated_event(&self) {
        self.counters.repeated.inc();
    }

    /// Records a completed fan-out, and the time since the event happened.
    pub fn record_fan_out(&self, lag: Duration, users: u64, pushed: u64, capped: u64) {
        let counters = &self.counters;
        counters.fanned_out.inc();
        counters.fanout_lag.observe(lag.as_secs_f64());
        counters.reached.inc_by(users);
        counters.pushed.inc_by(pushed);
        counters.capped.inc_by(capped);
    }

    /// Counts a feed request: `known` if the feed is unchanged, without a read from the store,
    /// otherwise `unchanged` or `made`.
    pub fn count_feed_request(&self, kind: &'static str) {
        increment(&self.counters.feeds, [("kind", kind.into())]);
    }

    /// Records a call of the store.
    pub fn record_store_call(&self, verb: &'static str, duration: Duration, is_ok: bool) {
        observe(&self.counters.store_time, [("verb", verb.into())], duration);
        if !is_ok {
            increment(&self.counters.store_errors, [("verb", verb.into())]);
        }
    }

    /// Counts a new delivery.
    pub fn count_opened_delivery(&self, occasion: &'static str) {
        increment(&self.counters.opened, [("occasion", occasion.into())]);
    }

    /// Counts a delivery that ended.
    pub fn count_settled_delivery(
        &self,
        occasion: &'static str,
        state: &'static str,
        reason: &'static str,
    ) {
        let labels = [
            ("occasion", occasion.into()),
            ("state", state.into()),
            ("provider", self.provider.clone().into()),
            ("reason", reason.into()),
        ];
        increment(&self.counters.settled, labels);
    }

    /// Counts a deferral of an email.
    pub fn count_deferral(&self, occasion: &'static str) {
        increment(&self.counters.deferred, [("occasion", occasion.into())]);
    }

    /// Records a call to the provider, with the outcome of each email.
    pub fn record_provider_call(
        &self,
        duration: Duration,
        outcomes: impl IntoIterator<Item = &'static str>,
    ) {
        let provider = || ("provider", self.provider.clone().into());
        observe(&self.counters.provider_time, [provider()], duration);
        for outcome in outcomes {
            let labels = [provider(), ("outcome", outcome.into())];
            increment(&self.counters.provider_emails, labels);
        }
    }

    /// Counts a report of the provider.
    pub fn count_report(&self, kind: &'static str) {
        increment(&self.counters.reports, [("kind", kind.into())]);
    }

    /// Counts verified reports that were skipped because they do not have the documented form.
    pub fn count_unreadable_reports(&self, reports: u64) {
        self.counters.unreadable_reports.inc_by(reports);
    }

    /// Records a round of one part of the worker. Only a successful one updates the time of the
    /// last.
    pub fn record_round(&self, part: &'static str, is_ok: bool, at: DateTime<Utc>) {
        let result = if is_ok { "done" } else { "failed" };
        let part: Label = ("part", part.into());
        if is_ok {
            let last = self.counters.last_round.get_or_create(&vec![part.clone()]);
            last.set(at.timestamp_millis() as f64 / 1_000.0);
        }
        increment(&self.counters.rounds, [part, ("result", result.into())]);
    }

    /// Returns all metrics, including these gauges, as OpenMetrics text.
    pub fn export(&self, gauges: &StoreGauges) -> Result<String, std::fmt::Error> {
        let mut text = String::with_capacity(64 * 1_024);
        encode_registry(&mut text, &self.registry)?;
        encode_registry(&mut text, &store_gauges(gauges))?;
        encode_eof(&mut text)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
