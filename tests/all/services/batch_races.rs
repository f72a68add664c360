//! Race tests of batches: a user has at most one open batch per key, and no event is lost or
//! counted twice.

use std::collections::BTreeMap;
use std::sync::Arc;

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::batch::{AccumulatorId, BatchItem, Keep};
use tidings::domain::{Batch, BatchKey, BatchPolicy, BatchState, DeliveryState, Id, ObjectId};
use tidings::engine::NoProgress;
use tidings::engine::batches::Join;
use tidings::store::BatchFilter;

use crate::support::town::{Town, on_both_stores};
use crate::support::{FailingStore, Fresh, Shorthand, id, kind, user};

on_both_stores! {
    sixty_four_concurrent_writers_open_one_batch_per_key
    an_event_that_joins_while_closers_run_is_in_one_batch
    a_stale_read_of_an_accumulator_loses_no_event
    a_batch_filed_with_other_events_gets_a_delivery
}

const WRITERS: u32 = 64;
const KEYS: usize = 250;

fn policy(window: i64) -> BatchPolicy {
    BatchPolicy {
        window: TimeDelta::seconds(window),
        cooldown: TimeDelta::zero(),
        max_wait: None,
        close_at: None,
        keep: Keep::Last(3),
        leading: false,
        deferred_until: None,
    }
}

fn accumulators(count: usize) -> impl Iterator<Item = AccumulatorId> {
    (0..count).map(|n| AccumulatorId {
        user: user(&format!("p{:03}", n / 2)),
        key: BatchKey::Chosen(["0", "false"][n % 2].parse().unwrap()),
    })
}

/// Returns the joins of one fan-out to the first `count` accumulators.
fn joins(count: usize, fanout: u32, policy: BatchPolicy) -> Vec<Join> {
    let object = ObjectId::stored(format!("o{fanout}"));
    let items: Arc<[BatchItem]> =
        [BatchItem { fanout_id: id(fanout), kind: kind("T"), object }].into();
    let join = |accumulator| Join { accumulator, items: items.clone(), policy };
    accumulators(count).map(join).collect()
}

async fn all_batches(town: &Town) -> Vec<Batch> {
    let (mut filter, mut found) = (BatchFilter::default(), Vec::new());
    loop {
        let page = town.store.find_batches(&filter, 1_000).await.unwrap();
        if page.is_empty() {
            return found;
        }
        filter.before = page.last().map(|batch| batch.id);
        found.extend(page);
    }
}

async fn sixty_four_concurrent_writers_open_one_batch_per_key(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let tasks: Vec<_> = (0..WRITERS)
        .map(|writer| {
            let joiner = town.process_on(&fresh.second().handle()).batches();
            let joins = joins(KEYS, writer, policy(300));
            tokio::spawn(async move { joiner.join(joins).await.unwrap() })
        })
        .collect();
    for task in tasks {
        task.await.unwrap();
    }

    let found = all_batches(&town).await;
    assert_eq!(found.len(), KEYS);
    let writers: Vec<Id> = (0..WRITERS).map(id).collect();
    for batch in found {
        assert_eq!(batch.state, BatchState::Open);
        assert_eq!(batch.events.count, u64::from(WRITERS));
        assert_eq!(batch.joined, writers);
        assert_eq!(batch.events.items.len(), 3);
    }
}

