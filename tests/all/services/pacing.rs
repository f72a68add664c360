//! A provider's retry delay applies to all workers, up to the moment of a call. At that moment the
//! checks of an email are at most two seconds old (P6, P7).

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use chrono::TimeDelta;
use futures::future::BoxFuture;
use tidings::domain::{Address, DeliveryState, User};
use tidings::email::Outcome;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::store::Store;

use super::sending::run;
use crate::support::town::{Town, monday, mostly_on_sqlite, to};
use crate::support::{FailingStore, Fresh, kind, user};

mostly_on_sqlite! {
    a_retry_delay_for_one_worker_applies_to_all_three
    a_change_takes_effect_within_two_seconds_even_with_slow_calls
    a_change_takes_effect_when_the_store_is_slow_before_the_call
    fresh_checks_cost_at_most_one_store_call_per_email
    a_retry_delay_does_not_enlarge_the_next_portion
    an_app_respects_calls_per_second
}

/// The store call by which a worker records that it is about to call the provider.
const RECORDS_CALL: &str = "hand_over";

/// Returns a worker that emails `person` and runs `other` right before it records its call.
fn meanwhile(town: &Town, person: &str, other: BoxFuture<'static, ()>) -> BoxFuture<'static, ()> {
    let watched = FailingStore::before(town.store.clone(), RECORDS_CALL, other);
    let store: Arc<dyn Store> = watched.clone();
    let digests = town.process_on(&store).digests();
    let request = DigestRequest {
        ignore_hours: true,
        users: Some(vec![user(person)]),
        ..DigestRequest::default()
    };
    Box::pin(async move {
        digests.run(&request, &NoProgress).await.unwrap();
        assert!(watched.verbs().contains(RECORDS_CALL));
    })
}

/// Runs three workers that are all about to call. The provider delays the first by `after`.
async fn with_retry_delay(fresh: &Fresh, after: Duration) -> Town {
    let town = Town::found(fresh, true, "delivery.chunk = 1\n").await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer([Outcome::TryLater("429".into(), Some(after))]);
    town.clock.set(monday(0));
    let nothing = Box::pin(std::future::ready(()));
    let second = meanwhile(&town, "ben", meanwhile(&town, "ada", nothing));
    meanwhile(&town, "cem", second).await;
    town
}

async fn a_retry_delay_for_one_worker_applies_to_all_three(fresh: Fresh) {
    let town = with_retry_delay(&fresh, Duration::from_secs(600)).await;
    let calls = town.calls();
    let cem = town.deliveries_of("cem").await.remove(0);

    town.clock.set(monday(0) + TimeDelta::minutes(12));
    town.process().sender().drain().await.unwrap();

    assert_eq!(calls.len(), 1, "only ada's: {calls:?}");
    assert_eq!(cem.state, DeliveryState::Pending);
    assert_eq!(cem.attempts.failed, 0);
    assert_eq!(cem.outcome.reason.as_deref(), Some("the provider may not be called yet"));
    assert_eq!(town.emails().len(), 3);
}

/// Returns a town with a digest due for each of `users` users, one email per call.
async fn crowd_of(fresh: &Fresh, users: usize) -> Arc<Town> {
    let town = Town::found(fresh, true, "delivery.chunk = 1000\n").await;
    let users = town.crowd(users).await;
    let names: Vec<&str> = users.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.postbox.per_call.store(1, Ordering::Relaxed);
    town.clock.set(monday(0));
    Arc::new(town)
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Change {
    ObjectWithdrawn,
    EventRetracted,
    OptedOut,
    AddressChanged,
}

impl Change {
    async fn make(self, town: &Town, users: usize) {
        match self {
            Self::ObjectWithdrawn => town.put_works(&["a1"], |_| false).await,
            Self::EventRetracted => {
                let work = ["a1".parse().unwrap()];
                let objects = town.process().objects();
                objects.retract(&kind("ArtworkPublished"), &work).await.unwrap();
            }
            Self::OptedOut | Self::AddressChanged => {
                for n in 0..users {
                    let changed = |user: &mut User| match self {
                        Self::OptedOut => user.unsubscribed = Some(monday(0)),
                        _ => user.email = Address::new(format!("p{n}@new.example")).ok(),
                    };
                    town.change(&format!("p{n}"), changed).await;
                }
            }
        }
    }
}

async fn a_change_takes_effect_within_two_seconds_even_with_slow_calls(fresh: Fresh) {
    for change in
        [Change::ObjectWithdrawn, Change::EventRetracted, Change::OptedOut, Change::AddressChanged]
    {
        fresh.clear().await;
        let town = crowd_of(&fresh, 40).await;
        *town.postbox.send_takes.lock().unwrap() = TimeDelta::milliseconds(300);
        // The change happens during the first call.
        let changed = town.clone();
        town.meanwhile(move || Box::pin(async move { change.make(&changed, 40).await }));

        let report = run(&town, &town.process()).await;

        let (calls, emails) = (town.calls(), town.emails());
        assert_eq!(calls.len(), emails.len());
        let outdated = calls.iter().zip(&emails).filter(|(call, email)| {
            let is_late = call.at - monday(0) > TimeDelta::seconds(2);
            is_late && !email.to.reveal().ends_with("@new.example")
        });
        assert_eq!(outdated.count(), 0, "{change:?}");
        let sent = if change == Change::AddressChanged { 40 } else { emails.len() as u64 };
        assert_eq!((report.emails.sent, report.emails.canceled), (sent, 40 - sent), "{change:?}");
        assert!(emails.len() == 40 || emails.len() < 8, "{change:?}");
    }
}

async fn a_change_takes_effect_when_the_store_is_slow_before_the_call(fresh: Fresh) {
    let town = crowd_of(&fresh, 1).await;
    let changed = town.clone();
    let slow = async move {
        changed.clock.advance(TimeDelta::seconds(3));
        Change::ObjectWithdrawn.make(&changed, 1).await;
    };
    let store: Arc<dyn Store> =
        FailingStore::before(town.store.clone(), RECORDS_CALL, Box::pin(slow));

    let report = run(&town, &town.process_on(&store)).await;

    assert_eq!((report.emails.sent, report.emails.canceled), (0, 1));
    assert_eq!(town.calls(), []);
}

/// Also at twenty emails per second, the default limit of SMTP.
async fn fresh_checks_cost_at_most_one_store_call_per_email(fresh: Fresh) {
    let mut cost = Vec::new();
    for takes in [0, 50] {
        fresh.clear().await;
        let town = crowd_of(&fresh, 300).await;
        *town.postbox.send_takes.lock().unwrap() = TimeDelta::milliseconds(takes);
        let store = FailingStore::counting(town.store.clone());
        let counted: Arc<dyn Store> = store.clone();

        let report = run(&town, &town.process_on(&counted)).await;

        assert_eq!(report.emails.sent, 300);
        cost.push(store.calls());
    }
    assert!(cost[1] <= cost[0] + 300, "{cost:?}");
}

/// A portion contains the emails that are checked together.
async fn a_retry_delay_does_not_enlarge_the_next_portion(fresh: Fresh) {
    let town = crowd_of(&fresh, 40).await;
    // Four emails can be sent while their checks are fresh.
    *town.postbox.send_takes.lock().unwrap() = TimeDelta::milliseconds(300);
    // The first call of the second portion closes the throttle.
    town.answer(vec![Outcome::Accepted("1".into()); 4]);
    town.answer([Outcome::TryLater("429".into(), Some(Duration::from_secs(600)))]);

    let report = run(&town, &town.process()).await;

    assert_eq!(report.emails.sent, 40);
    assert_eq!(town.postbox.portions.lock().unwrap()[..3], [40, 4, 4]);
}

async fn an_app_respects_calls_per_second(fresh: Fresh) {
    let smtp =
        "mail.provider = \"smtp\"\nmail.smtp_host = \"localhost\"\nmail.from = \"a@b.example\"\n";
    let pace = "mail.calls_per_second = 5\ndelivery.in_flight = 9\n";
    let town = Town::found(&fresh, true, &format!("{smtp}{pace}delivery.chunk = 100\n")).await;
    let people = town.crowd(6).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.postbox.per_call.store(1, Ordering::Relaxed);
    let started = Instant::now();

    let report = run(&town, &town.process()).await;

    assert_eq!(report.emails.sent, 6);
    assert!(started.elapsed() >= Duration::from_secs(1), "{started:?}");
}
