//! Compares batches with a plain [`model`] after random sequences of actions.
//!
//! After each action, the batches in accumulators and the filed ones equal those of the model.
//! Every action is valid in every state, so proptest can shrink a failing list of actions.
//! `TIDINGS_TEST_SEED` selects the sequences and `TIDINGS_TEST_CASES` their number.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use chrono::{DateTime, TimeDelta, Utc};
use proptest::prelude::*;
use proptest::test_runner::{Config as Settings, RngSeed, TestRunner};
use tidings::clock::ManualClock;
use tidings::config::Config;
use tidings::context::Context;
use tidings::domain::batch::{AccumulatorId, BatchItem, Keep};
use tidings::domain::{
    Batch, BatchKey, BatchPolicy, BatchState, ChosenKey, DeliveryId, Id, ObjectId,
};
use tidings::engine::NoProgress;
use tidings::engine::batches::{BatchService, EndAction, Join};
use tidings::ids::Ids;
use tidings::metrics::{BuildInfo, Metrics};
use tidings::store::{BatchFilter, Store};

use crate::support::town::mostly_on_sqlite;
use crate::support::{FailingStore, Fault, Fresh, Shorthand, Then, id, kind, noon, number, user};

mod model;

use model::{BatchView, Model, Reached, Slot};

mostly_on_sqlite! {
    batches_equal_a_plain_model_after_every_action
}

const PEOPLE: [&str; 2] = ["ada", "ben"];
const KEYS: [&str; 4] = ["window", "cooldown", "leading", "immediate"];
const OBJECTS: u32 = 4;
const LEASE: i64 = 60;
/// Seconds by which the clock of the second process is slow.
const BEHIND: i64 = 7;
/// An upper bound of the store calls that a closer makes in one run.
const CALLS: usize = 8;

fn policies() -> Vec<BatchPolicy> {
    let seconds = TimeDelta::seconds;
    let most = std::num::NonZeroU64::new;
    let immediate = BatchPolicy::IMMEDIATE;
    vec![
        BatchPolicy { window: seconds(60), close_at: most(4), keep: Keep::Last(2), ..immediate },
        BatchPolicy {
            cooldown: seconds(30),
            max_wait: Some(seconds(100)),
            keep: Keep::First(2),
            ..immediate
        },
        BatchPolicy {
            window: seconds(50),
            cooldown: seconds(20),
            max_wait: Some(seconds(90)),
            close_at: most(3),
            leading: true,
            ..immediate
        },
        immediate,
    ]
}

/// Creates the service of a process without quiet hours.
fn service(
    store: Arc<dyn Store>,
    clock: &Arc<ManualClock>,
    ids: &Arc<Ids>,
    owner: String,
    lease: TimeDelta,
) -> BatchService {
    let mut config = Config::with_defaults();
    config.fanout.lease = lease;
    let context = Arc::new(Context {
        owner,
        ..Context::new(
            config,
            store,
            clock.clone(),
            ids.clone(),
            Metrics::new(BuildInfo::default()),
        )
    });
    BatchService { context }
}

/// Returns the policy of the key. Every fourth fan-out has another type that shares the key.
fn policy(key: usize, fanout: u32) -> BatchPolicy {
    let mut policy = policies()[key];
    if fanout % 4 == 3 && !policy.is_immediate() {
        policy.cooldown += TimeDelta::seconds(15);
        policy.keep = Keep::Last(3);
    }
    policy
}

#[derive(Debug, Clone)]
enum Action {
    /// One of two processes adds events to batches, each for these people.
    Join {
        second: bool,
        fanouts: Vec<(FanoutChoice, Vec<usize>)>,
    },
    Advance(i64),
    RunCloser,
    /// The closer's nth store call and all later ones fail.
    CrashCloser(usize, Fault),
    Remove(u32),
    End(Slot, EndAction),
    Settle,
}

/// A new event of a key, or one that was fanned out before.
#[derive(Debug, Clone)]
enum FanoutChoice {
    New { key: usize },
    Repeated(prop::sample::Index),
}

