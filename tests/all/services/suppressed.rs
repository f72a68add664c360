//! Users who may not be emailed for a while: they get no email meanwhile (P7), and no wanted event
//! is lost (P3).

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Utc};

use tidings::domain::{
    Address, BrandName, Cadence, Day, DeliveryState, PendingCounts, Suppression, SuppressionReason,
    User,
};
use tidings::email::Outcome;
use tidings::engine::NoProgress;
use tidings::engine::archive::ArchiveRequest;
use tidings::wire::archive::DayFate;
use tidings::wire::explanation::EventStatus;
use tidings::wire::run_report::DigestReport;

use crate::support::town::{Town, busy, followers_of, monday, mostly_on_sqlite, to};
use crate::support::{Fresh, Shorthand, keep_days, noon, user};

mostly_on_sqlite! {
    an_address_suppressed_before_the_send_gets_no_email
    an_undeliverable_address_gets_no_further_email
    the_first_digest_after_a_lift_has_every_event_up_to_max_age
    a_tick_after_a_lift_has_every_event_up_to_max_age
    events_of_a_missing_brand_are_all_emailed_once_the_brand_is_back
    events_of_a_user_who_stays_blocked_expire_and_are_reported_once
    a_day_with_events_of_a_blocked_user_is_archived_after_they_expire
}

fn ada() -> Address {
    Address::new("ada@example.org").unwrap()
}

async fn suppress(fresh: &Fresh, reason: SuppressionReason) {
    let news = Suppression::new(&ada(), reason, noon(), "esp");
    fresh.suppress(&[news]).await;
}

async fn an_address_suppressed_before_the_send_gets_no_email(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([busy()]);
    assert_eq!(town.digests_at(monday(0)).await.emails.deferred, 1);
    suppress(&fresh, SuppressionReason::Complaint).await;
    town.clock.advance(TimeDelta::minutes(10));

    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.emails.canceled, report.emails.sent), (1, 0));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
    let reason = row.outcome.reason.as_deref();
    assert_eq!(reason, Some("the person is suppressed after a complaint"));
    assert!(town.emailed().is_empty());
}

async fn an_undeliverable_address_gets_no_further_email(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], followers_of("artist:1")).await;
    // The first answer is for Ada's email; Ben's is accepted.
    town.answer([Outcome::Undeliverable("406: inactive recipient <ada@example.org>".into())]);

    let first = town.digests_at(monday(0)).await;
    town.happens(&["a2"], followers_of("artist:1")).await;
    let second = town.digests_at(monday(1)).await;

    assert_eq!((first.emails.failed, first.emails.sent), (1, 1));
    assert_eq!((second.emails.failed, second.emails.sent), (0, 1));
    assert_eq!(second.users.unmailable["suppressed after a hard bounce"], 1);
    let suppression = fresh.suppressed(&[ada()]).await.remove(0).unwrap();
    assert_eq!(
        (suppression.reason, suppression.source.as_str()),
        (SuppressionReason::HardBounce, "postbox")
    );
    assert_eq!(suppression.detail.as_deref(), Some("406 inactive recipient"));
    let works = town.emailed_to("ben");
    assert_eq!(works, ["a1", "a2"]);
}

/// Returns a town with four daily readers. `ok` may always be emailed; the other three are blocked
/// at first.
async fn blocked_readers(fresh: &Fresh, config: &str) -> Town {
    let config = format!("digest.items = 1000\ndigest.section_items = 200\n{config}");
    let town = Town::found(fresh, true, &config).await;
    let since = Some(day(1, 0) - TimeDelta::days(1));
    let record = |id: &str| User {
        email: Address::new(format!("{id}@example.org")).ok(),
        confirmed: id != "unconfirmed",
        suppressed: since.filter(|_| id == "suppressed"),
        digest: tidings::domain::user::DigestPreference {
            cadence: Some(Cadence::Daily),
            ..Default::default()
        },
        ..User::new(user(id))
    };
    let readers: Vec<User> = READERS.map(record).into();
    town.store.put_users(&readers).await.unwrap();
    let soft = Address::new("softbounced@example.org").unwrap();
    let listed = Suppression::new(&soft, SuppressionReason::SoftBounces, day(1, 0), "esp");
    fresh.suppress(&[listed]).await;
    town
}

