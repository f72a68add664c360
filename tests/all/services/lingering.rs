//! Tests that events in quick succession for large audiences are pushed together.
//!
//! The first event does not wait, and events for small audiences never do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::TimeDelta;
use futures::future::ready;
use tidings::app::App;
use tidings::domain::{FollowKey, UserId};
use tidings::engine::NoProgress;
use tidings::engine::fanout::FanOutService;
use tidings::store::Store;

use crate::support::town::{Town, followers_of, mostly_on_sqlite, request, to};
use crate::support::{FailingStore, Fresh, Shorthand, feed_of, people, user};

mostly_on_sqlite! {
    events_to_a_large_audience_are_pushed_together
    the_wait_ends_when_no_further_events_arrive
    a_full_group_does_not_wait
    a_group_is_no_larger_than_the_limit
    waiting_events_move_to_other_workers_after_a_stop_or_crash
    an_event_that_waits_longer_than_its_lease_is_fanned_out_once
    without_a_linger_time_no_event_waits
}

const LINGER: TimeDelta = TimeDelta::seconds(5);

/// Creates a town with 1,200 followers of one artist, more than the first page of an audience.
async fn town_with_followers(fresh: &Fresh, config: &str) -> Town {
    let town = Town::found(fresh, true, config).await;
    let follows: Vec<_> =
        people(1_200).into_iter().map(|person| (FollowKey::stored("artist:7"), person)).collect();
    town.store.follow(&follows).await;
    town
}

/// Three pages for 1,200 followers.
const PAGES: &str = "fanout.page = 500\n";

async fn publish(app: &App, objects: &[&str]) {
    for object in objects {
        let event = request(&[object], followers_of("artist:7"), None);
        app.notify().accept(vec![event]).await.unwrap();
    }
}

async fn feed_objects(town: &Town, person: &UserId) -> Vec<String> {
    let page = town.process().feeds().page(&feed_of(person)).await.unwrap();
    let items = page.answer.items.into_iter().rev();
    items.map(|item| item.object_id.to_string()).collect()
}

/// Fans out events that no longer wait, and returns the number of finished events.
async fn drain(fanouts: &FanOutService) -> u64 {
    fanouts.drain_within(LINGER, &NoProgress).await.unwrap().completed
}

/// Creates a process and a counter of its pushes.
fn counting(town: &Town) -> (App, Arc<AtomicUsize>) {
    let pushes = Arc::new(AtomicUsize::new(0));
    let counted = pushes.clone();
    let counting = FailingStore::waiting(
        town.store.clone(),
        Box::new(move |method| {
            counted.fetch_add(usize::from(method == "push"), Ordering::Relaxed);
            Box::pin(ready(()))
        }),
    );
    (town.process_on(&(counting as Arc<dyn Store>)), pushes)
}

/// Finishes one event, and leaves another one waiting.
async fn leave_one_waiting(app: &App, fanouts: &FanOutService) {
    publish(app, &["a1"]).await;
    assert_eq!(drain(fanouts).await, 1);
    publish(app, &["a2"]).await;
    assert_eq!(drain(fanouts).await, 0);
}

async fn events_to_a_large_audience_are_pushed_together(fresh: Fresh) {
    let town = town_with_followers(&fresh, PAGES).await;
    let (app, pushes) = counting(&town);
    let (fanouts, last) = (app.fanouts(), people(1_200).pop().unwrap());

    publish(&app, &["a1"]).await;
    assert_eq!(drain(&fanouts).await, 1, "the first waits for nothing");
    let alone = pushes.swap(0, Ordering::Relaxed);
    town.clock.advance(TimeDelta::seconds(1));
    publish(&app, &["a2"]).await;
    assert_eq!(drain(&fanouts).await, 0);
    let short = request(&["a3"], to(&["zoe"]), None);
    app.notify().accept(vec![short]).await.unwrap();
    town.clock.advance(TimeDelta::seconds(1));
    publish(&app, &["a4"]).await;
    assert_eq!(drain(&fanouts).await, 1, "of a short audience nobody waits");
    assert_eq!(feed_objects(&town, &user("zoe")).await, ["a3"]);
    assert_eq!(feed_objects(&town, &last).await, ["a1"]);
    pushes.store(0, Ordering::Relaxed);
    for work in ["a5", "a6"] {
        town.clock.advance(TimeDelta::seconds(1));
        publish(&app, &[work]).await;
        assert_eq!(drain(&fanouts).await, 0);
    }
    town.clock.advance(TimeDelta::milliseconds(999));
    assert_eq!(drain(&fanouts).await, 0);
    town.clock.advance(TimeDelta::milliseconds(1));
    assert_eq!(drain(&fanouts).await, 4);

    let together = pushes.load(Ordering::Relaxed);
    assert!(together <= alone + 1, "{together} pushes for four, {alone} for one");
    let all = ["a1", "a2", "a4", "a5", "a6"];
    assert_eq!(feed_objects(&town, &last).await, all);
    assert_eq!(town.store.backlog().await.pending, 0);
}

