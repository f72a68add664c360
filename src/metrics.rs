//! Counts and times what a process does, and exports it to Prometheus.
//!
//! All names, units and buckets are here. A label has one of a few values that the program or its
//! configuration defines, never a user, object, address or id. Recording never fails, and never
//! waits for the store. The store's state comes in as one value ([`Gauges`]). A test compares these
//! metrics with `ops/` and the manual.

use std::borrow::Cow;
use std::collections::HashSet;
use std::sync::atomic::{AtomicI64, AtomicU64};
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
use prometheus_client::registry::{Metric, Registry, Unit};

use crate::store::Outstanding;

/// The content type of an exported text.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

/// The label for event types that are not configured, and for unknown HTTP methods.
const OTHER: &str = "(other)";

/// Buckets for latencies, in seconds.
const LATENCY: [f64; 15] = [
    0.001, 0.002_5, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0, 60.0,
];
/// Buckets for the delay of a fan-out, in seconds. A backlog of hours can occur.
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

/// The state of the store, for its gauges.
#[derive(Debug, Clone, Default)]
pub struct Gauges {
    /// Whether the store is available: its last query succeeded, and the answer is recent.
    pub up: bool,
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
    /// The limit up to which records are counted.
    pub most: u64,
    /// The unfinished work.
    pub outstanding: Outstanding,
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
    shared: Arc<Shared>,
}

struct Shared {
    registry: Registry,
    types: HashSet<String>,
    provider: String,
    gauges: Mutex<StoreGauges>,
}

/// Declares the labels of metrics.
macro_rules! labels {
    ($($of:ident { $($label:ident: $kind:ty),* })*) => {
        $(
            #[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
            struct $of {
                $($label: $kind),*
            }
        )*
    };
}

