//! The status for operators: running workers, the last digest run, and failed emails.

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::wire::status::{DigestActivity, Status, WorkerActivity};

use crate::support::Fresh;
use crate::support::town::{Town, lost, monday, mostly_on_sqlite, refused, to};

mostly_on_sqlite! {
    a_worker_counts_as_running_until_it_stops_or_is_silent_for_a_minute
    a_worker_that_stops_does_not_hide_another_that_runs
    the_last_run_of_digests_is_reported
    failed_and_unknown_emails_are_listed_as_failures_for_seven_days
    the_events_of_a_batch_whose_email_failed_are_counted_as_not_emailed
}

async fn status(town: &Town) -> Status {
    town.process().status().current_status().await.unwrap()
}

async fn a_worker_counts_as_running_until_it_stops_or_is_silent_for_a_minute(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let (worker, began) = (town.process().activity(), town.clock.now());
    let activity = async || status(&town).await.worker;
    let of = |running, seen| Some(WorkerActivity { is_running: running, last_heartbeat: seen });

    assert_eq!(activity().await, None);
    worker.record_heartbeat(false).await.unwrap();
    town.clock.advance(TimeDelta::seconds(59));
    assert_eq!(activity().await, of(true, began));
    town.clock.advance(TimeDelta::seconds(1));
    assert_eq!(activity().await, of(false, began));
    worker.record_heartbeat(false).await.unwrap();
    worker.record_heartbeat(true).await.unwrap();
    assert_eq!(activity().await, of(false, town.clock.now()));
}

async fn a_worker_that_stops_does_not_hide_another_that_runs(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let [one, other] = [(), ()].map(|()| town.process().activity());
    one.record_heartbeat(false).await.unwrap();
    other.record_heartbeat(false).await.unwrap();

    one.record_heartbeat(true).await.unwrap();

    assert!(status(&town).await.worker.unwrap().is_running);
    other.record_heartbeat(true).await.unwrap();
    assert!(!status(&town).await.worker.unwrap().is_running);
}

async fn the_last_run_of_digests_is_reported(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    let before = status(&town).await;

    let report = town.digests_at(monday(0)).await;
    let run = DigestActivity::from_report(&report, town.clock.now());
    town.process().activity().record_digests(&run).await.unwrap();

    assert!(before.digest.is_none());
    let after = status(&town).await;
    assert_eq!(after.digest, Some(run));
    assert_eq!((run.due, run.sent, run.failed), (2, 2, 0));
}

async fn failed_and_unknown_emails_are_listed_as_failures_for_seven_days(fresh: Fresh) {
    let town = Town::found(&fresh, false, "").await;
    town.happens(&["a1"], to(&["ada"])).await;
    assert!(!status(&town).await.has_failures());
    town.answer([refused("550 5.1.1 no such user")]);

    town.digests_at(monday(0)).await;
    let failed = status(&town).await;
    town.clock.advance(TimeDelta::days(7) + TimeDelta::seconds(1));
    let later = status(&town).await;
    town.happens(&["a2"], to(&["ben"])).await;
    town.answer([lost()]);
    town.digests_at(monday(2)).await;

    assert!(failed.has_failures());
    assert_eq!(failed.failed[0].reason.as_deref(), Some("550 5.1.1 no such user"));
    assert!(!later.has_failures());
    assert!(status(&town).await.has_failures());
}

async fn the_events_of_a_batch_whose_email_failed_are_counted_as_not_emailed(fresh: Fresh) {
    let batch = "[types.ArtworkPublished]\nroute = \"batch\"\nwindow = \"5m\"";
    let town = Town::found(&fresh, true, batch).await;
    town.happens(&["a1", "a2"], to(&["ada", "ben"])).await;
    town.clock.advance(TimeDelta::minutes(5));
    town.answer([refused("550 5.1.1 no such user")]);

    town.send_due().await;

    let status = status(&town).await;
    assert_eq!((status.failed.len(), status.not_emailed), (1, 2));
}
