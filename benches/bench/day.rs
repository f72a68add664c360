//! Measures one day of a busy artist: twenty events, one per second, and then the digests of all
//! users, with their markers. Every user has a record.
//!
//! The clock is manual, so only the work takes time. One run pushes each event at once; another
//! lets events wait for each other (`fanout.linger`). The original's loops push to at most 1,000
//! users, and the table scales their time to all users.

use std::time::Duration;

use bson::Document;
use chrono::TimeDelta;
use tidings::domain::{Audience, Day, Details, EventType, FollowKey, ObjectId};
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::engine::ingest;

use crate::measure::{Table, number, rounds, scaled, timed};
use crate::rivals;
use crate::world::{World, bare, day_names, driver, now, people, url};

const EVENTS: usize = 20;

/// Seconds of work for one day, one value per round.
#[derive(Default)]
struct Costs {
    fan_out: Vec<f64>,
    digests: Vec<f64>,
}

impl Costs {
    fn note(&mut self, fan_out: Duration, digests: Duration) {
        self.fan_out.push(fan_out.as_secs_f64());
        self.digests.push(digests.as_secs_f64());
    }

    fn medians(&self) -> [f64; 2] {
        [&self.fan_out, &self.digests].map(|seconds| {
            let mut sorted = seconds.clone();
            sorted.sort_by(f64::total_cmp);
            sorted[sorted.len() / 2]
        })
    }
}

fn event(n: usize) -> ingest::NewEvent {
    ingest::NewEvent {
        kind: EventType::stored("ArtworkPublished"),
        objects: vec![ObjectId::stored(format!("A{n:05}"))],
        audience: Audience::followers_of([FollowKey::stored("artist:1")]).expect("an audience"),
        key: None,
        batch_key: None,
        details: Details::default(),
        at: None,
    }
}

pub async fn day() {
    let count = scaled(100_000);
    let ids = people(count);
    let few = &ids[..count.min(1_000)];
    let [mut at_once, mut lingering, mut loop_one, mut loop_majority] =
        [(); 4].map(|()| Costs::default());
    for _ in 0..rounds(3) {
        for (costs, lingers) in [(&mut at_once, false), (&mut lingering, true)] {
            let world = World::fresh("bench_day").await;
            world.users(&ids).await;
            world.follows("artist:1", &ids).await;
            let linger = match lingers {
                true => world.app.config.fanout.linger,
                false => TimeDelta::zero(),
            };
            let fan_out = fan_out(&world, linger).await;
            let request = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
            let digests = world.app.digests();
            let (report, took) = timed(digests.run(&request, &NoProgress)).await;
            assert_eq!(report.expect("a run").emails.events, (count * EVENTS) as u64);
            costs.note(fan_out, took);
            world.end().await;
        }
        for (costs, concern) in [(&mut loop_one, None), (&mut loop_majority, Some("majority"))] {
            let db = driver(&url(), concern).await.database("bench_day_loop");
            db.drop().await.expect("dropped");
            let name = day_names(1).remove(0);
            let collection = bare(&db, &name);
            let pushed = timed(pushes(&collection, few)).await.1;
            let days = [name];
            let read = timed(rivals::read_loop(&db, &days, few)).await.1;
            let flushed = timed(rivals::flush_loop(&db, &days, few)).await.1;
            let share = (count / few.len()) as u32;
            costs.note(pushed * share, (read + flushed) * share);
            db.drop().await.expect("dropped");
        }
    }
    let title = format!(
        "A day of {EVENTS} events to {} users with records, one a second, then digest and flush",
        number(count as f64)
    );
    let table =
        Table::begin(&title, &["way", "fan-out, s", "digest and flush, s", "total, s", "ratio"]);
    let whole = |costs: &Costs| costs.medians().iter().sum::<f64>();
    for (way, costs) in [
        ("each event pushed at once (`fanout.linger = \"0s\"`)", &at_once),
        ("tidings", &lingering),
        ("original's loops, w:1 (creates no emails)", &loop_one),
        ("original's loops, majority (creates no emails)", &loop_majority),
    ] {
        let [fan_out, digests] = costs.medians();
        table.row(&[
            way.to_owned(),
            number(fan_out),
            number(digests),
            number(whole(costs)),
            format!("{}×", number(whole(&at_once) / whole(costs))),
        ]);
    }
}

/// Returns how long the worker was busy with the day's events.
async fn fan_out(world: &World, linger: TimeDelta) -> Duration {
    let (notify, fanouts) = (world.app.notify(), world.app.fanouts());
    let (mut busy, mut done) = (Duration::ZERO, 0);
    for n in 0..EVENTS {
        world.clock.advance(TimeDelta::seconds(1));
        notify.accept(vec![event(n)]).await.expect("accepted");
        let (fanned_out, took) = timed(fanouts.drain_within(linger, &NoProgress)).await;
        done += fanned_out.expect("fanned out").completed;
        busy += took;
    }
    let (rest, took) = timed(fanouts.drain(&NoProgress)).await;
    assert_eq!(done + rest.expect("fanned out").completed, EVENTS as u64);
    assert_eq!(Day::of(now()), Day::of(tidings::clock::Clock::now(&*world.clock)));
    busy + took
}

async fn pushes(day: &mongodb::Collection<Document>, people: &[String]) {
    for n in 0..EVENTS {
        rivals::push_loop(day, people, &format!("A{n:05}")).await.expect("pushed");
    }
}
