//! Reads that are older than what they judge: a new primary answers from what it knew as a
//! secondary.
//!
//! The rule: the primary changes at a named step, between what was acknowledged and the read that
//! judges it, and the new one learns nothing before the test lets it. So whoever believes it is
//! seen to, and whoever does not is seen to wait.

use std::sync::Arc;
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::clock::Clock;
use tidings::domain::DeliveryState;
use tidings::engine::Silent;
use tidings::store::mongo::{Mongo, MongoOptions};
use tidings::store::{Store, WholeStore};

use crate::support::replica_set::{Freeze, ReplicaSet};
use crate::support::town::{Town, monday, request, to};
use crate::support::{FailingStore, Fresh, Shorthand, kind};

const PEOPLE: usize = 20;

const CONFIG: &str = r#"
delivery.chunk = 100
types.CommentAdded.route = "batch"
types.CommentAdded.window = "5m"
"#;

async fn store(url: &str, options: MongoOptions) -> Arc<dyn WholeStore> {
    let store = Mongo::connect(url, options).await.unwrap();
    store.prepare().await.unwrap();
    Arc::new(store)
}

/// An empty database of the set.
async fn fresh(set: &ReplicaSet, database: &str) -> Fresh {
    let url = set.url(database);
    let open = || store(&url, MongoOptions::default());
    let clear = Arc::new(|| async { unreachable!("nobody empties it") }.boxed());
    Fresh::new(open().await, open().await, clear, url.clone())
}

/// A process that does not wait long; before its first call of this verb the primary changes.
async fn failing_over(
    set: &Arc<ReplicaSet>,
    town: &Fresh,
    verb: &'static str,
    next: &str,
) -> Arc<dyn Store> {
    let brief = MongoOptions {
        patience: Duration::from_secs(8),
        attempt: Duration::from_secs(3),
        ..MongoOptions::default()
    };
    let (set, next) = (set.clone(), next.to_owned());
    let failover = async move { set.step_up(&next).await };
    FailingStore::before(store(town.url(), brief).await, verb, failover.boxed())
}

async fn batches_of_which_an_older_primary_knows_nothing(set: &Arc<ReplicaSet>) {
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
    app.fanouts().drain(&Silent).await.unwrap();
    town.clock.advance(TimeDelta::minutes(5));
    app.closer().drain(&Silent).await.unwrap();

    let deliver = town.process_on(&process).sender();
    let away = deliver.drain().await;
    set.freeze(&next, Freeze::Off).await;
    set.knows_all(&next).await;

    assert!(away.is_err(), "it believed what it read");
    town.clock.advance(TimeDelta::hours(1));
    town.process().sender().drain().await.unwrap();
    let canceled = town.store.deliveries_in(DeliveryState::Canceled, 100).await;
    assert_eq!(canceled.unwrap(), [], "canceled without cause");
    assert_eq!(town.mails().len(), PEOPLE);
}

async fn events_of_which_an_older_primary_knows_half(set: &Arc<ReplicaSet>) {
    let fresh = fresh(set, "digests").await;
    let town = Town::found(&fresh, true, CONFIG).await;
    let crowd = town.crowd(PEOPLE).await;
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&crowd)).await;
    let next = set.secondary().await;
    let process = failing_over(set, &fresh, "windows", &next).await;
    // All that stands is known to it, as the last word on the matter.
    set.knows_all(&next).await;
    set.freeze(&next, Freeze::On).await;
    town.happens(&["a2"], to(&crowd)).await;

    town.clock.set(monday(0));
    let digests = town.process_on(&process).digests();
    let away = digests.run(&Default::default(), &Silent).await;
    set.freeze(&next, Freeze::Off).await;
    set.knows_all(&next).await;

    assert!(away.is_err(), "it believed what it read");
    town.digests_at(town.clock.now() + TimeDelta::hours(1))
        .await;
    town.digests_at(monday(1)).await;
    for person in crowd {
        assert_eq!(town.told_to(person), ["a1", "a2"], "{person}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_primary_that_answers_from_before_cancels_nothing_and_hides_nothing() {
    let set = Arc::new(ReplicaSet::start());

    batches_of_which_an_older_primary_knows_nothing(&set).await;

    events_of_which_an_older_primary_knows_half(&set).await;
}
