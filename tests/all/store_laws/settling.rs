//! Contract tests of `Deliveries` for how rows end: they are marked `sending`, settled once, and
//! closed.

use std::collections::BTreeMap;

use tidings::domain::delivery::{Corrected, Deferral, OperatorDecision, Settlement};
use tidings::domain::{DeliveryId, DeliveryState};
use tidings::store::{ExpiringRecords, LeasesToEnd};

use super::deliveries::{later, open, row, sending, settle, settlement, users};

use crate::support::*;

pub async fn only_the_holder_marks_a_delivery_sending_and_records_the_call(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let (unknown, call) = (DeliveryId::stored("digest:eve:daily:2014-04-22"), handover);

    let requested = [call(&ids[1], "x"), call(&unknown, "x"), call(&ids[0], "y")];
    let other = store.second().sending("two", later(1), later(20), &requested).await;
    let first = store.sending("one", later(1), later(20), &requested).await;
    // If two tasks of one owner have the row, only the first makes a call.
    let twice = sending(&store, "one", later(25), &ids[..1]).await;
    let recalled = store.recall("one", &ids[..1]).await;
    assert_eq!((twice, recalled), (vec![false], vec![true]));
    let again = store.sending("one", later(3), later(30), &[call(&ids[0], "z")]).await;

    assert_eq!((other, first, again), (vec![false; 3], vec![true, false, true], vec![true]));
    let (ada, bob) = (row(&store, &ids[0]).await, row(&store, &ids[1]).await);
    assert_eq!(ada.state, DeliveryState::Sending);
    assert_eq!(ada.attempts.made, 2);
    assert!(ada.open);
    assert_eq!(ada.lease, Some(lease("one", later(30))));
    assert_eq!((ada.outcome.items, bob.outcome.items), (3, 3));
    let calls =
        [ada, bob].map(|row| (row.attempts.made, row.attempts.call, row.attempts.called_at));
    let expected = |made, call: &str, at| (made, Some(call.to_owned()), Some(later(at)));
    assert_eq!(calls, [expected(2, "z", 3), expected(1, "x", 1)]);
}

pub async fn a_recalled_delivery_is_pending_and_still_leased(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    sending(&store, "one", later(20), &ids[..2]).await;

    let other = store.second().recall("two", &ids).await;
    let recalled = store.recall("one", &ids).await;
    let again = store.recall("one", &ids).await;

    assert_eq!(other, [false; 3]);
    assert_eq!(recalled, [true, true, false], "eve's was never sent");
    assert_eq!(again, [false; 3]);
    let ada = row(&store, &ids[0]).await;
    assert_eq!(
        (ada.state, ada.open, ada.attempts.call, ada.attempts.made),
        (DeliveryState::Pending, true, None, 1)
    );
    assert_eq!(ada.lease, Some(lease("one", later(20))));
    assert_eq!(sending(&store, "one", later(30), &ids).await, [true; 3]);
}

pub async fn settling_as_sent_clears_the_reason_of_an_earlier_deferral(store: Fresh) {
    let ids = open(&store, &["ada"]).await;
    let deferral = Deferral {
        id: ids[0].clone(),
        from: DeliveryState::Sending,
        state: DeliveryState::Pending,
        not_before: later(1),
        reason: Some("busy".into()),
        has_failed: false,
    };
    store.defer("one", &[deferral]).await;
    store.take("one", later(2), later(9), 9).await;

    settle(&store, later(3), &ids[0], DeliveryState::Sent).await;

    assert_eq!(row(&store, &ids[0]).await.outcome.reason, None);
}

pub async fn only_the_holder_extends_the_lease_of_a_delivery(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    settle(&store, later(1), &ids[2], DeliveryState::Sent).await;
    store.close(&ids[2..]).await.unwrap();
    store.open_row(delivery("zoe", "2014-04-22", "two")).await;
    let zoes = delivery("zoe", "2014-04-22", "two").id;

    let requested = [ids[0].clone(), zoes, ids[2].clone(), ids[1].clone()];
    let held = store.hold("one", later(30), &requested).await;

    assert_eq!(held, [true, false, false, true]);
    let claimed = store.take("three", later(10), later(40), 9).await;
    assert_eq!(users(&claimed), ["zoe"], "the others are held longer");
}

pub(super) fn deferral(id: &DeliveryId, state: DeliveryState, not_before: i64) -> Deferral {
    Deferral {
        id: id.clone(),
        from: DeliveryState::Sending,
        state,
        not_before: later(not_before),
        reason: Some("busy".into()),
        has_failed: false,
    }
}

