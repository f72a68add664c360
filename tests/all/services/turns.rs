//! Two chunks of a run are on their way at a time, and make their calls in turn.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::engine::Silent;
use tidings::engine::digest::Request;
use tidings::store::Store;
use tokio::sync::Notify;
use tokio::time::timeout;

use super::sending::run;
use crate::support::town::{PEOPLE, Town, busy, monday, on_both_stores, to};
use crate::support::{Before, FailingStore, Fault, Fresh, Then};

on_both_stores! {
    a_chunk_leaves_while_it_is_written_down_that_the_last_was_taken
    so_it_does_where_there_are_brands
    no_chunk_leaves_before_it_is_written_down_that_the_last_was_not_taken
    a_chunk_that_waited_long_for_its_turn_is_built_again
    after_a_chunk_has_failed_no_other_is_begun
}

/// Longer than anything takes.
const LONG: Duration = Duration::from_secs(60);

/// A town of two who are told the same, each in a chunk of their own.
async fn town_of_two(fresh: &Fresh, config: &str) -> Town {
    let config = format!("delivery.chunk = 1\n{config}");
    let town = Town::found(fresh, true, &config).await;
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

/// Whether the second of two leaves while the first call of this verb is waited for, which is at
/// most so long; both are mailed in the end.
async fn leaves_meanwhile(town: &Town, verb: &'static str, at_most: Duration) -> bool {
    let (gate, came) = waits(verb, at_most);
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);

    let report = run(town, &town.process_on(&store)).await;

    assert_eq!((report.mails.sent, town.mails().len()), (2, 2));
    let came = *came.lock().unwrap();
    came.expect("nobody called the verb")
}

async fn a_chunk_leaves_while_it_is_written_down_that_the_last_was_taken(fresh: Fresh) {
    let town = town_of_two(&fresh, "").await;

    assert!(leaves_meanwhile(&town, "settle", LONG).await);
}

async fn so_it_does_where_there_are_brands(fresh: Fresh) {
    let town = town_of_two(&fresh, "brands.acme.site.name = \"Acme\"\n").await;

    assert!(leaves_meanwhile(&town, "settle", LONG).await);
}

async fn no_chunk_leaves_before_it_is_written_down_that_the_last_was_not_taken(fresh: Fresh) {
    let town = town_of_two(&fresh, "").await;
    town.answer([busy()]);

    assert!(!leaves_meanwhile(&town, "defer", Duration::from_millis(500)).await);
}

/// A store that goes away for good in the middle of a run is asked no more for each chunk to come.
async fn after_a_chunk_has_failed_no_other_is_begun(fresh: Fresh) {
    const PEOPLE: usize = 40;
    let town = Town::found(&fresh, true, "delivery.chunk = 1\n").await;
    let people = town.crowd(PEOPLE).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.clock.set(monday(0));
    // In the third mail, whose chunk is found with those of all others.
    let (asked, handed_over) = (Arc::new(AtomicUsize::new(0)), AtomicUsize::new(0));
    let count = asked.clone();
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
    let request = Request::default();
    let digests = town.process_on(&counting).digests();
    digests.run(&request, &Silent).await.unwrap();
    let third = asked.load(Ordering::SeqCst);
    town.happens(&["a2"], to(&names)).await;
    town.clock.set(monday(1));

    let (fault, then) = (Fault::Refused, Then::StaysDown);
    let failing = FailingStore::new(town.store.clone(), third, fault, then);
    let store: Arc<dyn Store> = failing.clone();
    let run = town
        .process_on(&store)
        .digests()
        .run(&request, &Silent)
        .await;

    assert!(run.is_err());
    let (sent, after) = (town.mails().len() - PEOPLE, failing.calls() - third);
    assert!(sent < PEOPLE / 2, "{sent} were sent before it went away");
    assert!(after < PEOPLE / 4, "{after} more calls were made");
}

/// While the first chunk is at the provider, more time passes than a mail may be old, and what the
/// second tells is withdrawn.
async fn a_chunk_that_waited_long_for_its_turn_is_built_again(fresh: Fresh) {
    // Two to a chunk: their checks count from before they are built.
    let town = Town::found(&fresh, true, "delivery.chunk = 2\n").await;
    town.change("dee", |user| user.confirmed = true).await;
    town.happens(&["a1"], to(&PEOPLE)).await;
    let (town, built) = (Arc::new(town), Arc::new(Notify::new()));
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
            timeout(LONG, built.notified())
                .await
                .expect("the second chunk is not built meanwhile");
            later.put_works(&["a1"], |_| false).await;
            later.clock.advance(TimeDelta::minutes(1));
        }
        .boxed()
    });

    let report = run(&town, &town.process_on(&store)).await;

    assert_eq!((report.mails.sent, report.mails.canceled), (2, 2));
}
