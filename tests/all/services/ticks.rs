//! A worker's tick looks at whoever's hour has come, and misses nobody whom a look at everybody
//! would find.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc, Weekday};
use chrono_tz::Tz;
use tidings::clock::Clock;
use tidings::domain::user::DigestPreference;
use tidings::domain::{Address, Cadence, User};
use tidings::email::Outcome;
use tidings::engine::Silent;
use tidings::engine::digest::{Effect, Request};
use tidings::store::Store;
use tidings::wire::digest::Report;

use crate::support::town::{Town, followers_of, on_both_stores, request, to};
use crate::support::{FailingStore, Fault, Fresh, Then, user};

on_both_stores! {
    a_tick_looks_only_at_whoever_falls_due
    a_tick_that_was_missed_is_made_up
    a_tick_that_failed_is_made_up
    whoever_was_held_back_by_a_pause_is_mailed_after_it
    what_is_fanned_out_late_is_mailed_by_the_next_tick
    what_is_accepted_after_the_hour_and_happened_before_it_is_mailed_by_the_next_tick
    whoever_waited_for_an_earlier_mail_is_looked_at_when_it_has_ended
    a_digest_that_failed_is_tried_again_by_a_tick
    everybody_is_looked_at_in_time
    after_other_defaults_everybody_is_looked_at
    a_note_of_a_clock_that_ran_ahead_is_not_believed
    a_tick_leaves_nobody_whom_a_full_look_would_find
}

/// Everybody is looked at by the first tick, and then for a day only by their hours.
const RARELY: &str = "digest.full_look = \"1d\"\n";

fn at(text: &str) -> DateTime<Utc> {
    format!("2014-04-{text}:00Z").parse().unwrap()
}

/// A tick of a new worker at that moment.
async fn tick(town: &Town, text: &str) -> Report {
    town.clock.set(at(text));
    town.process().digests().tick(&Silent).await.unwrap()
}

/// Ada has a daily digest at this hour of UTC; everybody else's is due on Mondays at nine.
async fn ada_at(town: &Town, hour: u8) {
    town.change("ada", |ada| {
        ada.digest.cadence = Some(Cadence::Daily);
        ada.digest.hour = Some(hour);
    })
    .await;
}

fn sent(report: &Report) -> (u64, u64) {
    (report.users.scanned, report.mails.sent)
}

async fn a_tick_looks_only_at_whoever_falls_due(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;

    let everybody = tick(&town, "20T07:45").await;
    let nobody = tick(&town, "20T07:59").await;
    let ada = tick(&town, "20T08:00").await;
    let again = tick(&town, "20T08:15").await;
    let nobody_again = tick(&town, "20T08:30").await;

    let seen = [everybody, nobody, ada, again, nobody_again].map(|report| sent(&report));
    assert_eq!(seen, [(3, 0), (0, 0), (1, 1), (1, 0), (0, 0)]);
    assert_eq!(town.told_to("ada"), ["a1"]);
}

async fn a_tick_that_was_missed_is_made_up(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "20T07:45").await;

    let late = tick(&town, "20T17:30").await;

    assert_eq!(sent(&late), (1, 1));
}

async fn a_tick_that_failed_is_made_up(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "20T07:45").await;
    town.clock.set(at("20T08:00"));

    // Each of its calls in turn is the one that fails.
    let mut failed = 0;
    loop {
        let failing: Arc<dyn Store> =
            FailingStore::new(town.store.clone(), failed, Fault::Refused, Then::Recovers);
        let worker = town.process_on(&failing).digests();
        if worker.tick(&Silent).await.is_ok() {
            break;
        }
        failed += 1;
    }
    tick(&town, "20T08:15").await;

    assert!(failed > 5, "{failed}");
    assert_eq!(town.told_to("ada"), ["a1"]);
    assert_eq!(town.mails().len(), 1);
}

async fn whoever_was_held_back_by_a_pause_is_mailed_after_it(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    let crowd = town.crowd(9).await;
    let names: Vec<&str> = crowd.iter().map(String::as_str).collect();
    town.happens(&["a1"], to(&names)).await;
    tick(&town, "21T08:45").await;
    town.answer([Outcome::Stop {
        reason: "suspended".into(),
    }]);

    let paused = tick(&town, "21T09:00").await;
    town.process().deliveries().resume().await.unwrap();
    let resumed = tick(&town, "21T09:15").await;

    assert!(paused.due.held > 0, "{paused:?}");
    assert_eq!(resumed.due.users, paused.due.held);
    assert_eq!(town.mails().len(), 9);
}

async fn what_is_fanned_out_late_is_mailed_by_the_next_tick(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    tick(&town, "20T07:45").await;
    town.clock.set(at("20T07:58"));
    let accepted = vec![request(&["a1"], followers_of("artist:1"), None)];
    town.process().notify().accept(accepted).await.unwrap();

    let early = tick(&town, "20T08:00").await;
    town.clock.set(at("20T08:05"));
    town.process().fanouts().drain(&Silent).await.unwrap();
    let next = tick(&town, "20T08:15").await;

    assert_eq!(sent(&early), (1, 0));
    assert_eq!(sent(&next), (1, 1));
}

