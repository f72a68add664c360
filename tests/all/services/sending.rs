//! The sender: every outcome of a call becomes a delivery state, and a run accounts for every user.
//!
//! A lost answer is resolved by a repeated call or a query where the provider allows one (P5).
//! Otherwise the delivery is `unknown`.

use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::{Cadence, DeliveryState};
use tidings::email::{Outcome, Resolution};
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::store::Store;
use tidings::wire::run_report::{DigestReport, EarlyEnd};
use tokio::sync::{Notify, watch};
use tokio::time::timeout;

use crate::support::town::{Call, Town, cut_off, lost, monday, mostly_on_sqlite, to};
use crate::support::{Before, FailingStore, Fresh, Shorthand};

mostly_on_sqlite! {
    a_run_retries_deferred_emails_and_accounts_for_every_user
    nothing_is_sent_before_the_retry_delay_of_the_provider_ends
    an_email_fails_after_the_configured_number_of_attempts
    a_run_without_progress_ends_and_reports_deferred_emails
    a_call_with_a_lost_answer_is_repeated_unchanged
    a_call_is_not_repeated_after_the_idempotency_window
    a_repeated_call_omits_an_opted_out_user_whose_email_stays_unknown
    an_omitted_email_is_sent_if_the_provider_accepted_the_first_call
    an_accepted_email_is_found_by_a_query_and_not_sent_again
    an_email_unknown_to_the_provider_is_sent_again_after_ten_minutes
    an_email_is_unknown_if_queries_fail_until_resolve_within
    a_dead_workers_call_is_resolved_as_a_whole
    an_email_that_waited_for_other_calls_is_checked_again
    emails_sent_alone_after_a_slow_shared_call_are_not_canceled
    an_email_that_waits_longer_than_its_lease_is_built_again
    calls_run_concurrently_once_the_provider_keeps_up
    a_call_continues_while_its_sender_waits_for_the_store
    a_worker_that_resumes_after_its_lease_sends_nothing
    a_run_waits_for_emails_that_a_killed_worker_has_leased
    a_stopped_run_sends_no_more_and_releases_its_leases
}

/// Runs digests as `tidings digest` does, at [`monday`] or later.
pub(super) async fn run(town: &Town, app: &App) -> DigestReport {
    let request =
        DigestRequest { patience: Some(TimeDelta::minutes(15)), ..DigestRequest::default() };
    town.clock.set(town.clock.now().max(monday(0)));
    let report = app.digests().run(&request, &NoProgress).await.unwrap();
    let emails = &report.emails;
    assert_eq!(
        emails.settled() + emails.deferred,
        report.due.users + report.left_over - report.due.busy - report.due.not_started,
        "everybody is accounted for: {report:?}"
    );
    report
}

fn later(after: Option<u64>) -> Outcome {
    Outcome::TryLater("busy".into(), after.map(Duration::from_secs))
}

pub(super) async fn state(town: &Town, person: &str) -> DeliveryState {
    town.deliveries_of(person).await[0].state
}

async fn a_run_retries_deferred_emails_and_accounts_for_every_user(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer([later(None), later(None)]);

    let report = run(&town, &town.process()).await;

    assert_eq!(report.due.users, 3);
    assert_eq!(report.emails.sent, 3);
    assert_eq!(report.emails.deferred, 0);
    assert_eq!((report.ended, report.emails.reasons), (None, Vec::new()));
    let waited = town.clock.now() - monday(0);
    assert!(waited >= TimeDelta::minutes(1) && waited < TimeDelta::minutes(3), "{waited}");
}

async fn nothing_is_sent_before_the_retry_delay_of_the_provider_ends(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.postbox.per_call.store(1, Ordering::Relaxed);
    town.answer([later(Some(600))]);

    let report = run(&town, &town.process()).await;

    assert_eq!(report.emails.sent, 3);
    let calls = town.calls();
    let early = calls[1..].iter().filter(|call| call.at < calls[0].at + TimeDelta::minutes(10));
    assert_eq!(early.count(), 0, "{calls:?}");
    // The refused user comes last. On a slow machine that can be any user.
    let is_refused = |call: &Call| call.deliveries == calls[0].deliveries;
    let refused: Vec<bool> = calls.iter().map(is_refused).collect();
    assert_eq!(refused, [true, false, false, true], "{calls:?}");
}

