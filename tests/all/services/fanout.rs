//! Tests of fan-outs: each user of the audience gets an event once; fan-outs are merged, resumed,
//! capped and counted.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use chrono::TimeDelta;
use futures::FutureExt;
use tidings::domain::{Audience, FanoutCounts, FanoutState, FollowKey, Point, User, UserId};
use tidings::engine::{NoProgress, Progress};
use tidings::store::Store;
use tokio::runtime::Handle;

use crate::support::town::{Town, followers_of, mostly_on_sqlite, request, to};
use crate::support::{Before, FailingStore, Fresh, Shorthand, feed_of, lease, people, user};

mostly_on_sqlite! {
    every_member_of_an_audience_gets_an_event_once
    a_follower_of_several_keys_gets_an_event_once
    excluded_users_do_not_get_an_event
    users_near_a_point_get_an_event
    a_reused_key_is_a_duplicate_or_a_conflict
    fan_outs_to_overlapping_audiences_keep_their_order
    a_fan_out_resumes_where_a_crashed_worker_stopped
    a_worker_whose_lease_expired_cannot_save_its_progress
    entries_beyond_the_day_cap_are_counted
    many_small_fan_outs_share_pushes_and_keep_their_order
    a_small_fan_out_does_not_overtake_earlier_ones
    a_fan_out_that_spans_midnight_stays_in_its_day
    a_small_audience_does_not_wait_for_a_large_one
    a_new_small_fan_out_does_not_wait_for_a_slow_one
}

/// Runs `action` after `at` pages, and stops the worker after `stop` pages.
struct Meanwhile<F> {
    pages: AtomicUsize,
    at: usize,
    stop: usize,
    action: F,
}

impl<F> Meanwhile<F> {
    fn new(at: usize, stop: usize, action: F) -> Self {
        let pages = AtomicUsize::new(0);
        Self { pages, at, stop, action }
    }
}

impl<F: AsyncFn() + Send + Sync> Progress for Meanwhile<F> {
    fn advance(&self, _: u64) {
        if self.pages.fetch_add(1, Ordering::Relaxed) + 1 == self.at {
            tokio::task::block_in_place(|| Handle::current().block_on((self.action)()));
        }
    }

    fn set_total(&self, _: u64) {}

    fn should_stop(&self) -> bool {
        self.pages.load(Ordering::Relaxed) >= self.stop
    }
}

/// Makes 3,000 users follow `key`: more pages than a worker processes here before it stops.
async fn crowd_follows(town: &Town, key: &str) {
    let crowd = people(3_000);
    let follows: Vec<_> =
        crowd.iter().map(|person| (FollowKey::stored(key), person.clone())).collect();
    town.store.follow(&follows).await;
}

async fn a_small_audience_does_not_wait_for_a_large_one(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    crowd_follows(&town, "artist:7").await;
    let app = town.process();
    let large = request(&["a1"], followers_of("artist:7"), None);
    let small = request(&["a2"], to(&["zoe"]), None);
    app.notify().accept(vec![large, small]).await.unwrap();

    let two_pages = Meanwhile::new(usize::MAX, 2, async || {});
    app.fanouts().drain(&two_pages).await.unwrap();

    assert_eq!(objects_of(&town, &user("zoe")).await, ["a2"]);
    assert_eq!(town.store.backlog().await.pending, 1);
}

async fn a_new_small_fan_out_does_not_wait_for_a_slow_one(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    crowd_follows(&town, "artist:7").await;
    let app = town.process();
    let large = request(&["a1"], followers_of("artist:7"), None);
    app.notify().accept(vec![large]).await.unwrap();

    let small = async || {
        let small = request(&["a2"], to(&["zoe"]), None);
        app.notify().accept(vec![small]).await.unwrap();
    };
    let three_pages = Meanwhile::new(2, 3, small);
    app.fanouts().drain(&three_pages).await.unwrap();

    assert_eq!(objects_of(&town, &user("zoe")).await, ["a2"]);
    assert_eq!(town.store.backlog().await.pending, 1);
    app.worker().release_leases().await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
    let last = people(3_000).pop().unwrap();
    assert_eq!(objects_of(&town, &last).await, ["a1"]);
}