const READERS: [&str; 4] = ["ok", "softbounced", "suppressed", "unconfirmed"];

/// A day of November 2014, at this hour in UTC.
fn day(day: i64, hour: i64) -> DateTime<Utc> {
    let first: DateTime<Utc> = "2014-11-01T00:00:00Z".parse().unwrap();
    first + TimeDelta::days(day - 1) + TimeDelta::hours(hour)
}

/// Each day runs digests at 09:00, and accepts three events for every reader at 12:00. Each event
/// has its own work.
async fn twelve_days(town: &Town, readers: &[&str]) -> Vec<DigestReport> {
    let mut reports = Vec::new();
    for date in 1..=12 {
        reports.push(town.digests_at(day(date, 9)).await);
        town.clock.set(day(date, 12));
        let works = [0, 1, 2].map(|n| format!("d{date}n{n}"));
        for work in &works {
            town.put_works(&[work], |_| true).await;
            town.happens(&[work], to(readers)).await;
        }
    }
    reports
}

async fn lift(town: &Town) {
    town.change("suppressed", |user| user.suppressed = None).await;
    town.change("unconfirmed", |user| user.confirmed = true).await;
    let soft = Address::new("softbounced@example.org").unwrap();
    assert!(town.process().suppressions().lift(&soft).await.unwrap());
}

/// Returns the number of events in each email to this user, in order. No event is in two emails.
fn emailed(town: &Town, reader: &str) -> Vec<usize> {
    let mut times: BTreeMap<String, usize> = BTreeMap::new();
    let mut counts = Vec::new();
    for email in town.emails() {
        if email.delivery.as_str().split(':').nth(1) != Some(reader) {
            continue;
        }
        let text = email.fill_links().text;
        let mut events = 0;
        for work in (1..=12).flat_map(|date| [0, 1, 2].map(|n| format!("d{date}n{n}"))) {
            if text.contains(&format!("Work {work}.")) {
                events += 1;
                *times.entry(work).or_default() += 1;
            }
        }
        counts.push(events);
    }
    assert!(times.values().all(|times| *times == 1), "{times:?}");
    counts
}

async fn the_first_digest_after_a_lift_has_every_event_up_to_max_age(fresh: Fresh) {
    let town = blocked_readers(&fresh, "").await;
    let before = twelve_days(&town, &READERS).await;
    lift(&town).await;

    let first = town.digests_at(day(13, 9)).await;
    let second = town.digests_at(day(14, 9)).await;
    let third = town.digests_at(day(15, 9)).await;

    for reader in &READERS[1..] {
        assert_eq!(emailed(&town, reader), [36], "{reader}");
    }
    assert_eq!(emailed(&town, "ok").iter().sum::<usize>(), 36);
    let of = |people, events| PendingCounts { users: people, events };
    // On the 12th the window begins on the 5th. Four days of three users are before it.
    assert_eq!(before[11].backlog.blocked, of(3, 36));
    assert_eq!(first.backlog.backlog, of(3, 45));
    for run in [second, third] {
        assert_eq!(run.backlog.backlog, PendingCounts::default());
        assert_eq!(run.backlog.blocked, PendingCounts::default());
        assert!(run.backlog.expired.is_empty(), "{run:?}");
    }
}

