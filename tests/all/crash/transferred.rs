//! An export and an import whose processes die: at every named point, at random, and in a town
//! that goes on.
//!
//! `tidings export` and `tidings import store` are killed and repeated until they end, from SQLite
//! to MongoDB. Then both stores hold the same, and no user of the town gets an email twice or none.
//! `TIDINGS_TEST_MOVES` says how often they are killed, and `TIDINGS_TEST_PEOPLE` how many users
//! there are (`scripts/chaos --moves`).

use std::time::{Duration, Instant};

use tidings::domain::user::TypePreference;
use tidings::domain::{
    Address, Audience, BatchState, Cadence, Delivery, DeliveryState, Inbox, Object, Route,
    Suppression, SuppressionReason, User, UserId,
};
use tidings::engine::crash::{EXPORT_POINTS, IMPORT_POINTS};
use tidings::store::{AnyRecord, ChecksumBuilder, CountedRecords, RecordKind};

use super::stage::Stage;
use crate::mail::provider::Dialect;
use crate::store_laws::batches::opened;
use crate::support::{
    Dice, Fresh, Shorthand, delivery, events, fanout, follow_line, id, key, kind, lease, minutes,
    mongo, noon, number, push_to_all, sqlite, today, user,
};

/// A test on a fresh store of each kind.
macro_rules! from_sqlite_to_mongo {
    ($($test:ident)*) => {
        mod to_mongo {
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $test() {
                    super::sqlite::run(|source| async move {
                        super::mongo::run(|target| super::$test(source, target)).await;
                    })
                    .await;
                }
            )*
        }
    };
}

from_sqlite_to_mongo! {
    killed_at_every_named_point_everything_is_the_same_at_the_end
    killed_at_random_everything_is_the_same_at_the_end
    a_record_that_arrives_before_the_mark_stops_the_import
    a_town_that_moves_loses_and_repeats_no_email
    a_town_that_moves_with_unknown_outcomes_loses_and_repeats_no_email
}

/// Writes the records of this number of users in the middle of a day: half of them have open
/// batches, and emails to a quarter are being sent.
async fn fill(store: &Fresh, count: u64) {
    let people: Vec<UserId> = (0..count).map(|n| user(&format!("q{n:07}"))).collect();
    for (chunk, first) in people.chunks(10_000).zip((0_u32..).step_by(10_000)) {
        let numbered = || chunk.iter().zip(first..);
        let users = numbered().map(|(person, n)| AnyRecord::from(record(person, n)));
        put(store, RecordKind::Users, users.collect()).await;
        let follows = numbered().map(|(person, n)| {
            let line = follow_line(&key(&format!("artist:{}", n % 50)), person);
            AnyRecord::from_line(RecordKind::Follows, &line).unwrap()
        });
        put(store, RecordKind::Follows, follows.collect()).await;
        let half = numbered().filter(|(_, n)| n % 2 == 0);
        let gathering =
            half.map(|(person, n)| AnyRecord::from(opened(person.as_str(), "k", 1_000 + n, 0)));
        put(store, RecordKind::Accumulators, gathering.collect()).await;
        let rows = numbered().map(|(person, n)| AnyRecord::from(row(person, n)));
        put(store, RecordKind::Deliveries, rows.collect()).await;
        let some = numbered().filter(|(_, n)| n % 10 == 0);
        let inboxes = some.map(|(person, _)| {
            let changed = noon();
            let inbox = Inbox::empty(person.clone());
            AnyRecord::from(Inbox { changed, ..inbox })
        });
        put(store, RecordKind::Inboxes, inboxes.collect()).await;
        let some = numbered().filter(|(_, n)| n % 50 == 0);
        let suppressed = some.map(|(person, _)| {
            AnyRecord::from(Suppression {
                address: address(person),
                reason: SuppressionReason::ALL[0],
                at: noon(),
                source: "operator".into(),
                detail: None,
                lifted: None,
            })
        });
        put(store, RecordKind::Suppressions, suppressed.collect()).await;
        for back in 0..2 {
            let pushes = push_to_all(chunk, events(2, 10 + back));
            store.push(today().days_before(back), 1_000, &pushes).await.unwrap();
        }
    }
    let works =
        (0..500).map(|n| AnyRecord::from(Object::without_data(format!("a{n}").parse().unwrap())));
    put(store, RecordKind::Objects, works.collect()).await;
    let mut half_way = fanout(9);
    half_way.audience = Audience::users(people.iter().cloned()).unwrap();
    half_way.progress.cursor = people.get(people.len() / 2).cloned();
    half_way.lease = Some(lease("died", noon() + minutes(1)));
    let journal = (100..600).map(|n| {
        let mut done = fanout(n);
        done.state = tidings::domain::FanoutState::Done;
        done.progress.done = true;
        done
    });
    let journal = journal.chain([half_way]).map(AnyRecord::from);
    put(store, RecordKind::Fanouts, journal.collect()).await;
    store.put_note("link_secret", "what links are signed with").await;
}

