//! Compares the figures of `tidings simulate` with a real run.
//!
//! The same events go through the simulation and through fan-out, batches and delivery, on a clock
//! that stops at each deadline. The test counts every figure again from the emails.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use tidings::app::App;
use tidings::clock::Clock;
use tidings::config::CandidatePolicy;
use tidings::domain::{
    Address, Audience, Batch, BatchPolicy, BatchState, ChosenKey, DeliveryId, Id, ObjectId, User,
};
use tidings::engine::NoProgress;
use tidings::engine::ingest::NewEvent;
use tidings::operate::simulate::{ReplayedEvent, simulate};
use tidings::store::BatchFilter;

use crate::support::town::{Town, mostly_on_sqlite};
use crate::support::{Fresh, kind};

mostly_on_sqlite! {
    the_simulation_gives_the_figures_of_a_real_run
}

/// Types named after their policies. Each recorded event becomes one of every type, so that all
/// policies get the same events.
const TYPES: [&str; 6] = ["Fixed", "Cooling", "Extended", "Full", "Leading", "Now"];
const CONFIG: &str = r#"
delivery.chunk = 100
types.Fixed = { route = "batch", window = "5m" }
types.Cooling = { route = "batch", cooldown = "4m", max_wait = "15m" }
types.Extended = { route = "batch", window = "5m", cooldown = "1m", max_wait = "8m" }
types.Full = { route = "batch", window = "10m", close_at = 3, keep = "first 2" }
types.Leading = { route = "batch", window = "5m", close_at = 4, leading = true }
types.Now = { route = "immediate" }
"#;

/// 120 events in about 100 minutes: bursts, pauses, and one user with half of all events.
fn recording() -> Vec<ReplayedEvent> {
    const GAPS: [i64; 11] = [0, 3, 7, 45, 2, 160, 11, 1, 80, 240, 5];
    let mut at = DateTime::from_timestamp(1_772_441_400, 0).unwrap();
    let event = |n: usize| {
        at += TimeDelta::seconds(GAPS[n * 7 % 11]);
        let user = match n % 2 {
            0 => "busy".to_owned(),
            _ => format!("user-{}", n * 5 % 9),
        };
        let mut users = vec![user.parse().unwrap()];
        if n.is_multiple_of(5) {
            users.push("witness".parse().unwrap());
        }
        let object = format!("document-{}", n * 3 % 13);
        ReplayedEvent {
            at,
            users,
            kind: kind("Happened"),
            key: n.is_multiple_of(3).then(|| ChosenKey::new(&object).unwrap()),
            object: ObjectId::new(&object).unwrap(),
        }
    };
    (0..120).map(event).collect()
}

/// The figures that both sides compute.
#[derive(Debug, PartialEq)]
struct Figures {
    emails: u64,
    largest: u64,
    most_per_user: u64,
    mean_per_user: f64,
    /// The p50, p95 and maximum, in seconds.
    delay: [u64; 3],
}

async fn the_simulation_gives_the_figures_of_a_real_run(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    let events = recording();
    let simulated = simulated(&town, &events);

    run(&town, &events).await;

    let counted = counted(&town, &events).await;
    assert_eq!(counted, simulated);
    let emails: BTreeSet<u64> = counted.values().map(|figures| figures.emails).collect();
    assert!(emails.len() > 4, "policies differ: {emails:?}");
}

fn simulated(town: &Town, events: &[ReplayedEvent]) -> BTreeMap<String, Figures> {
    let default_user = User::new("anybody".parse().unwrap());
    let trials = TYPES.map(|name| {
        let policy = match name {
            "Now" => BatchPolicy::IMMEDIATE,
            batched => default_user.batch_policy(&kind(batched), &town.process().config.policies),
        };
        CandidatePolicy { name: name.to_owned(), policy, key: None }
    });
    let comparison = simulate(events, &trials, &NoProgress);
    let figures = comparison.policies.into_iter().map(|policy| {
        let delay = policy.delay_seconds;
        let figures = Figures {
            emails: policy.emails,
            largest: policy.largest,
            most_per_user: policy.emails_per_user.max,
            mean_per_user: policy.emails_per_user.mean,
            delay: [delay.p50, delay.p95, delay.max],
        };
        (policy.policy, figures)
    });
    figures.collect()
}

