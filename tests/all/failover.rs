//! P1, P2 and P3 on three nodes, while the primary is killed during fan-out, flush, batches,
//! digests and archiving.
//!
//! A kill waits for a state of the database or for a step, not for a time, so it always hits the
//! middle. Then the tests count each user's entries or emails. `TIDINGS_TEST_FAILOVERS` sets the
//! number of kills (`scripts/chaos --failovers`).

use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use bson::{Document, doc};
use chrono::TimeDelta;
use futures::{FutureExt, TryStreamExt};
use mongodb::{Client, Collection};
use tidings::app::App;
use tidings::clock::{Clock, ManualClock};
use tidings::config::Config;
use tidings::domain::{Audience, Day, DaySet, DeliveryState, Entry, UserId};
use tidings::email::{Outbox, SenderAddress};
use tidings::engine::NoProgress;
use tidings::engine::ingest::NewEvent;
use tidings::ids::Ids;
use tidings::store::mongo::{Mongo, MongoOptions};
use tidings::store::{NewMarker, Stacks, Store};

use crate::support::replica_set::{ReplicaSet, kill_primary, wait_for_three};
use crate::support::town::{Town, monday, request, saturday, to};
use crate::support::{FailingStore, Fresh, Shorthand, id, keep_days, kind, noon, number, people};

/// The number of users in the fan-out and in the flush.
const PEOPLE: usize = 40_000;

/// Kills the primary when `count` documents match. Returns the command line that restarts it.
async fn kill_when(
    client: Client,
    day: Collection<Document>,
    filter: Document,
    count: u64,
) -> Vec<String> {
    while day.count_documents(filter.clone()).await.unwrap() < count {
        tokio::task::yield_now().await;
    }
    kill_primary(&client).await
}

async fn store(set: &ReplicaSet) -> Arc<Mongo> {
    let store = Mongo::connect(&set.url("failover"), MongoOptions::default()).await.unwrap();
    store.prepare().await.unwrap();
    Arc::new(store)
}

