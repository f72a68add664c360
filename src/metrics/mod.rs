//! Counts and times what a process does, and exports it to Prometheus.
//!
//! All names, units and buckets are here. A label has one of a few values that the program or its
//! configuration defines, never a user, object, address or id. Recording never fails, and never
//! waits for the store. The store's state comes in as one value ([`Gauges`]). A test compares these
//! metrics with `ops/` and the manual.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::AtomicU64;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use chrono::{DateTime, Utc};
use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::histogram::Histogram;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::{Registry, Unit};

mod gauges;

pub use gauges::{Gauges, Known, Pile};
use gauges::{Panel, counted};

/// The content type of an exported text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label for event types that are not configured, and for unknown HTTP methods.
const OTHER: &str = "(other)";

/// Buckets for latencies, in seconds. An answer from memory is below the first, and a call that
/// timed out above the last.
const LATENCY: [f64; 15] = [
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Buckets for the delay of a fan-out, in seconds. Events record their time in whole seconds, and a
/// backlog of hours can occur.
const LAG: [f64; 12] = [
    1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 120.0, 300.0, 900.0, 3_600.0, 21_600.0, 86_400.0,
];

/// How a feed request was answered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FeedAnswer {
    /// Unchanged, known without a read from the store.
    Known,
    /// The store was read, and the reader has the current version.
    Unchanged,
    /// The store was read, and the feed is new to the reader.
    Made,
}

impl FeedAnswer {
    fn as_str(self) -> &'static str {
        match self {
            Self::Known => "known",
            Self::Unchanged => "unchanged",
            Self::Made => "made",
        }
    }
}

/// Facts about a process, known at its start.
#[derive(Debug, Clone)]
pub struct Build {
    /// The program's version.
    pub version: &'static str,
    /// The kind of store.
    pub store: &'static str,
    /// The email provider.
    pub provider: String,
    /// The configured event types. All other types are counted together.
    pub types: HashSet<String>,
}

/// The metrics of one process. Clones share their counters.
#[derive(Clone)]
pub struct Metrics(Arc<Inner>);

struct Inner {
    registry: Registry,
    types: HashSet<String>,
    provider: String,
    http: Family<Request, Counter>,
    http_time: Timed<Route>,
    accepted: Family<Of, Counter>,
    repeated: Counter,
    fanned_out: Counter,
    fanout_lag: Histogram,
    reached: Counter,
    pushed: Counter,
    capped: Counter,
    feeds: Family<Kind, Counter>,
    store_time: Timed<Verb>,
    store_errors: Family<Verb, Counter>,
    unreadable: Family<Field, Counter>,
    opened: Family<Occasion, Counter>,
    settled: Family<Settled, Counter>,
    settled_events: Family<SettledEvents, Counter>,
    deferred: Family<Occasion, Counter>,
    provider_time: Timed<Provider>,
    provider_mails: Family<Outcome, Counter>,
    reports: Family<Kind, Counter>,
    unreadable_reports: Counter,
    rounds: Family<Round, Counter>,
    last_round: Family<Part, Gauge<f64, AtomicU64>>,
    panel: Mutex<Panel>,
}

