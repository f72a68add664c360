//! Tests of late digests (P3): a wanted event that leaves the window is emailed later, or it
//! expires and is reported.

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use tidings::clock::Clock;
use tidings::domain::{Day, DeliveryId, DeliveryState, PendingCounts};
use tidings::email::Outcome;
use tidings::engine::NoProgress;
use tidings::engine::archive;
use tidings::engine::digest::DigestRequest;
use tidings::wire::archive::{DayFate, DayReport};
use tidings::wire::run_report::DigestReport;

use crate::support::town::{Town, monday, mostly_on_sqlite, request, to};
use crate::support::{Fresh, keep_days, user};

mostly_on_sqlite! {
    a_run_two_days_late_includes_all_pending_events
    a_weekday_chosen_after_a_digest_applies_from_the_next_week
    a_change_to_a_time_zone_further_west_loses_no_event
    an_event_repeated_after_the_opt_in_is_emailed
    a_failed_digest_is_retried_within_its_period
    failed_digests_can_be_retried_by_hand_singly_or_all
    the_next_digest_includes_all_events_of_a_failed_one
    a_provider_outage_of_hours_fails_no_delivery
    a_delivery_fails_after_give_up_after_and_its_events_are_sent_later
    events_older_than_max_age_expire_once_and_can_be_archived
    events_of_an_open_delivery_do_not_expire
    older_days_are_read_only_while_they_have_a_backlog
    the_backlog_of_the_last_full_run_is_reported
    an_event_fanned_out_after_its_day_was_clear_is_emailed
    a_flush_clears_the_backlog_of_older_days
    a_day_with_a_backlog_is_kept_until_it_is_emailed
    a_restored_day_is_scanned_again
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// Fans out one event to ada at this time.
async fn event(town: &Town, time: &str, work: &str) {
    town.clock.set(at(time));
    town.happens(&[work], to(&["ada"])).await;
}

fn refused(times: usize) -> Vec<Outcome> {
    let reason = "550 not now".to_owned();
    vec![Outcome::Refused(reason); times]
}

fn unreachable(times: usize) -> Vec<Outcome> {
    let reason = "connection refused".to_owned();
    vec![Outcome::Unreachable(reason); times]
}

/// Returns the works in ada's emails, in order. Fails if a user was emailed a work twice.
fn emailed_works(town: &Town) -> Vec<String> {
    assert!(town.emailed().values().all(|times| *times == 1), "{:?}", town.emailed());
    town.emailed_to("ada")
}

async fn a_run_two_days_late_includes_all_pending_events(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-21T10:00:00Z", "a1").await;
    event(&town, "2014-04-22T10:00:00Z", "a2").await;
    event(&town, "2014-04-25T10:00:00Z", "a3").await;

    let dry_run = DigestRequest {
        at: Some(at("2014-04-30T09:00:00Z")),
        dry_run: true,
        ..DigestRequest::default()
    };
    let digests = town.process().digests();
    let predicted = digests.run(&dry_run, &NoProgress).await.unwrap();
    let late = town.digests_at(at("2014-04-30T09:00:00Z")).await;

    assert_eq!(emailed_works(&town), ["a1", "a2", "a3"]);
    let backlog = PendingCounts { users: 1, events: 2 };
    assert_eq!((predicted.backlog.backlog, late.backlog.backlog), (backlog, backlog));
    assert_eq!((predicted.due.events, late.emails.events), (3, 3));
}

async fn a_weekday_chosen_after_a_digest_applies_from_the_next_week(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.digests_at(monday(0)).await;
    town.clock.set(at("2014-04-22T10:00:00Z"));
    town.change("ada", |ada| ada.digest.weekday = Some(Weekday::Sun)).await;
    event(&town, "2014-04-23T10:00:00Z", "a2").await;

    let explained = town.process().explain().user(&user("ada"), None).await.unwrap();
    town.digests_at(at("2014-04-27T09:00:00Z")).await;
    assert_eq!(emailed_works(&town), ["a1"], "the week has one email");
    event(&town, "2014-04-27T10:00:00Z", "a3").await;
    town.digests_at(at("2014-05-04T09:00:00Z")).await;

    assert_eq!(explained.digest.unwrap().next_due, Some(at("2014-05-04T09:00:00Z")));
    assert_eq!(emailed_works(&town), ["a1", "a2", "a3"]);
}

async fn an_event_repeated_after_the_opt_in_is_emailed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-22T10:00:00Z", "a1").await;
    town.change("ada", |ada| ada.digest.since = Some(at("2014-04-23T10:00:00Z"))).await;
    event(&town, "2014-04-24T10:00:00Z", "a1").await;
    event(&town, "2014-04-24T11:00:00Z", "a2").await;

    town.digests_at(monday(1)).await;

    assert_eq!(emailed_works(&town), ["a1", "a2"]);
}

