//! Measures digests end to end: finding due users, and building, sending and settling their emails.
//!
//! The provider answers at once. The ceiling is the writes to ledger and stacks alone, by the bare
//! driver.

use std::time::Duration;

use bson::{Document, doc};
use mongodb::{Collection, Database};
use tidings::domain::Day;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;

use crate::measure::{Rounds, Table, number, rounds, scaled, spread, timed};
use crate::standing::processor;
use crate::world::{World, now, people};

const DAYS: u32 = 8;
const EVENTS: usize = 5;

/// Whether users get the same digest.
#[derive(Clone, Copy)]
enum Contents {
    /// All users have the same events, so tidings renders one email for many of them.
    Equal,
    /// Users have different events.
    Different,
}

pub async fn end_to_end() {
    let count = scaled(10_000);
    let title = format!(
        "Digests end to end: {} users, {DAYS} collections, {EVENTS} events each",
        number(count as f64)
    );
    let mut rows = Vec::new();
    for (way, contents) in [("equal", Contents::Equal), ("different", Contents::Different)] {
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
            let request = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
            let digests = world.app.digests();
            let (report, took) = timed(digests.run(&request, &NoProgress)).await;
            assert_eq!(report.expect("a run").emails.sent, count as u64);
            ours.note(count as u64, took);
            ours_server.note(count as u64, worked(processor(&world).await - between));
            world.end().await;
        }
        rows.push((way, ours, bare, ours_server, bare_server));
    }
    let columns = [
        "contents",
        "tidings, emails/s",
        "the writes alone, emails/s",
        "ratio",
        "server processor time per email: tidings, ms",
        "the writes alone, ms",
    ];
    let table = Table::begin(&title, &columns);
    for (way, ours, bare, ours_server, bare_server) in rows {
        let ratio = number(ours.median() / bare.median());
        let each = |rounds: &Rounds| number(1e3 / rounds.median());
        let servers = [each(&ours_server), each(&bare_server)];
        let [ours_server, bare_server] = servers;
        let cells = [way.into(), spread(&ours), spread(&bare), ratio, ours_server, bare_server];
        table.row(&cells);
    }
}

fn worked(milliseconds: f64) -> Duration {
    Duration::from_secs_f64(milliseconds / 1e3)
}

/// Makes the writes of one email per user, one statement per change, with majority write concern.
///
/// They insert a row, mark it as sending, settle it, and write a marker to each stack. Each command
/// holds 1,000 users.
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
            let day = Day::of(now()).days_before(back).collection_name();
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
