//! Contract tests of `Batches` for accumulators: one concurrent writer wins, and due ones are
//! found.

use chrono::TimeDelta;
use tidings::domain::batch::{Accumulator, AccumulatorId, EndAction, FiledFanouts};
use tidings::domain::{BatchKey, BatchPolicy, BatchState, ObjectId};
use tidings::store::AccumulatorFilter;

use super::batches::{WINDOW, accumulator_id, closing, item, opened, put, read};

use crate::support::*;

pub async fn an_accumulator_is_read_back_with_every_field(store: Fresh) {
    let mut full = opened("ada", "k", 1, 0);
    let open = full.open.as_mut().unwrap();
    open.last_event_at = noon() + minutes(2);
    open.removed = vec![item("gone", 6)];
    open.lead_fanouts = vec![id(3), id(4)];
    full.ended = vec![closing("ada", "k", 2), {
        let mut canceled = closing("ada", "k", 5);
        (canceled.state, canceled.settled) = (BatchState::Canceled, Some(noon()));
        canceled.lead_fanouts = vec![id(2)];
        canceled
    }];
    full.filed_fanouts = vec![
        FiledFanouts { at: noon(), joined: vec![id(7), id(8)] },
        FiledFanouts { at: noon() + minutes(1), joined: vec![] },
    ];
    full.queue_position = Some(noon() + TimeDelta::milliseconds(1));
    full.lease = Some(lease("me", noon() + minutes(3)));
    let plain = opened("ben", "k", 9, 0);

    let written = [full.clone(), plain.clone()];
    assert_eq!(store.put_accumulators(&written, id(50)).await.unwrap(), [true, true]);

    let requested = [plain.id.clone(), accumulator_id("nobody", "k"), full.id.clone()];
    let found = store.second().accumulators(&requested).await.unwrap();
    let stamped =
        |accumulator: Accumulator| Some(Accumulator { revision: Some(id(50)), ..accumulator });
    assert_eq!(found, [stamped(plain), None, stamped(full)]);
}

pub async fn an_accumulator_replaces_only_the_revision_that_was_read(store: Fresh) {
    let first = opened("ada", "k", 1, 0);
    assert!(put(&store, &first, 50).await);
    let mine = read(&store, &first.id).await.unwrap();
    let mut theirs = mine.clone();
    theirs.queue_position = Some(noon());
    assert!(put(&store, &theirs, 51).await);

    assert!(!put(&store, &mine, 52).await);
    assert!(!put(&store, &first, 53).await);

    let current = read(&store, &first.id).await.unwrap();
    assert_eq!((current.revision, current.queue_position), (Some(id(51)), Some(noon())));
    let gone = Accumulator { id: accumulator_id("nobody", "k"), ..mine };
    assert!(!put(&store, &gone, 54).await);
    assert_eq!(read(&store, &gone.id).await, None);
}

pub async fn one_of_many_concurrent_creators_of_an_accumulator_succeeds(store: Fresh) {
    let tasks = (0..8).map(|n| {
        let store = store.second();
        tokio::spawn(async move {
            let accumulator = opened("ada", "k", n, 0);
            store.put_accumulators(&[accumulator], id(50 + n)).await.unwrap() == [true]
        })
    });
    let mut successes = 0;
    for task in tasks.collect::<Vec<_>>() {
        successes += u32::from(task.await.unwrap());
    }

    assert_eq!(successes, 1);
    assert_eq!(store.batch_counts().await.open, 1);
}

pub async fn concurrent_changes_of_an_accumulator_are_all_stored(store: Fresh) {
    let tasks = (0..6_u32).map(|n| {
        let store = store.second();
        tokio::spawn(async move {
            for turn in 0.. {
                let ids = [accumulator_id("ada", "k")];
                let current = store.accumulators(&ids).await.unwrap().pop().unwrap();
                let mut accumulator = current.unwrap_or_else(|| Accumulator::new(ids[0].clone()));
                let revision = 10_000 + 1_000 * n + turn;
                accumulator.join(&[item("a", n)], noon(), &WINDOW, || id(100 + n));
                if store.put_accumulators(&[accumulator], id(revision)).await.unwrap() == [true] {
                    break;
                }
            }
        })
    });
    for task in tasks.collect::<Vec<_>>() {
        task.await.unwrap();
    }

    let open = read(&store, &accumulator_id("ada", "k")).await.unwrap().open;
    let open = open.unwrap();
    assert_eq!(open.events.count, 6);
    assert_eq!(open.joined, (0..6).map(id).collect::<Vec<_>>());
}

