//! Compares two ways to remove an old day: dropping its collection, and deleting its rows from one
//! large collection.

use std::future::IntoFuture;

use bson::{Document, doc};
use mongodb::IndexModel;

use tidings::domain::Day;

use crate::measure::{Rounds, Table, against, number, rounds, scaled, timed};
use crate::world::{World, bare, now, people};

/// Fills the naive schema: one row per user and event, with four secondary indexes.
async fn naive(world: &World, ids: &[String], day: &str) {
    let rows = bare(&world.db, "notifications");
    for keys in [
        doc! {"user": 1, "at": -1},
        doc! {"user": 1, "read": 1},
        doc! {"type": 1, "object": 1},
        doc! {"day": 1},
    ] {
        rows.create_index(IndexModel::builder().keys(keys).build()).await.expect("an index");
    }
    for chunk in ids.chunks(10_000) {
        let documents = chunk.iter().enumerate().map(|(n, user)| -> Document {
            doc! {"user": user, "type": "ArtworkPublished", "object": format!("A{n:05}"), "at": n as i64, "read": false, "day": day}
        });
        rows.insert_many(documents).ordered(false).await.expect("rows");
    }
}

pub async fn archive() {
    let world = World::fresh("bench_archive").await;
    let (mut small, mut large, mut rows) =
        (Rounds::default(), Rounds::default(), Rounds::default());
    let ids = people(scaled(1_000_000));
    naive(&world, &ids, "kept").await;
    for _ in 0..rounds(3) {
        for (count, rounds) in [(ids.len() / 10, &mut small), (ids.len(), &mut large)] {
            world.fill(&ids[..count], 1, 1).await;
            let day = bare(&world.db, &Day::of(now()).collection_name());
            let dropped = timed(day.drop().into_future()).await;
            dropped.0.expect("dropped");
            rounds.note(1, dropped.1);
        }
        naive(&world, &ids, "old").await;
        let deleted =
            timed(bare(&world.db, "notifications").delete_many(doc! {"day": "old"}).into_future())
                .await;
        assert_eq!(deleted.0.expect("deleted").deleted_count, ids.len() as u64);
        rows.note(1, deleted.1);
    }
    let ms = |rounds: &Rounds| 1e3 / rounds.median();
    let table = Table::begin("Dropping a day", &["way", "ms (median)", "ratio"]);
    table.row(&[
        format!("deleting {} rows from one collection with four indexes", number(ids.len() as f64)),
        number(ms(&rows)),
        "1×".into(),
    ]);
    table.row(&[
        format!("dropping a day of {} users", number(ids.len() as f64)),
        number(ms(&large)),
        against(ms(&rows) / ms(&large), 500.0),
    ]);
    table.row(&[
        format!("dropping a day of {} users", number(ids.len() as f64 / 10.0)),
        number(ms(&small)),
        String::new(),
    ]);
    world.end().await;
}
