//! Events that keep coming to very many people are pushed together; the first waits for nothing,
//! and nobody of a short audience does.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::TimeDelta;
use futures::future::ready;
use tidings::app::App;
use tidings::domain::{FollowKey, UserId};
use tidings::engine::Silent;
use tidings::engine::fanout::Fanouts;
use tidings::store::Store;

use crate::support::town::{Town, followers_of, on_both_stores, request, to};
use crate::support::{FailingStore, Fresh, Shorthand, feed_of, people, user};

on_both_stores! {
    what_keeps_coming_to_long_audiences_is_pushed_together
    what_comes_no_more_is_waited_for_no_longer
    the_most_that_go_together_wait_for_nothing
    no_more_go_together_than_may
    what_waits_is_fanned_out_by_others_once_its_holder_stops_or_dies
    what_was_held_for_longer_than_its_lease_is_fanned_out_once
    without_a_linger_nothing_waits
}

const LINGER: TimeDelta = TimeDelta::seconds(5);

/// Whom a long audience is of: more than are looked up at first.
async fn founded(fresh: &Fresh, config: &str) -> Town {
    let town = Town::found(fresh, true, config).await;
    let follows: Vec<_> = people(1_200)
        .into_iter()
        .map(|person| (FollowKey::stored("artist:7"), person))
        .collect();
    town.store.follow(&follows).await.unwrap();
    town
}

/// Its pages hold 500 people.
const PAGES: &str = "fanout.page = 500\n";

async fn publish(app: &App, works: &[&str]) {
    for work in works {
        let event = request(&[work], followers_of("artist:7"), None);
        app.notify().accept(vec![event]).await.unwrap();
    }
}

async fn seen_by(town: &Town, person: &UserId) -> Vec<String> {
    let page = town.process().feeds().page(&feed_of(person)).await.unwrap();
    let items = page.answer.items.into_iter().rev();
    items.map(|item| item.object.to_string()).collect()
}

/// How many events were done.
async fn works(fanouts: &Fanouts) -> u64 {
    fanouts.drain_within(LINGER, &Silent).await.unwrap().done
}

/// A process, and how often it has pushed.
fn counting(town: &Town) -> (App, Arc<AtomicUsize>) {
    let pushes = Arc::new(AtomicUsize::new(0));
    let counted = pushes.clone();
    let counting = FailingStore::waiting(
        town.store.clone(),
        Box::new(move |verb| {
            counted.fetch_add(usize::from(verb == "push"), Ordering::Relaxed);
            Box::pin(ready(()))
        }),
    );
    (town.process_on(&(counting as Arc<dyn Store>)), pushes)
}

/// One event has reached everybody, and another is held.
async fn one_is_held(app: &App, fanouts: &Fanouts) {
    publish(app, &["a1"]).await;
    assert_eq!(works(fanouts).await, 1);
    publish(app, &["a2"]).await;
    assert_eq!(works(fanouts).await, 0);
}

async fn what_keeps_coming_to_long_audiences_is_pushed_together(fresh: Fresh) {
    let town = founded(&fresh, PAGES).await;
    let (app, pushes) = counting(&town);
    let (fanouts, last) = (app.fanouts(), people(1_200).pop().unwrap());

    publish(&app, &["a1"]).await;
    assert_eq!(works(&fanouts).await, 1, "the first waits for nothing");
    let alone = pushes.swap(0, Ordering::Relaxed);
    town.clock.advance(TimeDelta::seconds(1));
    publish(&app, &["a2"]).await;
    assert_eq!(works(&fanouts).await, 0);
    let short = request(&["a3"], to(&["zoe"]), None);
    app.notify().accept(vec![short]).await.unwrap();
    town.clock.advance(TimeDelta::seconds(1));
    publish(&app, &["a4"]).await;
    assert_eq!(works(&fanouts).await, 1, "of a short audience nobody waits");
    assert_eq!(seen_by(&town, &user("zoe")).await, ["a3"]);
    assert_eq!(seen_by(&town, &last).await, ["a1"]);
    pushes.store(0, Ordering::Relaxed);
    for work in ["a5", "a6"] {
        town.clock.advance(TimeDelta::seconds(1));
        publish(&app, &[work]).await;
        assert_eq!(works(&fanouts).await, 0);
    }
    town.clock.advance(TimeDelta::milliseconds(999));
    assert_eq!(works(&fanouts).await, 0);
    town.clock.advance(TimeDelta::milliseconds(1));
    assert_eq!(works(&fanouts).await, 4);

    let together = pushes.load(Ordering::Relaxed);
    assert!(
        together <= alone + 1,
        "{together} pushes for four, {alone} for one"
    );
    let all = ["a1", "a2", "a4", "a5", "a6"];
    assert_eq!(seen_by(&town, &last).await, all);
    assert_eq!(town.store.backlog().await.unwrap().pending, 0);
}