pub async fn an_empty_accumulator_is_removed_and_can_be_created_again(store: Fresh) {
    let accumulator = opened("ada", "k", 1, 0);
    assert!(put(&store, &accumulator, 50).await);
    let read_once = read(&store, &accumulator.id).await.unwrap();
    let empty =
        Accumulator { revision: read_once.revision, ..Accumulator::new(accumulator.id.clone()) };
    let stale = Accumulator { revision: Some(id(49)), ..empty.clone() };

    assert!(!put(&store, &stale, 51).await);
    assert!(put(&store, &empty, 52).await);

    assert_eq!(read(&store, &accumulator.id).await, None);
    assert_eq!(store.accumulator_of(id(1_001)).await, None);
    assert!(!put(&store, &read_once, 53).await);
    assert!(put(&store, &accumulator, 54).await);
}

pub async fn unusual_keys_and_users_have_separate_accumulators(store: Fresh) {
    let keys = ["0", "false", "a.b", "$ne", "A", "a", " a", "a ", "é", "e\u{301}"];
    let mut accumulators: Vec<Accumulator> =
        (0..).zip(keys).map(|(n, key)| opened("$gt", key, n, 0)).collect();
    let mut of_type = opened("$gt", "x", 90, 0);
    of_type.id.key = BatchKey::Type(kind("A"));
    accumulators.push(of_type);

    let put = store.put_accumulators(&accumulators, id(50)).await.unwrap();

    assert_eq!(put, vec![true; accumulators.len()]);
    let ids: Vec<AccumulatorId> =
        accumulators.iter().map(|accumulator| accumulator.id.clone()).collect();
    let found = store.accumulators(&ids).await.unwrap();
    for (accumulator, found) in accumulators.iter().zip(found) {
        assert_eq!(found.unwrap().open.unwrap().id, accumulator.open.as_ref().unwrap().id);
    }
}

pub async fn many_accumulators_are_written_and_read_in_one_call(store: Fresh) {
    let accumulators: Vec<Accumulator> =
        (0..2_500).map(|n| opened(&format!("p{n:05}"), "k", n, 0)).collect();
    assert!(
        store.put_accumulators(&accumulators[..100], id(50)).await.unwrap().iter().all(|put| *put)
    );

    let put = store.put_accumulators(&accumulators, id(51)).await.unwrap();

    assert_eq!(put.iter().filter(|put| !**put).count(), 100);
    assert!(put[100..].iter().all(|put| *put));
    let ids: Vec<AccumulatorId> =
        accumulators.iter().rev().map(|accumulator| accumulator.id.clone()).collect();
    let found = store.accumulators(&ids).await.unwrap();
    for (requested, found) in ids.iter().zip(found) {
        assert_eq!(found.unwrap().id, *requested);
    }
}

pub async fn due_accumulators_are_ordered_by_due_time(store: Fresh) {
    let accumulators: Vec<Accumulator> = [("c", 3), ("a", 1), ("d", 9), ("b", 2)]
        .into_iter()
        .zip(1..)
        .map(|((person, minute), n)| opened(person, "k", n, minute))
        .collect();
    store.put_accumulators(&accumulators, id(50)).await.unwrap();
    let due = |at, limit| {
        let store = store.second();
        async move {
            let due = store.due_accumulators(noon() + minutes(at), limit).await;
            let people = due.into_iter().map(|accumulator| accumulator.id.user.to_string());
            people.collect::<Vec<_>>()
        }
    };

    assert_eq!(due(5, 10).await, [""; 0]);
    assert_eq!(due(6, 10).await, ["a"]);
    assert_eq!(due(8, 10).await, ["a", "b", "c"]);
    assert_eq!(due(60, 2).await, ["a", "b"]);
}