async fn objects_of(town: &Town, person: &UserId) -> Vec<String> {
    let query = feed_of(person);
    let page = town.process().feeds().page(&query).await.unwrap();
    page.answer.items.into_iter().rev().map(|item| item.object_id.to_string()).collect()
}

async fn every_member_of_an_audience_gets_an_event_once(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let crowd = people(1_234);
    let follows: Vec<_> =
        crowd.iter().map(|person| (FollowKey::stored("artist:7"), person.clone())).collect();
    town.store.follow(&follows).await;

    let receipt = town.happens(&["a1"], followers_of("artist:7")).await;

    let fanout = town.store.fanout(receipt.id).await.unwrap().unwrap();
    assert_eq!(
        (fanout.state, fanout.progress.counts.people, fanout.progress.counts.pushed),
        (FanoutState::Done, 1_234, 1_234)
    );
    for person in &crowd {
        assert_eq!(fresh.entries_of(person, fanout.day).await.len(), 1, "{person}");
    }
}

async fn a_follower_of_several_keys_gets_an_event_once(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let keys = ["artist:1", "artist:2"].map(FollowKey::stored);

    let receipt = town.happens(&["a1"], Audience::followers_of(keys).unwrap()).await;

    let fanout = town.store.fanout(receipt.id).await.unwrap().unwrap();
    assert_eq!(fanout.progress.counts.people, 4);
    assert_eq!(fresh.entries_of(&user("ada"), fanout.day).await.len(), 1);
}

async fn excluded_users_do_not_get_an_event(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.happens(&["a1"], followers_of("artist:1").except([user("ada")])).await;
    town.happens(&["a2"], to(&["ada"]).except([user("ada")])).await;

    assert_eq!(objects_of(&town, &user("ada")).await, Vec::<String>::new());
    assert_eq!(objects_of(&town, &user("ben")).await, ["a1"]);
}

async fn users_near_a_point_get_an_event(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let place = |id: &str, lng, lat| User { loc: Point::new(lng, lat).ok(), ..User::new(user(id)) };
    town.store
        .put_users(&[place("potsdam", 13.06, 52.4), place("paris", 2.35, 48.86)])
        .await
        .unwrap();

    let berlin = Point::new(13.405, 52.52).unwrap();
    town.happens(&["a1"], Audience::near(berlin, 50.0).unwrap()).await;

    assert_eq!(objects_of(&town, &user("potsdam")).await, ["a1"]);
    assert_eq!(objects_of(&town, &user("paris")).await, Vec::<String>::new());
}

async fn a_reused_key_is_a_duplicate_or_a_conflict(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let notify = town.process().notify();
    let first = notify.accept(vec![request(&["a1"], to(&["ada"]), Some("k"))]).await.unwrap()[0];

    let again = town
        .process()
        .notify()
        .accept(vec![request(&["a1"], to(&["ada"]), Some("k"))])
        .await
        .unwrap()[0];
    let other =
        town.process().notify().accept(vec![request(&["a2"], to(&["ada"]), Some("k"))]).await;

    assert_eq!((again.id, again.duplicate, first.duplicate), (first.id, true, false));
    assert!(other.unwrap_err().to_string().contains("\"k\" was used for a different event"));
}

async fn fan_outs_to_overlapping_audiences_keep_their_order(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let app = town.process();
    let requests = vec![
        request(&["a1", "a2"], followers_of("artist:1"), None),
        request(&["a3"], followers_of("artist:2"), None),
        request(&["a4"], to(&["ada", "zoe"]), None),
    ];
    app.notify().accept(requests).await.unwrap();

    let done = app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!((done.completed, done.counts.people, done.counts.pushed), (3, 7, 10));
    assert_eq!(objects_of(&town, &user("ada")).await, ["a1", "a2", "a3", "a4"]);
    assert_eq!(objects_of(&town, &user("cem")).await, ["a3"]);
    assert_eq!(objects_of(&town, &user("zoe")).await, ["a4"]);
}

