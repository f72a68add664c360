//! Tests of emails with an unknown outcome (P5): queries, repeated calls, settling by hand, and
//! that no event is lost.

use std::sync::atomic::Ordering;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use tidings::app::App;
use tidings::clock::Clock;
use tidings::domain::delivery::OperatorDecision;
use tidings::domain::{Cadence, DeliveryState};
use tidings::email::{Outcome, Resolution};
use tidings::engine::NoProgress;
use tidings::engine::delivery::operator_actions::SettledCounts;
use tidings::engine::digest::DigestRequest;
use tidings::store::TimeRange;

use super::sending::{run, state};
use crate::support::Fresh;
use crate::support::town::{Town, cut_off, lost, monday, mostly_on_sqlite, refused, to};

mostly_on_sqlite! {
    an_unknown_email_that_is_settled_as_not_sent_is_sent
    an_unknown_email_that_is_settled_as_sent_is_not_resent
    an_unknown_email_that_is_rejected_later_is_unknown_again
    a_call_is_not_queried_or_repeated_at_another_account
    a_wait_that_a_query_requests_also_delays_sends
    a_requested_wait_starts_when_the_answer_arrives
    an_email_excluded_from_a_repeated_call_does_not_fail
    an_email_whose_query_succeeds_reports_its_events
    unknown_emails_can_be_settled_by_call_and_by_time
}

/// Returns the id of ada's unknown email. A later one was sent.
async fn with_an_unknown_email(town: &Town) -> tidings::domain::DeliveryId {
    town.clock.set(monday(0) - TimeDelta::hours(1));
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([cut_off()]);
    assert_eq!(town.digests_at(monday(0)).await.emails.unknown, 1);
    town.happens(&["a2"], to(&["ada"])).await;
    let next: DateTime<Utc> = monday(0) + TimeDelta::days(1);
    town.change("ada", |ada| ada.digest.cadence = Some(Cadence::Daily)).await;
    assert_eq!(town.digests_at(next).await.emails.sent, 1);
    assert_eq!(town.emailed_to("ada"), ["a2"]);
    let rows = town.deliveries_of("ada").await;
    let unknown = rows.iter().find(|row| row.state == DeliveryState::Unknown);
    unknown.unwrap().id.clone()
}

async fn an_unknown_email_that_is_settled_as_not_sent_is_sent(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    let unknown = with_an_unknown_email(&town).await;

    let app = town.process();
    app.deliveries().settle(&unknown, OperatorDecision::NotSent).await.unwrap();
    let report = run(&town, &app).await;
    let again = app.deliveries().settle(&unknown, OperatorDecision::NotSent).await;

    assert_eq!((report.left_over, report.emails.sent), (1, 1));
    assert_eq!(town.emailed_to("ada"), ["a1", "a2"]);
    assert!(town.emailed().values().all(|times| *times == 1));
    let refused = again.unwrap_err().to_string();
    assert!(refused.ends_with(" is sent, not unknown"), "{refused}");
}

async fn an_unknown_email_that_is_settled_as_sent_is_not_resent(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    let unknown = with_an_unknown_email(&town).await;

    let app = town.process();
    app.deliveries().settle(&unknown, OperatorDecision::Sent).await.unwrap();
    let report = run(&town, &app).await;

    assert_eq!(report.emails.settled(), 0);
    assert_eq!(town.emailed_to("ada"), ["a2"]);
    assert_eq!(state(&town, "ada").await, DeliveryState::Sent);
}

async fn an_unknown_email_that_is_rejected_later_is_unknown_again(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    let unknown = with_an_unknown_email(&town).await;
    let app = town.process();
    let settle = async || {
        app.deliveries().settle(&unknown, OperatorDecision::NotSent).await.unwrap();
    };

    settle().await;
    town.answer([refused("no")]);
    let refused = run(&town, &app).await;
    settle().await;
    let accepted = run(&town, &app).await;

    // The events are already marked. If the email failed, no later email would include them.
    assert_eq!((refused.emails.unknown, refused.emails.failed), (1, 0));
    assert_eq!(accepted.emails.sent, 1);
    assert_eq!(town.emailed_to("ada"), ["a1", "a2"]);
}

async fn a_call_is_not_queried_or_repeated_at_another_account(fresh: Fresh) {
    for certainty in [Resolution::Repeat { within: None }, Resolution::Query] {
        fresh.clear().await;
        let town = Town::with(&fresh, certainty, "").await;
        town.happens(&["a1"], to(&["ada"])).await;
        town.answer([lost()]);
        assert_eq!(town.digests_at(monday(0)).await.emails.deferred, 1);

        *town.postbox.account.lock().unwrap() = "another postbox";
        town.clock.advance(TimeDelta::minutes(15));
        let report = run(&town, &town.process()).await;

        assert_eq!((report.emails.unknown, report.emails.sent), (1, 0));
        assert_eq!(town.calls().len(), 1, "{certainty:?}");
    }
}