fn action() -> impl Strategy<Value = Action> {
    let people = prop::sample::subsequence(vec![0, 1], 1..=PEOPLE.len());
    let choice = prop_oneof![
        4 => (0..KEYS.len()).prop_map(|key| FanoutChoice::New { key }),
        1 => any::<prop::sample::Index>().prop_map(FanoutChoice::Repeated),
    ];
    let slot = (0..PEOPLE.len(), 0..KEYS.len());
    let fault = prop_oneof![Just(Fault::Refused), Just(Fault::Unheard)];
    let how = prop_oneof![Just(EndAction::Close), Just(EndAction::Cancel)];
    prop_oneof![
        8 => (any::<bool>(), prop::collection::vec((choice, people), 1..=3))
            .prop_map(|(second, fanouts)| Action::Join { second, fanouts }),
        4 => (1..80_i64).prop_map(Action::Advance),
        2 => Just(Action::RunCloser),
        2 => (0..CALLS, fault).prop_map(|(nth, fault)| Action::CrashCloser(nth, fault)),
        2 => (0..OBJECTS).prop_map(Action::Remove),
        2 => (slot, how).prop_map(|(slot, how)| Action::End(slot, how)),
        1 => Just(Action::Settle),
    ]
}

async fn batches_equal_a_plain_model_after_every_action(fresh: Fresh) {
    let (seed, cases) = (number("TIDINGS_TEST_SEED", 1), number("TIDINGS_TEST_CASES", 40));
    println!("TIDINGS_TEST_SEED={seed} TIDINGS_TEST_CASES={cases}");
    let mut runner = TestRunner::new(Settings {
        cases: u32::try_from(cases).unwrap(),
        rng_seed: RngSeed::Fixed(seed),
        failure_persistence: None,
        ..Settings::default()
    });
    let runtime = tokio::runtime::Handle::current();
    let sequences = prop::collection::vec(action(), 1..40);
    tokio::task::block_in_place(|| {
        let case = |actions: Vec<Action>| {
            runtime.block_on(async {
                fresh.clear().await;
                let mut machine = Machine::new(&fresh);
                for (n, action) in actions.iter().enumerate() {
                    machine.apply(action).await;
                    let stored = machine.stored_views().await;
                    prop_assert_eq!(stored, machine.model.views(), "after action {}", n);
                }
                Ok(())
            })
        };
        runner.run(&sequences, case).unwrap();
    });
}

/// The model, and the store under test.
struct Machine<'a> {
    model: Model,
    fresh: &'a Fresh,
    clock: Arc<ManualClock>,
    behind: Arc<ManualClock>,
    ids: [Arc<Ids>; 3],
    /// Seconds since noon.
    now: i64,
    /// The key of each fan-out so far.
    fanouts: Vec<usize>,
    closers: usize,
}

impl<'a> Machine<'a> {
    fn new(fresh: &'a Fresh) -> Self {
        Self {
            model: Model::default(),
            fresh,
            clock: Arc::new(ManualClock::at(noon())),
            behind: Arc::new(ManualClock::at(noon() - TimeDelta::seconds(BEHIND))),
            ids: [1, 2, 3].map(|process| Arc::new(Ids::deterministic(process))),
            now: 0,
            fanouts: Vec::new(),
            closers: 0,
        }
    }

    async fn apply(&mut self, action: &Action) {
        match action {
            Action::Join { second, fanouts } => self.join_fanouts(*second, fanouts).await,
            Action::Advance(seconds) => self.advance(*seconds),
            Action::RunCloser => self.run_closer().await,
            Action::CrashCloser(nth, fault) => self.crash_closer(*nth, *fault).await,
            Action::Remove(object) => {
                let about = [ObjectId::stored(object.to_string())];
                let out = self.book().remove_events(&kind("Happened"), &about, None).await;
                let removed = self.model.remove(*object, self.now);
                assert_eq!(out.unwrap().removed, removed);
            }
            Action::End(slot, how) => self.end_open_batch(*slot, *how).await,
            Action::Settle => self.settle_all().await,
        }
    }

    fn advance(&mut self, seconds: i64) {
        self.now += seconds;
        self.clock.advance(TimeDelta::seconds(seconds));
        self.behind.advance(TimeDelta::seconds(seconds));
    }

