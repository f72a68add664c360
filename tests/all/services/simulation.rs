//! What the simulator says of a stream is what becomes of it.
//!
//! The rule: the same happenings go through `tidings simulate`'s replay and through fan-outs,
//! batches, the ledger and a postbox, by a clock that stops at each moment at which anything is
//! due; every figure is counted again from the mails that were taken.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Timelike, Utc};
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::{
    Address, Audience, Batch, BatchPolicy, BatchState, ChosenKey, DeliveryId, Id, User,
};
use tidings::engine::Silent;
use tidings::engine::ingest::notify::Request;
use tidings::operate::simulate::generate::{self, Shape};
use tidings::operate::simulate::{Happening, Trial, replay};
use tidings::store::BatchFilter;
use tidings::wire::simulation::Delay;

use crate::support::town::{Town, on_both_stores};
use crate::support::{Fresh, kind};

on_both_stores! {
    the_simulators_figures_are_those_of_a_real_run
}

/// Types named after how they are mailed; each happening is one of every type, so that all policies
/// see the same.
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

/// Four weeks of a team in little more than an hour: the quiet is short, and bursts are a moment.
fn stream() -> Vec<Happening> {
    let shape = Shape {
        events: 120,
        seed: 5,
    };
    let all: Vec<Happening> = generate::events(shape).collect();
    let first = all[0].at.with_nanosecond(0).unwrap();
    let sooner = |(n, mut happening): (usize, Happening)| {
        let after = (happening.at - first).num_seconds() / 600;
        happening.at = first + TimeDelta::seconds(after);
        // There are types enough below.
        happening.kind = kind("Happened");
        if n % 5 == 0 {
            happening.users.push("witness".parse().unwrap());
        }
        let of_a_document = ChosenKey::new(happening.object.as_str()).unwrap();
        happening.key = (n % 3 == 0).then_some(of_a_document);
        happening
    };
    all.into_iter().enumerate().map(sooner).collect()
}

/// What the simulator and the real run are compared by.
#[derive(Debug, PartialEq)]
struct Figures {
    mails: u64,
    largest: u64,
    most_a_person: u64,
    mean_a_person: f64,
    delay: Delay,
    by_hour: [u64; 24],
}

async fn the_simulators_figures_are_those_of_a_real_run(fresh: Fresh) {
    let town = Town::found(&fresh, true, CONFIG).await;
    let stream = stream();
    let simulated = simulated(&town, &stream);

    run(&town, &stream).await;

    let counted = counted(&town, &stream).await;
    assert_eq!(counted, simulated);
    let mails: BTreeSet<u64> = counted.values().map(|figures| figures.mails).collect();
    assert!(mails.len() > 4, "policies differ: {mails:?}");
}

fn simulated(town: &Town, stream: &[Happening]) -> BTreeMap<String, Figures> {
    let anybody = User::new("anybody".parse().unwrap());
    let trials = TYPES.map(|name| {
        let policy = match name {
            "Now" => BatchPolicy::IMMEDIATE,
            gathered => anybody.batch_policy(&kind(gathered), &town.process().config.policies),
        };
        Trial::new(name, policy, None)
    });
    let told = replay(stream.iter().cloned().map(Ok), trials.into(), &Silent).unwrap();
    let figures = told.policies.into_iter().map(|report| {
        let figures = Figures {
            mails: report.mails,
            largest: report.largest,
            most_a_person: report.mails_per_person.max,
            mean_a_person: report.mails_per_person.mean,
            delay: report.delay_seconds,
            by_hour: report.mails_by_hour,
        };
        (report.policy, figures)
    });
    figures.collect()
}

/// Everything happens at its time, and workers come by whenever anything is due.
async fn run(town: &Town, stream: &[Happening]) {
    let people: BTreeSet<_> = stream.iter().flat_map(|one| one.users.clone()).collect();
    let record = |id: &tidings::domain::UserId| User {
        email: Address::new(format!("{id}@example.org")).ok(),
        confirmed: true,
        ..User::new(id.clone())
    };
    let records: Vec<User> = people.iter().map(record).collect();
    town.store.put_users(&records).await.unwrap();
    let objects: BTreeSet<&str> = stream.iter().map(|one| one.object.as_str()).collect();
    let objects: Vec<&str> = objects.into_iter().collect();
    town.put_works(&objects, |_| true).await;
    let app = town.process();
    for happening in stream {
        work_until(town, &app, happening.at).await;
        let request = |name: &&str| Request {
            kind: kind(name),
            objects: vec![happening.object.clone()],
            audience: Audience::users(happening.users.iter().cloned()).unwrap(),
            key: None,
            details: tidings::domain::Details::default(),
            // A chosen key is shared by types, and these are to be kept apart.
            batch_key: (happening.key.as_ref())
                .map(|key| ChosenKey::new(format!("{} {name}", key.as_str())).unwrap()),
            at: None,
        };
        let requests = TYPES.iter().map(request).collect();
        app.notify().accept(requests).await.unwrap();
        app.fanouts().drain(&Silent).await.unwrap();
        work(&app).await;
    }
    work_until(town, &app, stream[stream.len() - 1].at + TimeDelta::days(1)).await;
}

/// Turns the clock from one due moment to the next.
async fn work_until(town: &Town, app: &App, until: DateTime<Utc>) {
    let open = BatchFilter {
        state: Some(BatchState::Open),
        ..BatchFilter::default()
    };
    loop {
        let open = town.store.find_batches(&open, None, 10_000).await.unwrap();
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
    app.closer().drain(&Silent).await.unwrap();
    app.sender().drain().await.unwrap();
}

/// The figures, from the mails that were taken, in their order.
async fn counted(town: &Town, stream: &[Happening]) -> BTreeMap<String, Figures> {
    let all = BatchFilter::default();
    let all = town.store.find_batches(&all, None, 100_000).await.unwrap();
    let batches: BTreeMap<DeliveryId, Arc<Batch>> = all
        .into_iter()
        .map(|batch| (DeliveryId::batch(batch.id), Arc::new(batch)))
        .collect();
    let people: BTreeSet<_> = stream.iter().flat_map(|one| &one.users).collect();
    let figures = TYPES.map(|name| {
        let (mut mails, mut largest, mut by_hour) = (0, 0, [0; 24]);
        let mut of_person: BTreeMap<String, u64> = BTreeMap::new();
        let (mut waited, mut told) = (Vec::new(), BTreeSet::<(String, Id)>::new());
        for mail in town.mails() {
            let batch = &batches[&mail.delivery];
            if batch.contents.items[0].t != kind(name) {
                continue;
            }
            mails += 1;
            largest = largest.max(batch.contents.count);
            by_hour[mail.at.hour() as usize] += 1;
            *of_person.entry(batch.user.to_string()).or_default() += 1;
            // What a lead has told the rest does not tell again.
            let new = batch.joined.iter().copied();
            let new = new.filter(|fanout| told.insert((batch.user.to_string(), *fanout)));
            let before = waited.len();
            waited.extend(new.map(|fanout| (mail.at - fanout.time()).num_seconds() as u64));
            assert_eq!((waited.len() - before) as u64, batch.contents.count);
        }
        waited.sort_unstable();
        let percentile = |percent: usize| waited[(waited.len() * percent).div_ceil(100) - 1];
        let figures = Figures {
            mails,
            largest,
            most_a_person: of_person.into_values().max().unwrap_or_default(),
            mean_a_person: mails as f64 / people.len() as f64,
            delay: Delay {
                p50: percentile(50),
                p95: percentile(95),
                max: percentile(100),
            },
            by_hour,
        };
        (name.to_owned(), figures)
    });
    figures.into()
}
