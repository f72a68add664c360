//! Contract tests of `Diagnostics`: it reports facts about the store and changes nothing.

use chrono::{DateTime, TimeDelta, Utc};
use tidings::clock::{Clock, SystemClock};
use tidings::domain::delivery::Settlement;
use tidings::domain::{Delivery, DeliveryState, FanoutProgress};
use tidings::store::{Engine, OutstandingWork, Topology, WaitingItems};

use super::batches::opened;
use crate::support::*;

pub async fn a_store_reports_its_engine_and_version(store: Fresh) {
    let version = match store.condition().await.unwrap().engine {
        Engine::Sqlite { version, journal } => {
            assert_eq!(journal, "wal");
            version
        }
        Engine::Mongo(version, topology) => {
            assert!(matches!(topology, Topology::ReplicaSet(1..)), "{topology:?}");
            version
        }
    };

    assert!(version.starts_with(|c: char| c.is_ascii_digit()), "{version}");
    assert!(version.contains('.'), "{version}");
}

pub async fn a_new_store_has_every_index(store: Fresh) {
    assert_eq!(store.condition().await.unwrap().missing_indexes.unwrap(), [""; 0]);
}

pub async fn reading_the_server_clock_creates_no_records(store: Fresh) {
    let before = SystemClock.now() - TimeDelta::seconds(1);
    let time = store.condition().await.unwrap().server_time;
    let after = SystemClock.now() + TimeDelta::seconds(1);

    assert!(time.is_none_or(|at| before < at && at < after), "{time:?}");
    assert_eq!(store.days().await.unwrap().len(), 0);
}

const MANY: u64 = 100;

fn pile(count: u64, since: DateTime<Utc>) -> WaitingItems {
    WaitingItems { count, since: Some(since) }
}

pub async fn outstanding_work_is_counted_with_its_oldest_time(store: Fresh) {
    let now = noon() + minutes(60);
    let nothing = store.outstanding(now, MANY).await.unwrap();
    assert_eq!(nothing, OutstandingWork::default());
    let fanouts = [fanout(1), fanout(2), fanout(3)];
    store.accept(&fanouts).await.unwrap();
    let claimed = store.claim_fanouts(&lease("w", now), noon(), 1.into()).await.unwrap();
    let done = FanoutProgress { done: true, ..FanoutProgress::default() };
    let first = claimed.fanouts[0].id;
    store.save_fanouts(&lease("w", now), &[(first, done)]).await.unwrap();
    let accumulators = [opened("ada", "k", 1, 5), opened("ben", "k", 3, 7)];
    store.put_accumulators(&accumulators, id(50)).await.unwrap();
    let row = |person: &str, minute: i64| Delivery {
        created: noon() + minutes(minute),
        ..delivery(person, "2014-04-21", "w")
    };
    let rows = [row("ada", 4), row("ben", 2), row("cem", 1), row("dee", 3)];
    store.open(&rows).await.unwrap();
    let ends = [
        Settlement::for_row(&rows[2], DeliveryState::Sent, 1, None),
        Settlement::for_row(&rows[3], DeliveryState::Unknown, 1, Some("why")),
    ];
    store.settle("w", now, &ends).await;

    let found = store.outstanding(now, MANY).await.unwrap();
    let at_most = store.outstanding(now, 1).await.unwrap();

    let expected = OutstandingWork {
        fanouts: pile(2, fanouts[1].at),
        batches_open: 2,
        batches_due: pile(2, accumulators[0].next_due().unwrap()),
        pending: pile(2, noon() + minutes(2)),
        sending: WaitingItems::default(),
        unknown: pile(1, noon() + minutes(3)),
    };
    assert_eq!(found, expected);
    assert_eq!((at_most.fanouts.count, at_most.batches_open), (1, 1));
    assert_eq!(at_most.pending, pile(1, noon() + minutes(2)));
}
