//! Reads from MongoDB are causally consistent: each asks for data that is as recent as all earlier
//! writes.
//!
//! The server's profiler records the commands, and the tests check their `readConcern`. No failover
//! is needed.

use bson::{Document, Timestamp, doc};
use futures::TryStreamExt;
use mongodb::Database;
use tidings::domain::delivery::{Corrected, Reopening, Settlement};
use tidings::domain::{Address, DeliveryState, SuppressionReason};
use tidings::store::{ChecksumBuilder, CountedRecords};

use crate::support::poison::database;
use crate::support::town::only_on_mongo;
use crate::support::{Fresh, Shorthand, delivery, events, handover, minutes, noon, today, user};

only_on_mongo! {
    every_read_is_causally_consistent
    a_read_after_reopening_reflects_the_reopening
}

/// Lets the server record every command on this database from now on.
async fn note_commands(database: &Database) {
    let noted = database.run_command(doc! {"profile": 2}).await;
    noted.unwrap();
}

/// Returns the recorded read commands, in order.
async fn reads(database: &Database) -> Vec<Document> {
    let noted = database.collection::<Document>("system.profile");
    let ours = doc! {"ns": {"$not": {"$regex": "system\\.profile$"}}};
    let found = noted.find(ours).sort(doc! {"$natural": 1}).await.unwrap();
    let found: Vec<Document> = found.try_collect().await.unwrap();
    let commands = found.into_iter().filter_map(|note| {
        let command = note.get_document("command").ok()?.clone();
        let reads = ["find", "aggregate", "count", "distinct", "listCollections"];
        let read = reads.iter().any(|name| command.contains_key(name));
        read.then_some(command)
    });
    commands.collect()
}

/// Returns the cluster time that the read waits for.
fn after(read: &Document) -> Option<Timestamp> {
    let concern = read.get_document("readConcern").ok()?;
    concern.get_timestamp("afterClusterTime").ok()
}

async fn every_read_is_causally_consistent(store: Fresh) {
    let database = database(&store).await.unwrap();
    let (ada, address) = (user("ada"), "ada@example.org".parse::<Address>().unwrap());
    let row = delivery("ada", "2014-04-22", "one");
    store.push_list(&ada, events(2, 1)).await;
    note_commands(&database).await;

    let (now, before) = (noon(), noon() - minutes(9));
    store.soft_bounce(&address, &row.id, now, before).await;
    let reasons = SuppressionReason::ALL.map(CountedRecords::Suppressions);
    store.count(&reasons).await.unwrap();
    store.count(&[CountedRecords::Stacks(today())]).await.unwrap();
    store.batch_counts().await;
    store.backlog().await;
    store.delivery_counts(&DeliveryState::ALL).await;
    store.pending(usize::MAX).await.unwrap();
    store.newest(9).await;
    store.days().await.unwrap();
    store.fix_day(today()).await.unwrap();
    let nothing = ChecksumBuilder::default().finish();
    assert!(!store.drop_day(today(), &nothing).await.unwrap());

    let reads = reads(&database).await;
    let old: Vec<&Document> = reads.iter().filter(|read| after(read).is_none()).collect();
    assert!(reads.len() > 9, "{reads:#?}");
    assert!(old.is_empty(), "{old:#?}");
}

async fn a_read_after_reopening_reflects_the_reopening(store: Fresh) {
    let database = database(&store).await.unwrap();
    let (row, later) = (delivery("ada", "2014-04-22", "one"), noon() + minutes(9));
    let ids = std::slice::from_ref(&row.id);
    store.open(std::slice::from_ref(&row)).await.unwrap();
    let call = [handover(&row.id, "call")];
    store.sending("one", noon(), later, &call).await;
    let failed = Settlement {
        id: row.id.clone(),
        from: DeliveryState::Sending,
        state: DeliveryState::Failed,
        items: 1,
        provider_id: None,
        reason: Some("550".into()),
        cause: None,
    };
    store.settle("one", noon(), &[failed]).await;
    store.close(ids).await.unwrap();
    let process = store.second();
    note_commands(&database).await;

    let requests = [Reopening::new(row.id.clone())];
    let reopened = process.reopen(later, &requests).await;
    process.users(&[user("ada")]).await.unwrap();

    assert_eq!(reopened, [Corrected::Done]);
    let oplog = database.client().database("local");
    let oplog = oplog.collection::<Document>("oplog.rs");
    let ours = doc! {"ns": format!("{}.deliveries", database.name()), "op": "u"};
    let written = oplog.find_one(ours).sort(doc! {"$natural": -1}).await;
    let written = written.unwrap().unwrap().get_timestamp("ts").unwrap();
    let read = reads(&database).await.pop().unwrap();
    assert_eq!(read.get_str("find").ok(), Some("users"), "{read}");
    assert!(after(&read) >= Some(written), "{read} is older than {written}");
}