async fn put(store: &Fresh, kind: RecordKind, records: Vec<AnyRecord>) {
    let lines: Vec<String> = records.iter().map(|record| record.to_line().unwrap()).collect();
    store.whole().import_records(kind, &lines).await.unwrap();
}

fn address(person: &UserId) -> Address {
    Address::new(format!("{person}@example.org")).unwrap()
}

fn record(person: &UserId, n: u32) -> User {
    let mut record = User {
        email: Some(address(person)),
        confirmed: !n.is_multiple_of(7),
        ..User::new(person.clone())
    };
    let routes = [Route::Never, Route::Immediate, Route::Batch, Route::Digest];
    let route = TypePreference::new(routes[n as usize % 4], noon());
    record.types.insert(kind("ArtworkPublished"), route);
    record.digest.cadence = [Some(Cadence::Daily), Some(Cadence::Weekly), None][n as usize % 3];
    record
}

fn row(person: &UserId, n: u32) -> Delivery {
    let mut row = delivery(person.as_str(), "2014-04-22", "died");
    if n.is_multiple_of(4) {
        row.state = DeliveryState::Sending;
        row.attempts.call = Some(format!("call-{}", n / 1_000));
        (row.attempts.called_at, row.attempts.made) = (Some(noon()), 1);
        row.outcome.items = 2;
    } else {
        (row.state, row.open, row.lease) = (DeliveryState::Sent, false, None);
        row.outcome.settled = Some(noon());
        row.outcome.provider_id = Some(format!("p-{n}"));
    }
    row
}

/// What a store holds, by kind and by day: how many, and a checksum.
async fn sums(store: &Fresh) -> Vec<(String, u64, String)> {
    let mut sums = Vec::new();
    for kind in RecordKind::ALL {
        let mut summing = ChecksumBuilder::default();
        for page in store.pages(kind).await {
            assert_eq!(page.unreadable, [""; 0]);
            page.lines.iter().for_each(|line| summing.add(line));
        }
        let sum = summing.finish();
        sums.push((kind.as_str().to_owned(), sum.records, sum.sha256));
    }
    for day in store.days().await.unwrap() {
        let mut summing = ChecksumBuilder::default();
        store.exported(day).await.iter().for_each(|line| summing.add(line));
        let sum = summing.finish();
        sums.push((day.to_string(), sum.records, sum.sha256));
    }
    sums
}

/// That the verbs that everything else is done by tell the same of both.
async fn answer_the_same(source: &Fresh, target: &Fresh, count: u64) {
    let some: Vec<UserId> = (0..count).step_by(97).map(|n| user(&format!("q{n:07}"))).collect();
    let counted = [
        CountedRecords::Batches(BatchState::Open),
        CountedRecords::Deliveries(DeliveryState::Sending),
        CountedRecords::Deliveries(DeliveryState::Sent),
        CountedRecords::Stacks(today()),
    ];
    let counts = source.count(&counted).await.unwrap();
    assert_eq!(counts[..2], [count.div_ceil(2), count.div_ceil(4)]);
    assert_eq!(target.count(&counted).await.unwrap(), counts);
    let unrevised = |users: Vec<Option<User>>| -> Vec<User> {
        let known = users.into_iter().flatten();
        let revision = tidings::domain::user::Revision::NONE;
        known.map(|user| User { revision, ..user }).collect()
    };
    let users = unrevised(source.users(&some).await.unwrap());
    assert_eq!(users.len(), some.len());
    assert_eq!(unrevised(target.users(&some).await.unwrap()), users);
    for person in &some {
        let (here, there) = (source.deliveries_of(person, 9), target.deliveries_of(person, 9));
        assert_eq!(there.await, here.await);
    }
    let journal = source.fanout(id(9)).await.unwrap();
    assert!(journal.is_some());
    assert_eq!(target.fanout(id(9)).await.unwrap(), journal);
}