pub async fn a_deferred_delivery_is_not_claimed_early_and_keeps_its_reason(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    let unknown = DeliveryId::stored("digest:zoe:daily:2014-04-22");
    sending(&store, "one", later(20), &ids[..2]).await;
    let settled = settlement(&ids[2], DeliveryState::Sent);
    store.settle("one", later(1), &[settled]).await;

    let requested = [
        deferral(&unknown, DeliveryState::Pending, 15),
        deferral(&ids[0], DeliveryState::Pending, 15),
        deferral(&ids[1], DeliveryState::Sending, 17),
        deferral(&ids[2], DeliveryState::Pending, 15),
    ];
    let other = store.second().defer("two", &requested).await;
    let own = store.defer("one", &requested).await;

    assert_eq!(other, [false; 4]);
    assert_eq!(own, [false, true, true, false], "what is settled stays so");
    let (ada, bob) = (row(&store, &ids[0]).await, row(&store, &ids[1]).await);
    assert_eq!(
        (ada.state, ada.attempts.made, ada.open, ada.lease),
        (DeliveryState::Pending, 1, true, None)
    );
    assert_eq!(ada.attempts.not_before, Some(later(15)));
    assert_eq!(ada.outcome.reason.as_deref(), Some("busy"));
    assert_eq!(bob.state, DeliveryState::Sending);
    assert_eq!(bob.attempts.not_before, Some(later(17)));
    assert!(bob.attempts.call.is_some());
    store.release(&LeasesToEnd::Deliveries("one")).await.unwrap();
    assert_eq!(sending(&store, "one", later(20), &ids[..1]).await, [false]);
    let early = store.take("two", later(14), later(30), 10).await;
    let due = store.take("two", later(16), later(30), 10).await;
    let rest = store.take("two", later(18), later(30), 10).await;
    assert_eq!((users(&early), users(&due), users(&rest)), (vec!["eve"], vec!["ada"], vec!["bob"]));
    assert_eq!(due[0].attempts.not_before, None, "it is held now");
}

pub async fn taking_over_a_call_leases_all_its_open_rows(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve", "zoe"]).await;
    let calls: Vec<_> = ids.iter().map(|id| handover(id, "x")).collect();
    let (own, other) = (calls[..3].to_vec(), handover(&ids[3], "y"));
    store.sending("one", noon(), later(5), &own).await;
    store.sending("one", noon(), later(5), &[other]).await;
    settle(&store, later(1), &ids[1], DeliveryState::Sent).await;
    store.take("two", later(6), later(20), 1).await;

    let claimed = store.second().take_call("three", later(30), "x").await;
    let nothing = store.take_call("three", later(30), "z").await;

    assert_eq!((users(&claimed), nothing.len()), (vec!["ada", "eve"], 0));
    for row in claimed {
        assert_eq!(row.lease, Some(lease("three", later(30))));
    }
    assert_eq!(
        store.hold("two", later(40), &ids[..1]).await,
        [false],
        "who held it does so no more"
    );
}

/// Creates a closed delivery in the state `unknown`.
pub(super) async fn unknown(store: &Fresh, person: &str) -> DeliveryId {
    let id = open(store, &[person]).await.remove(0);
    settle(store, later(1), &id, DeliveryState::Unknown).await;
    store.close(std::slice::from_ref(&id)).await.unwrap();
    id
}

pub async fn an_unknown_delivery_can_be_resolved_as_sent_or_not_sent(store: Fresh) {
    let (sent, not_sent) = (unknown(&store, "ada").await, unknown(&store, "bob").await);

    let resolved = (
        store.judge(&sent, later(9), OperatorDecision::Sent, "seen").await,
        store.judge(&not_sent, later(9), OperatorDecision::NotSent, "lost").await,
    );

    assert_eq!(resolved, (Corrected::Done, Corrected::Done));
    let (ada, bob) = (row(&store, &sent).await, row(&store, &not_sent).await);
    assert_eq!(ada.state, DeliveryState::Sent);
    assert!(!ada.open);
    assert_eq!(ada.outcome.settled, Some(later(9)));
    assert_eq!(bob.state, DeliveryState::Pending);
    assert!(bob.open);
    assert_eq!(bob.outcome.settled, None);
    let reasons = [ada.outcome.reason, bob.outcome.reason].map(Option::unwrap);
    assert_eq!(reasons, ["seen", "lost"]);
    let claimed = store.take("two", later(9), later(20), 9).await;
    assert_eq!(users(&claimed), ["bob"]);
    assert_eq!(
        store.open(&[delivery("bob", "2014-04-23", "one")]).await.unwrap(),
        [false],
        "it has its slot again"
    );
}

