//! What a provider asks one worker to wait for holds for all, up to the moment at which a call is
//! made.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use futures::future::BoxFuture;
use tidings::domain::DeliveryState;
use tidings::mail::Outcome;
use tidings::services::Silent;
use tidings::services::digest::{Request, Timing};
use tidings::store::Store;

use super::sending::run;
use crate::support::town::{Town, monday, on_both_stores, to};
use crate::support::{FailingStore, Fresh, user};

on_both_stores! {
    three_workers_never_call_while_one_of_them_was_told_to_wait
    a_short_wait_that_another_heard_of_is_waited_out
    an_app_makes_no_more_calls_a_second_than_it_is_told
}

/// The step with which a worker notes that it is about to call the provider.
const NOTES_ITS_CALL: &str = "hand_over";

/// A worker that mails this person, and right before it notes its call another one does what it has
/// to do.
fn meanwhile(town: &Town, person: &str, other: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
    let watched = FailingStore::before(town.store.clone(), NOTES_ITS_CALL, other);
    let store: Arc<dyn Store> = watched.clone();
    let digests = town.process_on(&store).digests();
    let request = Request {
        timing: Timing::Now,
        users: Some(vec![user(person)]),
        ..Request::default()
    };
    Box::pin(async move {
        digests.run(&request, &Silent).await.unwrap();
        assert!(watched.verbs().contains(NOTES_ITS_CALL));
    })
}

/// Three workers that are all about to make a call, of which the first is told to wait.
async fn told_to_wait(fresh: &Fresh, after: Duration) -> Town {
    let town = Town::found(fresh, true, "delivery.chunk = 1\n").await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer([Outcome::TryLater {
        reason: "429".into(),
        after: Some(after),
    }]);
    town.clock.set(monday(0));
    let nobody = Box::pin(std::future::ready(()));
    let second = meanwhile(&town, "ben", meanwhile(&town, "ada", nobody));
    meanwhile(&town, "cem", second).await;
    town
}

async fn three_workers_never_call_while_one_of_them_was_told_to_wait(fresh: Fresh) {
    let town = told_to_wait(&fresh, Duration::from_secs(600)).await;
    let told = town.calls();
    let cem = town.deliveries_of("cem").await.remove(0);

    town.clock.set(monday(0) + TimeDelta::minutes(11));
    town.process().sender().drain().await.unwrap();

    assert_eq!(told.len(), 1, "only ada's: {told:?}");
    assert_eq!(
        (cem.state, cem.tries_spent, cem.reason.as_deref()),
        (DeliveryState::Pending, 0, Some("it waits for its turn"))
    );
    assert_eq!(town.mails().len(), 3);
}

async fn a_short_wait_that_another_heard_of_is_waited_out(fresh: Fresh) {
    let town = told_to_wait(&fresh, Duration::from_secs(30)).await;

    let calls = town.calls();
    assert_eq!(calls.len(), 3);
    let early = |at| at < calls[0].at + TimeDelta::seconds(30);
    assert!(!calls[1..].iter().any(|call| early(call.at)), "{calls:?}");
}

async fn an_app_makes_no_more_calls_a_second_than_it_is_told(fresh: Fresh) {
    let smtp =
        "mail.provider = \"smtp\"\nmail.smtp_host = \"localhost\"\nmail.from = \"a@b.example\"\n";
    let pace = "mail.calls_per_second = 5\ndelivery.in_flight = 9\n";
    let town = Town::found(&fresh, true, &format!("{smtp}{pace}delivery.chunk = 100\n")).await;
    let people = town.crowd(6).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.postbox.per_call.store(1, Ordering::Relaxed);
    let begun = Instant::now();

    let report = run(&town, &town.process()).await;

    assert_eq!(report.mails.sent, 6);
    assert!(begun.elapsed() >= Duration::from_secs(1), "{begun:?}");
}
