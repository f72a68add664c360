//! Measures events over HTTP: many writers that post one event per call, against a few callers that
//! post 1,000 events per call.
//!
//! Both use the same server and the same client with open connections, in turns. Each event names
//! one object and the followers of one key. The calls of 1,000 are the ceiling: their events need
//! not wait for each other.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures::future::join_all;
use tidings::app::App;
use tidings::clock::ManualClock;
use tidings::config::Config;
use tidings::http::api;
use tidings::ids::Ids;
use tidings::store::sqlite::Sqlite;
use tokio::sync::watch;

use crate::feeds::{Connection, KEY};
use crate::measure::{Rounds, Table, against, number, rounds, scaled, spread};
use crate::world::{Nowhere, UNKNOWN, World, now};

/// Connections that post one event per call.
const WRITERS: usize = 256;
/// Connections that post 1,000 events per call.
const CALLERS: usize = 4;

pub async fn ingest() {
    let table = Table::begin(
        "Events over HTTP, per second",
        &[
            "store",
            "1,000 per call, 4 connections",
            "one per call, 256 connections",
            "ratio",
            "p50, ms",
            "p99, ms",
        ],
    );
    let config = format!("server.listen = \"127.0.0.1:0\"\n{UNKNOWN}");
    let world = World::configured("bench_ingest", &config).await;
    row(&table, "MongoDB", world.app.clone(), scaled(100_000)).await;
    world.end().await;
    let folder = tempfile::tempdir().expect("a folder");
    let sqlite = Sqlite::open(folder.path().join("tidings.db"));
    let app = App::assemble(
        Config::parse(&config).expect("a configuration"),
        Arc::new(sqlite.await.expect("a store")),
        Arc::new(Nowhere),
        Arc::new(ManualClock::at(now())),
        Arc::new(Ids::random()),
    );
    row(&table, "SQLite", app.expect("an app"), scaled(50_000)).await;
}

async fn row(table: &Table, store: &str, app: App, events: usize) {
    let (stop, stopped) = watch::channel(false);
    let bound = api::bind(app, KEY).expect("an address");
    let addr = bound.addr;
    let server = tokio::spawn(bound.run(stopped));
    let (mut bulk, mut single) = (Rounds::default(), Rounds::default());
    let (mut half, mut p99) = (Vec::new(), Vec::new());
    for _ in 0..rounds(5) {
        let calls = events / 1_000;
        let (took, _) = load(addr, CALLERS, (calls / CALLERS).max(1), 1_000).await;
        bulk.note(((calls / CALLERS).max(1) * CALLERS * 1_000) as u64, took);
        let each = events / 4 / WRITERS;
        let (took, each_took) = load(addr, WRITERS, each, 1).await;
        single.note((each * WRITERS) as u64, took);
        half.push(each_took[each_took.len() / 2]);
        p99.push(each_took[each_took.len() * 99 / 100]);
    }
    let median = |took: &mut Vec<Duration>| {
        took.sort();
        number(took[took.len() / 2].as_secs_f64() * 1e3)
    };
    table.row(&[
        store.to_owned(),
        spread(&bulk),
        spread(&single),
        against(single.median() / bulk.median(), 0.5),
        median(&mut half),
        median(&mut p99),
    ]);
    stop.send_replace(true);
    server.await.expect("it ends").expect("it ends well");
}

/// Sends `calls` requests of `events` events on each connection. Returns the total time, and the
/// latencies in ascending order.
async fn load(
    addr: SocketAddr,
    connections: usize,
    calls: usize,
    events: usize,
) -> (Duration, Vec<Duration>) {
    let begin = Instant::now();
    let asking = (0..connections).map(|first| {
        tokio::spawn(async move {
            let mut connection = Connection::to(addr).await;
            let mut took = Vec::with_capacity(calls);
            for n in 0..calls {
                let request = post(first, n, events);
                let begin = Instant::now();
                let answer = connection.ask(&request).await;
                took.push(begin.elapsed());
                assert!(answer.starts_with("http/1.1 202"), "{answer}");
            }
            took
        })
    });
    let all = join_all(asking).await.into_iter();
    let mut took: Vec<Duration> = all.flat_map(|took| took.expect("answers")).collect();
    took.sort();
    (begin.elapsed(), took)
}

fn post(first: usize, n: usize, events: usize) -> String {
    let event = |of: usize| {
        let (object, artist) = ((first * 31 + n * 7 + of) % 4_000, of % 900);
        format!(
            r#"{{"type":"ArtworkPublished","objects":["A{object:05}"],"followers_of":"artist:{artist}"}}"#
        )
    };
    let body = match events {
        1 => event(n),
        many => format!("[{}]", (0..many).map(event).collect::<Vec<_>>().join(",")),
    };
    format!(
        "POST /v1/events HTTP/1.1\r\nHost: bench\r\nAuthorization: Bearer {KEY}\r\n\
         Content-Type: application/json\r\nContent-Length: {}\r\n\r\n{body}",
        body.len()
    )
}
