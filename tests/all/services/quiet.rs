//! Quiet hours: batches and immediate emails that are due in a user's quiet hours are sent when the
//! hours end, in the user's time zone.
//!
//! The town begins on Saturday at 10:00 UTC. Ada, in Tokyo, has quiet hours until 16:00 UTC. Ben
//! has none.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::{Batch, BatchState, QuietHours};
use tidings::engine::NoProgress;
use tidings::engine::batches::EndAction;
use tidings::store::BatchFilter;
use tidings::wire::explanation::EventStatus;

use super::mandatory::happens;
use crate::support::town::{Town, monday, mostly_on_sqlite, saturday, to};
use crate::support::{Fresh, assert_contains, user};

mostly_on_sqlite! {
    a_deferred_batch_closes_when_quiet_hours_end
    immediate_events_are_collected_until_quiet_hours_end
    full_and_leading_batches_wait_until_quiet_hours_end
    changed_quiet_hours_apply_to_open_batches
    quiet_hours_end_at_the_local_time_after_a_clock_change
    mandatory_events_are_emailed_in_quiet_hours
    digests_and_manually_closed_batches_ignore_quiet_hours
    batches_and_explanations_report_the_deferral
    quiet_hours_delay_a_batch_once_even_if_the_worker_is_late
    events_that_join_after_the_quiet_hours_do_not_start_another_delay
    extended_quiet_hours_apply_to_deferred_batches
}

const CONFIG: &str = r#"
[types.ArtworkPublished]
route = "batch"
window = "5m"
[types.Alarm]
route = "immediate"
[types.Full]
route = "batch"
window = "1h"
close_at = 2
[types.Lead]
route = "batch"
window = "1h"
leading = true
[types.Notice]
route = "batch"
window = "5m"
mandatory = true
[types.Talk]
route = "batch"
window = "5m"
batch_key = "talk"
[types.Alert]
route = "batch"
window = "5m"
batch_key = "talk"
mandatory = true
"#;

fn quiet(from: &str, to: &str) -> QuietHours {
    QuietHours::new(from.parse().unwrap(), to.parse().unwrap()).unwrap()
}

async fn town(fresh: &Fresh) -> Town {
    let town = Town::found(fresh, true, CONFIG).await;
    town.change("ada", |ada| {
        ada.tz = Some(chrono_tz::Asia::Tokyo);
        // 10:00 to 16:00 UTC.
        ada.quiet = Some(quiet("19:00", "01:00"));
    })
    .await;
    town
}

fn at(text: &str) -> DateTime<Utc> {
    text.parse().unwrap()
}

/// The end of Ada's quiet hours.
fn morning() -> DateTime<Utc> {
    saturday() + TimeDelta::hours(6)
}

/// Sets the clock, sends due emails, and returns how many Ada and Ben have got.
async fn send_at(town: &Town, time: DateTime<Utc>) -> [usize; 2] {
    town.send_due_at(time).await;
    let emails = town.emails();
    ["ada", "ben"].map(|person| {
        let address = tidings::domain::Address::new(format!("{person}@example.org")).unwrap();
        emails.iter().filter(|email| email.to == address).count()
    })
}

async fn open(town: &Town) -> Vec<Batch> {
    let open = BatchFilter {
        user: Some(user("ada")),
        state: Some(BatchState::Open),
        ..BatchFilter::default()
    };
    town.store.find_batches(&open, 100).await.unwrap()
}

