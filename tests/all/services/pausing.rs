//! Pausing and pacing: too many failures, bounces or complaints pause all sending until an operator
//! resumes it. Also covers samples.

use std::time::Duration;

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::{Feedback, ReportKind};
use tidings::email::Outcome;
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::wire::run_report::{DigestReport, EarlyEnd};

use crate::support::Fresh;
use crate::support::town::{Town, monday, mostly_on_sqlite, to};

mostly_on_sqlite! {
    a_stop_from_the_provider_pauses_all_processes_until_a_resume
    too_large_a_share_of_failures_pauses_sending
    few_failures_do_not_pause_sending
    failures_before_a_resume_no_longer_count_in_any_process
    bounces_and_complaints_pause_sending_and_do_not_count_after_a_resume
    three_lost_answers_in_a_row_stop_further_calls
    a_paused_worker_sends_nothing_and_reports_the_pause
    forty_refused_emails_an_hour_pause_sending_in_the_second_hour
    a_retry_delay_for_one_process_applies_to_all
    a_clock_a_day_ahead_does_not_delay_other_processes
    undeliverable_addresses_do_not_pause_sending
    digests_that_keep_failing_do_not_pause_other_emails
    a_resume_cancels_the_retry_delay_of_the_provider
}

pub(super) async fn run(town: &Town, request: DigestRequest) -> DigestReport {
    let request = DigestRequest { patience: Some(TimeDelta::minutes(15)), ..request };
    town.clock.set(town.clock.now().max(monday(0)));
    let report = town.process().digests().run(&request, &NoProgress).await;
    let report = report.unwrap();
    assert_eq!(
        report.emails.settled() + report.emails.deferred,
        report.due.users + report.left_over - report.due.busy - report.due.not_started,
        "everybody is accounted for: {report:?}"
    );
    report
}

pub(super) fn reason(report: &DigestReport) -> &str {
    match &report.ended {
        Some(EarlyEnd::Paused(pause)) => &pause.reason,
        other => panic!("not paused: {other:?}"),
    }
}

async fn a_stop_from_the_provider_pauses_all_processes_until_a_resume(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 1\n").await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer([Outcome::Accepted("1".into()), Outcome::Stop("the key is revoked".into())]);

    let first = run(&town, DigestRequest::default()).await;
    let meanwhile = run(&town, DigestRequest::default()).await;
    let calls = town.calls().len();
    let resumed = town.process().deliveries().resume().await.unwrap().unwrap();
    let last = run(&town, DigestRequest::default()).await;

    assert_eq!(reason(&first), "the key is revoked");
    // The third delivery may or may not exist when the second is refused. It waits in both cases.
    let waits = first.emails.deferred + first.due.not_started;
    assert_eq!((first.emails.sent, waits), (1, 2));
    assert_eq!(reason(&meanwhile), "the key is revoked");
    assert_eq!((meanwhile.emails.sent, calls), (0, 2));
    assert_eq!(resumed.at, monday(0));
    assert_eq!((last.emails.sent, last.ended), (2, None));
    assert!(town.emailed().values().all(|times| *times == 1));
}

fn refused() -> Outcome {
    Outcome::Refused("no such mailbox".into())
}

fn accepted() -> Outcome {
    Outcome::Accepted("1".into())
}

async fn too_large_a_share_of_failures_pauses_sending(fresh: Fresh) {
    let config = "delivery.chunk = 1\ndelivery.stop_after = 2\ndelivery.stop_share = \"49%\"\n";
    let town = Town::found(&fresh, true, config).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer([accepted(), refused()]);

    let report = run(&town, DigestRequest::default()).await;

    assert_eq!(
        reason(&report),
        "1 of the last 2 emails failed, more than delivery.stop_share of 49%"
    );
    let waits = report.emails.deferred + report.due.not_started;
    assert_eq!((report.emails.sent, report.emails.failed, waits), (1, 1, 1));
    assert_eq!(town.calls().len(), 2);
}