async fn a_change_to_a_time_zone_further_west_loses_no_event(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.change("ada", |ada| {
        ada.tz = Some(Tz::Pacific__Kiritimati);
        ada.digest.hour = Some(0);
    })
    .await;
    event(&town, "2014-04-19T11:00:00Z", "a1").await;
    town.digests_at(at("2014-04-20T10:00:00Z")).await;
    event(&town, "2014-04-20T11:00:00Z", "a2").await;
    town.change("ada", |ada| {
        ada.tz = Some(Tz::Pacific__Honolulu);
        ada.digest.hour = Some(23);
    })
    .await;

    town.digests_at(at("2014-04-22T09:00:00Z")).await;
    let within_the_week = emailed_works(&town);
    town.digests_at(at("2014-04-29T09:00:00Z")).await;

    assert_eq!(within_the_week, ["a1"], "the same Monday has one email");
    assert_eq!(emailed_works(&town), ["a1", "a2"]);
}

async fn a_failed_digest_is_retried_within_its_period(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.answer(refused(2));

    let first = town.digests_at(at("2014-04-21T09:00:00Z")).await;
    let soon = town.digests_at(at("2014-04-21T09:30:00Z")).await;
    let explained = town.process().explain().user(&user("ada"), None).await.unwrap();
    let second = town.digests_at(at("2014-04-21T10:00:00Z")).await;
    let between = town.digests_at(at("2014-04-21T11:30:00Z")).await;
    let third = town.digests_at(at("2014-04-21T12:15:00Z")).await;

    let failed = |report: &DigestReport| (report.emails.failed, report.users.failed_already);
    assert_eq!((failed(&first), failed(&soon)), ((1, 0), (0, 1)));
    assert_eq!(soon.users.emailed_already, 0, "nothing was emailed");
    assert_eq!(soon.users.next_retry, Some(at("2014-04-21T10:00:00Z")));
    assert_eq!(explained.digest.unwrap().next_due, soon.users.next_retry);
    assert_eq!((failed(&second), failed(&between)), ((1, 0), (0, 1)));
    assert_eq!(third.emails.sent, 1);
    assert_eq!(emailed_works(&town), ["a1"]);
    let rows = town.deliveries_of("ada").await;
    assert_eq!((rows.len(), rows[0].state), (1, DeliveryState::Sent));
}

async fn failed_digests_can_be_retried_by_hand_singly_or_all(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.clock.set(at("2014-04-20T10:00:00Z"));
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.answer(refused(3));
    town.digests_at(monday(0)).await;
    let ledger = town.process().deliveries();
    let id = |person: &str| DeliveryId::stored(format!("digest:{person}:weekly:2014-W17"));

    let one = ledger.retry(&[id("ada"), id("nobody")]).await.unwrap();
    town.digests_at(monday(0) + TimeDelta::minutes(1)).await;
    let after_one = town.emailed().len();
    let all = ledger.retry_all(None).await.unwrap();
    town.digests_at(monday(0) + TimeDelta::minutes(2)).await;
    let nothing = ledger.retry_all(None).await.unwrap();

    assert_eq!((one.reopened, one.not_failed), (1, vec![id("nobody")]));
    assert_eq!((after_one, all.reopened, nothing.reopened), (1, 2, 0));
    assert_eq!(town.emailed().values().sum::<usize>(), 3);
}

async fn the_next_digest_includes_all_events_of_a_failed_one(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-19T10:00:00Z", "a1").await;
    event(&town, "2014-04-20T10:00:00Z", "a2").await;
    town.answer(refused(1));
    town.digests_at(at("2014-04-21T09:00:00Z")).await;
    event(&town, "2014-04-25T10:00:00Z", "a3").await;

    let next = town.digests_at(at("2014-04-28T09:00:00Z")).await;

    assert_eq!(next.backlog.backlog, PendingCounts { users: 1, events: 2 });
    assert_eq!(emailed_works(&town), ["a1", "a2", "a3"]);
}