type Timed<L> = Family<L, Histogram, fn() -> Histogram>;

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Request {
    route: Cow<'static, str>,
    method: &'static str,
    status: u16,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Route {
    route: Cow<'static, str>,
    method: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Field {
    record: &'static str,
    field: String,
}

/// A configured event type.
#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Of {
    r#type: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Kind {
    kind: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Verb {
    verb: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Occasion {
    occasion: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Settled {
    occasion: &'static str,
    state: &'static str,
    provider: String,
    reason: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct SettledEvents {
    occasion: &'static str,
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Provider {
    provider: String,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Outcome {
    provider: String,
    outcome: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Part {
    part: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Round {
    part: &'static str,
    result: &'static str,
}

fn latency() -> Histogram {
    Histogram::new(LATENCY)
}

fn timed<L: Clone + std::hash::Hash + Eq>() -> Timed<L> {
    Family::new_with_constructor(latency)
}

impl Metrics {
    /// Creates metrics with all counters at zero.
    pub fn new(build: Build) -> Self {
        let mut registry = Registry::with_prefix("tidings");
        let labels = [
            ("version", build.version.to_owned()),
            ("store", build.store.to_owned()),
            ("provider", build.provider.clone()),
        ];
        let about = "What runs here";
        registry.register("build", about, Info::new(labels.to_vec()));
        let panel = Panel::registered(&mut registry);
        let r = &mut registry;
        Self(Arc::new(Inner {
            types: build.types,
            provider: build.provider,
            http: counted(r, "http_requests", "Requests, by how they were answered"),
            http_time: timed_as(
                r,
                "http_request_duration",
                "Until a request was answered; of a stream, until it began",
            ),
            accepted: counted(r, "events_accepted", "Events that are new in the journal"),
            repeated: counted(
                r,
                "events_repeated",
                "Events that were handed in again under their key",
            ),
            fanned_out: counted(r, "fanouts_done", "Events that everybody has"),
            fanout_lag: {
                let lag = Histogram::new(LAG);
                r.register_with_unit(
                    "fanout_lag",
                    "From when an event happened until everybody has it",
                    Unit::Seconds,
                    lag.clone(),
                );
                lag
            },
            reached: counted(r, "fanout_people", "People whom events reached"),
            pushed: counted(r, "fanout_pushed", "Entries on people's stacks"),
            capped: counted(
                r,
                "fanout_capped",
                "Entries that did not fit into a person's full day",
            ),
            feeds: counted(
                r,
                "feed_answers",
                "Questions about feeds, by how they were answered",
            ),
            store_time: timed_as(
                r,
                "store_call_duration",
                "Until the store answered; where it answers in chunks, until the first",
            ),
            store_errors: counted(r, "store_call_errors", "Calls of the store that failed"),
            unreadable: counted(
                r,
                "defaulted_fields",
                "Reads of stored fields that this version cannot read, and replaces by defaults",
            ),
            opened: counted(r, "deliveries_opened", "New rows of the ledger"),
            settled: counted(r, "deliveries_settled", "Rows of the ledger that ended"),
            settled_events: counted(
                r,
                "deliveries_settled_events",
                "Events in emails that ended, by how these ended",
            ),
            deferred: counted(r, "deliveries_deferred", "How often mails were put off"),
            provider_time: timed_as(r, "provider_call_duration", "Until the provider answered"),
            provider_mails: counted(
                r,
                "provider_mails",
                "Mails in calls to the provider, by what became of them there",
            ),
            reports: counted(r, "reports", "What providers reported of mails later"),
            unreadable_reports: counted(
                r,
                "reports_skipped",
                "Verified reports that do not have the documented form",
            ),
            rounds: counted(r, "worker_rounds", "Rounds of the worker"),
            last_round: {
                let last = Family::default();
                r.register_with_unit(
                    "worker_last_round_timestamp",
                    "When a part of the worker last came to the end of a round",
                    Unit::Seconds,
                    last.clone(),
                );
                last
            },
            panel: Mutex::new(panel),
            registry,
        }))
    }

    /// Records an HTTP request. `route` is the pattern in the routing table.
    pub fn answered(&self, route: Cow<'static, str>, method: &str, status: u16, took: Duration) {
        let method = known_method(method);
        let of = Route {
            route: route.clone(),
            method,
        };
        self.0
            .http_time
            .get_or_create(&of)
            .observe(took.as_secs_f64());
        let of = Request {
            route,
            method,
            status,
        };
        self.0.http.get_or_create(&of).inc();
    }

    /// Counts an event that is new in the journal.
    pub fn accepted(&self, kind: &str) {
        let known = self.0.types.contains(kind);
        let r#type = if known { kind } else { OTHER }.to_owned();
        self.0.accepted.get_or_create(&Of { r#type }).inc();
    }

    /// Counts an event that was posted again.
    pub fn repeated(&self) {
        self.0.repeated.inc();
    }

    /// Records a completed fan-out, and the time since the event happened.
    pub fn fanned_out(&self, lag: Duration, people: u64, pushed: u64, capped: u64) {
        let all = &self.0;
        all.fanned_out.inc();
        all.fanout_lag.observe(lag.as_secs_f64());
        all.reached.inc_by(people);
        all.pushed.inc_by(pushed);
        all.capped.inc_by(capped);
    }

    /// Counts a feed request.
    pub fn fed(&self, answer: FeedAnswer) {
        let kind = answer.as_str();
        self.0.feeds.get_or_create(&Kind { kind }).inc();
    }

    /// Records a call of the store.
    pub fn stored(&self, verb: &'static str, took: Duration, is_ok: bool) {
        let of = Verb { verb };
        self.0
            .store_time
            .get_or_create(&of)
            .observe(took.as_secs_f64());
        if !is_ok {
            self.0.store_errors.get_or_create(&of).inc();
        }
    }

    /// Counts a stored field that cannot be read and was replaced by its default.
    pub fn unreadable(&self, record: &'static str, field: &str) {
        let of = Field {
            record,
            field: field.to_owned(),
        };
        self.0.unreadable.get_or_create(&of).inc();
    }

    /// Counts a new delivery.
    pub fn opened(&self, occasion: &'static str) {
        self.0.opened.get_or_create(&Occasion { occasion }).inc();
    }

    /// Counts a delivery that ended, and the events that it included.
    pub fn settled(
        &self,
        occasion: &'static str,
        state: &'static str,
        reason: &'static str,
        events: u32,
    ) {
        let of = SettledEvents { occasion, state };
        let counter = self.0.settled_events.get_or_create(&of);
        counter.inc_by(u64::from(events));
        let of = Settled {
            occasion,
            state,
            provider: self.0.provider.clone(),
            reason,
        };
        self.0.settled.get_or_create(&of).inc();
    }

    /// Counts a deferral of an email.
    pub fn deferred(&self, occasion: &'static str) {
        self.0.deferred.get_or_create(&Occasion { occasion }).inc();
    }

    /// Records a call to the provider, with the outcome of each email.
    pub fn called(&self, took: Duration, outcomes: impl IntoIterator<Item = &'static str>) {
        let provider = self.0.provider.clone();
        let of = Provider {
            provider: provider.clone(),
        };
        let times = &self.0.provider_time;
        times.get_or_create(&of).observe(took.as_secs_f64());
        for outcome in outcomes {
            let provider = provider.clone();
            let of = Outcome { provider, outcome };
            self.0.provider_mails.get_or_create(&of).inc();
        }
    }

    /// Counts a report of the provider.
    pub fn reported(&self, kind: &'static str) {
        self.0.reports.get_or_create(&Kind { kind }).inc();
    }

    /// Counts verified reports that were skipped because they do not have the documented form.
    pub fn unreadable_reports(&self, reports: u64) {
        self.0.unreadable_reports.inc_by(reports);
    }

    /// Records a round of one part of the worker. Only a successful one updates the time of the
    /// last.
    pub fn worked(&self, part: &'static str, is_ok: bool, at: DateTime<Utc>) {
        let result = if is_ok { "done" } else { "failed" };
        self.0.rounds.get_or_create(&Round { part, result }).inc();
        if is_ok {
            let at = at.timestamp_millis() as f64 / 1_000.0;
            self.0.last_round.get_or_create(&Part { part }).set(at);
        }
    }

    /// Returns all metrics, including these gauges, as OpenMetrics text.
    pub fn text(&self, gauges: &Gauges) -> Result<String, std::fmt::Error> {
        let panel = self.0.panel.lock();
        // The lock is held to the end, so that a concurrent scrape cannot change the gauges.
        let panel = panel.unwrap_or_else(PoisonError::into_inner);
        panel.show(gauges);
        let mut text = String::with_capacity(64 * 1_024);
        encode(&mut text, &self.0.registry)?;
        Ok(text)
    }
}

fn timed_as<L>(registry: &mut Registry, name: &str, help: &str) -> Timed<L>
where
    L: EncodeLabelSet + Clone + std::hash::Hash + Eq + Send + Sync + std::fmt::Debug + 'static,
{
    let metric = timed::<L>();
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}

/// Returns the method, or [`OTHER`] for an unknown one: clients may send any text.
fn known_method(method: &str) -> &'static str {
    const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
    let known = KNOWN.into_iter().find(|known| *known == method);
    known.unwrap_or(OTHER)
}

#[cfg(test)]
mod tests;