async fn failures_before_a_resume_no_longer_count_in_any_process(fresh: Fresh) {
    let config = "delivery.chunk = 1\ndelivery.stop_after = 2\ndelivery.stop_share = \"49%\"\n";
    let town = Town::found(&fresh, true, config).await;
    let now = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
    let worker = town.process();
    let send_by_worker = async |work: &str, person: &str| {
        town.happens(&[work], to(&[person])).await;
        town.clock.set(town.clock.now().max(monday(0)));
        worker.digests().run(&now, &NoProgress).await.unwrap()
    };
    // One email is fewer than `delivery.stop_after`.
    town.answer([refused()]);
    assert_eq!(send_by_worker("a1", "ada").await.emails.failed, 1);
    // Another process pauses sending, and an operator resumes it.
    let stop = Outcome::Stop("suspended".into());
    town.answer([stop]);
    town.happens(&["a2"], to(&["ben"])).await;
    assert_eq!(reason(&run(&town, now.clone()).await), "suspended");
    assert_eq!(reason(&send_by_worker("a3", "cem").await), "suspended");
    town.process().deliveries().resume().await.unwrap();

    let after = send_by_worker("a4", "cem").await;

    // Ada's failed digest is retried with the others.
    assert_eq!((after.emails.sent, after.ended), (3, None));
}

async fn few_failures_do_not_pause_sending(fresh: Fresh) {
    let config = "delivery.chunk = 1\ndelivery.stop_after = 2\ndelivery.stop_share = \"50%\"\n";
    let town = Town::found(&fresh, true, config).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer([accepted(), refused(), accepted()]);

    let report = run(&town, DigestRequest::default()).await;

    assert_eq!((report.emails.sent, report.emails.failed), (2, 1));
    assert_eq!(report.ended, None);
}

async fn bounces_and_complaints_pause_sending_and_do_not_count_after_a_resume(fresh: Fresh) {
    let config = "delivery.stop_after = 20\ndelivery.stop_bounces = \"24%\"\n";
    let town = Town::found(&fresh, true, config).await;
    let people = town.crowd(20).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    let report = async |people: &[&str], news| {
        let at = town.clock.now();
        for person in people {
            let id = town.deliveries_of(person).await[0].id.clone();
            let feedback = Feedback { news, at };
            town.store.note_feedback(&[(id, feedback)]).await.unwrap();
        }
    };
    town.happens(&["a1"], to(&names)).await;
    assert_eq!(run(&town, DigestRequest::default()).await.emails.sent, 20);

    let now = DigestRequest { ignore_hours: true, ..DigestRequest::default() };

    // Four complaints in twenty emails exceed 0.3 %, but fewer than five never pause sending.
    report(&names[..4], ReportKind::Bounced).await;
    report(&names[10..14], ReportKind::Complained).await;
    town.happens(&["a2"], to(&["ada"])).await;
    let few = run(&town, now.clone()).await;
    report(&names[4..6], ReportKind::Bounced).await;
    town.happens(&["a3"], to(&["ben"])).await;
    let bounced = run(&town, now.clone()).await;
    town.clock.set(town.clock.now() + TimeDelta::minutes(1));
    town.process().deliveries().resume().await.unwrap();
    let resumed = run(&town, now.clone()).await;
    town.happens(&["a4"], to(&names)).await;
    let next_week = town.digests_at(monday(1)).await;
    report(&names[..5], ReportKind::Complained).await;
    town.happens(&["a5"], to(&["cem"])).await;
    let complained = run(&town, now.clone()).await;

    assert_eq!((few.emails.sent, &few.ended), (1, &None));
    assert_eq!(
        reason(&bounced),
        "6 of the last 21 emails bounced, more than delivery.stop_bounces of 24%"
    );
    assert_eq!((bounced.emails.sent, bounced.emails.deferred), (0, 1));
    assert_eq!((resumed.emails.sent, resumed.ended), (1, None));
    assert_eq!(next_week.emails.sent, 20);
    assert_eq!(
        reason(&complained),
        "5 of the last 20 emails were reported as spam, more than delivery.stop_complaints of 0.3%"
    );
}

async fn three_lost_answers_in_a_row_stop_further_calls(fresh: Fresh) {
    let town = Town::found(&fresh, false, "delivery.chunk = 10\n").await;
    let people = town.crowd(9).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    town.postbox.per_call.store(1, std::sync::atomic::Ordering::Relaxed);
    town.answer((0..9).map(|_| crate::support::town::cut_off()));
    town.clock.set(monday(0));

    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.emails.unknown, report.emails.deferred), (3, 6));
}

async fn a_paused_worker_sends_nothing_and_reports_the_pause(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.answer([Outcome::Stop("suspended".into())]);
    run(&town, DigestRequest::default()).await;
    let (worker, mut scanned) = (town.process().worker(), None);

    let held = worker.round(&mut scanned, &NoProgress).await.unwrap();
    let emails_while_paused = town.emails().len();
    town.process().deliveries().resume().await.unwrap();
    let free = worker.round(&mut scanned, &NoProgress).await.unwrap();

    assert_eq!(held.paused.unwrap().reason, "suspended");
    assert!(held.digests.is_none() && emails_while_paused < 2);
    assert_eq!(free.paused, None);
    assert_eq!(town.emails().len(), 2);
}