async fn what_is_accepted_after_the_hour_and_happened_before_it_is_mailed_by_the_next_tick(
    fresh: Fresh,
) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    tick(&town, "20T07:45").await;
    tick(&town, "20T08:00").await;
    town.clock.set(at("20T08:04"));
    let mut late = request(&["a1"], followers_of("artist:1"), None);
    late.at = Some(at("20T07:59"));
    town.process().notify().accept(vec![late]).await.unwrap();
    town.process().fanouts().drain(&Silent).await.unwrap();

    let next = tick(&town, "20T08:15").await;

    assert_eq!(sent(&next), (1, 1));
}

async fn whoever_waited_for_an_earlier_mail_is_looked_at_when_it_has_ended(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.change("ben", |ben| ben.digest.cadence = Some(Cadence::Never))
        .await;
    tick(&town, "21T08:45").await;
    town.answer([Outcome::TryLater {
        reason: "busy".into(),
        after: Some(Duration::from_secs(80 * 60)),
    }]);
    let weekly = tick(&town, "21T09:00").await;
    ada_at(&town, 10).await;
    town.happens(&["a2"], to(&["ada", "ben"])).await;

    let passed_over = tick(&town, "21T10:00").await;
    let too_early = tick(&town, "21T10:15").await;
    let ended = tick(&town, "21T10:30").await;

    assert_eq!(weekly.mails.deferred, 1);
    assert_eq!(passed_over.due.busy, 1);
    assert_eq!(too_early.due.busy, 1);
    assert_eq!(ended.mails.sent, 2, "{ended:?}");
    assert_eq!(town.told_to("ada"), ["a1", "a2"]);
}

async fn a_digest_that_failed_is_tried_again_by_a_tick(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "20T07:45").await;
    town.answer([Outcome::Refused {
        reason: "550 not today".into(),
    }]);

    let refused = tick(&town, "20T08:00").await;
    let too_early = tick(&town, "20T08:45").await;
    let again = tick(&town, "20T09:00").await;

    assert_eq!((refused.mails.failed, sent(&too_early)), (1, (1, 0)));
    assert_eq!(sent(&again), (1, 1));
}

async fn everybody_is_looked_at_in_time(fresh: Fresh) {
    let town = Town::found(&fresh, true, "digest.full_look = \"2h\"\n").await;
    ada_at(&town, 20).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "19T10:30").await;
    tick(&town, "19T11:15").await;
    // That has passed today, and no tick to come is one of her hour.
    ada_at(&town, 11).await;

    let before = tick(&town, "19T12:15").await;
    let after = tick(&town, "19T12:30").await;

    assert_eq!((sent(&before), sent(&after)), ((0, 0), (2, 1)));
}

async fn after_other_defaults_everybody_is_looked_at(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    tick(&town, "21T07:00").await;
    let mut earlier = town.process().digests();
    earlier.schedule.hour = 6;
    town.clock.set(at("21T07:15"));

    let report = earlier.tick(&Silent).await.unwrap();

    assert_eq!(sent(&report), (2, 2));
}

async fn a_note_of_a_clock_that_ran_ahead_is_not_believed(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    ada_at(&town, 8).await;
    let ahead = Arc::new(tidings::clock::ManualClock::at(at("22T12:00")));
    let process = town.process_by(ahead);
    process.digests().tick(&Silent).await.unwrap();
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    let healed = tick(&town, "20T07:45").await;
    let due = tick(&town, "20T08:00").await;

    assert_eq!((sent(&healed), sent(&due)), ((2, 0), (1, 1)));
}

/// People who chose in many ways, over a change of clocks, with something happening now and then.
async fn a_tick_leaves_nobody_whom_a_full_look_would_find(fresh: Fresh) {
    let town = Town::found(&fresh, true, RARELY).await;
    let zones = [
        None,
        Some(Tz::Europe__Berlin),
        Some(Tz::Asia__Kathmandu),
        Some(Tz::Pacific__Kiritimati),
    ];
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
    let rehearsal = Request {
        effect: Effect::Rehearse,
        ..Request::default()
    };
    let start = "2014-03-28T23:00:00Z".parse::<DateTime<Utc>>().unwrap();
    let (mut ticks, mut mails) = (0, 0);

    for quarter in 0..4 * 48 {
        town.clock.set(start + TimeDelta::minutes(15 * quarter));
        if quarter % 9 == 0 {
            town.happens(&[["a1", "a2", "a3"][quarter as usize % 3]], to(&ids))
                .await;
        }
        // The worker is away now and then.
        if quarter % 7 > 2 {
            continue;
        }
        let digests = town.process().digests();
        let report = digests.tick(&Silent).await.unwrap();
        (ticks, mails) = (
            ticks + u64::from(report.users.scanned < 72),
            mails + report.mails.sent,
        );
        let left = digests.run(&rehearsal, &Silent).await.unwrap();
        assert_eq!(left.due.users, 0, "{} {left:?}", town.clock.now());
    }

    assert!(ticks > 60 && mails > 60, "{ticks} {mails}");
}
