//! The order of writes after a provider accepts a digest: first the markers, then one write that
//! settles and closes the delivery. An unknown outcome is recorded before the markers.
//!
//! A crash or a failure between the two writes loses no event and emails none twice (P2, P4).

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use futures::future::{pending, ready};
use tidings::domain::DeliveryState;
use tidings::email::Resolution;
use tidings::engine::NoProgress;
use tidings::store::Store;
use tokio::time::timeout;

use super::sending::run;
use crate::support::town::{Town, lost, monday, mostly_on_sqlite, to};
use crate::support::{Before, FailingStore, Fresh, Shorthand, user};

mostly_on_sqlite! {
    a_sent_digest_is_marked_then_settled_and_closed_in_one_write
    an_unknown_outcome_is_recorded_before_its_markers_are_written
    a_failed_marker_write_still_records_the_email_as_sent
    a_hanging_marker_write_does_not_delay_recording_the_outcome
    the_next_run_finishes_after_a_crash_between_marking_and_settling
}

/// Runs digests, and returns the calls to the ledger and the stacks in order.
async fn calls(town: &Town) -> Vec<&'static str> {
    let called = Arc::new(Mutex::new(Vec::new()));
    let counted = called.clone();
    let before = Box::new(move |verb: &'static str| {
        if ["open", "hand_over", "write_markers", "settle", "close"].contains(&verb) {
            counted.lock().unwrap().push(verb);
        }
        Box::pin(ready(())) as _
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), before);
    run(town, &town.process_on(&store)).await;
    called.lock().unwrap().clone()
}

/// Returns the users in a process's first call. With `Certainty::Never` that call has one email.
fn in_first_call(certainty: Resolution) -> &'static [&'static str] {
    match certainty {
        Resolution::Impossible => &["ada"],
        _ => &["ada", "ben"],
    }
}

/// Sends the next digest, with `a2`. Checks that each user got both works once and that no delivery
/// is open.
async fn assert_emailed_once(town: &Town, users: &[&str]) {
    town.happens(&["a2"], to(users)).await;
    town.digests_at(monday(1)).await;
    for person in users {
        assert_eq!(town.emailed_to(person), ["a1", "a2"], "{person}");
        let rows = town.deliveries_of(person).await;
        assert!(rows.iter().all(|row| !row.open), "{rows:?}");
    }
}

async fn a_sent_digest_is_marked_then_settled_and_closed_in_one_write(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    assert_eq!(calls(&town).await, ["open", "hand_over", "write_markers", "settle"]);

    assert_emailed_once(&town, &["ada", "ben"]).await;
}

async fn an_unknown_outcome_is_recorded_before_its_markers_are_written(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Impossible, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([lost()]);

    let expected = ["open", "hand_over", "settle", "write_markers", "close"];
    assert_eq!(calls(&town).await, expected);

    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!((row.state, row.open), (DeliveryState::Unknown, false));
}

async fn a_failed_marker_write_still_records_the_email_as_sent(fresh: Fresh) {
    for certainty in [Resolution::Impossible, Resolution::Repeat { within: None }] {
        fresh.clear().await;
        let town = Town::with(&fresh, certainty, "").await;
        let users = in_first_call(certainty);
        town.happens(&["a1"], to(users)).await;
        town.clock.set(monday(0));
        let store: Arc<dyn Store> = FailingStore::of_verb(town.store.clone(), "write_markers", 0);
        let failing = town.process_on(&store);

        let report = failing.digests().run(&Default::default(), &NoProgress).await;

        assert!(report.is_err());
        for person in users {
            let row = town.deliveries_of(person).await.remove(0);
            assert_eq!((row.state, row.open), (DeliveryState::Sent, true));
        }
        town.clock.advance(TimeDelta::minutes(30));
        run(&town, &town.process()).await;
        assert_eq!(town.emails().len(), users.len(), "nothing is sent again");
        assert_emailed_once(&town, users).await;
    }
}

async fn a_hanging_marker_write_does_not_delay_recording_the_outcome(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Impossible, "delivery.lease = \"10s\"\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let (inner, states) = (town.store.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = states.clone();
    let marks = AtomicUsize::new(0);
    let hangs: Before = Box::new(move |verb| {
        let (inner, noted) = (inner.clone(), noted.clone());
        match (verb == "write_markers").then(|| marks.fetch_add(1, Ordering::Relaxed)) {
            Some(0) => pending().boxed(),
            Some(_) => async move {
                let of_ada = inner.deliveries_of(&user("ada"), 1).await;
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
    assert_emailed_once(&town, &["ada"]).await;
}

async fn the_next_run_finishes_after_a_crash_between_marking_and_settling(fresh: Fresh) {
    let repeat = Resolution::Repeat { within: None };
    for certainty in [Resolution::Impossible, Resolution::Query, repeat] {
        fresh.clear().await;
        let town = Town::with(&fresh, certainty, "").await;
        let users = in_first_call(certainty);
        town.happens(&["a1"], to(users)).await;
        town.clock.set(monday(0));
        let store: Arc<dyn Store> = FailingStore::of_verb(town.store.clone(), "settle", 0);
        let stopped = town.process_on(&store);

        let report = stopped.digests().run(&Default::default(), &NoProgress).await;

        assert!(report.is_err());
        let row = town.deliveries_of("ada").await.remove(0);
        assert_eq!((row.state, row.open), (DeliveryState::Sending, true));
        town.clock.advance(TimeDelta::minutes(30));
        run(&town, &town.process()).await;
        let expected = match certainty {
            Resolution::Impossible => DeliveryState::Unknown,
            _ => DeliveryState::Sent,
        };
        for person in users {
            let row = town.deliveries_of(person).await.remove(0);
            assert_eq!((row.state, row.open), (expected, false));
        }
        assert_emailed_once(&town, users).await;
    }
}
