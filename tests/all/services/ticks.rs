//! Ticks of a worker: a tick scans only the users whose digest hour has come, and misses no user
//! that a full scan would find.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use tidings::clock::Clock;
use tidings::domain::user::DigestPreference;
use tidings::domain::{Address, Cadence, User};
use tidings::email::{Outcome, Resolution};
use tidings::engine::NoProgress;
use tidings::engine::digest::DigestRequest;
use tidings::store::Store;
use tidings::wire::run_report::DigestReport;

use crate::support::town::{Town, followers_of, mostly_on_sqlite, refused, request, to};
use crate::support::{FailingStore, Fault, Fresh, Then, user};

mostly_on_sqlite! {
    a_tick_scans_only_users_whose_digest_hour_has_come
    the_next_tick_makes_up_for_a_missed_one
    the_next_tick_makes_up_for_a_failed_one
    users_held_back_by_a_pause_are_emailed_after_the_resume
    an_event_fanned_out_late_is_emailed_by_the_next_tick
    a_backdated_event_accepted_late_is_emailed_by_the_next_tick
    a_user_with_an_open_delivery_is_scanned_again_once_it_is_settled
    a_tick_retries_a_failed_digest
    a_full_scan_runs_at_the_configured_interval
    a_changed_default_schedule_starts_a_full_scan
    a_recorded_scan_in_the_future_is_ignored
    a_full_scan_finds_no_user_that_ticks_have_missed
}

/// The first tick is a full scan. For a day after it, ticks scan only users whose hour has come.
const RARELY: &str = "digest.full_scan = \"1d\"\n";

fn at(text: &str) -> DateTime<Utc> {
    format!("2014-04-{text}:00Z").parse().unwrap()
}

/// Runs a tick of a new worker at this time in April 2014.
async fn tick(town: &Town, text: &str) -> DigestReport {
    town.clock.set(at(text));
    let mut report = DigestReport::default();
    town.process().digests().tick(&mut report, &NoProgress).await.unwrap();
    report
}

/// Gives Ada a daily digest at this hour in UTC. The other digests are due on Mondays at 09:00.
async fn ada_at(town: &Town, hour: u8) {
    town.change("ada", |ada| {
        ada.digest.cadence = Some(Cadence::Daily);
        ada.digest.hour = Some(hour);
    })
    .await;
}

fn sent(report: &DigestReport) -> (u64, u64) {
    (report.users.scanned, report.emails.sent)
}

async fn a_tick_scans_only_users_whose_digest_hour_has_come(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;

    let full = tick(&town, "20T07:45").await;
    let early = tick(&town, "20T07:59").await;
    let due = tick(&town, "20T08:00").await;
    let again = tick(&town, "20T08:15").await;
    let idle = tick(&town, "20T08:30").await;

    let seen = [full, early, due, again, idle].map(|report| sent(&report));
    assert_eq!(seen, [(3, 0), (0, 0), (1, 1), (1, 0), (0, 0)]);
    assert_eq!(town.emailed_to("ada"), ["a1"]);
}

async fn the_next_tick_makes_up_for_a_missed_one(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "20T07:45").await;

    let late = tick(&town, "20T17:30").await;

    assert_eq!(sent(&late), (1, 1));
}

async fn the_next_tick_makes_up_for_a_failed_one(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "20T07:45").await;
    town.clock.set(at("20T08:00"));

    // Each attempt fails at a later store call, until one succeeds.
    let mut failed = 0;
    loop {
        let failing: Arc<dyn Store> =
            FailingStore::new(town.store.clone(), failed, Fault::Refused, Then::Recovers);
        let worker = town.process_on(&failing).digests();
        if worker.tick(&mut DigestReport::default(), &NoProgress).await.is_ok() {
            break;
        }
        failed += 1;
    }
    tick(&town, "20T08:15").await;

    assert!(failed > 5, "{failed}");
    assert_eq!(town.emailed_to("ada"), ["a1"]);
    assert_eq!(town.emails().len(), 1);
}

async fn users_held_back_by_a_pause_are_emailed_after_the_resume(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    let crowd = town.crowd(9).await;
    let names: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    tick(&town, "21T08:45").await;
    town.answer([Outcome::Stop("suspended".into())]);

    let paused = tick(&town, "21T09:00").await;
    town.process().deliveries().resume().await.unwrap();
    let resumed = tick(&town, "21T09:15").await;

    assert!(paused.due.not_started > 0, "{paused:?}");
    assert_eq!(resumed.due.users, paused.due.not_started);
    assert_eq!(town.emails().len(), 9);
}

async fn an_event_fanned_out_late_is_emailed_by_the_next_tick(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    tick(&town, "20T07:45").await;
    town.clock.set(at("20T07:58"));
    let accepted = vec![request(&["a1"], followers_of("artist:1"), None)];
    town.process().notify().accept(accepted).await.unwrap();

    let early = tick(&town, "20T08:00").await;
    town.clock.set(at("20T08:05"));
    town.process().fanouts().drain(&NoProgress).await.unwrap();
    let next = tick(&town, "20T08:15").await;

    assert_eq!(sent(&early), (1, 0));
    assert_eq!(sent(&next), (1, 1));
}