/// Returns all users' entries of the day.
async fn stacks(store: &Mongo, day: Day) -> Vec<(UserId, Vec<Entry>)> {
    let chunks: Vec<_> =
        store.scan(DaySet::ending(day, 0), None, 5_000).try_collect().await.unwrap();
    chunks
        .into_iter()
        .flatten()
        .map(|mut person| (person.user, person.stacks.remove(0).entries))
        .collect()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failover_during_a_fan_out_or_flush_loses_and_duplicates_nothing() {
    let set = ReplicaSet::start();
    let (client, store) = (set.client().await, store(&set).await);
    let folder = tempfile::tempdir().unwrap();
    let sender = SenderAddress {
        from: tidings::domain::Address::new("tidings@example.org").unwrap(),
        from_name: "tidings".into(),
        reply_to: None,
    };
    let clock = Arc::new(ManualClock::at(noon()));
    let mailer = Arc::new(Outbox::new(folder.path(), sender, false));
    let app = App::assemble(
        Config::with_defaults(),
        store.clone(),
        mailer,
        clock.clone(),
        Arc::new(Ids::random()),
    )
    .unwrap();
    let (day, crowd) = (Day::of(clock.now()), people(PEOPLE));
    let collection = client.database("failover").collection::<Document>(&day.collection_name());

    // An event with two objects is fanned out to all users. The primary dies after a third of them.
    let audience = Audience::users(crowd.clone()).unwrap();
    let receipt =
        app.notify().accept(vec![request(&["a1", "a2"], audience, None)]).await.unwrap()[0];
    let third = PEOPLE as u64 / 3;
    let fanouts = app.fanouts();
    let killer = tokio::spawn(kill_when(client.clone(), collection.clone(), doc! {}, third));
    let done = fanouts.drain(&NoProgress).await.unwrap();
    let line = killer.await.unwrap();

    assert_eq!(
        (done.completed, done.counts.people, done.counts.pushed),
        (1, PEOPLE as u64, 2 * PEOPLE as u64)
    );
    let found = stacks(&store, day).await;
    assert_eq!(
        found.iter().map(|(user, _)| user).collect::<Vec<_>>(),
        crowd.iter().collect::<Vec<_>>()
    );
    for (user, entries) in &found {
        let pushed = |o: &str| {
            entries.iter().filter(|e| matches!(e, Entry::Event(e) if e.object.as_str() == o && e.fanout_id == Some(receipt.id))).count()
        };
        assert_eq!((entries.len(), pushed("a1"), pushed("a2")), (2, 1, 1), "{user}");
    }

    // Restart the dead node, so that another one may die.
    let mut revived =
        Command::new(&line[0]).args(&line[1..]).stdout(Stdio::null()).spawn().unwrap();
    wait_for_three(&client).await;

    // All users' stacks are marked. The primary dies after a third of them.
    let marks: Vec<NewMarker> = crowd
        .iter()
        .map(|user| {
            NewMarker::Flushed(
                user.clone(),
                id(7),
                vec![(tidings::domain::StackId::for_day(day), 2)],
            )
        })
        .collect();
    let killer = tokio::spawn(kill_when(
        client.clone(),
        collection.clone(),
        doc! {"events.2": {"$exists": true}},
        third,
    ));
    store.write_markers(&marks).await.unwrap();
    killer.await.unwrap();

    for (user, entries) in stacks(&store, day).await {
        assert_eq!(entries.len(), 3, "{user}");
        assert!(
            matches!(&entries[2], Entry::DigestMarker(marker) if marker.id == Some(id(7)) && marker.n == Some(2)),
            "{user}: {entries:?}"
        );
    }
    let _ = revived.kill();
    let _ = revived.wait();
}

/// The steps before which the primary dies, in turn: writes, and reads that decisions depend on.
const STEPS: [&str; 19] = [
    "filed",
    "windows",
    "push",
    "address_states",
    "put_accumulators",
    "open",
    "deliveries",
    "write_markers",
    "settle",
    "file_batches",
    "users",
    "hand_over",
    "claim_fanouts",
    "accumulators",
    "settle_batches",
    "close",
    "pending",
    "save_fanouts",
    "claim",
];

const CROWD: usize = 30;

const CONFIG: &str = r#"
delivery.chunk = 20
types.CommentAdded.route = "batch"
types.CommentAdded.window = "5m"
"#;

/// Repeats the attempt with a new process until it succeeds. A process that meets an error is dead,
/// and its leases expire.
async fn retry_until_done<F: Future<Output = bool>>(town: &Town, attempt: impl Fn() -> F) {
    while !attempt().await {
        town.clock.advance(TimeDelta::minutes(6));
    }
}

/// Simulates a week: a batch with a comment, a digest with a work, and the archiving of old days.
async fn week(town: &Town, store: &Arc<dyn Store>, week: i64, crowd: &[&str]) {
    let (comment, work) = (format!("c{week}"), format!("w{week}"));
    town.put_works(&[&comment, &work], |_| true).await;
    let start = saturday() + TimeDelta::weeks(week);
    town.clock.set(start.max(town.clock.now()));
    let commented =
        NewEvent { kind: kind("CommentAdded"), ..request(&[&comment], to(crowd), Some(&comment)) };
    let published = request(&[&work], to(crowd), Some(&work));
    let events = [commented, published];
    let process = || town.process_on(store);
    retry_until_done(town, || async { process().notify().accept(events.to_vec()).await.is_ok() })
        .await;
    retry_until_done(town, || async { process().fanouts().drain(&NoProgress).await.is_ok() }).await;
    town.clock.advance(TimeDelta::minutes(5));
    retry_until_done(town, || async { process().batches().drain(&NoProgress).await.is_ok() }).await;
    retry_until_done(town, || async {
        let deliver = process().sender();
        deliver.drain().await.is_ok()
    })
    .await;
    town.clock.set(monday(week).max(town.clock.now()));
    retry_until_done(town, || async {
        process().digests().run(&Default::default(), &NoProgress).await.is_ok()
    })
    .await;
    let old = keep_days(15);
    retry_until_done(town, || async {
        process().archive().run(&old, &NoProgress, &mut Vec::new()).await.is_ok()
    })
    .await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn repeated_failovers_lose_duplicate_and_cancel_no_email() {
    let failovers = number("TIDINGS_TEST_FAILOVERS", 2) as i64;
    println!("TIDINGS_TEST_FAILOVERS={failovers}");
    let set = ReplicaSet::start();
    let client = set.client().await;
    let (first, second) = (store(&set).await, store(&set).await);
    let clear = Arc::new(|| async { unreachable!("nobody empties it") }.boxed());
    let fresh = Fresh::new(first.clone(), second, clear, set.url("failover"));
    let town = Town::found(&fresh, true, CONFIG).await;
    let crowd = town.crowd(CROWD).await;
    let crowd: Vec<&str> = crowd.iter().map(String::as_str).collect();
    let mut revived: Vec<Child> = Vec::new();

    for week_of in 0..failovers {
        let step = STEPS[week_of as usize % STEPS.len()];
        println!("failover {week_of}: before {step}");
        let (sender, killed) = tokio::sync::oneshot::channel();
        let dying = client.clone();
        let kill = async move { sender.send(kill_primary(&dying).await).unwrap() };
        let failing = FailingStore::before(first.clone(), step, kill.boxed());
        let view: Arc<dyn Store> = failing;
        week(&town, &view, week_of, &crowd).await;
        let line = killed.await.expect("every step is taken every week");
        let node = Command::new(&line[0]).args(&line[1..]).stdout(Stdio::null()).spawn();
        revived.push(node.unwrap());
        wait_for_three(&client).await;
    }
    // The deliveries of dead processes can be claimed once their leases expire.
    town.clock.advance(TimeDelta::hours(12));
    town.process().sender().drain().await.unwrap();

    let emailed = town.emailed_works();
    let works: Vec<String> =
        (0..failovers).flat_map(|n| [format!("c{n}"), format!("w{n}")]).collect();
    let expected = crowd
        .iter()
        .flat_map(|person| works.iter().map(|work| (((*person).to_owned(), work.clone()), 1)));
    let canceled = first.deliveries_in(DeliveryState::Canceled, 1_000).await;
    println!("{failovers} failovers, {} emails, {} canceled", town.emails().len(), canceled.len());
    assert_eq!(canceled, []);
    assert_eq!(emailed, expected.collect());
    for mut node in revived {
        let _ = node.kill();
        let _ = node.wait();
    }
}
