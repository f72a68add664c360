//! Laws of `SeenReports`: the first mark stands until it is over.

use chrono::{DateTime, Utc};

use crate::support::*;

fn at(minute: i64) -> DateTime<Utc> {
    noon() + minutes(minute)
}

fn pair(key: &str, mark: &str) -> (String, String) {
    (key.to_owned(), mark.to_owned())
}

pub async fn the_first_mark_stands_until_it_is_over(store: Fresh) {
    let keys = ["token $x".to_owned()];
    let sight = async |mark: &str, now: i64, until: i64| {
        let marks = [pair("token $x", mark)];
        store.sight(&marks, at(now), at(until)).await.unwrap()
    };
    assert_eq!(store.sighted(&keys, at(0)).await.unwrap(), [None]);

    assert_eq!(sight("one", 0, 10).await, ["one"]);
    assert_eq!(sight("two", 5, 60).await, ["one"], "the first one stands");
    let second = store.second();
    let standing = second.sighted(&keys, at(9)).await.unwrap();
    assert_eq!(standing, [Some("one".to_owned())]);

    assert_eq!(store.sighted(&keys, at(10)).await.unwrap(), [None]);
    assert_eq!(sight("three", 10, 20).await, ["three"]);
}

pub async fn of_many_who_come_with_one_key_at_once_all_are_told_the_same(store: Fresh) {
    for round in 0..8 {
        let told = store
            .at_once(8, move |store, n| {
                let marks = [pair(&format!("key {round}"), &format!("of {n}"))];
                async move { store.sight(&marks, at(0), at(10)).await.unwrap().remove(0) }
            })
            .await;

        assert!(told.iter().all(|mark| *mark == told[0]), "{told:?}");
    }
}

pub async fn marks_come_back_in_the_order_asked(store: Fresh) {
    let marks: Vec<_> = (0..1_500)
        .map(|n| pair(&format!("k{n}"), &format!("m{n}")))
        .collect();
    let kept = store.sight(&marks[..1_200], at(0), at(10)).await.unwrap();
    let expected: Vec<_> = marks.iter().map(|(_, mark)| mark.clone()).collect();
    assert_eq!(kept, expected[..1_200]);
    let twice = [
        pair("k9", "other"),
        pair("new", "first"),
        pair("new", "second"),
    ];
    let told = store.sight(&twice, at(1), at(10)).await.unwrap();
    assert_eq!(told, ["m9", "first", "first"]);

    let asked: Vec<_> = marks.iter().rev().map(|(key, _)| key.clone()).collect();
    let found = store.sighted(&asked, at(2)).await.unwrap();

    let backwards = (0..1_500).rev();
    let there = backwards.map(|n| (n < 1_200).then(|| expected[n].clone()));
    assert_eq!(found, there.collect::<Vec<_>>());
    assert_eq!(store.sighted(&[], at(2)).await.unwrap(), []);
    assert_eq!(
        store.sight(&[], at(2), at(3)).await.unwrap(),
        Vec::<String>::new()
    );
}