async fn digests_that_keep_failing_do_not_pause_other_emails(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 100\n").await;
    let people = town.crowd(60).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    let success = Outcome::Accepted("1".into());
    town.answer(vec![refused(); 10]);
    town.answer(vec![success; 50]);
    town.answer(vec![refused(); 500]);

    let mut failed = 0;
    for hour in 0..48 {
        let report = town.digests_at(monday(0) + TimeDelta::hours(hour)).await;
        failed += report.emails.failed;
    }

    // The first try, and retries after another 1, 2, 4, 8 and 16 hours.
    assert_eq!(failed, 6 * 10);
    assert_eq!(town.process().deliveries().current_pause().await.unwrap(), None);
}

async fn a_resume_cancels_the_retry_delay_of_the_provider(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 10\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([Outcome::TryLater(
        "the day's quota is used up".into(),
        Some(Duration::from_secs(24 * 60 * 60)),
    )]);
    let (one, other) = (town.process(), town.process());
    let now = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
    town.clock.set(monday(0));
    one.digests().run(&now, &NoProgress).await.unwrap();
    town.happens(&["a2"], to(&["ben", "cem"])).await;
    other.digests().run(&now, &NoProgress).await.unwrap();
    let while_closed = town.emails().len();

    other.deliveries().resume().await.unwrap();
    town.clock.advance(TimeDelta::minutes(1));
    one.digests().run(&now, &NoProgress).await.unwrap();

    assert_eq!((while_closed, town.emails().len()), (0, 3));
}

async fn forty_refused_emails_an_hour_pause_sending_in_the_second_hour(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 100\n").await;
    let people = town.crowd(80).await;
    town.answer((0..120).map(|_| refused()));
    let mut ended = Vec::new();
    // As with cron, each hour has a new process.
    for hour in people.chunks(40) {
        let names: Vec<&str> = hour.iter().map(String::as_str).collect();
        town.happens(&["a1"], to(&names)).await;
        let now = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
        ended.push(run(&town, now).await);
        town.clock.advance(TimeDelta::hours(1));
    }

    assert_eq!((ended[0].emails.failed, &ended[0].ended), (40, &None));
    let paused = town.process().deliveries().current_pause().await.unwrap().unwrap();
    assert_eq!(
        paused.reason,
        // The second hour also retried the emails of the first.
        "120 of the last 120 emails failed, more than delivery.stop_share of 20%"
    );
}

async fn a_retry_delay_for_one_process_applies_to_all(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 10\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([Outcome::TryLater("429".into(), Some(Duration::from_secs(600)))]);
    town.digests_at(monday(0)).await;
    town.happens(&["a2"], to(&["ben"])).await;
    let now = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
    let send_by_another = async |at| {
        town.clock.set(at);
        town.process().digests().run(&now, &NoProgress).await.unwrap()
    };

    send_by_another(monday(0) + TimeDelta::minutes(9)).await;
    let meanwhile = town.calls().len();
    send_by_another(monday(0) + TimeDelta::minutes(12)).await;

    assert_eq!(meanwhile, 1, "only the one that was told to wait");
    assert_eq!(town.emails().len(), 2);
}

async fn a_clock_a_day_ahead_does_not_delay_other_processes(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 10\n").await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([Outcome::TryLater("429".into(), Some(Duration::from_secs(60)))]);
    // This process records the provider's delay by a clock that is a day ahead.
    town.digests_at(monday(0) + TimeDelta::days(1)).await;
    town.clock.set(monday(0));
    town.happens(&["a2"], to(&["ben"])).await;

    run(&town, DigestRequest { ignore_hours: true, ..DigestRequest::default() }).await;

    assert!(!town.emailed_to("ben").is_empty());
}

async fn undeliverable_addresses_do_not_pause_sending(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 100\n").await;
    let people = town.crowd(100).await;
    let names: Vec<&str> = people.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    let dead = || Outcome::Undeliverable("no such mailbox".into());
    town.answer((0..100).map(|n| if n % 2 == 0 { dead() } else { accepted() }));

    let report = run(&town, DigestRequest::default()).await;

    assert_eq!((report.emails.sent, report.emails.failed), (50, 50));
    assert_eq!(report.ended, None);
}