async fn a_fan_out_resumes_where_a_crashed_worker_stopped(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let crowd = people(450);
    let app = town.process();
    let audience = Audience::users(crowd.clone()).unwrap();
    app.notify().accept(vec![request(&["a1"], audience, None)]).await.unwrap();
    let now = tidings::clock::Clock::now(town.clock.as_ref());
    let claimed = town
        .store
        .claim_fanouts(&lease("dead", now + TimeDelta::minutes(1)), now, 10.into())
        .await
        .unwrap()
        .fanouts;
    let half = tidings::domain::FanoutProgress {
        cursor: Some(crowd[199].clone()),
        counts: tidings::domain::FanoutCounts { people: 200, pushed: 200, capped: 0 },
        done: false,
    };
    town.store
        .save_fanouts(&lease("dead", now + TimeDelta::minutes(1)), &[(claimed[0].id, half)])
        .await
        .unwrap();

    assert_eq!(
        app.fanouts().drain(&NoProgress).await.unwrap().completed,
        0,
        "the lease of the dead has not run out"
    );
    town.clock.advance(TimeDelta::minutes(2));
    let done = app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!((done.completed, done.counts.people), (1, 250));
    let fanout = town.store.fanout(claimed[0].id).await.unwrap().unwrap();
    assert_eq!(fanout.progress.counts.people, 450);
    assert!(
        fresh.entries_of(&crowd[199], fanout.day).await.is_empty(),
        "what the cursor says is done is not done again"
    );
    assert_eq!(fresh.entries_of(&crowd[200], fanout.day).await.len(), 1);
}

async fn a_worker_whose_lease_expired_cannot_save_its_progress(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let app = town.process();
    app.notify().accept(vec![request(&["a1"], to(&["ada"]), None)]).await.unwrap();
    let now = tidings::clock::Clock::now(town.clock.as_ref());
    let slow = town
        .store
        .claim_fanouts(&lease("slow", now + TimeDelta::minutes(1)), now, 10.into())
        .await
        .unwrap()
        .fanouts;
    town.clock.advance(TimeDelta::minutes(2));

    let done = app.fanouts().drain(&NoProgress).await.unwrap();
    let late = tidings::domain::FanoutProgress { done: true, ..Default::default() };
    let saved = town
        .store
        .save_fanouts(&lease("slow", now + TimeDelta::minutes(9)), &[(slow[0].id, late)])
        .await
        .unwrap();

    assert_eq!((done.completed, saved), (1, vec![false]));
    let fanout = town.store.fanout(slow[0].id).await.unwrap().unwrap();
    assert_eq!(fanout.progress.counts.people, 1);
}

