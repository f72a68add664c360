//! Two chunks of a run are on their way at a time, and make their calls in turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::store::Store;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::sending::run;
use crate::support::town::{Town, busy, on_both_stores, to};
use crate::support::{Before, FailingStore, Fresh};

on_both_stores! {
    a_chunk_leaves_while_it_is_written_down_that_the_last_was_taken
    no_chunk_leaves_before_it_is_written_down_that_the_last_was_not_taken
    a_chunk_that_waited_long_for_its_turn_is_built_again
}

/// A town of two who are told the same, each in a chunk of their own.
async fn town_of_two(fresh: &Fresh) -> Town {
    let town = Town::found(fresh, true, "delivery.chunk = 1\n").await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town
}

/// A gate before which the first call of one verb waits until a call is handed over for the second
/// time, at most so long; says whether it was.
fn waits(verb: &'static str, at_most: Duration) -> (Before, Arc<Mutex<Option<bool>>>) {
    let (second, handed_over) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let (first, came) = (AtomicUsize::new(0), Arc::new(Mutex::new(None)));
    let told = came.clone();
    let gate: Before = Box::new(move |called| {
        if called == "hand_over" && handed_over.fetch_add(1, Ordering::SeqCst) == 1 {
            second.notify_one();
        }
        let waits = called == verb && first.fetch_add(1, Ordering::SeqCst) == 0;
        let (second, told) = (second.clone(), told.clone());
        async move {
            if waits {
                let came = timeout(at_most, second.notified()).await.is_ok();
                *told.lock().unwrap() = Some(came);
            }
        }
        .boxed()
    });
    (gate, came)
}

async fn a_chunk_leaves_while_it_is_written_down_that_the_last_was_taken(fresh: Fresh) {
    let town = town_of_two(&fresh).await;
    let (gate, came) = waits("settle", Duration::from_secs(60));
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);

    let report = run(&town, &town.process_on(&store)).await;

    assert_eq!((report.mails.sent, town.mails().len()), (2, 2));
    assert_eq!(*came.lock().unwrap(), Some(true));
}

async fn no_chunk_leaves_before_it_is_written_down_that_the_last_was_not_taken(fresh: Fresh) {
    let town = town_of_two(&fresh).await;
    town.answer([busy()]);
    let (gate, came) = waits("defer", Duration::from_millis(500));
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);

    let report = run(&town, &town.process_on(&store)).await;

    assert_eq!((report.mails.sent, town.mails().len()), (2, 2));
    assert_eq!(*came.lock().unwrap(), Some(false));
}

/// While the first chunk is at the provider, more time passes than a mail may be old, and what the
/// second tells is withdrawn.
async fn a_chunk_that_waited_long_for_its_turn_is_built_again(fresh: Fresh) {
    let town = Arc::new(town_of_two(&fresh).await);
    let built = Arc::new(Notify::new());
    // What is said of its events is read last when a mail is built.
    let read = AtomicUsize::new(0);
    let gate: Before = Box::new({
        let built = built.clone();
        move |called| {
            if called == "details" && read.fetch_add(1, Ordering::SeqCst) == 1 {
                built.notify_one();
            }
            std::future::ready(()).boxed()
        }
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);
    let later = town.clone();
    town.meanwhile(move || {
        async move {
            timeout(Duration::from_secs(60), built.notified())
                .await
                .expect("the second chunk is not built meanwhile");
            later.put_works(&["a1"], |_| false).await;
            later.clock.advance(TimeDelta::minutes(1));
        }
        .boxed()
    });

    let report = run(&town, &town.process_on(&store)).await;

    assert_eq!((report.mails.sent, report.mails.canceled), (1, 1));
}