async fn an_email_fails_after_the_configured_number_of_attempts(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.attempts = 3\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([later(None), later(None), later(None)]);

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.failed, town.calls().len()), (1, 3));
    assert_eq!(report.emails.reasons, [("given up after 3 attempts: busy".to_owned(), 1)]);
    let references: std::collections::BTreeSet<_> =
        town.calls().into_iter().map(|call| call.reference).collect();
    assert_eq!(references.len(), 3, "each attempt is another call");
}

async fn a_run_without_progress_ends_and_reports_deferred_emails(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer((0..100).map(|_| later(None)));

    let report = run(&town, &town.process()).await;

    assert_eq!((report.ended, report.emails.settled()), (Some(EarlyEnd::Patience), 0));
    assert_eq!(report.emails.deferred + report.due.not_started, 3);
    let waited = town.clock.now() - monday(0);
    assert!(waited >= TimeDelta::minutes(15), "{waited}");
    assert!(town.emails().is_empty());
}

async fn a_call_with_a_lost_answer_is_repeated_unchanged(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.answer([lost(), lost()]);

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, report.emails.unknown), (2, 0));
    let calls = town.calls();
    assert_eq!(calls.len(), 2);
    assert_eq!(
        (&calls[0].reference, &calls[0].deliveries),
        (&calls[1].reference, &calls[1].deliveries)
    );
    assert_eq!(town.emails().len(), 2);
    assert_eq!(town.deliveries_of("ada").await[0].attempts.made, 1);
}

async fn a_call_is_not_repeated_after_the_idempotency_window(fresh: Fresh) {
    let within = Some(Duration::from_secs(3_600));
    let town = Town::with(&fresh, Resolution::Repeat { within }, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([cut_off()]);
    town.digests_at(monday(0)).await;

    town.clock.advance(TimeDelta::hours(2));
    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.unknown, town.calls().len()), (1, 1));
    assert_eq!(
        town.deliveries_of("ada").await[0].outcome.reason.as_deref(),
        Some("cut off on the way")
    );
}

/// Sends Ada's and Ben's emails in one call with this outcome. Ben then turns off digests.
async fn ben_opts_out_after_the_first_call(town: &Town, outcome: Outcome) {
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.answer([outcome.clone(), outcome]);
    let report = town.digests_at(monday(0)).await;
    assert_eq!((report.emails.deferred, report.emails.settled()), (2, 0));
    town.change("ben", |ben| ben.digest.cadence = Some(Cadence::Never)).await;
    town.clock.advance(TimeDelta::minutes(1));
}

async fn a_repeated_call_omits_an_opted_out_user_whose_email_stays_unknown(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    ben_opts_out_after_the_first_call(&town, cut_off()).await;

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, report.emails.unknown), (1, 1));
    assert_eq!(town.emails().len(), 1, "ben gets none");
    let row = town.deliveries_of("ben").await.remove(0);
    assert_eq!(
        row.outcome.reason.as_deref(),
        Some(
            "it may have been emailed before it was found that the person wants no digest any more"
        )
    );
}

async fn an_omitted_email_is_sent_if_the_provider_accepted_the_first_call(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    ben_opts_out_after_the_first_call(&town, lost()).await;

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, report.emails.unknown), (2, 0));
    assert_eq!(town.emails().len(), 2, "both were emailed the first time");
}

async fn an_accepted_email_is_found_by_a_query_and_not_sent_again(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Query, "").await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.answer([lost(), lost()]);

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, town.calls().len()), (2, 1));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.outcome.provider_id.unwrap(), format!("p:{}", row.id));
    let waited = town.clock.now() - monday(0);
    assert!(waited >= TimeDelta::minutes(2), "asked too soon: {waited}");
}

async fn an_email_unknown_to_the_provider_is_sent_again_after_ten_minutes(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Query, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([cut_off()]);

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, town.emails().len()), (1, 1));
    let calls = town.calls();
    assert_ne!(calls[0].reference, calls[1].reference);
    assert!(calls[1].at - calls[0].at >= TimeDelta::minutes(10), "{calls:?}");
}

