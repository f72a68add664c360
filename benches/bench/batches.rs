//! Measures batches: joins against conditional upserts of the bare driver, the search for due
//! batches among many open ones, and a burst of events.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::doc;
use chrono::TimeDelta;
use mongodb::IndexModel;

use tidings::clock::Clock;
use tidings::domain::batch::{Accumulator, AccumulatorId, BatchItem, Keep};
use tidings::domain::{Audience, BatchKey, BatchPolicy, Details, EventType, Id, ObjectId, UserId};
use tidings::engine::NoProgress;
use tidings::engine::batches::Join;
use tidings::engine::ingest::NewEvent;
use tidings::store::AccumulatorFilter;

use crate::measure::{Rounds, Table, against, number, rounds, scaled, spread, timed};
use crate::rivals;
use crate::world::{World, bare, people};

const POLICY: BatchPolicy = BatchPolicy {
    window: TimeDelta::minutes(5),
    cooldown: TimeDelta::zero(),
    max_wait: None,
    close_at: None,
    keep: Keep::Last(10),
    leading: false,
    deferred_until: None,
};
const KIND: &str = "ArtworkPublished";

/// Returns a fresh id.
fn unused(world: &World) -> Id {
    use std::sync::atomic::{AtomicU64, Ordering};
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let tail = NEXT.fetch_add(1, Ordering::Relaxed).to_be_bytes();
    Id::at(world.clock.now(), tail)
}

fn accumulator(user: &str, key: &str) -> AccumulatorId {
    AccumulatorId { user: UserId::stored(user), key: BatchKey::Chosen(key.parse().expect("a key")) }
}

fn item(world: &World, object: &str) -> BatchItem {
    let (kind, object) = (EventType::stored(KIND), ObjectId::stored(object));
    BatchItem { fanout_id: unused(world), kind, object }
}

/// Events that join each batch, one after another. The first one opens it.
const EVENTS: usize = 5;

pub async fn joins() {
    let world = World::fresh("bench_batches").await;
    let ids = people(scaled(20_000));
    // As many indexes as tidings updates when an event joins a batch.
    let rival = bare(&world.db, "rival");
    for keys in [
        doc! {"due": 1, "state": 1},
        doc! {"id": -1},
        doc! {"_id.k": 1, "id": -1},
        doc! {"items.o": 1, "_id": 1},
    ] {
        let index = IndexModel::builder().keys(keys).build();
        rival.create_index(index).await.expect("an index");
    }
    let joiner = world.app.batches();
    let mut bare_rounds = [Rounds::default(), Rounds::default()];
    let mut our_rounds = [Rounds::default(), Rounds::default()];
    for round in 0..rounds(5) {
        let key = format!("k{round}");
        let (mut theirs, mut ours) = ([Duration::ZERO; 2], [Duration::ZERO; 2]);
        for event in 0..EVENTS {
            let o = format!("5334647b139b2165{event:08x}");
            let phase = usize::from(event > 0);
            let at = bson::DateTime::from_millis(world.clock.now().timestamp_millis());
            let commands = rivals::encode_joins("rival", &ids, &key, &o, at);
            let (sent, took) = timed(rivals::send_two_in_flight(&world.db, commands)).await;
            sent.expect("joins of the bare driver");
            theirs[phase] += took;

            let items: std::sync::Arc<[BatchItem]> = [item(&world, &o)].into();
            let joins = ids.iter().map(|user| Join {
                accumulator: accumulator(user, &key),
                items: items.clone(),
                policy: POLICY,
            });
            let joins: Vec<Join> = joins.collect();
            let (joined, took) = timed(joiner.join(joins)).await;
            joined.expect("joins");
            ours[phase] += took;
        }
        let events = [1, EVENTS as u64 - 1];
        for phase in 0..2 {
            let units = ids.len() as u64 * events[phase];
            bare_rounds[phase].note(units, theirs[phase]);
            our_rounds[phase].note(units, ours[phase]);
        }
    }
    let title = format!("Batches: joining, {EVENTS} events for {} users", number(ids.len() as f64));
    let table = Table::begin(&title, &["way", "joins/s (slowest–fastest)", "ratio"]);
    for (phase, what) in ["first event of a batch", "later events"].iter().enumerate() {
        table.row(&[
            format!("{what}: bare driver, conditional upserts, pre-encoded, two in flight"),
            spread(&bare_rounds[phase]),
            "1×".into(),
        ]);
        table.row(&[
            format!("{what}: tidings"),
            spread(&our_rounds[phase]),
            against(our_rounds[phase].median() / bare_rounds[phase].median(), 0.6),
        ]);
    }
    world.end().await;
}

