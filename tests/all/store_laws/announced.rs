//! Laws of `Journal`: what was announced lately, and audiences of any length.

use tidings::domain::{Audience, Fanout};
use tidings::store::Accepted;

use crate::support::*;

pub async fn the_newest_events_come_first(store: Fresh) {
    store.accept(&[2, 1, 3].map(fanout)).await.unwrap();

    let newest = store.newest(2).await.unwrap();

    let expected: Vec<Vec<_>> = [3, 2].map(|n| fanout(n).events().collect()).into();
    assert_eq!(newest, expected);
    assert_eq!(store.newest(9).await.unwrap().len(), 3);
}

pub async fn a_long_audience_is_accepted_claimed_and_known_whole(store: Fresh) {
    let everybody = |n: u32| {
        let named = (0..100_000).map(|p| user(&format!("{n}{p:0>250}")));
        Fanout {
            audience: Audience::users(named).unwrap(),
            ..fanout(n)
        }
    };
    let (first, second) = (everybody(1), everybody(2));
    let all = [first.clone(), fanout(3), second.clone()];

    let answers = store.accept(&all).await.unwrap();

    assert!(answers.iter().all(|answer| *answer == Accepted::New));
    let again = Fanout {
        key: first.key.clone(),
        ..everybody(4)
    };
    let known = store
        .accept(std::slice::from_ref(&again))
        .await
        .unwrap()
        .remove(0);
    assert!(known == Accepted::Known(Box::new(first.clone())));
    assert!(store.fanout(again.id).await.unwrap().is_none());
    let claimed = store
        .claim_fanouts("one", noon(), noon() + minutes(1), 10)
        .await;
    assert!(
        claimed
            .unwrap()
            .fanouts
            .into_iter()
            .map(|one| one.audience)
            .eq([first.audience.clone(), second.audience, fanout(3).audience,])
    );
    assert!(
        store
            .second()
            .fanout(first.id)
            .await
            .unwrap()
            .unwrap()
            .audience
            == first.audience
    );
}
