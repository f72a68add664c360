//! Measures the cost of pushes onto existing stacks, by the number of added and of stored entries.
//!
//! The cost is the server's own processor time, because client and server share the machine. The
//! rival is `$addToSet` of all entries, which is safe to repeat: pre-encoded, at most 1,000 users
//! per command.

use bson::{RawDocumentBuf, doc};
use tidings::domain::{Day, Event, EventType, Id, ObjectId, UserId};
use tidings::store::PushRequest;

use crate::measure::{Table, number, rounds, scaled};
use crate::world::{World, now, people};

/// Added entries, stored entries, and the number of users.
const SHAPES: [(usize, usize, usize); 8] = [
    (1, 0, 20_000),
    (1, 10, 20_000),
    (1, 900, 2_000),
    (10, 10, 10_000),
    (100, 0, 1_000),
    (100, 100, 500),
    (100, 900, 200),
    (400, 400, 100),
];

fn events(count: usize, first: usize) -> Vec<Event> {
    let event = |n: usize| Event {
        kind: EventType::stored("ArtworkPublished"),
        object: ObjectId::stored(format!("5334647b139b2165{n:08x}")),
        // Each fan-out has ten objects.
        fanout_id: Some(Id::at(now(), (n as u64 / 10).to_be_bytes())),
    };
    (first..first + count).map(event).collect()
}

fn pushes(ids: &[String], list: Vec<Event>) -> PushRequest {
    let mut users: Vec<UserId> = ids.iter().map(UserId::stored).collect();
    users.sort_unstable();
    PushRequest { lists: vec![list], users: users.into_iter().map(|user| (user, 0)).collect() }
}

pub async fn standing_days() {
    let table = Table::begin(
        "Pushes onto existing stacks: server processor time per user",
        &["added onto", "`$addToSet` of all, ms", "tidings, ms", "ratio", "again, ms"],
    );
    let world = World::fresh("bench_standing").await;
    let day = Day::of(now());
    for (add, stand, count) in SHAPES {
        let ids = people(scaled(count));
        let (mut rival, mut ours, mut again) = (Vec::new(), Vec::new(), Vec::new());
        for _ in 0..rounds(5) {
            let added = pushes(&ids, events(add, 10_000));
            fill(&world, day, &ids, stand).await;
            let commands = add_to_set(day, &ids, &added.lists[0]);
            let before = processor(&world).await;
            for command in commands {
                let answer = world.db.run_raw_command(command).await.expect("an answer");
                assert!(!answer.contains_key("writeErrors"), "{answer}");
            }
            rival.push(processor(&world).await - before);

            fill(&world, day, &ids, stand).await;
            for costs in [&mut ours, &mut again] {
                let before = processor(&world).await;
                let pushed = world.store.push(day, 1_000, &added).await.expect("pushed");
                assert!(pushed.capped.is_empty());
                costs.push(processor(&world).await - before);
            }
        }
        let [rival, ours, again] = [rival, ours, again].map(|mut costs| {
            costs.sort_by(f64::total_cmp);
            costs[costs.len() / 2] / ids.len() as f64
        });
        table.row(&[
            format!("{add} onto {stand}"),
            number(rival),
            number(ours),
            format!("{}×", number(rival / ours)),
            number(again),
        ]);
    }
    world.end().await;
}

/// Replaces the day with one on which every user has `stand` entries.
async fn fill(world: &World, day: Day, ids: &[String], stand: usize) {
    world.drop_day(day).await;
    let somebody = ["0".to_owned()];
    let first = pushes(&somebody, events(1, 0));
    world.store.push(day, 1_000, &first).await.expect("the day");
    if stand > 0 {
        let standing = pushes(ids, events(stand, 0));
        world.store.push(day, 1_000, &standing).await.expect("filled");
    }
}

/// Returns the processor time of the server since its start, in milliseconds.
pub async fn processor(world: &World) -> f64 {
    let status = world.db.run_command(doc! {"serverStatus": 1}).await;
    let status = status.expect("the server's status");
    let extra = status.get_document("extra_info").expect("more of it");
    let micros = |name| extra.get_i64(name).expect("its processor time") as f64;
    (micros("user_time_us") + micros("system_time_us")) / 1e3
}

fn add_to_set(day: Day, ids: &[String], list: &[Event]) -> Vec<RawDocumentBuf> {
    let entry = |event: &Event| {
        let i = event.fanout_id.map(|id| bson::oid::ObjectId::from_bytes(id.bytes()));
        doc! {"t": event.kind.as_str(), "o": event.object.as_str(), "i": i}
    };
    let entries: Vec<_> = list.iter().map(entry).collect();
    let room = format!("events.{}", 1_000 - list.len());
    let command = |ids: &[String]| {
        let statement = |id: &String| {
            doc! {
                "q": {"_id": id, &room: {"$exists": false}},
                "u": {"$addToSet": {"events": {"$each": entries.clone()}}},
                "upsert": true,
            }
        };
        let updates: Vec<_> = ids.iter().map(statement).collect();
        let command = doc! {
            "update": day.collection_name(),
            "ordered": false,
            "writeConcern": {"w": "majority", "j": true},
            "updates": updates,
        };
        RawDocumentBuf::try_from(&command).expect("a command")
    };
    // A command must stay below 16 MB.
    let each = (100_000 / list.len()).clamp(1, 1_000);
    ids.chunks(each).map(command).collect()
}
