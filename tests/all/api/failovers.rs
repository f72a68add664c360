//! P1: two processes on three nodes. Events that one accepts while the primary is killed reach the
//! streams and polls of the other.

use std::sync::Arc;
use std::time::Duration;

use futures::FutureExt;
use serde_json::json;
use tidings::app::App;
use tidings::email::Resolution;
use tidings::engine::NoProgress;
use tidings::store::mongo::{Mongo, MongoOptions};

use super::Api;
use super::polls::{Events, FRESH};
use crate::support::Fresh;
use crate::support::replica_set::{ReplicaSet, kill_primary};
use crate::support::town::Town;

/// The number of events. The primary is killed before the middle one.
const EVENTS: u64 = 20;

async fn connected(set: &ReplicaSet) -> Arc<Mongo> {
    let url = set.url("streams");
    let store = Mongo::connect(&url, MongoOptions::default());
    let store = store.await.unwrap();
    store.prepare().await.unwrap();
    Arc::new(store)
}

/// The time limit of the whole test; an election takes seconds.
const PATIENCE: Duration = Duration::from_secs(180);

/// Posts an event and fans it out. Repeats each step until it succeeds.
async fn post_and_fan_out(api: &Api, worker: &App, n: u64) {
    let key = format!("event-{n}");
    let event = json!({"type": "Loan", "objects": format!("o{n}"), "to": "ada", "key": key});
    while api.post("/v1/events", event.clone()).await.status != 202 {}
    while worker.fanouts().drain(&NoProgress).await.is_err() {}
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn events_accepted_during_a_failover_reach_the_streams_of_other_processes() {
    let finished = tokio::time::timeout(PATIENCE, stream_during_a_failover());
    finished.await.expect("something that was accepted is never told");
}

async fn stream_during_a_failover() {
    let set = ReplicaSet::start();
    let client = set.client().await;
    let (first, second) = (connected(&set).await, connected(&set).await);
    let clear = Arc::new(|| async { unreachable!("nobody empties it") }.boxed());
    let fresh = Fresh::new(first, second, clear, set.url("streams"));
    let api = Api::of(Town::found(&fresh, true, FRESH).await);
    let other = Api::of(Town::on(fresh.second().handle(), Resolution::Impossible, FRESH));
    let page = "/v1/users/ada/feed";
    let tag = other.get(page).await.header("ETag").to_owned();
    let mut events = Events::of(&other, "ada").await;

    let worker = api.town.process();
    let mut killed = None;
    for n in 0..EVENTS {
        if n == EVENTS / 2 {
            let client = client.clone();
            killed = Some(tokio::spawn(async move { kill_primary(&client).await }));
        }
        post_and_fan_out(&api, &worker, n).await;
    }
    killed.unwrap().await.unwrap();

    // A stream that ends is opened again, as browsers do.
    let mut unseen_counts = Vec::new();
    while unseen_counts.last() != Some(&EVENTS) {
        match events.next().await {
            Some((_, counts)) => {
                let unseen = counts["unseen"].as_u64().unwrap();
                assert!(unseen <= EVENTS, "an event was told twice: {counts}");
                unseen_counts.push(unseen);
            }
            None => events = Events::of(&other, "ada").await,
        }
    }
    assert!(unseen_counts.is_sorted(), "{unseen_counts:?}");
    let poll = other.ask("GET", page).header("If-None-Match", tag);
    let poll = super::answer(poll).await;
    assert_eq!((poll.status, poll.body["unseen"].as_u64()), (200, Some(EVENTS)));
    other.stop().await;
    api.stop().await;
}
