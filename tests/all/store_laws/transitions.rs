//! Laws of `Deliveries` about lists of transitions: each is made or not by itself.

use tidings::domain::delivery::{Deferral, Transition};
use tidings::domain::{DeliveryId, DeliveryState};

use super::deliveries::{later, open, row, sending, settlement};
use crate::support::*;

pub async fn of_many_transitions_those_are_made_whose_condition_holds(store: Fresh) {
    let ids = open(
        &store,
        &["ada", "bob", "cem", "dan", "eve", "fay", "gus", "hal"],
    )
    .await;
    sending(&store, "one", later(20), &ids[1..3]).await;
    let gus = settlement(&ids[6], DeliveryState::Sent);
    store.settle("one", noon(), &[gus]).await.unwrap();
    let unknown = DeliveryId::stored("digest:nobody:daily:2014-04-22");
    let deferral = |id: &DeliveryId| Deferral {
        id: id.clone(),
        state: DeliveryState::Pending,
        not_before: later(60),
        reason: Some("429".into()),
        spends_try: true,
    };
    let settle = |id: &DeliveryId| Transition::Settle(settlement(id, DeliveryState::Failed));

    let asked = [
        Transition::HandOver(handover(&ids[0], "x")),
        Transition::Recall(ids[1].clone()),
        settle(&ids[2]),
        // It was never sent.
        Transition::Recall(ids[3].clone()),
        Transition::Defer(deferral(&ids[4])),
        settle(&unknown),
        Transition::Hold(ids[5].clone()),
        // It is settled already.
        Transition::HandOver(handover(&ids[6], "x")),
        settle(&ids[7]),
    ];
    let other = store.second();
    let others = other.advance("two", later(1), later(30), &asked).await;
    let made = store.advance("one", later(1), later(30), &asked).await;

    assert_eq!(others.unwrap(), [false; 9]);
    let expected = [true, true, true, false, true, false, true, false, true];
    assert_eq!(made.unwrap(), expected);
    let mut told = Vec::new();
    for id in &ids {
        let row = row(&store, id).await;
        told.push((row.state, row.attempts, row.lease.map(|lease| lease.until)));
    }
    let (pending, failed) = (DeliveryState::Pending, DeliveryState::Failed);
    let until = |n: i64| Some(later(n));
    let expected = [
        (DeliveryState::Sending, 1, until(30)),
        (pending, 1, until(20)),
        (failed, 1, until(20)),
        (pending, 0, until(5)),
        (pending, 0, None),
        (pending, 0, until(30)),
        (DeliveryState::Sent, 0, until(5)),
        (failed, 0, until(5)),
    ];
    assert_eq!(told, expected);
}
