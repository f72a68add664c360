//! Laws of `Deliveries` about how rows end: sending, settled once, closed.

use std::collections::BTreeMap;

use tidings::domain::delivery::Settlement;
use tidings::domain::{DeliveryId, DeliveryState};

use super::deliveries::{later, open, row, settlement, users};
use crate::support::*;

pub async fn sending_is_for_the_holder_and_counts_an_attempt(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let unknown = DeliveryId::stored("digest:eve:daily:2014-04-22");

    let asked = [ids[1].clone(), unknown, ids[0].clone()];
    let other = store
        .second()
        .sending("two", later(20), &asked)
        .await
        .unwrap();
    let first = store.sending("one", later(20), &asked).await.unwrap();
    let again = store.sending("one", later(30), &ids[..1]).await.unwrap();

    assert_eq!(
        (other, first, again),
        (vec![false; 3], vec![true, false, true], vec![true])
    );
    let ada = row(&store, &ids[0]).await;
    assert_eq!(
        (ada.state, ada.attempts, ada.open),
        (DeliveryState::Sending, 2, true)
    );
    assert_eq!(ada.lease, Some(lease("one", later(30))));
    assert_eq!(row(&store, &ids[1]).await.attempts, 1);
}

pub async fn what_is_deferred_is_pending_again_and_nobodys_before_its_time(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let unknown = DeliveryId::stored("digest:eve:daily:2014-04-22");
    store.sending("one", later(20), &ids[..1]).await.unwrap();

    let asked = [unknown, ids[0].clone(), ids[1].clone()];
    let other = store
        .second()
        .defer("two", later(15), &asked)
        .await
        .unwrap();
    let own = store.defer("one", later(15), &asked).await.unwrap();

    assert_eq!(other, [false; 3]);
    assert_eq!(
        own,
        [false, true, false],
        "only what was about to be sent is deferred"
    );
    let ada = row(&store, &ids[0]).await;
    assert_eq!(
        (ada.state, ada.attempts, ada.open),
        (DeliveryState::Pending, 1, true)
    );
    store.release("one").await.unwrap();
    assert_eq!(
        store.sending("one", later(20), &ids[..1]).await.unwrap(),
        [false]
    );
    let early = store.claim("two", later(14), later(30), 10).await.unwrap();
    let due = store.claim("two", later(16), later(30), 10).await.unwrap();
    assert_eq!((users(&early), users(&due)), (vec!["bob"], vec!["ada"]));
}

pub async fn a_lost_lease_can_neither_send_nor_settle(store: Fresh) {
    let ids = open(&store, &["ada"]).await;
    store.claim("two", later(10), later(20), 10).await.unwrap();

    let sending = store.sending("one", later(30), &ids).await.unwrap();
    let settled = store
        .settle(
            "one",
            later(11),
            &[settlement(&ids[0], DeliveryState::Sent)],
        )
        .await
        .unwrap();

    assert_eq!((sending, settled), (vec![false], vec![false]));
    let ada = row(&store, &ids[0]).await;
    assert_eq!(
        (ada.state, ada.attempts, ada.lease),
        (DeliveryState::Pending, 0, Some(lease("two", later(20))))
    );
}

pub async fn a_settled_row_says_how_it_ended_and_stays_open(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    store.sending("one", later(20), &ids[..1]).await.unwrap();

    let sent = settlement(&ids[0], DeliveryState::Sent);
    let canceled = Settlement {
        state: DeliveryState::Canceled,
        items: 0,
        provider_id: None,
        reason: Some("nothing is left".into()),
        ..settlement(&ids[1], DeliveryState::Canceled)
    };
    let settled = store
        .settle("one", later(2), &[sent, canceled])
        .await
        .unwrap();

    assert_eq!(settled, [true, true]);
    let (ada, bob) = (row(&store, &ids[0]).await, row(&store, &ids[1]).await);
    assert_eq!(
        (ada.state, ada.open, ada.items, ada.settled),
        (DeliveryState::Sent, true, 4, Some(later(2)))
    );
    assert_eq!(
        (ada.provider_id.as_deref(), ada.reason),
        (Some("<1@esp>"), None)
    );
    assert_eq!(
        (bob.state, bob.open, bob.items),
        (DeliveryState::Canceled, true, 0)
    );
    assert_eq!(
        (bob.provider_id, bob.reason.as_deref()),
        (None, Some("nothing is left"))
    );
}

