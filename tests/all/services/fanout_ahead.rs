//! Tests that the next page is claimed and pushed while the previous one joins batches and is
//! saved.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::domain::Audience;
use tidings::engine::{NoProgress, Progress};
use tidings::store::Store;
use tokio::sync::Barrier;
use tokio::time::timeout;

use crate::support::town::{Town, mostly_on_sqlite, request};
use crate::support::{Before, FailingStore, Fresh, Shorthand, user};

mostly_on_sqlite! {
    one_event_is_saved_while_the_next_is_pushed
    a_pushed_event_is_saved_when_the_worker_stops
    a_pushed_event_is_saved_when_the_next_claim_fails
    an_event_in_progress_is_not_restarted_after_its_lease_expired
}

/// Each event is claimed separately and joins batches.
const ONE_BY_ONE: &str = r#"
fanout.merge = 1
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.window = "5m"
"#;

/// Accepts events for 20 users each, too many for a small audience.
async fn accept_events(town: &Town, events: usize) {
    accept_events_for(town, 20, events).await;
}

async fn accept_events_for(town: &Town, people: usize, events: usize) {
    let crowd = town.crowd(people).await;
    let crowd = crowd.iter().map(|person| user(person));
    let audience = Audience::users(crowd).unwrap();
    let event = |n: usize| request(&[&format!("a{n}")], audience.clone(), None);
    let events = (0..events).map(event).collect();
    town.process().notify().accept(events).await.unwrap();
}

async fn one_event_is_saved_while_the_next_is_pushed(fresh: Fresh) {
    let town = Town::found(&fresh, true, ONE_BY_ONE).await;
    accept_events(&town, 3).await;
    // The save of an event and the push of the next one wait for each other.
    let (meeting, calls) = (Arc::new(Barrier::new(2)), Arc::new(AtomicUsize::new(0)));
    let (pushes, saves) = (AtomicUsize::new(0), AtomicUsize::new(0));
    let met = calls.clone();
    let gate: Before = Box::new(move |method| {
        let meets = match method {
            "push" => pushes.fetch_add(1, Ordering::Relaxed) > 0,
            "save_fanouts" => saves.fetch_add(1, Ordering::Relaxed) < 2,
            _ => false,
        };
        let (meeting, met) = (meeting.clone(), met.clone());
        let meet = async move {
            if meets {
                let other = timeout(Duration::from_secs(20), meeting.wait()).await;
                other.expect("one was over before the other began");
                met.fetch_add(1, Ordering::Relaxed);
            }
        };
        meet.boxed()
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);

    let done = town.process_on(&store).fanouts().drain(&NoProgress).await;

    assert_eq!(done.unwrap().completed, 3);
    assert_eq!(calls.load(Ordering::Relaxed), 4);
}

/// Stops the worker once the counter reaches this number of pushes.
struct Until(Arc<AtomicUsize>, usize);

impl Progress for Until {
    fn advance(&self, _: u64) {}

    fn set_total(&self, _: u64) {}

    fn should_stop(&self) -> bool {
        self.0.load(Ordering::Relaxed) >= self.1
    }
}

async fn a_pushed_event_is_saved_when_the_worker_stops(fresh: Fresh) {
    let town = Town::found(&fresh, true, ONE_BY_ONE).await;
    accept_events(&town, 3).await;
    let pushes = Arc::new(AtomicUsize::new(0));
    let counted = pushes.clone();
    let count: Before = Box::new(move |method| {
        counted.fetch_add(usize::from(method == "push"), Ordering::Relaxed);
        std::future::ready(()).boxed()
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), count);
    let app = town.process_on(&store);

    let done = app.fanouts().drain(&Until(pushes.clone(), 2)).await;

    assert_eq!(done.unwrap().completed, 2);
    assert_eq!(pushes.load(Ordering::Relaxed), 2);
    assert_eq!(town.store.backlog().await.pending, 1);
}

async fn a_pushed_event_is_saved_when_the_next_claim_fails(fresh: Fresh) {
    let town = Town::found(&fresh, true, ONE_BY_ONE).await;
    accept_events(&town, 2).await;
    // The first claim succeeds; the second fails.
    let store = FailingStore::of_verb(town.store.clone(), "claim_fanouts", 1);
    let store: Arc<dyn Store> = store;

    let failed = town.process_on(&store).fanouts().drain(&NoProgress).await;

    failed.expect_err("the second claim fails");
    assert_eq!(town.store.backlog().await.pending, 1);
}

async fn an_event_in_progress_is_not_restarted_after_its_lease_expired(fresh: Fresh) {
    let town = Town::found(&fresh, true, &format!("{ONE_BY_ONE}fanout.page = 500\n")).await;
    // Three pages each, in turn.
    accept_events_for(&town, 1_400, 2).await;
    let (clock, saves) = (town.clock.clone(), AtomicUsize::new(0));
    let pushes = Arc::new(AtomicUsize::new(0));
    let counted = pushes.clone();
    let slow: Before = Box::new(move |method| {
        counted.fetch_add(usize::from(method == "push"), Ordering::Relaxed);
        // Both leases expire before the next claim.
        if method == "save_fanouts" && saves.fetch_add(1, Ordering::Relaxed) == 1 {
            clock.advance(TimeDelta::minutes(10));
        }
        std::future::ready(()).boxed()
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), slow);

    let done = town.process_on(&store).fanouts().drain(&NoProgress).await;

    let done = done.unwrap();
    assert_eq!((done.completed, done.counts.people), (2, 2 * 1_400));
    assert_eq!(pushes.load(Ordering::Relaxed), 2 * 3);
}
