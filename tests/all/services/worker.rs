//! The worker: a round fans out events and sends due emails. A worker stops on request, and a wrong
//! clock does no harm.

use std::sync::Arc;

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::clock::ManualClock;
use tidings::email::Resolution;
use tidings::engine::NoProgress;
use tidings::engine::ingest::NewEvent;
use tidings::store::Store;
use tokio::sync::watch;

use crate::support::town::{Town, followers_of, monday, mostly_on_sqlite, request, to};
use crate::support::{FailingStore, Fault, Fresh, Then, lease, user};

mostly_on_sqlite! {
    a_round_fans_out_events_and_sends_due_emails
    one_worker_scans_for_due_digests_every_15_minutes
    a_failed_fan_out_does_not_block_emails
    batches_are_sent_while_events_keep_arriving
    settled_deliveries_and_batches_are_deleted_after_delivery_keep
    a_worker_releases_its_leases_when_it_stops
    a_worker_killed_with_its_clock_a_day_ahead_blocks_no_digest
    a_worker_whose_clock_is_set_back_scans_for_digests_again
    a_worker_whose_clock_is_behind_sends_no_email_twice
}

async fn accept(town: &Town, event: NewEvent) {
    town.process().notify().accept(vec![event]).await.unwrap();
}

async fn a_round_fans_out_events_and_sends_due_emails(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let (worker, mut scanned) = (town.process().worker(), None);
    accept(&town, request(&["a1"], followers_of("artist:1"), None)).await;

    let saturday = worker.round(&mut scanned, &NoProgress).await.unwrap();
    town.clock.set(monday(0));
    let monday = worker.round(&mut scanned, &NoProgress).await.unwrap();
    let idle = worker.round(&mut scanned, &NoProgress).await.unwrap();

    assert_eq!((saturday.fanouts.completed, monday.digests.unwrap().emails.sent), (1, 2));
    assert!(idle.is_idle());
}

async fn one_worker_scans_for_due_digests_every_15_minutes(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.clock.set(monday(0));
    let (first, second) = (town.process().worker(), town.process().worker());
    let (mut seen_by_first, mut seen_by_second) = (None, None);

    let a = first.round(&mut seen_by_first, &NoProgress).await.unwrap();
    let b = second.round(&mut seen_by_second, &NoProgress).await.unwrap();
    town.clock.advance(TimeDelta::minutes(15));
    let c = second.round(&mut seen_by_second, &NoProgress).await.unwrap();

    assert!(a.digests.is_some() && b.digests.is_none() && c.digests.is_some());
}

async fn a_failed_fan_out_does_not_block_emails(fresh: Fresh) {
    let town = Town::found(&fresh, true, "types.ArtworkPublished.route = \"immediate\"").await;
    town.happens(&["a1"], to(&["ada"])).await;
    // A round begins by claiming pending fan-outs, which fails here.
    let failing: Arc<dyn Store> =
        FailingStore::new(town.store.clone(), 0, Fault::Refused, Then::Recovers);
    let worker = town.process_on(&failing).worker();

    let round = worker.round(&mut None, &NoProgress).await.unwrap();

    let failed = round.fan_out_error.unwrap().to_string();
    assert!(failed.contains("claim_fanouts"), "{failed}");
    assert_eq!(town.emails().len(), 1);
}

/// A writer posts events faster than the worker fans them out, until an email is sent.
async fn batches_are_sent_while_events_keep_arriving(fresh: Fresh) {
    let config = "types.ArtworkPublished.route = \"batch\"\ntypes.ArtworkPublished.window = \"5m\"";
    let town = Town::found(&fresh, true, config).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.clock.advance(TimeDelta::minutes(5));
    let (stop, stopped) = watch::channel(false);
    let worker = town.process().worker();
    let working = tokio::spawn(async move { worker.run(stopped, |_, _| {}).await });
    let notify = town.process().notify();
    let posting = async {
        while town.emails().is_empty() {
            let events = vec![request(&["a2"], to(&["cem"]), None); 20];
            notify.accept(events).await.unwrap();
        }
    };

    tokio::time::timeout(std::time::Duration::from_secs(60), posting)
        .await
        .expect("an email is sent although events keep coming");

    stop.send(true).unwrap();
    working.await.unwrap().unwrap();
    assert_eq!(town.emails()[0].to.reveal(), "ada@example.org");
}