async fn entries_beyond_the_day_cap_are_counted(fresh: Fresh) {
    let town = Town::found(&fresh, true, "fanout.day_cap = 10").await;
    let (app, saturday) = (town.process(), "20140419".parse().unwrap());
    let many: Vec<String> = (0..8).map(|n| format!("n{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    let first = town.happens(&many, to(&["ada", "ben"])).await;
    let second = app
        .notify()
        .accept(vec![request(&["x1", "x2", "x3"], to(&["ada", "cem"]), None)])
        .await
        .unwrap()[0];
    app.fanouts().drain(&NoProgress).await.unwrap();

    let (first, second) = (counts(&town, first.id).await, counts(&town, second.id).await);
    assert_eq!((first.pushed, first.capped), (16, 0));
    assert_eq!((second.people, second.pushed, second.capped), (2, 5, 1));
    assert_eq!(fresh.entries_of(&user("ada"), saturday).await.len(), 10);
}

/// Small fan-outs are merged beyond `fanout.merge`. Half of them go to one user, whose day is full
/// after 20 entries.
async fn many_small_fan_outs_share_pushes_and_keep_their_order(fresh: Fresh) {
    let config = "fanout.day_cap = 20\nfanout.merge = 1\n";
    let town = Town::found(&fresh, true, config).await;
    let names: Vec<String> = (0..50).map(|n| format!("n{n:02}")).collect();
    let requests = names.iter().enumerate().map(|(n, name)| {
        let others = [format!("p{n:02}")];
        let audience = match n % 2 {
            0 => to(&["ada"]),
            _ => to(&others.each_ref().map(String::as_str)),
        };
        request(&[name], audience, None)
    });
    let pushes = Arc::new(AtomicUsize::new(0));
    let count = pushes.clone();
    let counting: Before = Box::new(move |called| {
        count.fetch_add(usize::from(called == "push"), Ordering::Relaxed);
        std::future::ready(()).boxed()
    });
    let store: Arc<dyn Store> = FailingStore::waiting(town.store.clone(), counting);
    let app = town.process_on(&store);
    let accepted = app.notify().accept(requests.collect()).await.unwrap();

    app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!(pushes.load(Ordering::Relaxed), 2);
    let adas: Vec<&str> = names.iter().step_by(2).map(String::as_str).collect();
    assert_eq!(objects_of(&town, &user("ada")).await, adas[..20]);
    assert_eq!(objects_of(&town, &user("p49")).await, ["n49"]);
    for (n, receipt) in accepted.iter().enumerate() {
        let capped = u64::from(n % 2 == 0 && n >= 40);
        let FanoutCounts { people, pushed, capped: counted } = counts(&town, receipt.id).await;
        assert_eq!((people, pushed, counted), (1, 1 - capped, capped), "{n}");
    }
}

async fn a_small_fan_out_does_not_overtake_earlier_ones(fresh: Fresh) {
    let config = "fanout.merge = 2\n";
    let town = Town::found(&fresh, true, config).await;
    let crowd: Vec<String> = (0..16).map(|n| format!("p{n:02}")).collect();
    let with_crowd = |name: &'static str| {
        let all = crowd.iter().map(String::as_str).chain([name]);
        to(&all.collect::<Vec<_>>())
    };
    let names: Vec<String> = (0..16).map(|n| format!("n{n:02}")).collect();
    let requests = names.iter().enumerate().map(|(n, name)| match n {
        1 | 5 => request(&[name], with_crowd("ada"), None),
        2 => request(&[name], followers_of("artist:7"), None),
        _ => {
            let fifteen = crowd[..15].iter().map(String::as_str);
            request(&[name], to(&fifteen.chain(["ada"]).collect::<Vec<_>>()), None)
        }
    });
    let follow = [(FollowKey::stored("artist:7"), user("ada"))];
    town.store.follow(&follow).await;
    let app = town.process();
    app.notify().accept(requests.collect()).await.unwrap();

    app.fanouts().drain(&NoProgress).await.unwrap();

    assert_eq!(objects_of(&town, &user("ada")).await, names);
}

async fn counts(town: &Town, id: tidings::domain::Id) -> FanoutCounts {
    town.store.fanout(id).await.unwrap().unwrap().progress.counts
}

async fn a_fan_out_that_spans_midnight_stays_in_its_day(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    town.clock.set("2014-04-19T23:59:59Z".parse().unwrap());
    let app = town.process();
    let receipt = app.notify().accept(vec![request(&["a1"], to(&["ada"]), None)]).await.unwrap()[0];
    town.clock.set("2014-04-20T00:00:05Z".parse().unwrap());
    app.fanouts().drain(&NoProgress).await.unwrap();

    let day = town.store.fanout(receipt.id).await.unwrap().unwrap().day;
    assert_eq!(day.to_string(), "20140419");
    assert_eq!(fresh.entries_of(&user("ada"), day).await.len(), 1);
}
