//! The order of writes after a provider answers for a digest: first the outcome, then the markers,
//! and then the delivery is closed.
//!
//! A crash or a failure between two writes loses no event and emails none twice (P2, P4).

use std::sync::{Arc, Mutex};

use chrono::TimeDelta;
use futures::FutureExt;
use futures::future::ready;
use tidings::domain::DeliveryState;
use tidings::email::Certainty;
use tidings::engine::Silent;
use tidings::store::Store;

use super::sending::run;
use crate::support::town::{Town, lost, monday, mostly_on_sqlite, to};
use crate::support::{Before, FailingStore, Fresh, Shorthand, user};

mostly_on_sqlite! {
    a_sent_digest_is_settled_then_marked_and_closed
    an_unknown_outcome_is_recorded_before_its_markers_are_written
    a_failed_marker_write_still_records_the_email_as_sent
    the_outcome_is_stored_when_the_markers_are_written
    the_next_run_finishes_after_a_failed_settlement
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
fn in_first_call(certainty: Certainty) -> &'static [&'static str] {
    match certainty {
        Certainty::Never => &["ada"],
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

async fn a_sent_digest_is_settled_then_marked_and_closed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    assert_eq!(
        calls(&town).await,
        ["open", "hand_over", "settle", "write_markers", "close"]
    );

    assert_emailed_once(&town, &["ada", "ben"]).await;
}

async fn an_unknown_outcome_is_recorded_before_its_markers_are_written(fresh: Fresh) {
    let town = Town::with(&fresh, Certainty::Never, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([lost()]);

    let expected = ["open", "hand_over", "settle", "write_markers", "close"];
    assert_eq!(calls(&town).await, expected);

    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!((row.state, row.open), (DeliveryState::Unknown, false));
}

async fn a_failed_marker_write_still_records_the_email_as_sent(fresh: Fresh) {
    for certainty in [Certainty::Never, Certainty::Repeat { within: None }] {
        fresh.clear().await;
        let town = Town::with(&fresh, certainty, "").await;
        let users = in_first_call(certainty);
        town.happens(&["a1"], to(users)).await;
        town.clock.set(monday(0));
        let store: Arc<dyn Store> = FailingStore::of_verb(town.store.clone(), "write_markers", 0);
        let failing = town.process_on(&store);

        let report = failing.digests().run(&Default::default(), &Silent).await;

        assert!(report.is_err());
        for person in users {
            let row = town.deliveries_of(person).await.remove(0);
            assert_eq!((row.state, row.open), (DeliveryState::Sent, true));
        }
        town.clock.advance(TimeDelta::minutes(30));
        run(&town, &town.process()).await;
        assert_eq!(town.mails().len(), users.len(), "nothing is sent again");
        assert_emailed_once(&town, users).await;
    }
}

async fn the_outcome_is_stored_when_the_markers_are_written(fresh: Fresh) {
    let town = Town::with(&fresh, Certainty::Never, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let (inner, states) = (town.store.clone(), Arc::new(Mutex::new(Vec::new())));
    let noted = states.clone();
    let before: Before = Box::new(move |verb| {
        let (inner, noted) = (inner.clone(), noted.clone());
        match verb {
            "write_markers" => async move {
                let of_ada = inner.deliveries_of(&user("ada"), 1).await;
                noted.lock().unwrap().push(of_ada[0].state);
            }
            .boxed(),
            _ => ready(()).boxed(),
        }
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), before);

    run(&town, &town.process_on(&store)).await;

    assert_eq!(*states.lock().unwrap(), [DeliveryState::Sent]);
    assert_emailed_once(&town, &["ada"]).await;
}

async fn the_next_run_finishes_after_a_failed_settlement(fresh: Fresh) {
    let repeat = Certainty::Repeat { within: None };
    for certainty in [Certainty::Never, Certainty::Ask, repeat] {
        fresh.clear().await;
        let town = Town::with(&fresh, certainty, "").await;
        let users = in_first_call(certainty);
        town.happens(&["a1"], to(users)).await;
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
        for person in users {
            let row = town.deliveries_of(person).await.remove(0);
            assert_eq!((row.state, row.open), (expected, false));
        }
        assert_emailed_once(&town, users).await;
    }
}
