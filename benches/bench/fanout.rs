//! Measures fan-out, journal included, against the bare driver and the original's loop; pushing
//! several events together; and accepting an event.

use std::time::{Duration, Instant};

use tidings::domain::{Audience, Day, Details, Event, EventType, FollowKey, Id, ObjectId, UserId};
use tidings::engine::NoProgress;
use tidings::engine::ingest::NewEvent;
use tidings::store::PushRequest;

use crate::measure::{Rounds, Table, against, number, rounds, scaled, spread, timed};
use crate::rivals;
use crate::world::{World, bare, driver, now, people, url};

fn request(audience: Audience, object: &str) -> NewEvent {
    let (kind, objects) = (EventType::stored("ArtworkPublished"), vec![ObjectId::stored(object)]);
    NewEvent {
        kind,
        objects,
        audience,
        key: None,
        batch_key: None,
        details: Details::default(),
        at: None,
    }
}

fn explicit(ids: &[String]) -> Audience {
    Audience::users(ids.iter().map(UserId::stored)).expect("an audience")
}

fn followers() -> Audience {
    Audience::followers_of([FollowKey::stored("artist:1")]).expect("an audience")
}

/// Accepts one event, fans it out to its audience, and returns how long both took.
async fn reach(world: &World, audience: Audience) -> Duration {
    let (notify, fanouts) = (world.app.notify(), world.app.fanouts());
    let begin = Instant::now();
    notify.accept(vec![request(audience, "A00001")]).await.expect("accepted");
    let done = fanouts.drain(&NoProgress).await.expect("fanned out");
    let took = begin.elapsed();
    assert_eq!((done.completed, done.counts.capped), (1, 0));
    took
}

/// Replaces the day with one on which no user of the audience has a stack.
///
/// Its collection exists, as on every day after the first event.
async fn fresh_day(world: &World) {
    let day = Day::of(now());
    world.drop_day(day).await;
    let event = Event {
        kind: EventType::stored("T"),
        object: ObjectId::stored("first"),
        fanout_id: Some(Id::at(now(), [1; 8])),
    };
    let first = PushRequest { lists: vec![vec![event]], users: vec![(UserId::stored("first"), 0)] };
    world.store.push(day, 1_000, &first).await.expect("the day's first event");
}

pub async fn fan_out(standalone: bool) {
    let place = if standalone { "standalone" } else { "replica set" };
    let columns = ["users", "way", "pushes/s (slowest–fastest)", "ratio"];
    let table =
        Table::begin(&format!("Fan-out to fresh days, journal included, {place}"), &columns);
    for count in [scaled(12_000), scaled(100_000)] {
        let world = World::fresh("bench_fanout").await;
        let ids = people(count);
        world.follows("artist:1", &ids).await;
        let one = driver(&url(), None).await.database("bench_fanout");
        let (mut ours, mut follow, mut ceiling, mut loop_one, mut loop_majority) = (
            Rounds::default(),
            Rounds::default(),
            Rounds::default(),
            Rounds::default(),
            Rounds::default(),
        );
        let sample = &ids[..count.min(scaled(12_000))];
        let few = &ids[..count.min(scaled(3_000))];
        for _ in 0..rounds(5) {
            let commands = rivals::encode_pushes("ceiling", &ids, "A00001");
            bare(&world.db, "ceiling").drop().await.expect("dropped");
            world.db.create_collection("ceiling").await.expect("created");
            ceiling
                .note(count as u64, timed(rivals::send_two_in_flight(&world.db, commands)).await.1);

            fresh_day(&world).await;
            ours.note(count as u64, reach(&world, explicit(&ids)).await);
            fresh_day(&world).await;
            follow.note(count as u64, reach(&world, followers()).await);

            bare(&one, "loop").drop().await.expect("dropped");
            let (name, sample) = (url(), sample.to_vec());
            let took = tokio::task::spawn_blocking(move || loop_on_current_thread(&name, &sample))
                .await
                .expect("the loop ends");
            loop_one.note(count.min(scaled(12_000)) as u64, took);
            if !standalone {
                bare(&world.db, "loop").drop().await.expect("dropped");
                let took =
                    timed(rivals::push_loop(&bare(&world.db, "loop"), few, "A00001")).await.1;
                loop_majority.note(few.len() as u64, took);
            }
        }
        let cell = |way: &str, rounds: &Rounds, ratio: String| {
            table.row(&[number(count as f64), way.into(), spread(rounds), ratio])
        };
        cell("ceiling: bare driver, pre-encoded, two in flight", &ceiling, "1×".into());
        cell("explicit list / ceiling", &ours, against(ours.median() / ceiling.median(), 0.85));
        cell(
            "followers of a key / ceiling",
            &follow,
            against(follow.median() / ceiling.median(), 0.7),
        );
        let bar = if standalone { 12.0 } else { 10.0 };
        cell(
            "explicit list / original's loop, w:1, current-thread",
            &loop_one,
            against(ours.median() / loop_one.median(), bar),
        );
        if !standalone {
            cell(
                "explicit list / original's loop, majority",
                &loop_majority,
                against(ours.median() / loop_majority.median(), 50.0),
            );
        }
        world.end().await;
    }
}