async fn an_email_is_unknown_if_queries_fail_until_resolve_within(fresh: Fresh) {
    let config = "delivery.resolve_within = \"10m\"\n";
    let town = Town::with(&fresh, Resolution::Query, config).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.postbox.silent.store(1_000, Ordering::Relaxed);
    town.answer([lost()]);

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.unknown, town.calls().len()), (1, 1));
    assert_eq!(report.emails.reasons, [("the search is down".to_owned(), 1)]);
}

async fn a_dead_workers_call_is_resolved_as_a_whole(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 3\n").await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer([lost(), lost(), lost()]);
    town.digests_at(monday(0)).await;
    town.clock.advance(TimeDelta::minutes(6));

    // Two other workers lease one row of the call each.
    let (now, until) = (town.clock.now(), town.clock.now() + TimeDelta::minutes(5));
    let mut claimed = Vec::new();
    for worker in ["x", "y"] {
        claimed.extend(town.store.take(worker, now, until, 1).await);
    }
    let report = run(&town, &town.process()).await;

    assert_eq!((claimed.len(), report.left_over, report.emails.sent), (2, 3, 3));
    let calls = town.calls();
    assert_eq!((calls.len(), calls[1].deliveries.len()), (2, 3));
    assert_eq!(calls[0].reference, calls[1].reference);
}

async fn an_email_that_waited_for_other_calls_is_checked_again(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.happens(&["a2"], to(&["ben"])).await;
    town.postbox.per_call.store(1, Ordering::Relaxed);
    let (store, clock) = (town.store.clone(), town.clock.clone());
    town.meanwhile(move || {
        Box::pin(async move {
            clock.advance(TimeDelta::seconds(2));
            let withdrawn = tidings::domain::Object {
                notifiable: false,
                ..tidings::domain::Object::without_data("a2".parse().unwrap())
            };
            store.put_objects(&[withdrawn]).await.unwrap();
        })
    });

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, report.emails.canceled), (1, 1));
    assert!(town.emailed_to("ben").is_empty());
}

async fn emails_sent_alone_after_a_slow_shared_call_are_not_canceled(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 100\n").await;
    let people = town.crowd(6).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.postbox.per_call.store(3, Ordering::Relaxed);
    // The first call is refused because of one recipient. It takes a minute, so the checks of the
    // other emails are outdated.
    let reason = "one address is malformed".to_owned();
    town.answer(vec![Outcome::RefusedTogether(reason); 3]);
    let clock = town.clock.clone();
    town.meanwhile(move || Box::pin(async move { clock.advance(TimeDelta::minutes(1)) }));

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, report.emails.canceled), (6, 0));
    assert!(names.iter().all(|name| town.emailed_to(name) == ["a1"]));
}

async fn an_email_that_waits_longer_than_its_lease_is_built_again(fresh: Fresh) {
    let config = "delivery.chunk = 100\ndelivery.lease = \"10s\"\nmail.timeout = \"5s\"\n";
    let town = Town::found(&fresh, true, config).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.postbox.per_call.store(2, Ordering::Relaxed);
    // Recording the answer to the first call takes longer than the lease.
    let clock = town.clock.clone();
    let slow = async move { clock.advance(TimeDelta::seconds(11)) };
    let store = FailingStore::before(town.store.clone(), "settle", slow.boxed());
    let store: Arc<dyn Store> = store;

    let app = town.process_on(&store);
    let report = timeout(Duration::from_secs(60), run(&town, &app)).await;

    assert_eq!(report.expect("it goes round in circles").emails.sent, 3);
    assert_eq!(town.calls().len(), 2);
}

async fn calls_run_concurrently_once_the_provider_keeps_up(fresh: Fresh) {
    let config = "delivery.chunk = 100\ndelivery.in_flight = 3\n";
    let town = Town::found(&fresh, false, config).await;
    town.postbox.per_call.store(1, Ordering::Relaxed);
    let people = town.crowd(20).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    let process = town.process();
    assert_eq!(run(&town, &process).await.emails.sent, 20);
    town.happens(&["a2"], to(&["ada", "ben", "cem"])).await;
    // The provider answers none of the three calls before all have begun.
    *town.postbox.together.lock().unwrap() = Some(Arc::new(tokio::sync::Barrier::new(3)));
    town.clock.set(monday(1));

    let report = run(&town, &process).await;

    assert_eq!((report.emails.sent, town.emails().len()), (3, 23));
}