async fn a_wait_that_a_query_requests_also_delays_sends(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Query, "delivery.chunk = 1\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([lost()]);
    let process = town.process();
    run_briefly(&town, &process, monday(0)).await;
    town.postbox.silent.store(1, Ordering::Relaxed);
    *town.postbox.after.lock().unwrap() = Some(Duration::from_secs(3600));
    town.happens(&["a2"], to(&["ben"])).await;
    let queried_at = monday(0) + TimeDelta::minutes(3);

    run_briefly(&town, &process, queried_at).await;
    run_briefly(&town, &process, queried_at + TimeDelta::minutes(59)).await;
    let meanwhile = town.calls().len();
    run_briefly(&town, &process, queried_at + TimeDelta::minutes(61)).await;

    assert_eq!(meanwhile, 1, "only ada's");
    assert_eq!(town.emailed_to("ben"), ["a2"]);
    assert_eq!(state(&town, "ada").await, DeliveryState::Sent);
}

async fn a_requested_wait_starts_when_the_answer_arrives(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Query, "delivery.chunk = 1\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([lost()]);
    let process = town.process();
    run_briefly(&town, &process, monday(0)).await;
    town.postbox.silent.store(1, Ordering::Relaxed);
    *town.postbox.after.lock().unwrap() = Some(Duration::from_secs(10));
    // Measured from the query, the wait would be over before the answer arrives.
    *town.postbox.ask_takes.lock().unwrap() = TimeDelta::seconds(15);
    town.happens(&["a2"], to(&["ben"])).await;

    run_briefly(&town, &process, monday(0) + TimeDelta::minutes(3)).await;
    let meanwhile = town.calls().len();
    run_briefly(&town, &process, town.clock.now() + TimeDelta::seconds(11)).await;

    assert_eq!(meanwhile, 1, "only ada's");
    assert_eq!(town.emailed_to("ben"), ["a2"]);
}

/// Runs the digests of this process at this time, without waiting for deferred emails.
async fn run_briefly(town: &Town, process: &App, at: DateTime<Utc>) {
    town.clock.set(at);
    let now = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
    process.digests().run(&now, &NoProgress).await.unwrap();
}

async fn an_email_excluded_from_a_repeated_call_does_not_fail(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Repeat { within: None }, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    let unsendable = Outcome::Unsendable("it has no recipient any more".into());
    town.answer([cut_off(), unsendable]);

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.failed, report.emails.sent), (0, 1));
    assert_eq!(town.emailed_to("ada"), ["a1"]);
}

async fn an_email_whose_query_succeeds_reports_its_events(fresh: Fresh) {
    let town = Town::with(&fresh, Resolution::Query, "").await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    town.answer([lost()]);

    let report = run(&town, &town.process()).await;

    assert_eq!((report.emails.sent, report.emails.events), (1, 2));
    assert_eq!(town.deliveries_of("ada").await[0].outcome.items, 2);
}

async fn unknown_emails_can_be_settled_by_call_and_by_time(fresh: Fresh) {
    let town = Town::found(&fresh, false, "delivery.chunk = 10\n").await;
    let ledger = town.process().deliveries();
    for (week, person) in ["ada", "ben", "cem"].into_iter().enumerate() {
        town.clock.set(monday(week as i64) - TimeDelta::hours(1));
        town.happens(&["a1"], to(&[person])).await;
        town.answer([cut_off()]);
        town.digests_at(monday(week as i64)).await;
    }
    let call = town.deliveries_of("ada").await[0].attempts.call.clone();
    let of_last = TimeRange { since: Some(monday(2)), until: None };

    let (first, last) = (
        ledger.find_unknown(call.as_deref(), &TimeRange::default()).await,
        ledger.find_unknown(None, &of_last).await,
    );
    let sent = ledger.settle_all(&first.unwrap(), OperatorDecision::Sent).await;
    let last = last.unwrap();
    let not_sent = ledger.settle_all(&last, OperatorDecision::NotSent).await.unwrap();
    let again = ledger.settle_all(&last, OperatorDecision::NotSent).await.unwrap();

    let one = SettledCounts { settled: 1, busy: 0 };
    assert_eq!((sent.unwrap(), not_sent, again), (one, one, SettledCounts::default()));
    assert_eq!(state(&town, "ada").await, DeliveryState::Sent);
    assert_eq!(state(&town, "ben").await, DeliveryState::Unknown);
    assert_eq!(state(&town, "cem").await, DeliveryState::Pending);
}
