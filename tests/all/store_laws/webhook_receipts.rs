//! Contract tests of `Feedbacks` for webhook ids: the first mark for a key is kept until it
//! expires.

use chrono::{DateTime, Utc};

use crate::support::*;

fn at(minute: i64) -> DateTime<Utc> {
    noon() + minutes(minute)
}

fn pair(key: &str, mark: &str) -> (String, String) {
    (key.to_owned(), mark.to_owned())
}

pub async fn the_first_mark_is_kept_until_it_expires(store: Fresh) {
    let keys = ["token $x".to_owned()];
    let mark_seen = async |mark: &str, now: i64, until: i64| {
        let marks = [pair("token $x", mark)];
        store.record_receipts(&marks, at(now), at(until)).await
    };
    assert_eq!(store.find_receipts(&keys, at(0)).await, [None]);

    assert_eq!(mark_seen("one", 0, 10).await, ["one"]);
    assert_eq!(mark_seen("two", 5, 60).await, ["one"], "the first one stands");
    let second = store.second();
    let stored = second.find_receipts(&keys, at(9)).await;
    assert_eq!(stored, [Some("one".to_owned())]);

    assert_eq!(store.find_receipts(&keys, at(10)).await, [None]);
    assert_eq!(mark_seen("three", 10, 20).await, ["three"]);
}

pub async fn concurrent_marks_for_one_key_all_return_the_same_mark(store: Fresh) {
    for round in 0..8 {
        let returned = store
            .at_once(8, move |store, n| {
                let marks = [pair(&format!("key {round}"), &format!("of {n}"))];
                async move { store.record_receipts(&marks, at(0), at(10)).await.remove(0) }
            })
            .await;

        assert!(returned.iter().all(|mark| *mark == returned[0]), "{returned:?}");
    }
}

pub async fn marks_are_returned_in_the_order_of_the_request(store: Fresh) {
    let marks: Vec<_> = (0..1_500).map(|n| pair(&format!("k{n}"), &format!("m{n}"))).collect();
    let kept = store.record_receipts(&marks[..1_200], at(0), at(10)).await;
    let expected: Vec<_> = marks.iter().map(|(_, mark)| mark.clone()).collect();
    assert_eq!(kept, expected[..1_200]);
    let twice = [pair("k9", "other"), pair("new", "first"), pair("new", "second")];
    let returned = store.record_receipts(&twice, at(1), at(10)).await;
    assert_eq!(returned, ["m9", "first", "first"]);

    let requested: Vec<_> = marks.iter().rev().map(|(key, _)| key.clone()).collect();
    let found = store.find_receipts(&requested, at(2)).await;

    let backwards = (0..1_500).rev();
    let expected_marks = backwards.map(|n| (n < 1_200).then(|| expected[n].clone()));
    assert_eq!(found, expected_marks.collect::<Vec<_>>());
    assert_eq!(store.find_receipts(&[], at(2)).await, []);
    assert_eq!(store.record_receipts(&[], at(2), at(3)).await, Vec::<String>::new());
}