async fn killed_at_every_named_point_everything_is_the_same_at_the_end(
    source: Fresh,
    target: Fresh,
) {
    fill(&source, 60).await;
    let before = sums(&source).await;
    let stage = Stage::set(&source, Dialect::Resend, 1).await;
    let with_stage = sums(&source).await;
    assert_ne!(before, with_stage);

    for point in EXPORT_POINTS {
        stage.dies_at(&EXPORT, point).await;
    }
    stage.succeeds(&EXPORT).await;
    for point in IMPORT_POINTS {
        stage.dies_at(&import(&target), point).await;
    }
    stage.succeeds(&import(&target)).await;

    assert_eq!(sums(&target).await, with_stage);
    assert_eq!(sums(&source).await, with_stage);
    answer_the_same(&source, &target, 60).await;
}

/// A generous timeout for slow machines.
const LONG: Duration = Duration::from_secs(120);
/// The first step of a move.
const EXPORT: [&str; 3] = ["export", "--close", "moving"];

/// The second step of a move.
fn import(target: &Fresh) -> [&str; 5] {
    ["--store", target.url(), "import", "store", "moving"]
}

async fn a_record_that_arrives_before_the_mark_stops_the_import(source: Fresh, target: Fresh) {
    fill(&source, 9).await;
    let stage = Stage::set(&source, Dialect::Resend, 1).await;
    stage.succeeds(&EXPORT).await;
    let stop = [("TIDINGS_STOP", "import-checked")];
    let mut suspended = stage.start(&import(&target), &stop);
    suspended.wait_until_stopped(LONG).await;
    let late = [User::new(user("q0000001"))];
    target.put_users(&late).await.unwrap();
    let lines = target.lines().await;

    suspended.signal("CONT");

    let status = suspended.ended(LONG).await.expect("it ends by itself");
    assert_eq!(status.code(), Some(2));
    assert_eq!(target.whole().transfer_mark().await.unwrap(), None);
    assert_eq!(target.lines().await, lines);
}

async fn killed_at_random_everything_is_the_same_at_the_end(source: Fresh, target: Fresh) {
    let (seed, kills, people) = (
        number("TIDINGS_TEST_SEED", 1),
        number("TIDINGS_TEST_MOVES", 3),
        number("TIDINGS_TEST_PEOPLE", 200),
    );
    println!("TIDINGS_TEST_SEED={seed} TIDINGS_TEST_MOVES={kills} TIDINGS_TEST_PEOPLE={people}");
    fill(&source, people).await;
    let stage = Stage::set(&source, Dialect::Resend, seed).await;
    let before = sums(&source).await;
    let records: u64 = before.iter().map(|(_, count, _)| count).sum();
    println!("{records} records in {} parts", before.len());
    let (mut dice, began) = (Dice(seed), Instant::now());

    let exported = async || stage.holds("moving/manifest.json");
    let imported = async || {
        let mark = target.whole().transfer_mark().await.unwrap();
        println!("{mark:?}");
        mark.is_none() && sums(&target).await == before
    };
    // All kills hit the step, however many records there are.
    let longest = 300 + people / 20;
    let mut moment = || Duration::from_millis(dice.below(longest));
    for _ in 0..kills {
        if !exported().await {
            stage.killed_after(moment(), &EXPORT).await;
        }
    }
    if !exported().await {
        stage.succeeds(&EXPORT).await;
    }
    for _ in 0..kills {
        if !imported().await {
            stage.killed_after(moment(), &import(&target)).await;
        }
    }
    if !imported().await {
        stage.succeeds(&import(&target)).await;
    }
    let took = began.elapsed().as_secs_f64();
    println!("moved after {took:.1} s");

    assert_eq!(sums(&target).await, before);
    assert_eq!(sums(&source).await, before);
    answer_the_same(&source, &target, people).await;
}

async fn a_town_that_moves_loses_and_repeats_no_email(source: Fresh, target: Fresh) {
    moves_in_the_middle(Dialect::Resend, &source, &target).await;
}

async fn a_town_that_moves_with_unknown_outcomes_loses_and_repeats_no_email(
    source: Fresh,
    target: Fresh,
) {
    moves_in_the_middle(Dialect::SendGrid, &source, &target).await;
}

async fn moves_in_the_middle(dialect: Dialect, source: &Fresh, target: &Fresh) {
    let mut stage = Stage::set(source, dialect, 3).await;
    stage.add_day().await;
    stage.digest_dies_at("after-sending").await;
    stage.add_batch_events().await;
    stage.worker_dies_at("after-send").await;
    stage.add_day().await;
    stage.worker_dies_at("after-push").await;

    stage.dies_at(&EXPORT, "export-written").await;
    stage.succeeds(&EXPORT).await;
    for point in ["import-put", "import-compared"] {
        stage.dies_at(&import(target), point).await;
    }
    stage.succeeds(&import(target)).await;
    stage.use_store(target);
    stage.kill_at_random(3).await;
    stage.settle("after the move").await;
}
