//! Upgrades of MongoDB databases that four earlier versions wrote, with their indexes.

use std::sync::Arc;

use bson::oid::ObjectId;
use bson::{Document, doc};
use futures::TryStreamExt;
use mongodb::Database;
use tidings::config::Config;
use tidings::domain::{Fanout, FanoutState, Selector};
use tidings::operate::open::{Access, open_store};
use tidings::store::mongo::{Mongo, MongoOptions};
use tidings::store::{AnyRecord, Diagnostics, ExpiringRecords, RecordKind};

use super::{Story, assert_usable};
use crate::support::poison::database;
use crate::support::town::only_on_mongo;
use crate::support::{Fresh, Shorthand, fanout, id, minutes, noon, user};

only_on_mongo! {
    parts_of_audiences_are_removed_with_their_fan_outs
    a_fan_out_in_parts_is_exported_alone
    an_event_that_fits_into_no_document_is_imported_once_it_is_done
    a_database_of_each_version_can_be_used
    reading_upgrades_a_database_and_inspecting_does_not
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
            assert!(!names.iter().any(|name| renamed.contains(&&**name)), "{names:?}");
        }
        assert_usable(store, Story { batch, pushed }).await;
    }
}

async fn reading_upgrades_a_database_and_inspecting_does_not(fresh: Fresh) {
    let database = write(&fresh, include_str!("mongo_15.ndjson")).await;
    let config = Config::parse(&format!("store = \"{}\"", fresh.url())).unwrap();

    let inspected = open_store(&config, Access::Inspect).await.unwrap();
    let before = inspected.condition().await.unwrap().schema.unwrap();
    let remaining = documents(&database, "seats").await;
    let read = open_store(&config, Access::Read).await.unwrap();
    let after = read.condition().await.unwrap().schema.unwrap();

    assert_eq!((before.version, before.is_old(), remaining), (2, true, 1));
    assert_eq!((after.version, after.is_old()), (after.known, false));
    assert_eq!(documents(&database, "seats").await, 0);
    assert_eq!(documents(&database, "accumulators").await, 1);
}

async fn documents(database: &Database, collection: &str) -> u64 {
    let collection = database.collection::<Document>(collection);
    collection.count_documents(doc! {}).await.unwrap()
}

fn object_id(n: u32) -> ObjectId {
    ObjectId::from_bytes(id(n).bytes())
}

/// Writes the first part of the audience of a fan-out, as earlier versions did.
async fn write_part(database: &Database, n: u32) {
    let part = doc! {"_id": {"f": object_id(n), "n": 0}, "users": ["ada"]};
    let audiences = database.collection::<Document>("audiences");
    audiences.insert_one(part).await.unwrap();
}

async fn parts_of_audiences_are_removed_with_their_fan_outs(fresh: Fresh) {
    let database = database(&fresh).await.unwrap();
    // Fan-outs 2, 4 and 6 are stored, and 4 is pending. The others are gone.
    fresh.accept(&[fanout(2), fanout(4), fanout(6)]).await.unwrap();
    let done = doc! {"_id": {"$ne": object_id(4)}};
    let fanouts = database.collection::<Document>("fanouts");
    fanouts.update_many(done, doc! {"$set": {"state": "done"}}).await.unwrap();
    for n in 1..=7 {
        write_part(&database, n).await;
    }
    let audiences = database.collection::<Document>("audiences");
    let remaining = || async {
        let parts = audiences.find(doc! {}).sort(doc! {"_id": 1}).await.unwrap();
        let parts: Vec<Document> = parts.try_collect().await.unwrap();
        let part = |part: &Document| part.get_document("_id").unwrap().get_object_id("f").unwrap();
        parts.iter().map(part).collect::<Vec<_>>()
    };
    let forget = |limit| fresh.forget(ExpiringRecords::Events, noon() + minutes(1), limit);

    assert_eq!(forget(1).await.unwrap(), 1);
    assert_eq!(remaining().await, [1, 3, 4, 5, 6, 7].map(object_id));
    assert_eq!(forget(10).await.unwrap(), 1);
    assert_eq!(remaining().await, [4, 5, 7].map(object_id));

    fanouts.update_many(doc! {}, doc! {"$set": {"state": "done"}}).await.unwrap();
    assert_eq!(forget(10).await.unwrap(), 1);
    assert!(remaining().await.is_empty());
}

async fn a_fan_out_in_parts_is_exported_alone(fresh: Fresh) {
    let database = database(&fresh).await.unwrap();
    fresh.accept(&[fanout(1), fanout(2)]).await.unwrap();
    let one_page = fresh.pages(RecordKind::Fanouts).await;
    let lines = fresh.lines_of(RecordKind::Fanouts).await;

    write_part(&database, 2).await;
    let fanouts = database.collection::<Document>("fanouts");
    let set = doc! {"$set": {"audience": {"parts": 1}}};
    let second = doc! {"_id": object_id(2)};
    fanouts.update_one(second, set).await.unwrap();
    let two_pages = fresh.pages(RecordKind::Fanouts).await;

    assert_eq!((one_page.len(), two_pages.len()), (1, 2));
    assert_eq!(fresh.lines_of(RecordKind::Fanouts).await, lines);
}

async fn an_event_that_fits_into_no_document_is_imported_once_it_is_done(fresh: Fresh) {
    let users = (0..100_000).map(|n| user(&format!("{n:0>200}")));
    let pending = Fanout { audience: Selector::Users(users.collect()).into(), ..fanout(1) };
    let done = Fanout { state: FanoutState::Done, ..pending.clone() };
    let import = |fanout: Fanout| {
        let line = AnyRecord::from(fanout).to_line().unwrap();
        let store = fresh.whole();
        async move { store.import_records(RecordKind::Fanouts, &[line]).await }
    };

    let rejected = import(pending).await.unwrap_err().to_string();
    import(done).await.unwrap();

    let expected = format!("event {} names more users than fit", id(1));
    assert!(rejected.starts_with(&expected), "{rejected}");
    let stored = fresh.fanout(id(1)).await.unwrap().unwrap();
    assert_eq!(stored.audience.to, Selector::Users(Vec::new()));
}

async fn what_an_older_process_writes_after_an_upgrade_is_moved_or_reported(fresh: Fresh) {
    let database = write(&fresh, include_str!("mongo_15.ndjson")).await;
    let store = open(&fresh).await;
    store.prepare().await.unwrap();
    let seats = database.collection::<Document>("seats");
    let key = |user: &str| doc! {"u": user, "k": "type:Commented"};

    seats.insert_one(doc! {"_id": key("ben"), "stamp": 1}).await.unwrap();
    store.prepare().await.unwrap();
    let moved = documents(&database, "accumulators").await;
    let remaining = documents(&database, "seats").await;
    // An upgrade that was interrupted left the document of dan in both.
    let both = doc! {"_id": key("dan"), "stamp": 1};
    let accumulators = database.collection::<Document>("accumulators");
    accumulators.insert_one(both.clone()).await.unwrap();
    let differing = doc! {"_id": key("ben"), "stamp": 2};
    let new = doc! {"_id": key("eva"), "stamp": 1};
    seats.insert_many([differing, both, new]).await.unwrap();
    let refused = store.prepare().await.unwrap_err().to_string();

    assert_eq!((moved, remaining), (2, 0));
    assert!(refused.contains("seats and accumulators"), "{refused}");
    assert!(refused.contains("ben type:Commented"), "{refused}");
    assert_eq!(documents(&database, "seats").await, 1);
    assert_eq!(documents(&database, "accumulators").await, 4);
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
