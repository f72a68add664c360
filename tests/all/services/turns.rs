//! Overlapping chunks: a run builds one chunk while it sends the other.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::store::Store;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::sending::run;
use crate::support::town::{Town, busy, monday, mostly_on_sqlite, to};
use crate::support::{Before, FailingStore, Fault, Fresh, Then};

mostly_on_sqlite! {
    no_chunk_is_sent_before_the_outcomes_of_the_last_are_recorded
    a_chunk_that_waited_long_is_built_again
    no_chunk_begins_after_one_has_failed
}

/// Returns a gate that delays the first call of `verb` until the second `hand_over`, but at most
/// half a second. The flag records whether the second `hand_over` came in time.
fn wait_for_second_call(verb: &'static str) -> (Before, Arc<Mutex<Option<bool>>>) {
    let (second, handed_over) = (Arc::new(Notify::new()), AtomicUsize::new(0));
    let (first, in_time) = (AtomicUsize::new(0), Arc::new(Mutex::new(None)));
    let result = in_time.clone();
    let gate: Before = Box::new(move |called| {
        if called == "hand_over" && handed_over.fetch_add(1, Ordering::SeqCst) == 1 {
            second.notify_one();
        }
        let is_first = called == verb && first.fetch_add(1, Ordering::SeqCst) == 0;
        let (second, result) = (second.clone(), result.clone());
        async move {
            if is_first {
                let in_time = timeout(Duration::from_millis(500), second.notified()).await;
                *result.lock().unwrap() = Some(in_time.is_ok());
            }
        }
        .boxed()
    });
    (gate, in_time)
}

async fn no_chunk_is_sent_before_the_outcomes_of_the_last_are_recorded(fresh: Fresh) {
    for verb in ["settle", "defer"] {
        fresh.clear().await;
        // Two users, each in a chunk of their own.
        let town = Town::found(&fresh, true, "delivery.chunk = 1\n").await;
        town.happens(&["a1"], to(&["ada", "ben"])).await;
        if verb == "defer" {
            town.answer([busy()]);
        }
        let (gate, in_time) = wait_for_second_call(verb);
        let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);

        let report = run(&town, &town.process_on(&store)).await;

        assert_eq!((report.emails.sent, town.emails().len()), (2, 2));
        assert_eq!(*in_time.lock().unwrap(), Some(false), "{verb}");
    }
}

/// The store fails for good in the middle of a run. The run does not try the remaining chunks.
async fn no_chunk_begins_after_one_has_failed(fresh: Fresh) {
    const PEOPLE: usize = 40;
    let town = Town::found(&fresh, true, "delivery.chunk = 1\n").await;
    let people = town.crowd(PEOPLE).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.clock.set(monday(0));
    // Counts the store calls up to the third email. One scan finds the chunks of all emails.
    let (store_calls, handed_over) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let count = store_calls.clone();
    let gate: Before = Box::new(move |called| {
        if called == "hand_over" {
            handed_over.fetch_add(1, Ordering::SeqCst);
        }
        if handed_over.load(Ordering::SeqCst) < 3 {
            count.fetch_add(1, Ordering::SeqCst);
        }
        std::future::ready(()).boxed()
    });
    let counting: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);
    let request = DigestRequest::default();
    let digests = town.process_on(&counting).digests();
    digests.run(&request, &NoProgress).await.unwrap();
    let third = store_calls.load(Ordering::SeqCst);
    town.happens(&["a2"], to(&names)).await;
    town.clock.set(monday(1));

    let (fault, then) = (Fault::Refused, Then::StaysDown);
    let failing = FailingStore::new(town.store.clone(), third, fault, then);
    let store: Arc<dyn Store> = failing.clone();
    let run = town.process_on(&store).digests().run(&request, &NoProgress).await;

    assert!(run.is_err());
    let (sent, after) = (town.emails().len() - PEOPLE, failing.calls() - third);
    assert!(sent < PEOPLE / 2, "{sent} were sent before it went away");
    assert!(after < PEOPLE / 4, "{after} more calls were made");
}

/// Before the call of a built chunk, its checks expire and its object is withdrawn.
async fn a_chunk_that_waited_long_is_built_again(fresh: Fresh) {
    // With two emails in a chunk, the age of the checks counts from before they are built.
    let town = Town::found(&fresh, true, "delivery.chunk = 2\n").await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    let town = Arc::new(town);
    // The details of events are the last read when an email is built. The pause is read before a
    // call.
    let (is_built, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let gate: Before = Box::new({
        let town = town.clone();
        move |called| {
            is_built.fetch_or(called == "details", Ordering::SeqCst);
            let waits = called == "notes" && is_built.load(Ordering::SeqCst);
            let waits = waits && !is_over.swap(true, Ordering::SeqCst);
            let town = town.clone();
            async move {
                if waits {
                    town.put_works(&["a1"], |_| false).await;
                    town.clock.advance(TimeDelta::minutes(1));
                }
            }
            .boxed()
        }
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);

    let report = run(&town, &town.process_on(&store)).await;

    assert_eq!((report.emails.sent, report.emails.canceled), (0, 2));
}