async fn the_wait_ends_when_no_further_events_arrive(fresh: Fresh) {
    let town = town_with_followers(&fresh, PAGES).await;
    let app = town.process();
    let fanouts = app.fanouts();
    publish(&app, &["a1"]).await;
    drain(&fanouts).await;
    for work in ["a2", "a3"] {
        town.clock.advance(TimeDelta::seconds(1));
        publish(&app, &[work]).await;
        assert_eq!(drain(&fanouts).await, 0);
    }

    // The wait ends after twice the interval between the events.
    town.clock.advance(TimeDelta::milliseconds(1_999));
    assert_eq!(drain(&fanouts).await, 0);
    town.clock.advance(TimeDelta::milliseconds(1));
    assert_eq!(drain(&fanouts).await, 2);
}

async fn a_full_group_does_not_wait(fresh: Fresh) {
    let town = town_with_followers(&fresh, &format!("{PAGES}fanout.merge = 3\n")).await;
    let app = town.process();
    let fanouts = app.fanouts();
    publish(&app, &["a1"]).await;
    drain(&fanouts).await;

    publish(&app, &["a2", "a3"]).await;
    let two = drain(&fanouts).await;
    publish(&app, &["a4"]).await;
    let three = drain(&fanouts).await;

    assert_eq!((two, three), (0, 3));
}

async fn a_group_is_no_larger_than_the_limit(fresh: Fresh) {
    let town = town_with_followers(&fresh, &format!("{PAGES}fanout.merge = 3\n")).await;
    let (app, pushes) = counting(&town);
    let fanouts = app.fanouts();
    publish(&app, &["a1"]).await;
    drain(&fanouts).await;
    let alone = pushes.swap(0, Ordering::Relaxed);
    publish(&app, &["a2", "a3"]).await;
    drain(&fanouts).await;

    publish(&app, &["a4", "a5", "a6"]).await;
    let five = drain(&fanouts).await;

    // A group of three and a group of two.
    assert_eq!((five, pushes.load(Ordering::Relaxed)), (5, 2 * alone));
}

async fn waiting_events_move_to_other_workers_after_a_stop_or_crash(fresh: Fresh) {
    for stops in [true, false] {
        fresh.clear().await;
        let town = town_with_followers(&fresh, &format!("{PAGES}fanout.lease = \"20s\"\n")).await;
        let (app, other) = (town.process(), town.process());
        let worker = app.worker();
        leave_one_waiting(&app, &worker.fanouts).await;
        assert_eq!(other.fanouts().drain(&NoProgress).await.unwrap().completed, 0);

        if stops {
            worker.release_leases().await.unwrap();
        } else {
            town.clock.advance(TimeDelta::seconds(21));
        }
        assert_eq!(other.fanouts().drain(&NoProgress).await.unwrap().completed, 1);

        // The first worker does not fan the event out again.
        town.clock.advance(LINGER);
        assert_eq!(drain(&worker.fanouts).await, 0);
        assert_eq!(feed_objects(&town, &people(1_200).pop().unwrap()).await, ["a1", "a2"]);
    }
}

async fn without_a_linger_time_no_event_waits(fresh: Fresh) {
    let town = town_with_followers(&fresh, PAGES).await;
    let app = town.process();
    let fanouts = app.fanouts();
    leave_one_waiting(&app, &fanouts).await;

    assert_eq!(fanouts.drain(&NoProgress).await.unwrap().completed, 1);
    publish(&app, &["a3"]).await;
    let round = app.worker().round(&mut None, &NoProgress).await.unwrap();
    assert_eq!(round.fanouts.completed, 1);
}

async fn an_event_that_waits_longer_than_its_lease_is_fanned_out_once(fresh: Fresh) {
    let town = town_with_followers(&fresh, &format!("{PAGES}fanout.lease = \"20s\"\n")).await;
    let app = town.process();
    let fanouts = app.fanouts();
    leave_one_waiting(&app, &fanouts).await;

    town.clock.advance(TimeDelta::seconds(21));
    let done = fanouts.drain_within(LINGER, &NoProgress).await.unwrap();

    assert_eq!((done.completed, done.counts.people), (1, 1_200));
}