labels! {
    Request { route: Cow<'static, str>, method: &'static str, status: u16 }
    Route { route: Cow<'static, str>, method: &'static str }
    Field { record: &'static str, field: String }
    EventType { r#type: String }
    Kind { kind: &'static str }
    Verb { verb: &'static str }
    Occasion { occasion: &'static str }
    Settled { occasion: &'static str, state: &'static str, provider: String, reason: &'static str }
    SettledEvents { occasion: &'static str, state: &'static str }
    Provider { provider: String }
    Outcome { provider: String, outcome: &'static str }
    Part { part: &'static str }
    Round { part: &'static str, result: &'static str }
    State { state: &'static str }
    Users { users: &'static str }
}

type Timed<L> = Family<L, Histogram, fn() -> Histogram>;
type Count = Gauge<i64, AtomicI64>;
type Seconds = Gauge<f64, AtomicU64>;
/// No labels. A gauge is a family so that it has no value before the first answer of the store.
type Plain = Vec<(&'static str, &'static str)>;
type One<N> = Family<Plain, N>;

fn timed<L: Clone + std::hash::Hash + Eq>() -> Timed<L> {
    Family::new_with_constructor(|| Histogram::new(LATENCY))
}

fn time<L: Clone + std::hash::Hash + Eq>(times: &Timed<L>, of: L, took: Duration) {
    times.get_or_create(&of).observe(took.as_secs_f64());
}

fn count<L: Clone + std::hash::Hash + Eq>(counters: &Family<L, Counter>, of: L) {
    counters.get_or_create(&of).inc();
}

fn register<M: Metric + Clone>(registry: &mut Registry, name: &str, help: &str, metric: M) -> M {
    match name.strip_suffix("_seconds") {
        Some(name) => registry.register_with_unit(name, help, Unit::Seconds, metric.clone()),
        None => registry.register(name, help, metric.clone()),
    }
    metric
}

/// Declares a struct of metrics, each with its name, its description, and its value if that is no
/// default.
macro_rules! metrics {
    ($of:ident { $($field:ident: $kind:ty = $name:literal, $help:literal $(, $new:expr)?;)* }) => {
        struct $of {
            $($field: $kind,)*
        }

        impl $of {
            fn registered(registry: &mut Registry) -> Self {
                Self {
                    $($field: register(registry, $name, $help, metrics!(@ $($new)?)),)*
                }
            }
        }
    };
    (@) => { Default::default() };
    (@ $new:expr) => { $new };
}

metrics! {
    Counters {
        http: Family<Request, Counter> = "http_requests", "Requests, by how they were answered";
        http_time: Timed<Route> = "http_request_duration_seconds",
            "Until a request was answered; of a stream, until it began", timed();
        accepted: Family<EventType, Counter> = "events_accepted",
            "Events that are new in the journal";
        repeated: Counter = "events_repeated", "Events that were handed in again under their key";
        fanned_out: Counter = "fanouts_done", "Events that everybody has";
        fanout_lag: Histogram = "fanout_lag_seconds",
            "From when an event happened until everybody has it", Histogram::new(LAG);
        reached: Counter = "fanout_people", "People whom events reached";
        pushed: Counter = "fanout_pushed", "Entries on people's stacks";
        capped: Counter = "fanout_capped", "Entries that did not fit into a person's full day";
        feeds: Family<Kind, Counter> = "feed_answers",
            "Questions about feeds, by how they were answered";
        store_time: Timed<Verb> = "store_call_duration_seconds",
            "Until the store answered; where it answers in chunks, until the first", timed();
        store_errors: Family<Verb, Counter> = "store_call_errors", "Calls of the store that failed";
        unreadable: Family<Field, Counter> = "defaulted_fields",
            "Reads of stored fields that this version cannot read, and replaces by defaults";
        opened: Family<Occasion, Counter> = "deliveries_opened", "New rows of the ledger";
        settled: Family<Settled, Counter> = "deliveries_settled", "Rows of the ledger that ended";
        settled_events: Family<SettledEvents, Counter> = "deliveries_settled_events",
            "Events in emails that ended, by how these ended";
        deferred: Family<Occasion, Counter> = "deliveries_deferred", "How often mails were put off";
        provider_time: Timed<Provider> = "provider_call_duration_seconds",
            "Until the provider answered", timed();
        provider_mails: Family<Outcome, Counter> = "provider_mails",
            "Mails in calls to the provider, by what became of them there";
        reports: Family<Kind, Counter> = "reports", "What providers reported of mails later";
        unreadable_reports: Counter = "reports_skipped",
            "Verified reports that do not have the documented form";
        rounds: Family<Round, Counter> = "worker_rounds", "Rounds of the worker";
        last_round: Family<Part, Seconds> = "worker_last_round_timestamp_seconds",
            "When a part of the worker last came to the end of a round";
    }
}

metrics! {
    StoreGauges {
        up: Count = "store_up", "Whether the store answered this scrape in time";
        age: One<Seconds> = "store_gauges_age_seconds", "How old what the store said is";
        most: One<Count> = "store_gauges_most", "Up to which number things that wait are counted";
        fanouts: One<Count> = "fanouts_pending", "Accepted events that not everybody has";
        fanouts_age: One<Seconds> = "fanouts_oldest_pending_age_seconds",
            "How long ago the oldest of these events happened";
        open: One<Count> = "batches_open", "Batches that gather";
        due: One<Count> = "batches_due", "Batches that should have ended";
        due_age: One<Seconds> = "batches_oldest_due_age_seconds",
            "How long ago the first of these should have ended";
        deliveries: Family<State, Count> = "deliveries", "Mails that are not settled, or unknown";
        deliveries_age: Family<State, Seconds> = "deliveries_oldest_age_seconds",
            "How long ago the first of those that are not settled was opened";
        leases: One<Count> = "leases", "Named leases that somebody holds";
        backlog_age: One<Seconds> = "backlog_oldest_age_seconds",
            "How long ago the oldest day before the window began that may have a backlog";
        backlog: One<Count> = "backlog_events",
            "Unsent events of days before the window, as the last full run found them";
        blocked: One<Count> = "blocked_events",
            "Events of days that have left the window whose users cannot be emailed";
        expired: Family<Users, Count> = "expired_events",
            "Events that expired after digest.max_age, by whether their users could be emailed";
        paused: One<Count> = "paused", "Whether no mail leaves until somebody resumes";
    }
}

fn set(gauge: &One<Count>, count: u64) {
    gauge.get_or_create(&Plain::new()).set(whole(count));
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl StoreGauges {
    /// Sets the gauges. Without an answer, the earlier values remain.
    fn show(&self, gauges: &Gauges) {
        self.up.set(i64::from(gauges.up));
        let Some(state) = &gauges.state else {
            return;
        };
        let age = |since: DateTime<Utc>| (gauges.now - since).as_seconds_f64().max(0.0);
        // An age is 0 if nothing waits.
        let set_age = |gauge: &One<Seconds>, since: Option<DateTime<Utc>>| {
            gauge
                .get_or_create(&Plain::new())
                .set(since.map_or(0.0, age));
        };
        let work = &state.outstanding;
        set_age(&self.age, Some(state.at));
        set(&self.most, state.most);
        set(&self.fanouts, work.fanouts.count);
        set_age(&self.fanouts_age, work.fanouts.since);
        set(&self.open, work.batches_open);
        set(&self.due, work.batches_due.count);
        set_age(&self.due_age, work.batches_due.since);
        for (state, pile) in [
            ("pending", work.pending),
            ("sending", work.sending),
            ("unknown", work.unknown),
        ] {
            let of = State { state };
            self.deliveries.get_or_create(&of).set(whole(pile.count));
            if state != "unknown" {
                let age = pile.since.map_or(0.0, age);
                self.deliveries_age.get_or_create(&of).set(age);
            }
        }
        set(&self.leases, work.leases);
        set_age(&self.backlog_age, state.oldest_backlog);
        set(&self.backlog, state.backlog_events);
        set(&self.blocked, state.blocked_events);
        let (others, blocked) = state.expired_events;
        for (users, events) in [("reachable", others), ("blocked", blocked)] {
            let of = self.expired.get_or_create(&Users { users });
            of.set(whole(events));
        }
        set(&self.paused, u64::from(state.paused));
    }
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
        registry.register("build", "What runs here", Info::new(labels.to_vec()));
        let counters = Counters::registered(&mut registry);
        let gauges = Mutex::new(StoreGauges::registered(&mut registry));
        let shared = Shared {
            registry,
            types: build.types,
            provider: build.provider,
            gauges,
        };
        Self {
            counters: Arc::new(counters),
            shared: Arc::new(shared),
        }
    }

    /// Records an HTTP request. `route` is the pattern in the routing table.
    pub fn answered(&self, route: Cow<'static, str>, method: &str, status: u16, took: Duration) {
        const KNOWN: [&str; 7] = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"];
        // Clients may send any text.
        let method = KNOWN.into_iter().find(|known| *known == method);
        let (method, path) = (method.unwrap_or(OTHER), route.clone());
        time(&self.counters.http_time, Route { route, method }, took);
        let of = Request {
            route: path,
            method,
            status,
        };
        count(&self.counters.http, of);
    }

    /// Counts an event that is new in the journal.
    pub fn accepted(&self, kind: &str) {
        let known = self.shared.types.contains(kind);
        let r#type = if known { kind } else { OTHER }.to_owned();
        count(&self.counters.accepted, EventType { r#type });
    }

    /// Counts an event that was posted again.
    pub fn repeated(&self) {
        self.counters.repeated.inc();
    }

    /// Records a completed fan-out, and the time since the event happened.
    pub fn fanned_out(&self, lag: Duration, people: u64, pushed: u64, capped: u64) {
        let all = &self.counters;
        all.fanned_out.inc();
        all.fanout_lag.observe(lag.as_secs_f64());
        all.reached.inc_by(people);
        all.pushed.inc_by(pushed);
        all.capped.inc_by(capped);
    }

    /// Counts a feed request.
    pub fn fed(&self, answer: FeedAnswer) {
        let kind = answer.as_str();
        count(&self.counters.feeds, Kind { kind });
    }

    /// Records a call of the store.
    pub fn stored(&self, verb: &'static str, took: Duration, is_ok: bool) {
        time(&self.counters.store_time, Verb { verb }, took);
        if !is_ok {
            count(&self.counters.store_errors, Verb { verb });
        }
    }

    /// Counts a stored field that cannot be read and was replaced by its default.
    pub fn unreadable(&self, record: &'static str, field: &str) {
        let field = field.to_owned();
        count(&self.counters.unreadable, Field { record, field });
    }

    /// Counts a new delivery.
    pub fn opened(&self, occasion: &'static str) {
        count(&self.counters.opened, Occasion { occasion });
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
        let counter = self.counters.settled_events.get_or_create(&of);
        counter.inc_by(u64::from(events));
        let of = Settled {
            occasion,
            state,
            provider: self.shared.provider.clone(),
            reason,
        };
        count(&self.counters.settled, of);
    }

    /// Counts a deferral of an email.
    pub fn deferred(&self, occasion: &'static str) {
        count(&self.counters.deferred, Occasion { occasion });
    }

    /// Records a call to the provider, with the outcome of each email.
    pub fn called(&self, took: Duration, outcomes: impl IntoIterator<Item = &'static str>) {
        let provider = self.shared.provider.clone();
        for outcome in outcomes {
            let provider = provider.clone();
            count(&self.counters.provider_mails, Outcome { provider, outcome });
        }
        time(&self.counters.provider_time, Provider { provider }, took);
    }

    /// Counts a report of the provider.
    pub fn reported(&self, kind: &'static str) {
        count(&self.counters.reports, Kind { kind });
    }

    /// Counts verified reports that were skipped because they do not have the documented form.
    pub fn unreadable_reports(&self, reports: u64) {
        self.counters.unreadable_reports.inc_by(reports);
    }

    /// Records a round of one part of the worker. Only a successful one updates the time of the
    /// last.
    pub fn worked(&self, part: &'static str, is_ok: bool, at: DateTime<Utc>) {
        let result = if is_ok { "done" } else { "failed" };
        count(&self.counters.rounds, Round { part, result });
        if is_ok {
            let at = at.timestamp_millis() as f64 / 1_000.0;
            let last = self.counters.last_round.get_or_create(&Part { part });
            last.set(at);
        }
    }

    /// Returns all metrics, including these gauges, as OpenMetrics text.
    pub fn text(&self, gauges: &Gauges) -> Result<String, std::fmt::Error> {
        let shown = self.shared.gauges.lock();
        // The lock is held to the end, so that a concurrent scrape cannot change the gauges.
        let shown = shown.unwrap_or_else(PoisonError::into_inner);
        shown.show(gauges);
        let mut text = String::with_capacity(64 * 1_024);
        encode(&mut text, &self.shared.registry)?;
        Ok(text)
    }
}

#[cfg(test)]
mod tests;