async fn what_comes_no_more_is_waited_for_no_longer(fresh: Fresh) {
    let town = founded(&fresh, PAGES).await;
    let app = town.process();
    let fanouts = app.fanouts();
    publish(&app, &["a1"]).await;
    works(&fanouts).await;
    for work in ["a2", "a3"] {
        town.clock.advance(TimeDelta::seconds(1));
        publish(&app, &[work]).await;
        assert_eq!(works(&fanouts).await, 0);
    }

    // Twice as long as they were apart.
    town.clock.advance(TimeDelta::milliseconds(1_999));
    assert_eq!(works(&fanouts).await, 0);
    town.clock.advance(TimeDelta::milliseconds(1));
    assert_eq!(works(&fanouts).await, 2);
}

async fn the_most_that_go_together_wait_for_nothing(fresh: Fresh) {
    let town = founded(&fresh, &format!("{PAGES}fanout.merge = 3\n")).await;
    let app = town.process();
    let fanouts = app.fanouts();
    publish(&app, &["a1"]).await;
    works(&fanouts).await;

    publish(&app, &["a2", "a3"]).await;
    let two = works(&fanouts).await;
    publish(&app, &["a4"]).await;
    let three = works(&fanouts).await;

    assert_eq!((two, three), (0, 3));
}

async fn no_more_go_together_than_may(fresh: Fresh) {
    let town = founded(&fresh, &format!("{PAGES}fanout.merge = 3\n")).await;
    let (app, pushes) = counting(&town);
    let fanouts = app.fanouts();
    publish(&app, &["a1"]).await;
    works(&fanouts).await;
    let alone = pushes.swap(0, Ordering::Relaxed);
    publish(&app, &["a2", "a3"]).await;
    works(&fanouts).await;

    publish(&app, &["a4", "a5", "a6"]).await;
    let five = works(&fanouts).await;

    // Three and two.
    assert_eq!((five, pushes.load(Ordering::Relaxed)), (5, 2 * alone));
}

async fn what_waits_is_fanned_out_by_others_once_its_holder_stops_or_dies(fresh: Fresh) {
    for stops in [true, false] {
        fresh.clear().await;
        let town = founded(&fresh, &format!("{PAGES}fanout.lease = \"20s\"\n")).await;
        let (app, other) = (town.process(), town.process());
        let worker = app.worker();
        one_is_held(&app, &worker.fanouts).await;
        assert_eq!(other.fanouts().drain(&Silent).await.unwrap().done, 0);

        if stops {
            worker.release().await.unwrap();
        } else {
            town.clock.advance(TimeDelta::seconds(21));
        }
        assert_eq!(other.fanouts().drain(&Silent).await.unwrap().done, 1);

        // Whoever was suspended meanwhile finds that it is done.
        town.clock.advance(LINGER);
        assert_eq!(works(&worker.fanouts).await, 0);
        assert_eq!(
            seen_by(&town, &people(1_200).pop().unwrap()).await,
            ["a1", "a2"]
        );
    }
}

async fn without_a_linger_nothing_waits(fresh: Fresh) {
    let town = founded(&fresh, PAGES).await;
    let app = town.process();
    let fanouts = app.fanouts();
    one_is_held(&app, &fanouts).await;

    assert_eq!(fanouts.drain(&Silent).await.unwrap().done, 1);
    publish(&app, &["a3"]).await;
    let round = app.worker().round(&mut None, &Silent).await.unwrap();
    assert_eq!(round.fanouts.done, 1);
}

async fn what_was_held_for_longer_than_its_lease_is_fanned_out_once(fresh: Fresh) {
    let town = founded(&fresh, &format!("{PAGES}fanout.lease = \"20s\"\n")).await;
    let app = town.process();
    let fanouts = app.fanouts();
    one_is_held(&app, &fanouts).await;

    town.clock.advance(TimeDelta::seconds(21));
    let done = fanouts.drain_within(LINGER, &Silent).await.unwrap();

    assert_eq!((done.done, done.counts.people), (1, 1_200));
}