/// Runs the original's loop in its fairest form, on a thread that does nothing else.
fn loop_on_current_thread(url: &str, people: &[String]) -> Duration {
    let runtime =
        tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime");
    runtime.block_on(async {
        let db = driver(url, None).await.database("bench_fanout");
        let day = bare(&db, "loop");
        rivals::push_loop(&day, &people[..1], "warm").await.expect("a connection");
        timed(rivals::push_loop(&day, people, "A00001")).await.1
    })
}

/// Pushes twenty events to the same users, accepted together or one after another.
pub async fn merge() {
    let world = World::fresh("bench_merge").await;
    let ids = people(scaled(12_000));
    let (mut together, mut apart) = (Rounds::default(), Rounds::default());
    let pushes = 20 * ids.len() as u64;
    for _ in 0..rounds(5) {
        for merged in [true, false] {
            fresh_day(&world).await;
            let (notify, fanouts) = (world.app.notify(), world.app.fanouts());
            let requests: Vec<_> =
                (0..20).map(|n| request(explicit(&ids), &format!("A{n:05}"))).collect();
            let begin = Instant::now();
            if merged {
                notify.accept(requests).await.expect("accepted");
                fanouts.drain(&NoProgress).await.expect("fanned out");
                together.note(pushes, begin.elapsed());
            } else {
                for request in requests {
                    notify.accept(vec![request]).await.expect("accepted");
                    fanouts.drain(&NoProgress).await.expect("fanned out");
                }
                apart.note(pushes, begin.elapsed());
            }
        }
    }
    let table = Table::begin(
        "Twenty events to the same 12,000 users",
        &["way", "pushes/s (slowest–fastest)", "ratio"],
    );
    table.row(&["twenty fan-outs one after another".into(), spread(&apart), "1×".into()]);
    table.row(&[
        "accepted together".into(),
        spread(&together),
        against(together.median() / apart.median(), 8.0),
    ]);
    world.end().await;
}

/// Accepts events for one follower and for a million followers, in turns.
pub async fn accept() {
    let world = World::fresh("bench_accept").await;
    let many = people(scaled(1_000_000));
    world.follows("artist:1", &many).await;
    world.follows("artist:2", &many[..1]).await;
    let (mut one, mut million) = (Rounds::default(), Rounds::default());
    let notify = world.app.notify();
    for _ in 0..rounds(200) {
        for (key, rounds) in [("artist:2", &mut one), ("artist:1", &mut million)] {
            let audience = Audience::followers_of([FollowKey::stored(key)]).expect("an audience");
            rounds.note(1, timed(notify.accept(vec![request(audience, "A00001")])).await.1);
        }
    }
    let (one, million) = (1e3 / one.median(), 1e3 / million.median());
    let table = Table::begin("Accepting one event", &["followers", "ms (median)", "ratio"]);
    table.row(&["1".into(), number(one), "1×".into()]);
    let verdict = if million <= 2.0 * one { "" } else { ", **missed**" };
    table.row(&[
        number(many.len() as f64),
        number(million),
        format!("{}× (goal at most 2×{verdict})", number(million / one)),
    ]);
    world.end().await;
}
