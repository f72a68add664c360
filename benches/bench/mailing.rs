//! Digests end to end: whoever is due is found, their mails are made, handed to a provider that
//! answers at once, and settled; beside the writes to ledger and stacks alone, by the bare driver.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::{Collection, Database};
use tidings::domain::Day;
use tidings::engine::Silent;
use tidings::engine::digest::{Request, Timing};

use crate::measure::{Rounds, Table, number, rounds, scaled, spread, timed};
use crate::standing::processor;
use crate::world::{World, now, people};

const DAYS: u32 = 8;
const EVENTS: usize = 5;

/// What people are told.
#[derive(Clone, Copy)]
enum Contents {
    /// All the same, so that one mail is made for many.
    Equal,
    /// To each something else.
    Different,
}

pub async fn end_to_end() {
    let count = scaled(10_000);
    let title = format!(
        "Digests end to end: {} people, {DAYS} collections, {EVENTS} events each",
        number(count as f64)
    );
    let mut rows = Vec::new();
    for (way, contents) in [
        ("one content for all", Contents::Equal),
        ("each another content", Contents::Different),
    ] {
        let [mut ours, mut bare] = [(); 2].map(|()| Rounds::default());
        let [mut ours_server, mut bare_server] = [(); 2].map(|()| Rounds::default());
        for _ in 0..rounds(3) {
            let world = World::fresh("bench_mailing").await;
            let ids = people(count);
            world.users(&ids).await;
            match contents {
                Contents::Different => world.fill(&ids, DAYS, EVENTS).await,
                Contents::Equal => world.fill_alike(&ids, DAYS, EVENTS).await,
            }
            let begin = processor(&world).await;
            bare.note(count as u64, timed(ledger_alone(&world, &ids)).await.1);
            let between = processor(&world).await;
            bare_server.note(count as u64, worked(between - begin));
            let request = Request {
                timing: Timing::Now,
                ..Request::default()
            };
            let digests = world.app.digests();
            let (report, took) = timed(digests.run(&request, &Silent)).await;
            assert_eq!(report.expect("a run").mails.sent, count as u64);
            ours.note(count as u64, took);
            ours_server.note(count as u64, worked(processor(&world).await - between));
            world.end().await;
        }
        rows.push((way, ours, bare, ours_server, bare_server));
    }
    let columns = [
        "contents",
        "tidings, mails/s",
        "the writes alone, mails/s",
        "ratio",
        "processor time of the server a mail: tidings, ms",
        "the writes alone, ms",
    ];
    let table = Table::begin(&title, &columns);
    for (way, ours, bare, ours_server, bare_server) in rows {
        let ratio = number(ours.median() / bare.median());
        let each = |rounds: &Rounds| number(1e3 / rounds.median());
        let servers = [each(&ours_server), each(&bare_server)];
        let [ours_server, bare_server] = servers;
        let cells = [
            way.into(),
            spread(&ours),
            spread(&bare),
            ratio,
            ours_server,
            bare_server,
        ];
        table.row(&cells);
    }
}

fn worked(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds / 1e3)
}

/// What a mail costs the database with a statement for each thing that is changed: a row that is
/// inserted, noted as sending, settled and closed, and a marker on each stack, a thousand people a
/// command, majority.
async fn ledger_alone(world: &World, ids: &[String]) {
    let rows: Collection<Document> = world.db.collection("bare_deliveries");
    for ids in ids.chunks(1_000) {
        let row =
            |id: &String| doc! {"_id": format!("digest:{id}"), "user": id, "state": "pending"};
        rows.insert_many(ids.iter().map(row)).await.expect("rows");
        for state in ["sending", "sent"] {
            let update = |id: &String| {
                let to = doc! {"$set": {"state": state}};
                doc! {"q": {"_id": format!("digest:{id}")}, "u": to}
            };
            update_all(&world.db, rows.name(), ids.iter().map(update)).await;
        }
        for back in 0..DAYS {
            let day = Day::of(now()).back(back).collection();
            let mark = |id: &String| {
                let marker = doc! {"$set": {"bare": EVENTS as i32}};
                doc! {"q": {"_id": id}, "u": marker}
            };
            update_all(&world.db, &day, ids.iter().map(mark)).await;
        }
    }
}

async fn update_all(db: &Database, collection: &str, updates: impl Iterator<Item = Document>) {
    let command = doc! {
        "update": collection,
        "updates": updates.collect::<Vec<_>>(),
        "ordered": false,
        "writeConcern": {"w": "majority"},
    };
    db.run_command(command).await.expect("updated");
}