async fn a_backdated_event_accepted_late_is_emailed_by_the_next_tick(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    tick(&town, "20T07:45").await;
    tick(&town, "20T08:00").await;
    town.clock.set(at("20T08:04"));
    let mut late = request(&["a1"], followers_of("artist:1"), None);
    late.at = Some(at("20T07:59"));
    town.process().notify().accept(vec![late]).await.unwrap();
    town.process().fanouts().drain(&NoProgress).await.unwrap();

    let next = tick(&town, "20T08:15").await;

    assert_eq!(sent(&next), (1, 1));
}

async fn a_user_with_an_open_delivery_is_scanned_again_once_it_is_settled(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.change("ben", |ben| ben.digest.cadence = Some(Cadence::Never)).await;
    tick(&town, "21T08:45").await;
    town.answer([Outcome::TryLater("busy".into(), Some(Duration::from_secs(80 * 60)))]);
    let weekly = tick(&town, "21T09:00").await;
    ada_at(&town, 10).await;
    town.happens(&["a2"], to(&["ada", "ben"])).await;

    let passed_over = tick(&town, "21T10:00").await;
    let too_early = tick(&town, "21T10:15").await;
    let ended = tick(&town, "21T10:30").await;

    assert_eq!(weekly.emails.deferred, 1);
    assert_eq!(passed_over.due.busy, 1);
    assert_eq!(too_early.due.busy, 1);
    assert_eq!(ended.emails.sent, 2, "{ended:?}");
    assert_eq!(town.emailed_to("ada"), ["a1", "a2"]);
}

async fn a_tick_retries_a_failed_digest(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "20T07:45").await;
    town.answer([refused("550 not today")]);

    let refused = tick(&town, "20T08:00").await;
    let too_early = tick(&town, "20T08:45").await;
    let again = tick(&town, "20T09:00").await;

    assert_eq!((refused.emails.failed, sent(&too_early)), (1, (1, 0)));
    assert_eq!(sent(&again), (1, 1));
}

async fn a_full_scan_runs_at_the_configured_interval(fresh: Fresh) {
    let town = Town::found(&fresh, true, "digest.full_scan = \"2h\"\n").await;
    ada_at(&town, 20).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "19T10:30").await;
    tick(&town, "19T11:15").await;
    // The new hour has already passed today, so only a full scan finds Ada.
    ada_at(&town, 11).await;

    let before = tick(&town, "19T12:15").await;
    let after = tick(&town, "19T12:30").await;

    assert_eq!((sent(&before), sent(&after)), ((0, 0), (2, 1)));
}

async fn a_changed_default_schedule_starts_a_full_scan(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "21T07:00").await;
    let config = format!("{RARELY}digest.hour = 6\n");
    let earlier = Town::on(fresh.handle(), Resolution::Repeat { within: None }, &config);

    let report = tick(&earlier, "21T07:15").await;

    assert_eq!(sent(&report), (2, 2));
}

async fn a_recorded_scan_in_the_future_is_ignored(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    let ahead = Arc::new(tidings::clock::ManualClock::at(at("22T12:00")));
    let process = town.process_by(ahead);
    process.digests().tick(&mut DigestReport::default(), &NoProgress).await.unwrap();
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    let healed = tick(&town, "20T07:45").await;
    let due = tick(&town, "20T08:00").await;

    assert_eq!((sent(&healed), sent(&due)), ((2, 0), (1, 1)));
}

/// Users with different preferences, over a clock change, with events every 135 minutes.
async fn a_full_scan_finds_no_user_that_ticks_have_missed(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    let zones =
        [None, Some(Tz::Europe__Berlin), Some(Tz::Asia__Kathmandu), Some(Tz::Pacific__Kiritimati)];
    let cadences = [None, Some(Cadence::Daily), Some(Cadence::Weekly)];
    let weekdays = [None, Some(Weekday::Sat), Some(Weekday::Sun)];
    let people: Vec<User> = (0..72_usize)
        .map(|n| User {
            email: Address::new(format!("q{n}@example.org")).ok(),
            confirmed: true,
            tz: zones[n % 4],
            digest: DigestPreference {
                cadence: cadences[n / 4 % 3],
                weekday: weekdays[n / 12 % 3],
                hour: (n % 5 > 0).then_some((n * 7 % 24) as u8),
                since: None,
            },
            ..User::new(user(&format!("q{n}")))
        })
        .collect();
    town.store.put_users(&people).await.unwrap();
    let ids: Vec<String> = people.iter().map(|person| person.id.to_string()).collect();
    let ids: Vec<&str> = ids.iter().map(String::as_str).collect();
    let rehearsal = DigestRequest { dry_run: true, ..DigestRequest::default() };
    let start = "2014-03-28T23:00:00Z".parse::<DateTime<Utc>>().unwrap();
    let (mut ticks, mut emails) = (0, 0);

    for quarter in 0..4 * 48 {
        town.clock.set(start + TimeDelta::minutes(15 * quarter));
        if quarter % 9 == 0 {
            town.happens(&[["a1", "a2", "a3"][quarter as usize % 3]], to(&ids)).await;
        }
        // The worker misses four of seven ticks.
        if quarter % 7 > 2 {
            continue;
        }
        let (digests, mut report) = (town.process().digests(), DigestReport::default());
        digests.tick(&mut report, &NoProgress).await.unwrap();
        (ticks, emails) =
            (ticks + u64::from(report.users.scanned < 72), emails + report.emails.sent);
        let left = digests.run(&rehearsal, &NoProgress).await.unwrap();
        assert_eq!(left.due.users, 0, "{} {left:?}", town.clock.now());
    }

    assert!(ticks > 60 && emails > 60, "{ticks} {emails}");
}
