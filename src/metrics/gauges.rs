//! What the store has to be asked for: how much waits, and since when.
//!
//! The rule: ages are told, not moments, so that nobody's clock is compared with another's; 0 where
//! nothing waits. Where the store does not answer, what it said last stays, ages grow, and
//! `tidings_store_up` is 0.

use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::EncodeLabelSet;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::registry::{Metric, Registry, Unit};

/// Some things that wait, and for how many seconds the first of them has.
#[derive(Debug, Clone, Copy, PartialEq, Default)]
pub struct Pile {
    /// How many, at most [`Known::most`].
    pub count: u64,
    /// 0 where there is none.
    pub age: f64,
}

/// What the store says, as far as it is known.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Gauges {
    /// Whether the store answered just now.
    pub up: bool,
    /// What it said last; `None` if it never did.
    pub known: Option<Known>,
}

/// What the store said.
#[derive(Debug, Clone, PartialEq, Default)]
pub struct Known {
    /// How many seconds ago it did.
    pub age: f64,
    /// Up to which number things are counted.
    pub most: u64,
    /// Accepted events that not everybody has.
    pub fanouts: Pile,
    /// Batches that gather.
    pub batches_open: u64,
    /// Batches that should have ended.
    pub batches_due: Pile,
    /// Mails that wait.
    pub pending: Pile,
    /// Mails whose call is under way, or was lost.
    pub sending: Pile,
    /// Mails of which nobody knows whether they were taken.
    pub unknown: u64,
    /// Named leases that somebody holds.
    pub leases: u64,
    /// How many seconds ago the oldest day began that has left the window and of which somebody may
    /// be owed something; 0 where there is none.
    pub owed: f64,
    /// What a run last found to be owed of such days.
    pub owed_events: u64,
    /// Events of such days whose users could not be emailed when a full run last read them.
    pub blocked_events: u64,
    /// Events that expired after `digest.max_age`: of users who could be emailed, and of others.
    pub expired_events: (u64, u64),
    /// Whether no mail leaves until somebody resumes.
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

/// Nothing to tell apart: a family, as a gauge that is not known has no value.
type Plain = Vec<(&'static str, &'static str)>;
type One<N> = Family<Plain, N>;
type Count = Gauge<i64, std::sync::atomic::AtomicI64>;
type Seconds = Gauge<f64, AtomicU64>;

/// The gauges as they are registered.
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

    /// From now on this is what the gauges say.
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
