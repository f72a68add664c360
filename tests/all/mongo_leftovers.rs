//! The cleaner removes all documents that a crash leaves in MongoDB, even a large number of them.

use std::sync::Arc;

use bson::doc;
use bson::oid::ObjectId;
use tidings::clock::ManualClock;
use tidings::engine::archive::clean::Cleaner;
use tidings::store::Forgettable;
use tidings::store::mongo::MongoOptions;

use crate::support::mongo::{Faulty, faulty};
use crate::support::*;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_cleaner_removes_all_audiences_that_were_never_accepted() {
    faulty(MongoOptions::default(), async |store: &Faulty| {
        let parts = (0..1_001_u32).flat_map(|fanout| {
            let mut id = [0; 12];
            id[8..].copy_from_slice(&fanout.to_be_bytes());
            let id = ObjectId::from_bytes(id);
            (0..2).map(move |n| doc! {"_id": {"f": id, "n": n}, "users": ["ada"]})
        });
        store.write_all("audiences", parts.collect()).await;
        let clock = Arc::new(ManualClock::at(noon()));
        let cleaner = Cleaner::new(context(store.handle(), clock, "test"));

        for _ in 0..2 {
            cleaner.step().await.unwrap();
        }

        let remaining = store.forget(Forgettable::Unaccepted, noon(), 10);
        let remaining = remaining.await.unwrap();
        assert_eq!(remaining, 0);
    })
    .await;
}