pub async fn only_a_closed_unknown_delivery_with_a_free_slot_is_resolved(store: Fresh) {
    let busy = unknown(&store, "ada").await;
    store.open_row(delivery("ada", "2014-04-23", "one")).await;
    let pending = open(&store, &["bob"]).await.remove(0);
    let missing = DeliveryId::stored("digest:zoe:daily:2014-04-22");

    let mut resolved = Vec::new();
    for (id, outcome) in [
        (&busy, OperatorDecision::NotSent),
        (&pending, OperatorDecision::Sent),
        (&missing, OperatorDecision::Sent),
    ] {
        resolved.push(store.judge(id, later(9), outcome, "x").await);
    }

    let other = Corrected::OtherState;
    assert_eq!(resolved, [Corrected::Busy, other, other]);
    assert_eq!(row(&store, &busy).await.state, DeliveryState::Unknown);
    assert_eq!(
        store.judge(&busy, later(9), OperatorDecision::Sent, "x").await,
        Corrected::Done,
        "it takes no slot"
    );
}

pub async fn the_former_holder_can_neither_send_nor_settle(store: Fresh) {
    let ids = open(&store, &["ada"]).await;
    store.take("two", later(10), later(20), 10).await;

    let moved = sending(&store, "one", later(30), &ids).await;
    let settled = settle(&store, later(11), &ids[0], DeliveryState::Sent).await;

    assert_eq!((moved, settled), (vec![false], vec![false]));
    let ada = row(&store, &ids[0]).await;
    assert_eq!(ada.state, DeliveryState::Pending);
    assert_eq!(ada.attempts.made, 0);
    assert_eq!(ada.lease, Some(lease("two", later(20))));
}

pub async fn a_settled_delivery_records_its_outcome_and_stays_open(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    sending(&store, "one", later(20), &ids[..1]).await;

    let sent = settlement(&ids[0], DeliveryState::Sent);
    let canceled = Settlement {
        state: DeliveryState::Canceled,
        items: 0,
        provider_id: None,
        reason: Some("nothing is left".into()),
        ..settlement(&ids[1], DeliveryState::Canceled)
    };
    let settled = store.settle("one", later(2), &[sent, canceled]).await;

    assert_eq!(settled, [true, true]);
    let (ada, bob) = (row(&store, &ids[0]).await, row(&store, &ids[1]).await);
    assert_eq!(
        (ada.state, ada.open, ada.outcome.items, ada.outcome.settled),
        (DeliveryState::Sent, true, 4, Some(later(2)))
    );
    assert_eq!(ada.outcome.provider_id.as_deref(), Some("<1@esp>"));
    assert_eq!(ada.outcome.reason, None);
    assert_eq!(bob.state, DeliveryState::Canceled);
    assert!(bob.open);
    assert_eq!(bob.outcome.items, 0);
    assert_eq!(bob.outcome.provider_id, None);
    assert_eq!(bob.outcome.reason.as_deref(), Some("nothing is left"));
}

pub async fn a_delivery_is_settled_once(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let sent = settlement(&ids[0], DeliveryState::Sent);
    let unknown = DeliveryId::stored("digest:eve:daily:2014-04-22");

    let first = store.settle("one", later(1), std::slice::from_ref(&sent)).await;
    let failed = [
        settlement(&ids[0], DeliveryState::Failed),
        settlement(&unknown, DeliveryState::Sent),
        settlement(&ids[1], DeliveryState::Failed),
    ];
    let second = store.settle("one", later(2), &failed).await;
    let moved = sending(&store, "one", later(20), &ids[..1]).await;

    assert_eq!((first, second, moved), (vec![true], vec![false, false, true], vec![false]));
    let ada = row(&store, &ids[0]).await;
    assert_eq!(ada.state, DeliveryState::Sent);
    assert_eq!(ada.outcome.settled, Some(later(1)));
}

