//! Stale reads: a new primary still answers from its state as a secondary.
//!
//! The primary changes at a named step, between an acknowledged write and the read that depends on
//! it. The new primary does not catch up until the test allows it, so a process must wait instead
//! of using the stale answer.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::clock::Clock;
use tidings::domain::DeliveryState;
use tidings::engine::NoProgress;
use tidings::store::Store;
use tidings::store::mongo::{Mongo, MongoOptions};

use crate::support::replica_set::{Freeze, ReplicaSet};
use crate::support::town::{Town, monday, request, to};
use crate::support::{FailingStore, Fresh, Shorthand, kind};

const PEOPLE: usize = 20;

const CONFIG: &str = r#"
delivery.chunk = 100
types.CommentAdded.route = "batch"
types.CommentAdded.window = "5m"
"#;

async fn store(url: &str, options: MongoOptions) -> Arc<dyn Store> {
    let store = Mongo::connect(url, options).await.unwrap();
    store.prepare().await.unwrap();
    Arc::new(store)
}

/// Opens an empty database of the replica set.
async fn fresh(set: &ReplicaSet, database: &str) -> Fresh {
    let url = set.url(database);
    let open = || store(&url, MongoOptions::default());
    let clear = Arc::new(|| async { unreachable!("nobody empties it") }.boxed());
    Fresh::new(open().await, open().await, clear, url.clone())
}

/// A store with short timeouts. The primary changes before the first call of this method.
async fn failing_over(
    set: &Arc<ReplicaSet>,
    town: &Fresh,
    method: &'static str,
    next: &str,
) -> Arc<dyn Store> {
    let brief = MongoOptions {
        retry_timeout: Duration::from_secs(8),
        attempt_timeout: Duration::from_secs(3),
        ..MongoOptions::default()
    };
    let (set, next) = (set.clone(), next.to_owned());
    let failover = async move { set.step_up(&next).await };
    FailingStore::before(store(town.url(), brief).await, method, failover.boxed())
}

async fn assert_batches_are_sent_despite_a_stale_primary(set: &Arc<ReplicaSet>) {
    let fresh = fresh(set, "batches").await;
    let town = Town::found(&fresh, true, CONFIG).await;
    let crowd = town.crowd(PEOPLE).await;
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    let next = set.secondary().await;
    let process = failing_over(set, &fresh, "filed", &next).await;
    set.freeze(&next, Freeze::On).await;
    let mut comment = request(&["a1"], to(&crowd), None);
    comment.kind = kind("CommentAdded");
    let app = town.process();
    app.notify().accept(vec![comment]).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
    town.clock.advance(TimeDelta::minutes(5));
    app.batches().drain(&NoProgress).await.unwrap();

    let deliver = town.process_on(&process).sender();
    let result = deliver.drain().await;
    set.freeze(&next, Freeze::Off).await;
    set.knows_all(&next).await;

    assert!(result.is_err(), "it believed what it read");
    town.clock.advance(TimeDelta::hours(1));
    town.process().sender().drain().await.unwrap();
    let canceled = town.store.deliveries_in(DeliveryState::Canceled, 100).await;
    assert_eq!(canceled, [], "canceled without cause");
    assert_eq!(town.emails().len(), PEOPLE);
}

async fn assert_events_are_sent_despite_a_stale_primary(set: &Arc<ReplicaSet>) {
    let fresh = fresh(set, "digests").await;
    let town = Town::found(&fresh, true, CONFIG).await;
    let crowd = town.crowd(PEOPLE).await;
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&crowd)).await;
    let next = set.secondary().await;
    let process = failing_over(set, &fresh, "windows", &next).await;
    // The new primary knows all committed writes up to here.
    set.knows_all(&next).await;
    set.freeze(&next, Freeze::On).await;
    town.happens(&["a2"], to(&crowd)).await;

    town.clock.set(monday(0));
    let digests = town.process_on(&process).digests();
    let result = digests.run(&Default::default(), &NoProgress).await;
    set.freeze(&next, Freeze::Off).await;
    set.knows_all(&next).await;

    assert!(result.is_err(), "it believed what it read");
    town.digests_at(town.clock.now() + TimeDelta::hours(1)).await;
    town.digests_at(monday(1)).await;
    for person in crowd {
        assert_eq!(town.emailed_to(person), ["a1", "a2"], "{person}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_stale_new_primary_cancels_and_hides_nothing() {
    let set = Arc::new(ReplicaSet::start());

    assert_batches_are_sent_despite_a_stale_primary(&set).await;

    assert_events_are_sent_despite_a_stale_primary(&set).await;
}