    async fn join_fanouts(&mut self, second: bool, fanouts: &[(FanoutChoice, Vec<usize>)]) {
        let (store, clock, ids, at) = if second {
            let store = self.fresh.second().handle();
            (store, &self.behind, &self.ids[1], self.now - BEHIND)
        } else {
            (self.fresh.handle(), &self.clock, &self.ids[0], self.now)
        };
        let owner = format!("joiner {second}");
        let joiner = service(store, clock, ids, owner, TimeDelta::minutes(1));
        let mut joins = Vec::new();
        for (choice, people) in fanouts {
            let number = match choice {
                FanoutChoice::Repeated(before) if !self.fanouts.is_empty() => {
                    before.index(self.fanouts.len())
                }
                FanoutChoice::Repeated(_) => continue,
                FanoutChoice::New { key } => {
                    self.fanouts.push(*key);
                    self.fanouts.len() - 1
                }
            };
            let key = self.fanouts[number];
            let fanout = number as u32;
            // Every third fan-out has two objects.
            let object_count = 1 + u32::from(fanout.is_multiple_of(3));
            let objects: Vec<u32> = (0..object_count).map(|n| (fanout + n) % OBJECTS).collect();
            let item = |object: &u32| BatchItem {
                fanout_id: id(fanout),
                kind: kind("Happened"),
                object: ObjectId::stored(object.to_string()),
            };
            let items: Arc<[BatchItem]> = objects.iter().map(item).collect();
            let policy = policy(key, fanout);
            for person in people {
                let slot = (*person, key);
                joins.push(Join { accumulator: accumulator(slot), items: items.clone(), policy });
                self.model.join(slot, fanout, &objects, &policy, at);
            }
        }
        joiner.join(joins).await.unwrap();
    }

    fn closer(&mut self, store: &Arc<impl Store + 'static>) -> BatchService {
        self.closers += 1;
        let owner = format!("closer {}", self.closers);
        let lease = TimeDelta::seconds(LEASE);
        service(store.clone(), &self.clock, &self.ids[2], owner, lease)
    }

    async fn run_closer(&mut self) {
        let store = FailingStore::counting(self.fresh.handle());
        self.closer(&store).drain(&NoProgress).await.unwrap();
        self.model.close(self.now, Reached::Finished);
    }

    async fn crash_closer(&mut self, nth: usize, fault: Fault) {
        let failing = FailingStore::new(self.fresh.handle(), nth, fault, Then::StaysDown);
        let died = self.closer(&failing).drain(&NoProgress).await.is_err();
        assert_eq!(died, failing.struck().is_some());
        let done = failing.verbs();
        let (ended, filed) = (done.contains("put_accumulators"), done.contains("file_batches"));
        let leased = Reached::Ended { leased_until: self.now + LEASE };
        let reached = match (failing.struck(), fault) {
            (None, _) => Reached::Finished,
            (Some("find_accumulators" | "users"), _) if ended => Reached::Finished,
            (Some("find_accumulators" | "users"), _) => Reached::Nothing,
            (Some("put_accumulators"), Fault::Refused) if !filed => Reached::Nothing,
            (Some("put_accumulators"), Fault::Unheard) if filed => Reached::Finished,
            (Some("put_accumulators" | "file_batches" | "open" | "accumulators"), _) => leased,
            (Some(other), _) => panic!("closers do not call {other}"),
        };
        self.model.close(self.now, reached);
    }

    fn book(&self) -> BatchService {
        let store = self.fresh.second().handle();
        let (owner, lease) = ("book".to_owned(), TimeDelta::minutes(1));
        service(store, &self.clock, &self.ids[2], owner, lease)
    }

    async fn end_open_batch(&mut self, slot: Slot, how: EndAction) {
        let accumulator = accumulator(slot);
        let open = BatchFilter {
            user: Some(accumulator.user),
            key: Some(accumulator.key),
            state: Some(BatchState::Open),
            before: None,
        };
        let book = self.book();
        let found = book.list(&open, 9).await.unwrap();
        assert_eq!(found.len(), usize::from(self.model.is_open(slot)));
        for batch in found {
            let ended = book.end(batch.id, how).await.unwrap().unwrap();
            assert_eq!(ended.id, batch.id);
            let state = match how {
                EndAction::Close => BatchState::Closing,
                EndAction::Cancel => BatchState::Canceled,
            };
            self.model.end(slot, state, self.now);
        }
    }

