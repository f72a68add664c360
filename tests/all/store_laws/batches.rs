//! Contract tests of `Batches` for filed batches and for filters: a batch is filed once, settled
//! once, and found newest first.

use chrono::TimeDelta;
use tidings::domain::batch::{Accumulator, AccumulatorId, BatchItem, EndAction, Keep};
use tidings::domain::{Batch, BatchKey, BatchPolicy, BatchState, ChosenKey, Id};
use tidings::store::{BatchFilter, ExpiringRecords};

use crate::support::*;

pub(crate) const WINDOW: BatchPolicy = BatchPolicy {
    window: TimeDelta::minutes(5),
    cooldown: TimeDelta::zero(),
    max_wait: None,
    close_at: None,
    keep: Keep::Last(10),
    leading: false,
    deferred_until: None,
};

pub(super) fn accumulator_id(person: &str, key: &str) -> AccumulatorId {
    AccumulatorId { user: user(person), key: BatchKey::Chosen(ChosenKey::new(key).unwrap()) }
}

pub(crate) fn item(object: &str, fanout: u32) -> BatchItem {
    let event = event(object, fanout);
    BatchItem { fanout_id: id(fanout), kind: event.kind, object: event.object }
}

/// An accumulator with a batch that this fan-out opened `minute` minutes after noon.
pub(crate) fn opened(person: &str, key: &str, fanout: u32, minute: i64) -> Accumulator {
    let mut accumulator = Accumulator::new(accumulator_id(person, key));
    let items = [item("a1", fanout), item("a2", fanout)];
    accumulator.join(&items, noon() + minutes(minute), &WINDOW, || id(1_000 + fanout));
    accumulator
}

pub(super) async fn put(store: &Fresh, accumulator: &Accumulator, revision: u32) -> bool {
    let accumulators = std::slice::from_ref(accumulator);
    store.put_accumulators(accumulators, id(revision)).await.unwrap() == [true]
}

pub(super) async fn read(store: &Fresh, accumulator: &AccumulatorId) -> Option<Accumulator> {
    let ids = std::slice::from_ref(accumulator);
    store.accumulators(ids).await.unwrap().pop().unwrap()
}

pub(super) fn closing(person: &str, key: &str, fanout: u32) -> Batch {
    let mut accumulator = opened(person, key, fanout, 0);
    accumulator.end(id(1_000 + fanout), EndAction::Close, noon() + minutes(1)).unwrap();
    accumulator.ended.pop().unwrap()
}

pub async fn a_batch_is_filed_once_and_read_back_with_every_field(store: Fresh) {
    let batch = closing("ada", "k", 1);
    let mut canceled = closing("ben", "k", 2);
    (canceled.state, canceled.settled) = (BatchState::Canceled, Some(noon()));
    canceled.lead_fanouts = vec![id(2)];
    let filed = [batch.clone(), canceled.clone()];
    assert_eq!(store.file_batches(&filed).await.unwrap(), [true, true]);
    assert_eq!(store.file_batches(&filed).await.unwrap(), [true, true]);

    let requested = [canceled.id, id(5), batch.id];
    let found = store.second().filed_batches(&requested).await.unwrap();
    assert_eq!(found, [Some(canceled), None, Some(batch)]);
}

pub async fn filing_a_batch_again_with_other_events_is_a_conflict(store: Fresh) {
    let (batch, other) = (closing("ada", "k", 1), closing("ben", "k", 2));
    store.file_batches(std::slice::from_ref(&batch)).await.unwrap();
    let mut counts = batch.clone();
    counts.events.count = 99;
    let mut joined = batch.clone();
    joined.joined.push(id(9));
    let mut settled = batch.clone();
    (settled.state, settled.settled) = (BatchState::Closed, Some(noon()));

    for (another, same) in [(counts, false), (joined, false), (settled, true)] {
        let filed = store.file_batches(&[other.clone(), another]).await;
        assert_eq!(filed.unwrap(), [true, same]);
    }

    let found = store.second().filed_batches(&[batch.id]).await.unwrap();
    assert_eq!(found, [Some(batch)]);
}

pub async fn only_a_closing_batch_is_settled(store: Fresh) {
    let batches = [closing("ada", "k", 1), closing("ben", "k", 2)];
    store.file_batches(&batches).await.unwrap();
    let [first, second] = batches.map(|batch| batch.id);
    let ends = [(first, BatchState::Closed), (second, BatchState::Canceled)];
    store.settle_batches(&ends, noon()).await.unwrap();

    let again = [(first, BatchState::Canceled), (id(5), BatchState::Closed)];
    store.settle_batches(&again, noon() + minutes(5)).await.unwrap();

    let found = store.filed_batches(&[first, second]).await.unwrap();
    let found = found.into_iter().flatten();
    let states: Vec<_> = found.map(|batch| (batch.state, batch.settled)).collect();
    assert_eq!(states, [(BatchState::Closed, Some(noon())), (BatchState::Canceled, Some(noon()))]);
}