/// Opens one batch for each user, `at` after the current time.
async fn open(world: &World, ids: &[String], at: TimeDelta) {
    for chunk in ids.chunks(10_000) {
        let opened = |user: &String| {
            let mut opened = Accumulator::new(accumulator(user, "k"));
            let at = world.clock.now() + at;
            opened.join(&[item(world, "a")], at, &POLICY, || unused(world));
            opened
        };
        let accumulators: Vec<Accumulator> = chunk.iter().map(opened).collect();
        let put = world.store.put_accumulators(&accumulators, unused(world)).await;
        assert!(put.expect("accumulators").iter().all(|put| *put));
    }
}

const DUE: usize = 100;

pub async fn due() {
    let sizes = [1_000, scaled(1_000_000)];
    let mut found = BTreeMap::new();
    let mut worlds = Vec::new();
    for size in sizes {
        let world = World::fresh(&format!("bench_due_{size}")).await;
        let ids = people(size);
        open(&world, &ids[..DUE], TimeDelta::zero()).await;
        open(&world, &ids[DUE..], TimeDelta::hours(1)).await;
        worlds.push(world);
        found.insert(size, Rounds::default());
    }
    for _ in 0..rounds(5) * 20 {
        for (size, world) in sizes.iter().zip(&worlds) {
            let now = world.clock.now() + TimeDelta::minutes(6);
            let due = AccumulatorFilter::Due(now);
            let (due, took) = timed(world.store.find_accumulators(&due, 500)).await;
            assert_eq!(due.expect("what is due").len(), DUE);
            found.get_mut(size).expect("its rounds").note(1, took);
        }
    }
    let ms = |size: usize| 1e3 / found[&size].median();
    let table = Table::begin(
        &format!("Batches: finding {DUE} due ones"),
        &["open", "ms (median)", "ratio"],
    );
    table.row(&[number(sizes[0] as f64), number(ms(sizes[0])), "1×".into()]);
    let ratio = ms(sizes[1]) / ms(sizes[0]);
    table.row(&[
        number(sizes[1] as f64),
        number(ms(sizes[1])),
        format!(
            "{}× (goal at most 3×{})",
            number(ratio),
            if ratio <= 3.0 { "" } else { ", **missed**" }
        ),
    ]);
    for world in worlds {
        world.end().await;
    }
}

/// Returns the resident memory of this process in MB, or 0 if the system does not report it.
fn resident() -> f64 {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
    let kilobytes =
        line.and_then(|line| line.trim().strip_suffix(" kB")?.trim().parse::<f64>().ok());
    kilobytes.unwrap_or(0.0) / 1e3
}

/// Events for each user.
const EACH: usize = 50;

pub async fn burst() {
    let config = "types.ArtworkPublished.route = \"batch\"\ntypes.ArtworkPublished.window = \"5m\"\ntypes.ArtworkPublished.unknown_objects = \"mail\"";
    let world = World::configured("bench_burst", config).await;
    let ids = people(scaled(10_000));
    world.users(&ids).await;
    let all = ids.len() * EACH;
    let table = Table::begin(
        &format!(
            "Batches: a burst of {} events for {} users",
            number(all as f64),
            number(ids.len() as f64)
        ),
        &["when", "events/s", "memory"],
    );
    let (notify, fanouts) = (world.app.notify(), world.app.fanouts());
    let mut fanned_out = 0;
    for part in 0..10 {
        let (_, took) = timed(async {
            for event in (part * EACH / 10)..((part + 1) * EACH / 10) {
                for chunk in ids.chunks(1_000) {
                    let request = |user: &String| NewEvent {
                        kind: EventType::stored(KIND),
                        objects: vec![ObjectId::stored(format!("a{event}"))],
                        audience: Audience::users([UserId::stored(user)]).expect("an audience"),
                        key: None,
                        batch_key: None,
                        details: Details::default(),
                        at: None,
                    };
                    let requests = chunk.iter().map(request).collect();
                    notify.accept(requests).await.expect("accepted");
                }
            }
            fanouts.drain(&NoProgress).await.expect("fanned out");
        })
        .await;
        let done = (part + 1) * all / 10;
        table.row(&[
            format!("{} events accepted and joined", number(done as f64)),
            number((done - fanned_out) as f64 / took.as_secs_f64()),
            format!("{} MB", number(resident())),
        ]);
        fanned_out = done;
    }
    world.clock.advance(TimeDelta::minutes(6));
    let sender = world.app.sender();
    let (closed, took) = timed(async {
        let closed = world.app.batches().drain(&NoProgress).await.expect("closed");
        sender.drain().await.expect("emailed");
        closed
    })
    .await;
    let tally = sender.ledger.tally.snapshot();
    assert_eq!((tally.sent, tally.events), (ids.len() as u64, all as u64));
    table.row(&[
        format!(
            "{} batches closed, {} emails sent",
            number(closed.ended as f64),
            number(tally.sent as f64)
        ),
        number(all as f64 / took.as_secs_f64()),
        format!("{} MB", number(resident())),
    ]);
    world.end().await;
}