async fn a_deferred_batch_closes_when_quiet_hours_end(fresh: Fresh) {
    let town = town(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;

    let soon = send_at(&town, saturday() + TimeDelta::minutes(6)).await;
    town.happens(&["a2"], to(&["ada"])).await;
    let night = send_at(&town, morning() - TimeDelta::seconds(1)).await;
    let day = send_at(&town, morning()).await;

    assert_eq!((soon, night, day), ([0, 1], [0, 1], [1, 1]));
    let text = town.emails()[1].fill_links().text;
    assert_contains!(text, "Work a1.");
    assert_contains!(text, "Work a2.");
    // Outside quiet hours the window of the batch applies.
    town.happens(&["a3"], to(&["ada"])).await;
    let later = send_at(&town, morning() + TimeDelta::minutes(5)).await;
    assert_eq!(later, [2, 1]);
}

async fn immediate_events_are_collected_until_quiet_hours_end(fresh: Fresh) {
    let town = town(&fresh).await;
    happens(&town, "Alarm", &["a1"], to(&["ada", "ben"])).await;
    let soon = send_at(&town, saturday() + TimeDelta::minutes(1)).await;
    happens(&town, "Alarm", &["a2"], to(&["ada", "ben"])).await;
    let night = send_at(&town, morning() - TimeDelta::seconds(1)).await;

    let day = send_at(&town, morning()).await;
    happens(&town, "Alarm", &["a3"], to(&["ada"])).await;
    let later = send_at(&town, morning() + TimeDelta::seconds(1)).await;

    assert_eq!((soon, night, day, later), ([0, 1], [0, 2], [1, 2], [2, 2]));
}

async fn full_and_leading_batches_wait_until_quiet_hours_end(fresh: Fresh) {
    let town = town(&fresh).await;
    let both = || to(&["ada", "ben"]);
    for work in ["a1", "a2", "a3"] {
        happens(&town, "Full", &[work], both()).await;
        happens(&town, "Lead", &[work], both()).await;
    }

    // Ben gets a full batch and a leading event at once. His other events wait for an hour.
    let soon = send_at(&town, saturday() + TimeDelta::minutes(1)).await;
    let night = send_at(&town, morning() - TimeDelta::seconds(1)).await;
    let day = send_at(&town, morning()).await;

    assert_eq!((soon, night, day), ([0, 2], [0, 4], [2, 4]));
    let emails = town.emails();
    let whole = |email: &tidings::email::Message| {
        let text = email.fill_links().text;
        ["a1", "a2", "a3"].iter().all(|work| text.contains(&format!("Work {work}.")))
    };
    assert_eq!(emails[4..].iter().filter(|email| whole(email)).count(), 2);
}

async fn changed_quiet_hours_apply_to_open_batches(fresh: Fresh) {
    let town = town(&fresh).await;
    town.change("ben", |ben| ben.quiet = Some(quiet("12:00", "13:00"))).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    // While their batches are open, Ben changes his quiet hours and Ada removes hers.
    town.change("ben", |ben| ben.quiet = Some(quiet("10:03", "11:00"))).await;
    town.change("ada", |ada| ada.quiet = None).await;

    let soon = send_at(&town, saturday() + TimeDelta::minutes(6)).await;
    // The next event that joins Ada's batch applies the change.
    town.happens(&["a2"], to(&["ada"])).await;
    let joined = send_at(&town, saturday() + TimeDelta::minutes(7)).await;
    let late = send_at(&town, saturday() + TimeDelta::hours(1)).await;

    assert_eq!((soon, joined, late), ([0, 0], [1, 0], [1, 1]));
}

async fn quiet_hours_end_at_the_local_time_after_a_clock_change(fresh: Fresh) {
    for (person, evening, ends) in [
        ("ada", "2014-10-25T20:00:00Z", "2014-10-26T06:00:00Z"),
        ("ben", "2015-03-28T21:00:00Z", "2015-03-29T05:00:00Z"),
    ] {
        let town = Town::on(fresh.handle(), tidings::email::Resolution::Impossible, CONFIG);
        if person == "ada" {
            Town::found(&fresh, true, CONFIG).await;
        }
        town.change(person, |one| {
            one.tz = Some(chrono_tz::Europe::Berlin);
            one.quiet = Some(quiet("22:00", "07:00"));
        })
        .await;
        town.clock.set(at(evening));
        happens(&town, "Alarm", &["a1"], to(&[person])).await;

        send_at(&town, at(ends) - TimeDelta::seconds(1)).await;
        let night = town.emails().len();
        send_at(&town, at(ends)).await;

        assert_eq!((night, town.emails().len()), (0, 1), "{person}");
    }
}

async fn mandatory_events_are_emailed_in_quiet_hours(fresh: Fresh) {
    let town = town(&fresh).await;
    happens(&town, "Notice", &["a1"], to(&["ada"])).await;
    happens(&town, "Talk", &["a2"], to(&["ada"])).await;
    happens(&town, "Alert", &["a3"], to(&["ada"])).await;
    town.happens(&["a4"], to(&["ada"])).await;

    let soon = send_at(&town, saturday() + TimeDelta::minutes(6)).await;

    assert_eq!(soon, [2, 0]);
    let texts: Vec<String> = town.emails().iter().map(|email| email.fill_links().text).collect();
    assert!(texts.iter().any(|text| text.contains("Work a1.")));
    // Events in the same batch as a mandatory event are sent with it.
    let both = |text: &&String| text.contains("Work a2.") && text.contains("Work a3.");
    assert_eq!(texts.iter().filter(both).count(), 1);
}

async fn digests_and_manually_closed_batches_ignore_quiet_hours(fresh: Fresh) {
    let town = town(&fresh).await;
    town.change("ada", |ada| {
        ada.tz = None;
        ada.quiet = Some(quiet("08:00", "12:00"));
    })
    .await;
    town.happens(&["a1"], to(&["ada"])).await;
    happens(&town, "Loan", &["a2"], to(&["ada"])).await;
    let batch = open(&town).await.remove(0);
    town.process().batches().end(batch.id, EndAction::Close).await.unwrap();

    let closed = send_at(&town, saturday() + TimeDelta::seconds(1)).await;
    town.digests_at(monday(0)).await;

    assert_eq!(closed, [1, 0]);
    assert_eq!(town.emails().len(), 2);
}

async fn batches_and_explanations_report_the_deferral(fresh: Fresh) {
    let town = town(&fresh).await;
    // One batch is open when the quiet hours begin, and one opens in them.
    town.change("ada", |ada| ada.quiet = Some(quiet("19:04", "01:00"))).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    town.clock.advance(TimeDelta::minutes(4));
    happens(&town, "Alarm", &["a2"], to(&["ada"])).await;
    let app = town.process();
    let deferrals = async || {
        let filter = BatchFilter { state: Some(BatchState::Open), ..BatchFilter::default() };
        let book = app.batches();
        let open = book.list(&filter, 100).await.unwrap();
        let views = book.views(open).await.unwrap().into_iter();
        let mut views: Vec<_> = views
            .map(|view| (view.user.to_string(), view.closes_at, view.deferred_until))
            .collect();
        views.sort();
        views
    };

    let before = deferrals().await;
    app.batches().drain(&NoProgress).await.unwrap();
    let after = deferrals().await;
    let explained = app.explain().user(&user("ada"), None).await.unwrap();

    let deferred = |who: &str| (who.to_owned(), morning(), Some(morning()));
    let ben = ("ben".to_owned(), saturday() + TimeDelta::minutes(5), None);
    assert_eq!(before, [deferred("ada"), deferred("ada"), ben.clone()]);
    assert_eq!(after, before);
    for fate in explained.events {
        let batch = fate.batch.unwrap();
        assert_eq!(fate.status, EventStatus::InOpenBatch);
        assert_eq!((batch.closes_at, batch.deferred_until), (morning(), Some(morning())));
    }
}

/// A type for each route that quiet hours delay: batch and immediate.
const ROUTES: [&str; 2] = ["ArtworkPublished", "Alarm"];

/// Sets quiet hours for Ada in UTC.
async fn ada_is_quiet(town: &Town, from: &str, to: &str) {
    town.change("ada", |ada| {
        ada.tz = Some(chrono_tz::UTC);
        ada.quiet = Some(quiet(from, to));
    })
    .await;
}

async fn quiet_hours_delay_a_batch_once_even_if_the_worker_is_late(fresh: Fresh) {
    let town = town(&fresh).await;
    // A worker that cron starts every five minutes misses the two minutes that are not quiet.
    ada_is_quiet(&town, "22:00", "21:58").await;
    town.clock.set(at("2014-04-19T12:01:00Z"));
    for kind in ROUTES {
        happens(&town, kind, &["a1"], to(&["ada"])).await;
    }
    let mut sent_at = Vec::new();
    let mut now = at("2014-04-19T21:51:00Z");
    while now < at("2014-04-19T22:30:00Z") {
        let before = town.emails().len();
        let [after, _] = send_at(&town, now).await;
        sent_at.extend((before..after).map(|_| now));
        now += TimeDelta::minutes(5);
    }

    // Another worker does not run between the quiet hours.
    ada_is_quiet(&town, "22:00", "07:00").await;
    town.clock.set(at("2014-04-22T01:00:00Z"));
    for kind in ROUTES {
        happens(&town, kind, &["a2"], to(&["ada"])).await;
    }
    let night = send_at(&town, at("2014-04-22T06:59:59Z")).await;
    let evening = send_at(&town, at("2014-04-22T22:30:00Z")).await;

    assert_eq!(sent_at, [at("2014-04-19T22:01:00Z"); 2]);
    assert_eq!((night, evening), ([2, 0], [4, 0]));
}

async fn events_that_join_after_the_quiet_hours_do_not_start_another_delay(fresh: Fresh) {
    let town = town(&fresh).await;
    ada_is_quiet(&town, "22:00", "21:58").await;
    town.clock.set(at("2014-04-19T12:01:00Z"));
    for kind in ROUTES {
        happens(&town, kind, &["a1"], to(&["ada"])).await;
    }
    let delayed = send_at(&town, at("2014-04-19T21:56:00Z")).await;
    // One event joins between the quiet hours, the other in the next ones.
    for (object, time) in [("a2", "21:59:00"), ("a3", "22:00:30")] {
        town.clock.set(at(&format!("2014-04-19T{time}Z")));
        for kind in ROUTES {
            happens(&town, kind, &[object], to(&["ada"])).await;
        }
    }

    let after = send_at(&town, at("2014-04-19T22:01:00Z")).await;

    assert_eq!((delayed[0], after[0] >= 2), (0, true), "{after:?}");
    let texts: Vec<String> = town.emails().iter().map(|email| email.fill_links().text).collect();
    let first = texts.iter().filter(|text| text.contains("Work a1."));
    assert_eq!(first.count(), 2, "{texts:#?}");
}

async fn extended_quiet_hours_apply_to_deferred_batches(fresh: Fresh) {
    let town = town(&fresh).await;
    ada_is_quiet(&town, "22:00", "07:00").await;
    town.clock.set(at("2014-04-19T23:00:00Z"));
    for kind in ROUTES {
        happens(&town, kind, &["a1"], to(&["ada"])).await;
    }
    send_at(&town, at("2014-04-19T23:30:00Z")).await;
    ada_is_quiet(&town, "22:00", "09:00").await;

    let seven = send_at(&town, at("2014-04-20T07:00:00Z")).await;
    let nine = send_at(&town, at("2014-04-20T09:00:00Z")).await;

    assert_eq!((seven, nine), ([0, 0], [2, 0]));
}