async fn an_event_that_joins_while_closers_run_is_in_one_batch(fresh: Fresh) {
    const ACCUMULATORS: usize = 20;
    const EVENTS: u32 = 10;
    let town = Town::of(&fresh).await;
    // Batches close after one second, or earlier with four events.
    let full = BatchPolicy { close_at: std::num::NonZeroU64::new(4), ..policy(1) };
    let writers = (0..4).map(|writer| {
        let (first, again) = (town.process(), town.process());
        let clock = town.clock.clone();
        tokio::spawn(async move {
            for event in 0..EVENTS {
                let fanout = event * 4 + writer;
                let joiner = first.batches();
                joiner.join(joins(ACCUMULATORS, fanout, full)).await.unwrap();
                // A repeated fan-out changes nothing.
                let joiner = again.batches();
                joiner.join(joins(ACCUMULATORS, fanout, full)).await.unwrap();
                clock.advance(TimeDelta::seconds(1));
            }
        })
    });
    let writers: Vec<_> = writers.collect();
    let closers = (0..3).map(|_| {
        let closer = town.process().batches();
        let (stop, mut stopped) = tokio::sync::oneshot::channel::<()>();
        let task = tokio::spawn(async move {
            while stopped.try_recv().is_err() {
                closer.drain(&NoProgress).await.unwrap();
                tokio::task::yield_now().await;
            }
        });
        (stop, task)
    });
    let closers: Vec<_> = closers.collect();
    for writer in writers {
        writer.await.unwrap();
    }
    for (stop, task) in closers {
        stop.send(()).unwrap();
        task.await.unwrap();
    }
    town.clock.advance(TimeDelta::hours(1));
    town.process().batches().drain(&NoProgress).await.unwrap();

    let mut joined: BTreeMap<(String, String), Vec<Id>> = BTreeMap::new();
    for batch in all_batches(&town).await {
        assert_eq!(batch.state, BatchState::Closing);
        assert_eq!(batch.events.count, batch.joined.len() as u64);
        let owner = (batch.user.to_string(), batch.key.to_string());
        joined.entry(owner).or_default().extend(batch.joined);
    }
    let mut expected: Vec<Id> = (0..EVENTS * 4).map(id).collect();
    expected.sort_unstable();
    assert_eq!(joined.len(), ACCUMULATORS);
    for (owner, mut fanouts) in joined {
        fanouts.sort_unstable();
        assert_eq!(fanouts, expected, "{owner:?}");
    }
    let rows = town.store.delivery_counts(&DeliveryState::ALL).await;
    let pending: u64 = rows.iter().map(|(_, count)| count).sum();
    assert_eq!(pending, all_batches(&town).await.len() as u64);
}

async fn a_stale_read_of_an_accumulator_loses_no_event(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let cooling = BatchPolicy {
        cooldown: TimeDelta::seconds(60),
        max_wait: Some(TimeDelta::hours(1)),
        keep: Keep::Last(10),
        ..policy(60)
    };
    let joiner = town.process().batches();
    joiner.join(joins(4, 1, cooling)).await.unwrap();
    let ids: Vec<AccumulatorId> = accumulators(4).collect();
    let before = town.store.accumulators(&ids).await.unwrap();
    town.clock.advance(TimeDelta::seconds(30));
    joiner.join(joins(4, 2, cooling)).await.unwrap();
    town.clock.advance(TimeDelta::minutes(5));

    // Simulates a scan of MongoDB's due index during which all due times changed. It returns the
    // earlier version of each accumulator.
    let before = before.into_iter().flatten().collect();
    let store = FailingStore::finding_stale_first(town.store.clone(), before);
    let process = town.process_on(&(store as _));
    process.batches().drain(&NoProgress).await.unwrap();
    town.process().batches().drain(&NoProgress).await.unwrap();

    let mut filed: BTreeMap<(String, String), Vec<Id>> = BTreeMap::new();
    for batch in all_batches(&town).await {
        let owner = (batch.user.to_string(), batch.key.to_string());
        let items = batch.events.items.iter().map(|item| item.fanout_id);
        filed.entry(owner).or_default().extend(items);
    }
    assert_eq!(filed.len(), 4);
    for (owner, items) in filed {
        assert_eq!(items, [id(1), id(2)], "{owner:?}");
    }
}

async fn a_batch_filed_with_other_events_gets_a_delivery(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let joiner = town.process().batches();
    joiner.join(joins(1, 1, policy(60))).await.unwrap();
    let ids: Vec<AccumulatorId> = accumulators(1).collect();
    let mut older = town.store.accumulators(&ids).await.unwrap().remove(0);
    joiner.join(joins(1, 2, policy(60))).await.unwrap();
    town.clock.advance(TimeDelta::minutes(5));
    let older = older.as_mut().unwrap();
    older.advance(town.clock.now());
    town.store.file_batches(&older.ended).await.unwrap();

    town.process().batches().drain(&NoProgress).await.unwrap();

    let rows = town.store.deliveries_in(DeliveryState::Pending, 10).await;
    assert_eq!(rows.len(), 1);
}
