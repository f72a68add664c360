//! What a provider took is marked before it is settled, so that it is closed in the same write: as
//! few writes as that, and nothing is lost or told twice wherever it stops.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use futures::future::{pending, ready};
use tidings::domain::DeliveryState;
use tidings::email::Certainty;
use tidings::engine::Silent;
use tidings::store::Store;
use tokio::time::timeout;

use super::sending::run;
use crate::support::town::{Town, lost, monday, on_both_stores, to};
use crate::support::{Before, FailingStore, Fresh, Shorthand, user};

on_both_stores! {
    a_digest_that_was_taken_is_marked_and_then_settled_and_closed_in_one
    what_nobody_saw_the_end_of_is_noted_before_it_is_marked
    where_markers_cannot_be_written_it_is_noted_that_the_mail_was_sent
    stacks_that_do_not_answer_are_not_waited_for_before_it_is_noted
    whoever_stops_between_the_marker_and_the_note_is_replaced
}

/// What is asked of the ledger and the stacks while everybody is mailed.
async fn calls(town: &Town) -> Vec<&'static str> {
    let called = Arc::new(Mutex::new(Vec::new()));
    let counted = called.clone();
    let before = Box::new(move |verb: &'static str| {
        if ["open", "hand_over", "mark", "settle", "close"].contains(&verb) {
            counted.lock().unwrap().push(verb);
        }
        Box::pin(ready(())) as _
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), before);
    run(town, &town.process_on(&store)).await;
    called.lock().unwrap().clone()
}

/// Who is in the first call of a process: a provider that cannot be asked gets one email at first.
fn in_first_call(certainty: Certainty) -> &'static [&'static str] {
    match certainty {
        Certainty::Never => &["ada"],
        _ => &["ada", "ben"],
    }
}

/// Everybody was told of `a1` once, of `a2` once with the next digest, and nothing is left open.
async fn told_once(town: &Town, everybody: &[&str]) {
    town.happens(&["a2"], to(everybody)).await;
    town.digests_at(monday(1)).await;
    for person in everybody {
        assert_eq!(town.told_to(person), ["a1", "a2"], "{person}");
        let rows = town.deliveries_of(person).await;
        assert!(rows.iter().all(|row| !row.open), "{rows:?}");
    }
}

async fn a_digest_that_was_taken_is_marked_and_then_settled_and_closed_in_one(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    assert_eq!(calls(&town).await, ["open", "hand_over", "mark", "settle"]);

    told_once(&town, &["ada", "ben"]).await;
}

async fn what_nobody_saw_the_end_of_is_noted_before_it_is_marked(fresh: Fresh) {
    let town = Town::with(&fresh, Certainty::Never, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([lost()]);

    let expected = ["open", "hand_over", "settle", "mark", "close"];
    assert_eq!(calls(&town).await, expected);

    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!((row.state, row.open), (DeliveryState::Unknown, false));
}

async fn where_markers_cannot_be_written_it_is_noted_that_the_mail_was_sent(fresh: Fresh) {
    for certainty in [Certainty::Never, Certainty::Repeat { within: None }] {
        fresh.clear().await;
        let town = Town::with(&fresh, certainty, "").await;
        let everybody = in_first_call(certainty);
        town.happens(&["a1"], to(everybody)).await;
        town.clock.set(monday(0));
        let store: Arc<dyn Store> = FailingStore::of_verb(town.store.clone(), "mark", 0);
        let failing = town.process_on(&store);

        let report = failing.digests().run(&Default::default(), &Silent).await;

        assert!(report.is_err());
        for person in everybody {
            let row = town.deliveries_of(person).await.remove(0);
            assert_eq!((row.state, row.open), (DeliveryState::Sent, true));
        }
        town.clock.advance(TimeDelta::minutes(30));
        run(&town, &town.process()).await;
        assert_eq!(town.mails().len(), everybody.len(), "nothing is sent again");
        told_once(&town, everybody).await;
    }
}

async fn stacks_that_do_not_answer_are_not_waited_for_before_it_is_noted(fresh: Fresh) {
    let town = Town::with(&fresh, Certainty::Never, "delivery.lease = \"10s\"\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let (inner, states) = (town.store.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = states.clone();
    let marks = AtomicUsize::new(0);
    let hangs: Before = Box::new(move |verb| {
        let (inner, noted) = (inner.clone(), noted.clone());
        match (verb == "mark").then(|| marks.fetch_add(1, Ordering::Relaxed)) {
            Some(0) => pending().boxed(),
            Some(_) => async move {
                let of_ada = inner.deliveries_of(&user("ada"), 1).await.unwrap();
                noted.lock().unwrap().push(of_ada[0].state);
            }
            .boxed(),
            None => ready(()).boxed(),
        }
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), hangs);

    let process = town.process_on(&store);
    let running = timeout(Duration::from_secs(60), run(&town, &process));
    running.await.expect("it waits for stacks that hang");

    assert_eq!(*states.lock().unwrap(), [DeliveryState::Sent]);
    told_once(&town, &["ada"]).await;
}

async fn whoever_stops_between_the_marker_and_the_note_is_replaced(fresh: Fresh) {
    let repeat = Certainty::Repeat { within: None };
    for certainty in [Certainty::Never, Certainty::Ask, repeat] {
        fresh.clear().await;
        let town = Town::with(&fresh, certainty, "").await;
        let everybody = in_first_call(certainty);
        town.happens(&["a1"], to(everybody)).await;
        town.clock.set(monday(0));
        let store: Arc<dyn Store> = FailingStore::of_verb(town.store.clone(), "settle", 0);
        let stopped = town.process_on(&store);

        let report = stopped.digests().run(&Default::default(), &Silent).await;

        assert!(report.is_err());
        let row = town.deliveries_of("ada").await.remove(0);
        assert_eq!((row.state, row.open), (DeliveryState::Sending, true));
        town.clock.advance(TimeDelta::minutes(30));
        run(&town, &town.process()).await;
        let expected = match certainty {
            Certainty::Never => DeliveryState::Unknown,
            _ => DeliveryState::Sent,
        };
        for person in everybody {
            let row = town.deliveries_of(person).await.remove(0);
            assert_eq!((row.state, row.open), (expected, false));
        }
        told_once(&town, everybody).await;
    }
}