async fn a_tick_after_a_lift_has_every_event_up_to_max_age(fresh: Fresh) {
    let town = blocked_readers(&fresh, "digest.full_scan = \"1d\"\n").await;
    twelve_days(&town, &READERS).await;
    town.clock.set(day(13, 0));
    town.process().digests().tick(&mut DigestReport::default(), &NoProgress).await.unwrap();
    lift(&town).await;

    town.clock.set(day(13, 9));
    town.process().digests().tick(&mut DigestReport::default(), &NoProgress).await.unwrap();

    for reader in &READERS[1..] {
        assert_eq!(emailed(&town, reader), [36], "{reader}");
    }
}

async fn events_of_a_missing_brand_are_all_emailed_once_the_brand_is_back(fresh: Fresh) {
    let town = blocked_readers(&fresh, "").await;
    let gone = BrandName::new("gone").ok();
    town.change("ok", |user| user.brand = gone).await;
    let before = twelve_days(&town, &["ok"]).await;
    town.change("ok", |user| user.brand = None).await;

    let mut after = Vec::new();
    for date in 13..=15 {
        after.push(town.digests_at(day(date, 9)).await);
    }

    assert_eq!(emailed(&town, "ok").iter().sum::<usize>(), 36);
    let runs = before.iter().chain(&after);
    let expired = runs.map(|run| run.backlog.expired.len());
    assert_eq!(expired.sum::<usize>(), 0);
}

async fn events_of_a_user_who_stays_blocked_expire_and_are_reported_once(fresh: Fresh) {
    let town = blocked_readers(&fresh, "digest.max_age = \"14d\"\n").await;
    twelve_days(&town, &["ok", "suppressed"]).await;

    // On the 16th the first day with events is 15 days old.
    let mut runs = Vec::new();
    for date in 13..=17 {
        runs.push(town.digests_at(day(date, 9)).await);
    }
    let reported = town.process().backlog().summary().await.unwrap();
    let explain = town.process().explain();
    let explained = explain.user(&user("suppressed"), None).await.unwrap();
    town.change("suppressed", |user| user.suppressed = None).await;
    let first = town.digests_at(day(18, 9)).await;

    let expired = runs.iter().flat_map(|run| run.backlog.expired.clone());
    let expired: Vec<(Day, PendingCounts)> = expired.collect();
    let of_a_day = PendingCounts { users: 1, events: 3 };
    let days = ["20141101", "20141102"].map(|day| (day.parse().unwrap(), of_a_day));
    assert_eq!(expired, days);
    assert_eq!(reported.expired.into_iter().collect::<Vec<_>>(), days);
    let blocked = PendingCounts { users: 2, events: 6 };
    assert_eq!(reported.expired_blocked, blocked);
    let count = |why| explained.events.iter().filter(|fate| fate.status == why).count();
    assert_eq!((count(EventStatus::Expired), count(EventStatus::Blocked)), (6, 30));
    assert_eq!(emailed(&town, "suppressed"), [27]);
    assert!(first.backlog.expired.into_values().eq([of_a_day]));
}

async fn a_day_with_events_of_a_blocked_user_is_archived_after_they_expire(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada"])).await;
    suppress(&fresh, SuppressionReason::HardBounce).await;
    let fate = async |dry_run| {
        let request = ArchiveRequest { dry_run, ..keep_days(9) };
        let archive = town.process().archive();
        let mut days = Vec::new();
        archive.run(&request, &NoProgress, &mut days).await.unwrap();
        days.remove(0).fate
    };
    let one = PendingCounts { users: 1, events: 1 };
    let (users, events) = (1, 1);

    town.clock.set(monday(4));
    town.digests_at(monday(4)).await;
    let young = fate(false).await;
    town.clock.set(monday(8));
    let planned = fate(true).await;
    let old = fate(false).await;

    assert_eq!(young, DayFate::NotEmailed { users, events });
    assert_eq!(planned, DayFate::Dropped { file: None });
    assert_eq!(old, DayFate::Dropped { file: None });
    let reported = town.process().backlog().summary().await.unwrap();
    assert_eq!((reported.expired.into_values().next(), reported.expired_blocked), (Some(one), one));
}