async fn settled_deliveries_and_batches_are_deleted_after_delivery_keep(fresh: Fresh) {
    let config = "types.ArtworkPublished.route = \"immediate\"\ndelivery.keep = \"14d\"";
    let town = Town::found(&fresh, true, config).await;
    let (worker, mut scanned) = (town.process().worker(), None);
    accept(&town, request(&["a1"], to(&["ada"]), None)).await;
    let first = worker.round(&mut scanned, &NoProgress).await.unwrap();
    assert_eq!((first.batches.ended, first.emails.sent), (1, 1));

    let mut forgotten = Vec::new();
    for days in [13, 1, 0] {
        town.clock.advance(TimeDelta::days(days) + TimeDelta::seconds(1));
        let round = worker.round(&mut scanned, &NoProgress).await.unwrap();
        forgotten.push((round.deleted.deliveries, round.deleted.batches));
    }

    assert_eq!(forgotten, [(0, 0), (1, 1), (0, 0)]);
    assert!(town.deliveries_of("ada").await.is_empty());
}

async fn a_worker_releases_its_leases_when_it_stops(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    accept(&town, request(&["a1"], to(&["ada"]), None)).await;
    let app = town.process();
    let now = tidings::clock::Clock::now(town.clock.as_ref());
    let worker = app.worker();
    fresh
        .claim_fanouts(&lease(&app.context.owner, now + TimeDelta::minutes(9)), now, 1.into())
        .await
        .unwrap();
    let (stop, stopped) = watch::channel(true);

    worker.run(stopped, |_, _| {}).await.unwrap();

    drop(stop);
    let done = town.process().fanouts().drain(&NoProgress).await.unwrap();
    assert_eq!(done.completed, 1, "the next worker need not wait for the lease to run out");
    assert_eq!(fresh.entries_of(&user("ada"), tidings::domain::Day::of(now)).await.len(), 1);
}

async fn a_worker_killed_with_its_clock_a_day_ahead_blocks_no_digest(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.clock.set(monday(0) + TimeDelta::days(1));
    let killed = town.process().worker();
    killed.round(&mut None, &NoProgress).await.unwrap();
    town.clock.set(monday(0) - TimeDelta::hours(1));
    town.happens(&["a1"], to(&["ada"])).await;

    town.clock.set(monday(0));
    let round = town.process().worker().round(&mut None, &NoProgress).await;

    assert_eq!(round.unwrap().digests.unwrap().emails.sent, 1);
}

async fn a_worker_whose_clock_is_set_back_scans_for_digests_again(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let (worker, mut scanned) = (town.process().worker(), None);
    town.clock.set(monday(0) + TimeDelta::days(1));
    worker.round(&mut scanned, &NoProgress).await.unwrap();
    town.clock.set(monday(0) - TimeDelta::hours(1));
    town.happens(&["a1"], to(&["ada"])).await;

    town.clock.set(monday(0));
    let round = worker.round(&mut scanned, &NoProgress).await.unwrap();

    assert_eq!(round.digests.unwrap().emails.sent, 1);
}

async fn a_worker_whose_clock_is_behind_sends_no_email_twice(fresh: Fresh) {
    let certainties =
        [Resolution::Repeat { within: None }, Resolution::Query, Resolution::Impossible];
    for certainty in certainties {
        fresh.clear().await;
        let town = Town::with(&fresh, certainty, "delivery.chunk = 10").await;
        let works: Vec<String> = town.crowd(8).await;
        let crowd: Vec<&str> = works.iter().map(String::as_str).collect();
        town.happens(&["a1"], to(&crowd)).await;
        let behind = Arc::new(ManualClock::at(monday(0) - TimeDelta::hours(3)));
        let other = town.process_by(behind).sender();
        // The other worker runs during a call.
        town.meanwhile(move || async move { drop(other.drain().await.unwrap()) }.boxed());

        town.digests_at(monday(0)).await;
        let deliver = town.process().sender();
        for hour in 1..60 {
            town.clock.set(monday(0) + TimeDelta::hours(hour));
            deliver.drain().await.unwrap();
        }

        let mut emailed: Vec<String> = town.emailed().into_keys().map(|(who, _)| who).collect();
        emailed.sort();
        assert_eq!((emailed, town.emails().len()), (works, 8), "{certainty:?}");
    }
}
