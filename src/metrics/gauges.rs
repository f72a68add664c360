//! Gauges of the store's contents: the number of waiting records, and the age of the oldest.
//!
//! Ages are exported instead of times, so that a reader need not compare clocks. An age is 0 if
//! nothing waits. While the store does not answer, the last counts remain, ages grow, and
//! `tidings_store_up` is 0.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

/// A number of waiting records, and the age of the oldest in seconds.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pile {
    /// The number, at most [`Known::most`].
    pub count: u64,
    /// The age in seconds; 0 if there is none.
    pub age: f64,
}

/// The state of the store, as far as it is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gauges {
    /// Whether the store is available: its last query succeeded, and the answer is recent.
    pub up: bool,
    /// The last answer; `None` if there was none.
    pub known: Option<Known>,
}

/// An answer of the store.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Known {
    /// The age of the answer in seconds.
    pub age: f64,
    /// The limit up to which records are counted.
    pub most: u64,
    /// Accepted events that are not fully fanned out.
    pub fanouts: Pile,
    /// Open batches.
    pub batches_open: u64,
    /// Batches that should have closed.
    pub batches_due: Pile,
    /// Emails that wait to be sent.
    pub pending: Pile,
    /// Emails whose call is in progress, or was interrupted.
    pub sending: Pile,
    /// Emails with an unknown outcome.
    pub unknown: u64,
    /// Held named leases.
    pub leases: u64,
    /// The seconds since the start of the oldest day before the window that may hold unsent events;
    /// 0 if there is none.
    pub owed: f64,
    /// The unsent events of days before the window, as the last run found them.
    pub owed_events: u64,
    /// The events of days before the window whose users cannot be emailed, as the last full run
    /// found them.
    pub blocked_events: u64,
    /// Events that expired after `digest.max_age`: of users who could be emailed, and of users who
    /// could not.
    pub expired_events: (u64, u64),
    /// Whether sending is paused until an operator resumes it.
    pub paused: bool,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct State {
    state: &'static str,
}

#[derive(Debug, Clone, PartialEq, Eq, Hash, EncodeLabelSet)]
struct Users {
    users: &'static str,
}

/// No labels. A family is used because a gauge without an answer must have no value.
type Plain = Vec<(&'static str, &'static str)>;
type One<N> = Family<Plain, N>;
type Count = Gauge<i64, std::sync::atomic::AtomicI64>;
type Seconds = Gauge<f64, AtomicU64>;

/// The registered gauges.
#[derive(Debug)]
pub(super) struct Panel {
    up: Count,
    age: One<Seconds>,
    most: One<Count>,
    fanouts: One<Count>,
    fanouts_age: One<Seconds>,
    open: One<Count>,
    due: One<Count>,
    due_age: One<Seconds>,
    deliveries: Family<State, Count>,
    deliveries_age: Family<State, Seconds>,
    leases: One<Count>,
    owed_age: One<Seconds>,
    owed: One<Count>,
    blocked: One<Count>,
    expired: Family<Users, Count>,
    paused: One<Count>,
}

fn set(gauge: &One<Count>, count: u64) {
    gauge.get_or_create(&Plain::new()).set(whole(count));
}

fn set_age(gauge: &One<Seconds>, age: f64) {
    gauge.get_or_create(&Plain::new()).set(age);
}

fn whole(count: u64) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

impl Panel {
    pub(super) fn registered(registry: &mut Registry) -> Self {
        let r = registry;
        Self {
            up: counted(
                r,
                "store_up",
                "Whether the store answered this scrape in time",
            ),
            age: seconds(r, "store_gauges_age", "How old what the store said is"),
            most: counted(
                r,
                "store_gauges_most",
                "Up to which number things that wait are counted",
            ),
            fanouts: counted(
                r,
                "fanouts_pending",
                "Accepted events that not everybody has",
            ),
            fanouts_age: seconds(
                r,
                "fanouts_oldest_pending_age",
                "How long ago the oldest of these events happened",
            ),
            open: counted(r, "batches_open", "Batches that gather"),
            due: counted(r, "batches_due", "Batches that should have ended"),
            due_age: seconds(
                r,
                "batches_oldest_due_age",
                "How long ago the first of these should have ended",
            ),
            deliveries: counted(r, "deliveries", "Mails that are not settled, or unknown"),
            deliveries_age: seconds(
                r,
                "deliveries_oldest_age",
                "How long ago the first of those that are not settled was opened",
            ),
            leases: counted(r, "leases", "Named leases that somebody holds"),
            owed_age: seconds(
                r,
                "owed_oldest_age",
                "How long ago the oldest day began that has left the window and may be owed",
            ),
            owed: counted(
                r,
                "owed_events",
                "Events of days that have left the window that a run last found to be owed",
            ),
            blocked: counted(
                r,
                "blocked_events",
                "Events of days that have left the window whose users cannot be emailed",
            ),
            expired: counted(
                r,
                "expired_events",
                "Events that expired after digest.max_age, by whether their users could be emailed",
            ),
            paused: counted(r, "paused", "Whether no mail leaves until somebody resumes"),
        }
    }

    /// Sets the gauges. Without an answer, the earlier values remain.
    pub(super) fn show(&self, gauges: &Gauges) {
        self.up.set(i64::from(gauges.up));
        let Some(known) = &gauges.known else {
            return;
        };
        set_age(&self.age, known.age);
        set(&self.most, known.most);
        set(&self.fanouts, known.fanouts.count);
        set_age(&self.fanouts_age, known.fanouts.age);
        set(&self.open, known.batches_open);
        set(&self.due, known.batches_due.count);
        set_age(&self.due_age, known.batches_due.age);
        for (state, count, age) in [
            ("pending", known.pending.count, Some(known.pending.age)),
            ("sending", known.sending.count, Some(known.sending.age)),
            ("unknown", known.unknown, None),
        ] {
            let state = State { state };
            self.deliveries.get_or_create(&state).set(whole(count));
            if let Some(age) = age {
                self.deliveries_age.get_or_create(&state).set(age);
            }
        }
        set(&self.leases, known.leases);
        set_age(&self.owed_age, known.owed);
        set(&self.owed, known.owed_events);
        set(&self.blocked, known.blocked_events);
        let (others, blocked) = known.expired_events;
        for (users, events) in [("reachable", others), ("blocked", blocked)] {
            let of = self.expired.get_or_create(&Users { users });
            of.set(whole(events));
        }
        set(&self.paused, u64::from(known.paused));
    }
}

pub(super) fn counted<M: Metric + Default + Clone>(
    registry: &mut Registry,
    name: &str,
    help: &str,
) -> M {
    let metric = M::default();
    registry.register(name, help, metric.clone());
    metric
}

fn seconds<M: Metric + Default + Clone>(registry: &mut Registry, name: &str, help: &str) -> M {
    let metric = M::default();
    registry.register_with_unit(name, help, Unit::Seconds, metric.clone());
    metric
}