/// Accepts each event at its time. Closes and sends each batch as soon as it is due.
async fn run(town: &Town, events: &[ReplayedEvent]) {
    let people: BTreeSet<_> = events.iter().flat_map(|one| one.users.clone()).collect();
    let record = |id: &tidings::domain::UserId| User {
        email: Address::new(format!("{id}@example.org")).ok(),
        confirmed: true,
        ..User::new(id.clone())
    };
    let records: Vec<User> = people.iter().map(record).collect();
    town.store.put_users(&records).await.unwrap();
    let objects: BTreeSet<&str> = events.iter().map(|one| one.object.as_str()).collect();
    let objects: Vec<&str> = objects.into_iter().collect();
    town.put_works(&objects, |_| true).await;
    let app = town.process();
    for event in events {
        work_until(town, &app, event.at).await;
        let request = |name: &&str| NewEvent {
            kind: kind(name),
            objects: vec![event.object.clone()],
            audience: Audience::users(event.users.iter().cloned()).unwrap(),
            key: None,
            details: tidings::domain::Details::default(),
            // A chosen key would merge the types.
            batch_key: (event.key.as_ref())
                .map(|key| ChosenKey::new(format!("{} {name}", key.as_str())).unwrap()),
            at: None,
        };
        let requests = TYPES.iter().map(request).collect();
        app.notify().accept(requests).await.unwrap();
        app.fanouts().drain(&NoProgress).await.unwrap();
        work(&app).await;
    }
    work_until(town, &app, events[events.len() - 1].at + TimeDelta::days(1)).await;
}

/// Advances the clock to `until`, and sends the due batches at each deadline on the way.
async fn work_until(town: &Town, app: &App, until: DateTime<Utc>) {
    let open = BatchFilter { state: Some(BatchState::Open), ..BatchFilter::default() };
    loop {
        let open = town.store.find_batches(&open, 10_000).await.unwrap();
        let next = open.iter().map(|batch| batch.closes_at).min();
        let Some(next) = next.filter(|next| *next <= until) else {
            break;
        };
        town.clock.set(next);
        work(app).await;
    }
    town.clock.set(until.max(town.clock.now()));
}

async fn work(app: &App) {
    app.batches().drain(&NoProgress).await.unwrap();
    app.sender().drain().await.unwrap();
}

/// Counts the figures from the accepted emails, in their order.
async fn counted(town: &Town, events: &[ReplayedEvent]) -> BTreeMap<String, Figures> {
    let all = BatchFilter::default();
    let all = town.store.find_batches(&all, 100_000).await.unwrap();
    let batches: BTreeMap<DeliveryId, Arc<Batch>> =
        all.into_iter().map(|batch| (DeliveryId::batch(batch.id), Arc::new(batch))).collect();
    let people: BTreeSet<_> = events.iter().flat_map(|one| &one.users).collect();
    let figures = TYPES.map(|name| {
        let (mut emails, mut largest) = (0, 0);
        let mut per_user: BTreeMap<String, u64> = BTreeMap::new();
        let (mut delays, mut included) = (Vec::new(), BTreeSet::<(String, Id)>::new());
        for email in town.emails() {
            let batch = &batches[&email.delivery];
            if batch.events.items[0].kind != kind(name) {
                continue;
            }
            emails += 1;
            largest = largest.max(batch.events.count);
            *per_user.entry(batch.user.to_string()).or_default() += 1;
            // The rest of a batch does not repeat its lead.
            let new = batch.joined.iter().copied();
            let new = new.filter(|fanout| included.insert((batch.user.to_string(), *fanout)));
            let before = delays.len();
            delays.extend(new.map(|fanout| (email.at - fanout.time()).num_seconds() as u64));
            assert_eq!((delays.len() - before) as u64, batch.events.count);
        }
        delays.sort_unstable();
        let percentile = |percent: usize| delays[(delays.len() * percent).div_ceil(100) - 1];
        let figures = Figures {
            emails,
            largest,
            most_per_user: per_user.into_values().max().unwrap_or_default(),
            mean_per_user: emails as f64 / people.len() as f64,
            delay: [50, 95, 100].map(percentile),
        };
        (name.to_owned(), figures)
    });
    figures.into()
}