pub async fn a_leased_accumulator_is_not_due_until_its_lease_expires(store: Fresh) {
    let mut accumulator = opened("ada", "k", 1, 0);
    accumulator.lease = Some(lease("me", noon() + minutes(10)));
    assert!(put(&store, &accumulator, 50).await);

    assert_eq!(store.due_accumulators(noon() + minutes(9), 10).await, []);
    let due = store.due_accumulators(noon() + minutes(10), 10).await;

    assert_eq!(due.len(), 1);
    assert_eq!(due[0].lease, accumulator.lease);
}

pub async fn an_accumulator_is_found_by_batch_id_until_the_batch_is_filed(store: Fresh) {
    let mut accumulator = opened("ada", "k", 1, 0);
    assert!(put(&store, &accumulator, 50).await);
    assert!(put(&store, &opened("ben", "k", 2, 0), 51).await);
    let found = store.accumulator_of(id(1_001)).await.unwrap();
    assert_eq!(found.id, accumulator.id);

    accumulator.revision = found.revision;
    accumulator.end(id(1_001), EndAction::Close, noon()).unwrap();
    assert!(put(&store, &accumulator, 52).await);
    let found = store.accumulator_of(id(1_001)).await.unwrap();
    assert_eq!(found.ended[0].id, id(1_001));

    accumulator.revision = found.revision;
    accumulator.remove_filed(&found.ended, noon());
    assert!(put(&store, &accumulator, 53).await);
    assert_eq!(store.accumulator_of(id(1_001)).await, None);
}

pub async fn accumulators_are_found_by_the_items_of_their_batches(store: Fresh) {
    let mut leading = Accumulator::new(accumulator_id("led", "k"));
    let policy = BatchPolicy { leading: true, ..WINDOW };
    let mut ids = (2_007..).map(id);
    for (object, fanout) in [("a0", 6), ("a1", 7)] {
        let items = [item(object, fanout)];
        leading.join(&items, noon(), &policy, || ids.next().unwrap());
    }
    let mut other = opened("other", "k", 8, 0);
    let items = &mut other.open.as_mut().unwrap().events.items;
    items.iter_mut().for_each(|item| item.kind = kind("Other"));
    let accumulators =
        [opened("b", "k", 1, 0), opened("a", "k", 2, 0), opened("a", "j", 3, 0), leading, other];
    store.put_accumulators(&accumulators, id(50)).await.unwrap();
    let (published, objects) =
        (kind("ArtworkPublished"), [ObjectId::stored("a1"), ObjectId::stored("x")]);
    let holding = |objects: Vec<ObjectId>, after: Option<AccumulatorId>, limit| {
        let (store, kind) = (store.second(), published.clone());
        async move {
            let holding = AccumulatorFilter::WithEvent(&kind, &objects, after.as_ref());
            let found = store.find_accumulators(&holding, limit).await.unwrap();
            let found = found.into_iter();
            found.map(|accumulator| accumulator.id).collect::<Vec<_>>()
        }
    };

    let all = holding(objects.to_vec(), None, 10).await;
    let some = holding(objects.to_vec(), None, 2).await;
    let rest = holding(objects.to_vec(), Some(some[1].clone()), 10).await;

    let expected = [("a", "j"), ("a", "k"), ("b", "k"), ("led", "k")];
    assert_eq!(all, expected.map(|(person, key)| accumulator_id(person, key)));
    assert_eq!([some, rest].concat(), all);
    assert_eq!(holding(vec![ObjectId::stored("x")], None, 10).await, []);
    // An item that was removed no longer selects its batch.
    let mut emptied = read(&store, &all[0]).await.unwrap();
    emptied.remove_events(&published, &objects[..1], noon(), None);
    assert!(put(&store, &emptied, 51).await);
    assert_eq!(holding(objects.to_vec(), None, 10).await, all[1..]);
}