async fn a_provider_outage_of_hours_fails_no_delivery(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.attempts = 3\n").await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.answer(unreachable(20));

    let mut failed = 0;
    for quarter in 0..4 * 24 {
        let time = at("2014-04-21T09:00:00Z") + TimeDelta::minutes(15 * quarter);
        failed += town.digests_at(time).await.emails.failed;
    }

    assert_eq!((failed, emailed_works(&town)), (0, vec!["a1".to_owned()]));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!((row.state, row.attempts.failed), (DeliveryState::Sent, 0));
    assert!(row.attempts.made > 3, "{} attempts", row.attempts.made);
}

async fn a_delivery_fails_after_give_up_after_and_its_events_are_sent_later(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.answer(unreachable(1_000));
    let mut failed = 0;
    for hour in 0..49 {
        let time = at("2014-04-21T09:00:00Z") + TimeDelta::hours(hour);
        failed += town.digests_at(time).await.emails.failed;
    }
    let row = town.deliveries_of("ada").await.remove(0);
    town.postbox.takes_everything();

    town.digests_at(at("2014-04-28T09:00:00Z")).await;

    assert_eq!(failed, 1);
    assert_eq!(row.state, DeliveryState::Failed, "{row:?}");
    assert_eq!(emailed_works(&town), ["a1"]);
}

async fn events_older_than_max_age_expire_once_and_can_be_archived(fresh: Fresh) {
    let town = Town::found(&fresh, true, "digest.max_age = \"20d\"\n").await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.happens(&["a2"], to(&["ada", "ben", "dee"])).await;
    event(&town, "2014-05-01T10:00:00Z", "a3").await;

    let late = town.digests_at(at("2014-05-12T09:00:00Z")).await;
    let again = town.digests_at(at("2014-05-12T09:15:00Z")).await;
    let reported = town.process().backlog().summary().await.unwrap();
    town.clock.set(at("2014-06-30T10:00:00Z"));
    let days = archive_days(&town).await;

    let day: Day = "20140420".parse().unwrap();
    // dee is one of the three. She has not confirmed her address.
    let expired = PendingCounts { users: 3, events: 4 };
    let blocked = PendingCounts { users: 1, events: 1 };
    assert_eq!(late.backlog.expired_blocked, blocked);
    assert!(late.backlog.expired.into_iter().eq([(day, expired)]));
    assert!(again.backlog.expired.is_empty());
    assert_eq!(reported.expired.get(&day), Some(&expired));
    assert_eq!(emailed_works(&town), ["a3"]);
    assert!(days.iter().all(|day| matches!(day.fate, DayFate::Dropped { .. })), "{days:?}");
}

/// Archives the days before the window, without force.
async fn archive_days(town: &Town) -> Vec<DayReport> {
    let request = keep_days(8);
    let mut days = Vec::new();
    let archive = town.process().archive();
    archive.run(&request, &NoProgress, &mut days).await.unwrap();
    days
}

async fn events_of_an_open_delivery_do_not_expire(fresh: Fresh) {
    let config = "digest.max_age = \"14d\"\ndelivery.give_up_after = \"30d\"\n";
    let town = Town::found(&fresh, true, config).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.answer(unreachable(1));
    town.digests_at(at("2014-04-21T09:00:00Z")).await;
    let again = at("2014-05-06T09:00:00Z");
    town.answer([Outcome::TryLater("busy".into(), Some(std::time::Duration::from_secs(3_600)))]);

    let waiting = town.digests_at(again).await;
    let kept = archive_days(&town).await;
    town.digests_at(again + TimeDelta::hours(2)).await;

    assert!(waiting.backlog.expired.is_empty(), "{waiting:?}");
    assert!(matches!(kept[0].fate, DayFate::NotEmailed { users: 1, events: 1 }), "{kept:?}");
    assert_eq!(emailed_works(&town), ["a1"]);
}

/// Returns the days before the window that the next run reads.
async fn days_to_read(town: &Town) -> Vec<String> {
    let backlog = town.process().backlog();
    let reach = backlog.days_to_read(town.clock.now());
    let scan = backlog.old_days(&reach).await.unwrap();
    scan.mailable.iter().map(|old| old.day.to_string()).collect()
}