pub async fn a_settled_delivery_is_claimed_until_it_is_closed(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let both =
        [settlement(&ids[0], DeliveryState::Sent), settlement(&ids[1], DeliveryState::Unknown)];
    store.settle("one", later(1), &both).await;

    store.second().close(&ids[..1]).await.unwrap();
    let claimed = store.take("two", later(10), later(20), 10).await;

    assert_eq!(users(&claimed), ["bob"], "somebody has to write its markers");
    assert_eq!(claimed[0].state, DeliveryState::Unknown);
    let ada = row(&store, &ids[0]).await;
    assert_eq!((ada.state, ada.open), (DeliveryState::Sent, false));
}

pub async fn only_settled_deliveries_are_closed_and_closing_can_repeat(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    sending(&store, "one", later(20), &ids[1..2]).await;
    settle(&store, later(1), &ids[2], DeliveryState::Sent).await;

    let unknown = DeliveryId::stored("digest:zoe:daily:2014-04-22");
    for _ in 0..2 {
        store.close(&[ids.clone(), vec![unknown.clone()]].concat()).await.unwrap();
    }

    let mut open = Vec::new();
    for id in &ids {
        open.push(row(&store, id).await.open);
    }
    assert_eq!(open, [true, true, false]);
}

pub async fn delivery_counts_are_exact_for_each_state(store: Fresh) {
    let ids = open(&store, &["a", "b", "c", "d", "e", "f", "g"]).await;
    sending(&store, "one", later(20), &ids[..2]).await;
    let ends = [
        settlement(&ids[0], DeliveryState::Sent),
        settlement(&ids[2], DeliveryState::Failed),
        settlement(&ids[3], DeliveryState::Canceled),
        settlement(&ids[4], DeliveryState::Unknown),
        settlement(&ids[5], DeliveryState::Sent),
    ];
    store.settle("one", later(1), &ends).await;
    store.close(&ids[5..6]).await.unwrap();

    let all = store.delivery_counts(&DeliveryState::ALL).await;
    let requested = [DeliveryState::Sending, DeliveryState::Pending];
    let some = store.delivery_counts(&requested).await;
    let counts: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(some, requested.map(|state| (state, counts[&state])));

    let expected = [1, 1, 2, 1, 1, 1];
    for (state, expected) in DeliveryState::ALL.into_iter().zip(expected) {
        assert_eq!(counts.get(&state), Some(&expected), "{state:?}");
    }
}

pub async fn many_deliveries_are_sent_settled_and_closed_together(store: Fresh) {
    let all_users = people(1_500);
    let names: Vec<_> = all_users.iter().map(|person| person.as_str()).collect();
    let ids = open(&store, &names).await;

    assert!(sending(&store, "one", later(20), &ids).await.iter().all(|moved| *moved));
    let ends: Vec<_> = ids.iter().map(|id| settlement(id, DeliveryState::Sent)).collect();
    assert!(store.settle("one", later(1), &ends).await.iter().all(|settled| *settled));
    store.close(&ids).await.unwrap();

    assert!(store.take("two", later(60), later(80), 10).await.is_empty());
    let rows = store.deliveries(&ids).await.unwrap();
    assert!(rows.iter().all(Option::is_some));
    assert!(!store.open_row(delivery("p00007", "2014-04-22", "one")).await);
}

pub async fn old_closed_deliveries_are_removed_except_unknown_ones(store: Fresh) {
    let ids = open(&store, &["a", "b", "c", "d", "e", "f"]).await;
    let ends = [
        DeliveryState::Sent,
        DeliveryState::Canceled,
        DeliveryState::Unknown,
        DeliveryState::Failed,
        DeliveryState::Sent,
    ];
    for (minute, (id, state)) in (1..).zip(ids.iter().zip(ends)) {
        settle(&store, later(minute), id, state).await;
    }
    // The fifth row is settled but not closed, and the sixth is not settled.
    store.close(&ids[..4]).await.unwrap();
    let remaining = || async {
        let rows = store.deliveries(&ids).await.unwrap();
        rows.iter().map(Option::is_some).collect::<Vec<_>>()
    };

    let forget = |before, limit| store.forget(ExpiringRecords::Deliveries, before, limit);
    assert_eq!(forget(later(1), 10).await.unwrap(), 0);
    assert_eq!(forget(later(60), 1).await.unwrap(), 1);
    assert_eq!(remaining().await, [false, true, true, true, true, true]);
    assert_eq!(forget(later(60), 10).await.unwrap(), 2);
    assert_eq!(forget(later(60), 10).await.unwrap(), 0);
    assert_eq!(remaining().await, [false, false, true, false, true, true]);
}