pub async fn batches_are_found_by_user_key_and_state_newest_first(store: Fresh) {
    let mut ending = opened("ada", "j", 4, 0);
    ending.end(id(1_004), EndAction::Cancel, noon()).unwrap();
    let accumulators = [opened("ada", "k", 1, 0), opened("ben", "k", 3, 0), ending];
    store.put_accumulators(&accumulators, id(50)).await.unwrap();
    store.file_batches(&[closing("ada", "k", 2), closing("eve", "k", 5)]).await.unwrap();
    let find = |mut filter: BatchFilter, before: Option<u32>, limit| {
        let store = store.second();
        filter.before = before.map(|n| id(1_000 + n));
        async move {
            let found = store.find_batches(&filter, limit);
            let found = found.await.unwrap().into_iter();
            let numbers = (1..6).map(|n| (id(1_000 + n), n)).collect::<Vec<_>>();
            let number = |batch: Batch| numbers.iter().find(|(id, _)| *id == batch.id).unwrap().1;
            found.map(number).collect::<Vec<_>>()
        }
    };
    let all = BatchFilter::default();
    let ada = BatchFilter { user: Some(user("ada")), ..all.clone() };
    let k = BatchFilter { key: Some(accumulator_id("ada", "k").key), ..all.clone() };
    let of = |state| BatchFilter { state: Some(state), ..all.clone() };

    assert_eq!(find(all.clone(), None, 10).await, [5, 4, 3, 2, 1]);
    assert_eq!(find(all.clone(), None, 2).await, [5, 4]);
    assert_eq!(find(all.clone(), Some(4), 2).await, [3, 2]);
    assert_eq!(find(ada.clone(), None, 10).await, [4, 2, 1]);
    assert_eq!(find(k.clone(), None, 10).await, [5, 3, 2, 1]);
    assert_eq!(find(of(BatchState::Open), None, 10).await, [3, 1]);
    assert_eq!(find(of(BatchState::Closing), None, 10).await, [5, 2]);
    assert_eq!(find(of(BatchState::Canceled), None, 10).await, [4]);
    assert_eq!(find(of(BatchState::Closed), None, 10).await, [0; 0]);
    let both =
        BatchFilter { state: Some(BatchState::Open), user: ada.user, key: k.key, before: None };
    assert_eq!(find(both, None, 10).await, [1]);
}

pub async fn batch_counts_are_exact(store: Fresh) {
    assert_eq!(store.batch_counts().await, BatchCounts::default());
    let mut ending = opened("ada", "j", 4, 0);
    ending.end(id(1_004), EndAction::Close, noon()).unwrap();
    let accumulators = [opened("ada", "k", 1, 0), opened("ben", "k", 3, 0), ending];
    store.put_accumulators(&accumulators, id(50)).await.unwrap();
    let filed = [closing("ada", "k", 2), closing("eve", "k", 5)];
    store.file_batches(&filed).await.unwrap();
    let settled = [(filed[1].id, BatchState::Closed)];
    store.settle_batches(&settled, noon()).await.unwrap();

    let counts = store.batch_counts().await;

    assert_eq!((counts.open, counts.closing), (2, 2));
}

pub async fn old_settled_batches_are_removed_in_small_steps(store: Fresh) {
    let batches: Vec<Batch> = (0..5).map(|n| closing("ada", "k", n)).collect();
    store.file_batches(&batches).await.unwrap();
    for (batch, minute) in batches[..4].iter().zip([3, 1, 2, 9]) {
        let settled = [(batch.id, BatchState::Closed)];
        let at = noon() + minutes(minute);
        store.settle_batches(&settled, at).await.unwrap();
    }
    let remaining = || async {
        let ids: Vec<Id> = batches.iter().map(|batch| batch.id).collect();
        let remaining = store.filed_batches(&ids).await.unwrap();
        remaining.iter().map(Option::is_some).collect::<Vec<_>>()
    };

    let before = noon() + minutes(9);
    let forget = || store.forget(ExpiringRecords::Batches, before, 2);
    assert_eq!(forget().await.unwrap(), 2);
    assert_eq!(remaining().await, [true, false, false, true, true]);
    assert_eq!(forget().await.unwrap(), 1);
    assert_eq!(forget().await.unwrap(), 0);
    assert_eq!(remaining().await, [false, false, false, true, true]);
}

pub async fn a_limit_of_zero_finds_and_removes_nothing(store: Fresh) {
    store.accept(&[fanout(1)]).await.unwrap();
    put(&store, &opened("ada", "k", 1, 0), 50).await;
    let filed = closing("ada", "k", 2);
    store.file_batches(std::slice::from_ref(&filed)).await.unwrap();
    let settled = [(filed.id, BatchState::Closed)];
    store.settle_batches(&settled, noon()).await.unwrap();

    let later = noon() + minutes(60);
    let newest = store.newest(0).await;
    let due = store.due_accumulators(later, 0).await;
    let all = BatchFilter::default();
    let found = store.find_batches(&all, 0).await.unwrap();
    let forgotten = store.forget(ExpiringRecords::Batches, later, 0).await.unwrap();

    assert_eq!((newest.len(), due.len(), found.len(), forgotten), (0, 0, 0, 0));
    assert_eq!(store.find_batches(&all, 9).await.unwrap().len(), 2);
}
