//! Upgrades of MongoDB databases that four earlier versions wrote, with their indexes.

use std::sync::Arc;

use bson::{Document, doc};
use futures::TryStreamExt;
use mongodb::Database;
use tidings::store::Diagnostics;
use tidings::store::mongo::{Mongo, MongoOptions};

use super::{Story, assert_usable};
use crate::support::poison::database;
use crate::support::town::only_on_mongo;
use crate::support::{Fresh, Shorthand};

only_on_mongo! {
    a_database_of_each_version_can_be_used
    what_an_older_process_writes_after_an_upgrade_is_moved_or_reported
    a_collection_of_another_program_is_not_renamed
    a_foreign_index_is_kept_beside_ours
    only_a_database_that_requires_a_newer_version_is_rejected
}

/// Drops the database with its indexes and notes, and writes these documents and indexes.
async fn write(fresh: &Fresh, lines: &str) -> Database {
    let database = database(fresh).await.unwrap();
    database.drop().await.unwrap();
    for line in lines.lines() {
        let line: Document = serde_json::from_str(line).unwrap();
        let command = match (line.get_str("index"), line.get_document("command")) {
            (_, Ok(command)) => command.clone(),
            (Ok(collection), _) => {
                let spec = line.get_document("spec").unwrap();
                doc! {"createIndexes": collection, "indexes": [spec]}
            }
            (Err(_), _) => {
                let document = line.get_document("document").unwrap();
                doc! {"insert": line.get_str("in").unwrap(), "documents": [document]}
            }
        };
        database.run_command(command).await.unwrap();
    }
    database
}

async fn open(fresh: &Fresh) -> Arc<Mongo> {
    let options = MongoOptions::default();
    Arc::new(Mongo::connect(fresh.url(), options).await.unwrap())
}

async fn missing_indexes(store: &Mongo) -> Vec<String> {
    let condition = store.condition().await.unwrap();
    condition.missing_indexes.unwrap()
}

async fn indexes(database: &Database, collection: &str) -> Vec<String> {
    let collection = database.collection::<Document>(collection);
    let listed = collection.list_indexes().await;
    let listed: Vec<_> = listed.unwrap().try_collect().await.unwrap();
    let name = |index: mongodb::IndexModel| index.options.unwrap().name.unwrap();
    listed.into_iter().map(name).collect()
}

async fn a_database_of_each_version_can_be_used(fresh: Fresh) {
    for (lines, version, batch, pushed) in [
        (include_str!("mongo_1.ndjson"), 1, false, false),
        (include_str!("mongo_3.ndjson"), 1, false, true),
        (include_str!("mongo_5.ndjson"), 1, true, true),
        (include_str!("mongo_15.ndjson"), 2, true, true),
    ] {
        let database = write(&fresh, lines).await;
        let store = open(&fresh).await;

        let before = store.schema().await.unwrap();
        store.prepare().await.unwrap();
        let after = store.schema().await.unwrap();

        assert_eq!((before.version, before.is_old()), (version, true));
        assert_eq!((after.version, after.is_old()), (after.known, false));
        assert_eq!(missing_indexes(&store).await, [""; 0]);
        assert_eq!(documents(&database, "accumulators").await, u64::from(batch));
        let receipts = documents(&database, "webhook_receipts").await;
        assert_eq!(receipts, u64::from(version == 2));
        let renamed = ["pokes", "seats", "sightings"];
        let names = database.list_collection_names().await.unwrap();
        if version == 2 {
            assert!(
                !names.iter().any(|name| renamed.contains(&&**name)),
                "{names:?}"
            );
        }
        assert_usable(store, Story { batch, pushed }).await;
    }
}

async fn documents(database: &Database, collection: &str) -> u64 {
    let collection = database.collection::<Document>(collection);
    collection.count_documents(doc! {}).await.unwrap()
}

async fn what_an_older_process_writes_after_an_upgrade_is_moved_or_reported(fresh: Fresh) {
    let database = write(&fresh, include_str!("mongo_15.ndjson")).await;
    let store = open(&fresh).await;
    store.prepare().await.unwrap();
    let seats = database.collection::<Document>("seats");
    let key = |user: &str| doc! {"u": user, "k": "type:Commented"};

    seats
        .insert_one(doc! {"_id": key("ben"), "stamp": 1})
        .await
        .unwrap();
    store.prepare().await.unwrap();
    let moved = documents(&database, "accumulators").await;
    let remaining = documents(&database, "seats").await;
    seats
        .insert_one(doc! {"_id": key("ben"), "stamp": 2})
        .await
        .unwrap();
    let refused = store.prepare().await.unwrap_err().to_string();

    assert_eq!((moved, remaining), (2, 0));
    assert!(refused.contains("seats and accumulators"), "{refused}");
    assert!(refused.contains("ben type:Commented"), "{refused}");
    assert_eq!(documents(&database, "seats").await, 1);
    assert_eq!(documents(&database, "accumulators").await, 2);
}

async fn a_collection_of_another_program_is_not_renamed(fresh: Fresh) {
    let database = write(&fresh, "").await;
    let seats = database.collection::<Document>("seats");
    seats.insert_one(doc! {"_id": 1, "row": 7}).await.unwrap();
    let store = open(&fresh).await;

    store.prepare().await.unwrap();
    store.prepare().await.unwrap();

    assert_eq!(documents(&database, "seats").await, 1);
    assert_eq!(documents(&database, "accumulators").await, 0);
}

async fn a_foreign_index_is_kept_beside_ours(fresh: Fresh) {
    let database = write(&fresh, "").await;
    // One has our name and fields but is not unique. The other has our name and different
    // fields.
    let theirs = [
        ("fanouts", doc! {"key": {"key": 1}, "name": "key_1"}),
        ("users", doc! {"key": {"plan": 1}, "name": "loc_2dsphere"}),
    ];
    for (collection, index) in theirs {
        let create = doc! {"createIndexes": collection, "indexes": [index]};
        database.run_command(create).await.unwrap();
    }
    let store = open(&fresh).await;
    let missing = missing_indexes(&store).await;
    assert!(missing.contains(&"fanouts(key)".to_owned()), "{missing:?}");

    store.prepare().await.unwrap();
    store.prepare().await.unwrap();

    assert_eq!(missing_indexes(&store).await, [""; 0]);
    let fanouts = indexes(&database, "fanouts").await;
    for name in ["key_1", "tidings_key_1"] {
        assert!(fanouts.contains(&name.to_owned()), "{fanouts:?}");
    }
    let users = indexes(&database, "users").await;
    for name in ["loc_2dsphere", "tidings_loc_2dsphere"] {
        assert!(users.contains(&name.to_owned()), "{users:?}");
    }
}

async fn only_a_database_that_requires_a_newer_version_is_rejected(fresh: Fresh) {
    let store = open(&fresh).await;
    let note = |version: u32, least: u32| format!(r#"{{"version":{version},"for":{least}}}"#);
    store.put_note("schema", &note(9, 3)).await;
    store.prepare().await.unwrap();
    let newer = store.schema().await.unwrap();

    store.put_note("schema", &note(9, 9)).await;
    let refused = [
        store.prepare().await.unwrap_err().to_string(),
        store.schema().await.unwrap_err().to_string(),
    ];

    assert_eq!((newer.version, newer.is_old()), (9, false));
    for why in refused {
        assert!(why.contains("its schema is number 9"), "{why}");
    }
}
