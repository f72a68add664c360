//! Contract tests of `Batches::add_to_open`: it has the effect of `Accumulator::join`, without a
//! read.

use std::num::NonZeroU64;

use tidings::domain::batch::{
    Accumulator, AccumulatorId, BatchAppend, BatchItem, EndAction, FiledFanouts, Keep,
};
use tidings::domain::{BatchPolicy, ObjectId};

use super::batches::{WINDOW, accumulator_id, item, read};
use crate::support::*;

fn cooling() -> BatchPolicy {
    BatchPolicy {
        cooldown: minutes(4),
        max_wait: Some(minutes(9)),
        close_at: NonZeroU64::new(5),
        keep: Keep::Last(2),
        ..WINDOW
    }
}

/// An accumulator whose batch these fan-outs have joined.
pub(crate) fn joined_by(person: &str, policy: &BatchPolicy, fanouts: &[u32]) -> Accumulator {
    let mut accumulator = Accumulator::new(accumulator_id(person, "k"));
    for fanout in fanouts {
        // A leading policy opens two batches.
        let mut ids = [1_000, 2_000].map(|first| id(first + fanout)).into_iter();
        let opens = || ids.next().unwrap();
        accumulator.join(&[item("a", *fanout)], noon(), policy, opens);
    }
    accumulator
}

async fn put_all(store: &Fresh, accumulators: &[Accumulator]) {
    let put = store.put_accumulators(accumulators, id(60)).await.unwrap();
    assert!(put.iter().all(|put| *put));
}

pub async fn adding_to_an_open_batch_equals_joining_it(store: Fresh) {
    let (cooling, by) = (cooling(), joined_by);
    let mut ended = by("ended", &cooling, &[4]);
    ended.end(id(1_004), EndAction::Close, noon()).unwrap();
    ended.join(&[item("a", 5)], noon(), &cooling, || id(1_005));
    let mut remembered = by("remembered", &cooling, &[6]);
    remembered.filed_fanouts.push(FiledFanouts { at: noon(), joined: vec![id(50)] });
    let leading = BatchPolicy { leading: true, ..cooling };
    let mut deferred = by("deferred", &cooling, &[14]);
    deferred.defer(noon() + minutes(10));
    let accumulators = [
        by("fits", &cooling, &[1]),
        deferred,
        by("knows", &cooling, &[7, 50]),
        by("fills", &cooling, &[9, 10, 11]),
        by("other", &WINDOW, &[12]),
        by("leads", &leading, &[13]),
        ended,
        remembered,
        Accumulator::new(accumulator_id("empty", "k")),
    ];
    let whole: Vec<Accumulator> =
        accumulators.iter().filter(|accumulator| !accumulator.is_empty()).cloned().collect();
    put_all(&store, &whole).await;
    let items = vec![item("b", 50), item("c", 51)];
    let mut done = Vec::new();
    for (n, minute) in [(0, 1), (1, 1), (2, 6)] {
        let at = noon() + minutes(minute);
        let addition = BatchAppend::new(items.clone(), at, &cooling).unwrap();
        for (index, accumulator) in accumulators.iter().enumerate() {
            let before = read(&store, &accumulator.id).await;
            let requested = [(accumulator.id.clone(), 0)];
            let additions = std::slice::from_ref(&addition);
            let revision = id(100 + 10 * n + index as u32);
            let added = store.add_to_open(&requested, additions, revision).await.unwrap();
            let after = read(&store, &accumulator.id).await;

            let Some(mut joined) = before.clone() else {
                assert!(!added && after.is_none());
                continue;
            };
            let fits = addition.applies_to(&joined);
            assert!(fits || !added, "{:?} took what does not fit", accumulator.id);
            if added {
                for item in items.chunks(1) {
                    joined.join(item, at, &cooling, || unreachable!("it is open"));
                }
                joined.revision = Some(revision);
                assert_eq!(after, Some(joined));
                done.push(accumulator.id.user.to_string());
            } else {
                assert_eq!(after, before);
            }
        }
    }
    // A store that implements `add_to_open` adds wherever the items fit, and only once.
    assert!(done.is_empty() || done == ["fits"], "{done:?}");
}

pub async fn adding_to_many_open_batches_equals_joining_each(store: Fresh) {
    let policies = [WINDOW, cooling()];
    let policy = |n: usize| &policies[n % 2];
    let open = |n: usize| joined_by(&format!("p{n:03}"), policy(n), &[n as u32 + 1]);
    let mut accumulators: Vec<Accumulator> = (0..230).map(open).collect();
    put_all(&store, &accumulators).await;
    let at = noon() + minutes(1);
    // Users 0 to 99 share an addition. The last user gets three items, and each other user one or
    // two.
    let new_items = |n: usize| -> Vec<BatchItem> {
        let first = 10_000 + 10 * n as u32;
        match n {
            0..100 => vec![item("$a", 9_000)],
            229 => (0..3).map(|more| item("a.b", first + more)).collect(),
            _ => {
                let item = |more| BatchItem {
                    object: ObjectId::stored(format!("$o{n}")),
                    ..item("", first + more)
                };
                (0..1 + n as u32 % 3 / 2).map(item).collect()
            }
        }
    };
    let addition = |n: usize| BatchAppend::new(new_items(n), at, policy(n)).unwrap();
    let additions: Vec<BatchAppend> = [0, 1].into_iter().chain(100..230).map(addition).collect();
    let requested = |accumulators: &[Accumulator]| -> Vec<(AccumulatorId, usize)> {
        let addition = |n: usize| if n < 100 { n % 2 } else { n - 98 };
        let all = accumulators.iter().enumerate();
        all.map(|(n, of)| (of.id.clone(), addition(n))).collect()
    };
    let add = async |revision| {
        let requested = requested(&accumulators);
        let added = store.add_to_open(&requested, &additions, id(revision)).await;
        added.unwrap()
    };

    let (added, again) = (add(70).await, add(71).await);

    // Only MongoDB implements `add_to_open`.
    assert_eq!(added, store.url().starts_with("mongodb"));
    assert!(!again, "nothing is added twice");
    if added {
        for (n, accumulator) in accumulators.iter_mut().enumerate() {
            let unopened = || unreachable!("it is open");
            for item in new_items(n).chunks(1) {
                accumulator.join(item, at, policy(n), unopened);
            }
            accumulator.revision = Some(id(70));
        }
    }
    for accumulator in &accumulators {
        let revision = accumulator.revision.or(Some(id(60)));
        let stored = read(&store, &accumulator.id).await;
        let expected = accumulator.clone();
        assert_eq!(stored, Some(Accumulator { revision, ..expected }));
    }

    // An accumulator that already has an item is not changed, and the call returns `false`.
    let of = |items| BatchAppend::new(items, at, policy(1)).unwrap();
    let new = vec![item("z", 30_000)];
    let additions = [of(new_items(101)), of(new.clone())];
    let [knows, fits] = [101, 103].map(|n| accumulators[n].id.clone());
    let stored = [read(&store, &knows).await, read(&store, &fits).await];
    let requested = [(knows.clone(), 0), (fits.clone(), 1)];

    let all = store.add_to_open(&requested, &additions, id(80)).await;

    assert!(!all.unwrap() && read(&store, &knows).await == stored[0]);
    let mut joined = stored[1].clone().unwrap();
    joined.join(&new, at, policy(1), || unreachable!("it is open"));
    joined.revision = Some(id(80));
    let fits = read(&store, &fits).await;
    assert!(fits == stored[1] || fits == Some(joined));
}