async fn a_call_continues_while_its_sender_waits_for_the_store(fresh: Fresh) {
    let config = "delivery.chunk = 20\ndelivery.in_flight = 2\n";
    let town = Arc::new(Town::found(&fresh, true, config).await);
    let people = town.crowd(13).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.postbox.per_call.store(1, Ordering::Relaxed);
    // After two calls, two run at a time. The third is answered only while the sender checks
    // whether the fourth may begin. That check returns once the third call is settled.
    let (answer, settled) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let asks = Arc::new(AtomicUsize::new(0));
    let sender = Mutex::new(None);
    let gate: Before = Box::new({
        let (town, asks) = (town.clone(), asks.clone());
        move |verb| {
            let (answer, settled) = (answer.clone(), settled.clone());
            // The sender reads stacks (`windows`). Its calls run in other tasks.
            let (task, mut sender) = (tokio::task::try_id(), sender.lock().unwrap());
            if verb == "windows" && task.is_some() {
                *sender = task;
            }
            let by_sender = verb == "notes" && task.is_some() && *sender == task;
            if verb == "settle" && asks.load(Ordering::SeqCst) == 2 {
                settled.notify_one();
            }
            let after_two = by_sender && town.calls().len() >= 2;
            let ask = after_two.then(|| asks.fetch_add(1, Ordering::SeqCst));
            if ask == Some(0) {
                let answer = answer.clone();
                town.meanwhile(move || async move { answer.notified().await }.boxed());
            }
            async move {
                if ask == Some(1) {
                    answer.notify_one();
                    settled.notified().await;
                }
            }
            .boxed()
        }
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), gate);

    let app = town.process_on(&store);
    let report = timeout(Duration::from_secs(60), run(&town, &app)).await;

    assert_eq!(report.expect("it hangs").emails.sent, 13);
    assert!(asks.load(Ordering::SeqCst) > 2);
}

async fn a_worker_that_resumes_after_its_lease_sends_nothing(fresh: Fresh) {
    let may_ask = [Resolution::Query, Resolution::Repeat { within: None }];
    for certainty in may_ask.into_iter().chain([Resolution::Impossible]) {
        fresh.clear().await;
        let town = Arc::new(Town::with(&fresh, certainty, "").await);
        town.happens(&["a1"], to(&["ada", "ben"])).await;
        // The worker is suspended after its last check and before the call arrives, for longer than
        // its lease and than any query takes.
        let meanwhile = town.clone();
        town.meanwhile(move || {
            async move {
                meanwhile.clock.advance(TimeDelta::hours(1));
                run(&meanwhile, &meanwhile.process()).await;
            }
            .boxed()
        });

        run(&town, &town.process()).await;

        let twice: Vec<_> = town.emailed().into_iter().filter(|(_, n)| *n > 1).collect();
        assert!(twice.is_empty(), "{certainty:?}: {twice:?}");
        // With `Certainty::Never` the first call has one email, whose outcome stays unknown.
        let emailed = if certainty == Resolution::Impossible { 1 } else { 2 };
        assert_eq!(town.emails().len(), emailed, "{certainty:?}");
    }
}

async fn a_stopped_run_sends_no_more_and_releases_its_leases(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 10\n").await;
    let people = town.crowd(9).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.postbox.per_call.store(1, Ordering::Relaxed);
    let (stop, stopped) = watch::channel(false);
    let app = town.process();
    app.set_shutdown_signal(&stopped);
    // The stop arrives during the first call.
    town.meanwhile(move || async move { stop.send(true).unwrap() }.boxed());

    let report = run(&town, &app).await;
    let next = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, report.ended), (0, Some(EarlyEnd::Stopped)));
    assert_eq!((next.emails.sent, next.due.busy), (9, 0), "nothing is held");
    assert!(town.emailed().values().all(|times| *times == 1));
}

async fn a_run_waits_for_emails_that_a_killed_worker_has_leased(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.answer([later(None), later(None)]);
    town.digests_at(monday(0)).await;
    town.clock.advance(TimeDelta::minutes(10));
    let now = town.clock.now();
    let lease = now + TimeDelta::minutes(5);
    let leased = town.store.take("killed", now, lease, 9).await;

    let report = run(&town, &town.process()).await;

    assert_eq!((leased.len(), report.emails.sent, report.due.busy), (2, 2, 0));
    assert_eq!(report.ended, None);
    assert!(town.clock.now() >= lease);
}