pub async fn a_row_is_settled_once(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let sent = settlement(&ids[0], DeliveryState::Sent);
    let unknown = DeliveryId::stored("digest:eve:daily:2014-04-22");

    let first = store
        .settle("one", later(1), std::slice::from_ref(&sent))
        .await
        .unwrap();
    let failed = [
        settlement(&ids[0], DeliveryState::Failed),
        settlement(&unknown, DeliveryState::Sent),
        settlement(&ids[1], DeliveryState::Failed),
    ];
    let second = store.settle("one", later(2), &failed).await.unwrap();
    let sending = store.sending("one", later(20), &ids[..1]).await.unwrap();

    assert_eq!(
        (first, second, sending),
        (vec![true], vec![false, false, true], vec![false])
    );
    let ada = row(&store, &ids[0]).await;
    assert_eq!(
        (ada.state, ada.settled),
        (DeliveryState::Sent, Some(later(1)))
    );
}

pub async fn a_settled_row_is_claimed_again_until_it_is_closed(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let both = [
        settlement(&ids[0], DeliveryState::Sent),
        settlement(&ids[1], DeliveryState::Unknown),
    ];
    store.settle("one", later(1), &both).await.unwrap();

    store.second().close(&ids[..1]).await.unwrap();
    let claimed = store.claim("two", later(10), later(20), 10).await.unwrap();

    assert_eq!(
        users(&claimed),
        ["bob"],
        "somebody has to write its markers"
    );
    assert_eq!(claimed[0].state, DeliveryState::Unknown);
    let ada = row(&store, &ids[0]).await;
    assert_eq!((ada.state, ada.open), (DeliveryState::Sent, false));
}

pub async fn closing_is_only_for_settled_rows_and_harmless_again(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    store.sending("one", later(20), &ids[1..2]).await.unwrap();
    store
        .settle("one", later(1), &[settlement(&ids[2], DeliveryState::Sent)])
        .await
        .unwrap();

    let unknown = DeliveryId::stored("digest:zoe:daily:2014-04-22");
    for _ in 0..2 {
        store
            .close(&[ids.clone(), vec![unknown.clone()]].concat())
            .await
            .unwrap();
    }

    let mut open = Vec::new();
    for id in &ids {
        open.push(row(&store, id).await.open);
    }
    assert_eq!(open, [true, true, false]);
}

pub async fn counts_are_exact_for_each_state(store: Fresh) {
    let ids = open(&store, &["a", "b", "c", "d", "e", "f", "g"]).await;
    store.sending("one", later(20), &ids[..2]).await.unwrap();
    let ends = [
        settlement(&ids[0], DeliveryState::Sent),
        settlement(&ids[2], DeliveryState::Failed),
        settlement(&ids[3], DeliveryState::Canceled),
        settlement(&ids[4], DeliveryState::Unknown),
        settlement(&ids[5], DeliveryState::Sent),
    ];
    store.settle("one", later(1), &ends).await.unwrap();
    store.close(&ids[5..6]).await.unwrap();

    let counts: BTreeMap<_, _> = store.delivery_counts().await.unwrap().into_iter().collect();

    let expected = [1, 1, 2, 1, 1, 1];
    for (state, expected) in DeliveryState::ALL.into_iter().zip(expected) {
        assert_eq!(counts.get(&state), Some(&expected), "{state:?}");
    }
}

pub async fn many_rows_go_all_the_way_at_once(store: Fresh) {
    let everybody = people(1_500);
    let names: Vec<_> = everybody.iter().map(|person| person.as_str()).collect();
    let ids = open(&store, &names).await;

    assert!(
        store
            .sending("one", later(20), &ids)
            .await
            .unwrap()
            .iter()
            .all(|moved| *moved)
    );
    let ends: Vec<_> = ids
        .iter()
        .map(|id| settlement(id, DeliveryState::Sent))
        .collect();
    assert!(
        store
            .settle("one", later(1), &ends)
            .await
            .unwrap()
            .iter()
            .all(|settled| *settled)
    );
    store.close(&ids).await.unwrap();

    assert!(
        store
            .claim("two", later(60), later(80), 10)
            .await
            .unwrap()
            .is_empty()
    );
    assert!(store.known(&ids).await.unwrap().iter().all(|known| *known));
    assert!(
        !store
            .open(&[delivery("p00007", "2014-04-22", "one")])
            .await
            .unwrap()[0]
    );
}