    /// Waits for the leases of crashed closers, runs a closer, and settles every email.
    async fn settle_all(&mut self) {
        self.advance(LEASE);
        self.run_closer().await;
        let (closing, now) = (BatchState::Closing, self.current_time());
        let all = self.filed().await;
        let settled: Vec<(Id, BatchState)> = all
            .iter()
            .filter(|batch| batch.state == closing)
            .map(|batch| (batch.id, BatchState::Closed))
            .collect();
        self.fresh.settle_batches(&settled, now).await.unwrap();
        self.model.settle();
        let counts = self.fresh.batch_counts().await;
        let open = self.model.views().iter().filter(|view| view.state == "open").count();
        assert_eq!((counts.open, counts.closing), (open as u64, 0));
    }

    fn current_time(&self) -> DateTime<Utc> {
        noon() + TimeDelta::seconds(self.now)
    }

    async fn filed(&self) -> Vec<Batch> {
        let all = BatchFilter::default();
        let mut found = self.fresh.find_batches(&all, 10_000).await.unwrap();
        let ids: Vec<Id> = found.iter().map(|batch| batch.id).collect();
        let filed = self.fresh.filed_batches(&ids).await.unwrap();
        found = filed.into_iter().flatten().collect();
        found
    }

    /// Returns all stored batches. Checks that each batch outside its accumulator has a delivery,
    /// unless it was canceled.
    async fn stored_views(&self) -> Vec<BatchView> {
        let slots: Vec<Slot> = (0..PEOPLE.len())
            .flat_map(|person| (0..KEYS.len()).map(move |key| (person, key)))
            .collect();
        let accumulators: Vec<AccumulatorId> =
            slots.iter().map(|slot| accumulator(*slot)).collect();
        let accumulators = self.fresh.accumulators(&accumulators).await.unwrap();
        let filed = self.filed().await;
        let mut batches: BTreeMap<Id, Batch> = BTreeMap::new();
        let mut detached: BTreeSet<Id> = filed.iter().map(|batch| batch.id).collect();
        for accumulator in accumulators.into_iter().flatten() {
            for batch in accumulator.open.into_iter().chain(accumulator.ended) {
                detached.remove(&batch.id);
                batches.insert(batch.id, batch);
            }
        }
        batches.extend(filed.into_iter().map(|batch| (batch.id, batch)));
        let detached: Vec<Id> = detached.into_iter().collect();
        let rows: Vec<DeliveryId> = detached.iter().copied().map(DeliveryId::batch).collect();
        let rows = self.fresh.deliveries(&rows).await.unwrap();
        for (batch, row) in detached.iter().zip(rows) {
            let canceled = batches[batch].state == BatchState::Canceled;
            assert_eq!(row.is_none(), canceled, "{:?}", batches[batch]);
        }
        let mut views: Vec<BatchView> = batches.values().map(view_of).collect();
        views.sort();
        views
    }
}

fn accumulator((person, key): Slot) -> AccumulatorId {
    AccumulatorId {
        user: user(PEOPLE[person]),
        key: BatchKey::Chosen(ChosenKey::new(KEYS[key]).unwrap()),
    }
}

fn view_of(batch: &Batch) -> BatchView {
    let number = |fanout: &Id| (0..).find(|n| id(*n) == *fanout).unwrap();
    let items = |items: &[BatchItem]| {
        let item =
            |item: &BatchItem| (number(&item.fanout_id), item.object.as_str().parse().unwrap());
        items.iter().map(item).collect()
    };
    let person = PEOPLE.iter().position(|one| user(one) == batch.user);
    let key = |key: &&str| {
        let chosen = ChosenKey::new(*key).unwrap();
        BatchKey::Chosen(chosen) == batch.key
    };
    BatchView {
        slot: (person.unwrap(), KEYS.iter().position(key).unwrap()),
        state: batch.state.as_str(),
        count: batch.events.count,
        kept: items(&batch.events.items),
        joined: batch.joined.iter().map(number).collect(),
        has_led: !batch.lead_fanouts.is_empty(),
        closes_at: (batch.closes_at - noon()).num_seconds(),
    }
}