async fn older_days_are_read_only_while_they_have_a_backlog(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.digests_at(monday(0)).await;
    event(&town, "2014-04-22T10:00:00Z", "a2").await;
    town.clock.set(at("2014-05-01T10:00:00Z"));
    let unread = days_to_read(&town).await;

    let late = town.digests_at(at("2014-05-01T10:00:00Z")).await;
    let remaining = days_to_read(&town).await;
    town.digests_at(at("2014-05-01T10:15:00Z")).await;
    let clear = days_to_read(&town).await;

    assert_eq!(unread, ["20140420", "20140422"]);
    assert_eq!((late.emails.sent, remaining), (1, vec!["20140422".to_owned()]));
    assert!(clear.is_empty(), "{clear:?}");
    assert_eq!(emailed_works(&town), ["a1", "a2"]);
}

async fn the_backlog_of_the_last_full_run_is_reported(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.answer(unreachable(1));

    town.digests_at(at("2014-05-01T10:00:00Z")).await;
    let waiting = town.process().backlog().summary().await.unwrap();
    town.digests_at(at("2014-05-01T12:00:00Z")).await;
    town.digests_at(at("2014-05-01T12:15:00Z")).await;
    let emailed = town.process().backlog().summary().await.unwrap();

    assert_eq!((waiting.events, waiting.blocked_events), (1, 0));
    assert_eq!((emailed.events, emailed.blocked_events), (0, 0));
}

async fn an_event_fanned_out_after_its_day_was_clear_is_emailed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    let app = town.process();
    let late = vec![request(&["a2"], to(&["ada"]), None)];
    app.notify().accept(late).await.unwrap();
    town.digests_at(monday(0)).await;
    town.digests_at(at("2014-05-01T10:00:00Z")).await;
    assert!(days_to_read(&town).await.is_empty());

    app.fanouts().drain(&NoProgress).await.unwrap();
    town.digests_at(at("2014-05-05T09:00:00Z")).await;

    assert_eq!(emailed_works(&town), ["a1", "a2"]);
}

async fn a_flush_clears_the_backlog_of_older_days(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    event(&town, "2014-04-29T10:00:00Z", "a2").await;
    town.clock.set(at("2014-05-01T10:00:00Z"));

    let flushed = town.process().backlog().flush(&user("ada")).await.unwrap();
    let run = town.digests_at(at("2014-05-01T10:00:00Z")).await;

    assert_eq!(flushed, 2);
    assert_eq!(run.due.users, 0);
    assert_eq!(run.backlog.backlog, PendingCounts::default());
    assert!(emailed_works(&town).is_empty() && days_to_read(&town).await.is_empty());
}

async fn a_day_with_a_backlog_is_kept_until_it_is_emailed(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    town.clock.set(at("2014-05-02T10:00:00Z"));

    let before = archive_days(&town).await;
    town.digests_at(at("2014-05-02T10:00:00Z")).await;
    let after = archive_days(&town).await;

    assert!(matches!(before[0].fate, DayFate::NotEmailed { users: 1, events: 1 }), "{before:?}");
    assert!(matches!(after[0].fate, DayFate::Dropped { .. }), "{after:?}");
    assert_eq!(emailed_works(&town), ["a1"]);
}

async fn a_restored_day_is_scanned_again(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    event(&town, "2014-04-20T10:00:00Z", "a1").await;
    let folder = tempfile::tempdir().unwrap();
    town.clock.set(at("2014-05-02T10:00:00Z"));
    let forced = archive::ArchiveRequest {
        export: Some(folder.path().to_owned()),
        force: true,
        ..keep_days(8)
    };
    let (archive, mut days) = (town.process().archive(), Vec::new());
    archive.run(&forced, &NoProgress, &mut days).await.unwrap();
    let DayFate::Dropped { file: Some(file) } = &days[0].fate else {
        panic!("{days:?}");
    };
    town.digests_at(at("2014-05-02T10:15:00Z")).await;

    archive.restore(file, &NoProgress).await.unwrap();
    let now = DigestRequest { ignore_hours: true, ..DigestRequest::default() };
    town.process().digests().run(&now, &NoProgress).await.unwrap();

    assert_eq!(emailed_works(&town), ["a1"]);
}
