//! Laws of `Deliveries` about how rows end: sending, settled once, closed.

use std::collections::BTreeMap;

use tidings::domain::delivery::{Corrected, Deferral, Settlement, Verdict};
use tidings::domain::{DeliveryId, DeliveryState};
use tidings::store::{Forgettable, Waits};

use super::deliveries::{later, open, row, sending, settlement, users};

use crate::support::*;

pub async fn sending_is_for_the_holder_counts_an_attempt_and_notes_the_call(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let (unknown, call) = (DeliveryId::stored("digest:eve:daily:2014-04-22"), handover);

    let asked = [call(&ids[1], "x"), call(&unknown, "x"), call(&ids[0], "y")];
    let other = store
        .second()
        .sending("two", later(1), later(20), &asked)
        .await
        .unwrap();
    let first = store
        .sending("one", later(1), later(20), &asked)
        .await
        .unwrap();
    // Two tasks of one owner may have it in hand: the second makes no call of its own.
    let twice = sending(&store, "one", later(25), &ids[..1]).await;
    let recalled = store.recall("one", &ids[..1]).await.unwrap();
    assert_eq!((twice, recalled), (vec![false], vec![true]));
    let again = store
        .sending("one", later(3), later(30), &[call(&ids[0], "z")])
        .await
        .unwrap();

    assert_eq!(
        (other, first, again),
        (vec![false; 3], vec![true, false, true], vec![true])
    );
    let (ada, bob) = (row(&store, &ids[0]).await, row(&store, &ids[1]).await);
    assert_eq!(ada.state, DeliveryState::Sending);
    assert_eq!(ada.attempts.made, 2);
    assert_eq!(ada.open, true);
    assert_eq!(ada.lease, Some(lease("one", later(30))));
    assert_eq!((ada.outcome.items, bob.outcome.items), (3, 3));
    let calls =
        [ada, bob].map(|row| (row.attempts.made, row.attempts.call, row.attempts.called_at));
    let expected = |made, call: &str, at| (made, Some(call.to_owned()), Some(later(at)));
    assert_eq!(calls, [expected(2, "z", 3), expected(1, "x", 1)]);
}

pub async fn who_was_surely_not_taken_is_pending_again_and_still_held(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    sending(&store, "one", later(20), &ids[..2]).await;

    let other = store.second().recall("two", &ids).await.unwrap();
    let recalled = store.recall("one", &ids).await.unwrap();
    let again = store.recall("one", &ids).await.unwrap();

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

pub async fn a_mail_that_was_taken_after_all_has_no_reason_any_more(store: Fresh) {
    let ids = open(&store, &["ada"]).await;
    let deferral = Deferral {
        id: ids[0].clone(),
        state: DeliveryState::Pending,
        not_before: later(1),
        reason: Some("busy".into()),
        has_failed: false,
    };
    store.defer("one", &[deferral]).await.unwrap();
    store.take("one", later(2), later(9), 9).await.unwrap();

    let sent = settlement(&ids[0], DeliveryState::Sent);
    store.settle("one", later(3), &[sent]).await.unwrap();

    assert_eq!(row(&store, &ids[0]).await.outcome.reason, None);
}

pub async fn only_a_holder_holds_on(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    let settled = settlement(&ids[2], DeliveryState::Sent);
    store.settle("one", later(1), &[settled]).await.unwrap();
    store.close(&ids[2..]).await.unwrap();
    store
        .open(&[delivery("zoe", "2014-04-22", "two")])
        .await
        .unwrap();
    let zoes = delivery("zoe", "2014-04-22", "two").id;

    let asked = [ids[0].clone(), zoes, ids[2].clone(), ids[1].clone()];
    let held = store.hold("one", later(30), &asked).await.unwrap();

    assert_eq!(held, [true, false, false, true]);
    let claimed = store.take("three", later(10), later(40), 9).await.unwrap();
    assert_eq!(users(&claimed), ["zoe"], "the others are held longer");
}

pub(super) fn deferral(id: &DeliveryId, state: DeliveryState, not_before: i64) -> Deferral {
    Deferral {
        id: id.clone(),
        state,
        not_before: later(not_before),
        reason: Some("busy".into()),
        has_failed: false,
    }
}

pub async fn what_is_deferred_is_nobodys_before_its_time_and_keeps_its_reason(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    let unknown = DeliveryId::stored("digest:zoe:daily:2014-04-22");
    sending(&store, "one", later(20), &ids[..2]).await;
    let settled = settlement(&ids[2], DeliveryState::Sent);
    store.settle("one", later(1), &[settled]).await.unwrap();

    let asked = [
        deferral(&unknown, DeliveryState::Pending, 15),
        deferral(&ids[0], DeliveryState::Pending, 15),
        deferral(&ids[1], DeliveryState::Sending, 17),
        deferral(&ids[2], DeliveryState::Pending, 15),
    ];
    let other = store.second().defer("two", &asked).await.unwrap();
    let own = store.defer("one", &asked).await.unwrap();

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
    store.release(&Waits::Held("one")).await.unwrap();
    assert_eq!(sending(&store, "one", later(20), &ids[..1]).await, [false]);
    let early = store.take("two", later(14), later(30), 10).await.unwrap();
    let due = store.take("two", later(16), later(30), 10).await.unwrap();
    let rest = store.take("two", later(18), later(30), 10).await.unwrap();
    assert_eq!(
        (users(&early), users(&due), users(&rest)),
        (vec!["eve"], vec!["ada"], vec!["bob"])
    );
    assert_eq!(due[0].attempts.not_before, None, "it is held now");
}

pub async fn a_call_is_taken_over_whole_whoever_holds_its_rows(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve", "zoe"]).await;
    let calls: Vec<_> = ids.iter().map(|id| handover(id, "x")).collect();
    let (own, other) = (calls[..3].to_vec(), handover(&ids[3], "y"));
    store.sending("one", noon(), later(5), &own).await.unwrap();
    store
        .sending("one", noon(), later(5), &[other])
        .await
        .unwrap();
    let settled = settlement(&ids[1], DeliveryState::Sent);
    store.settle("one", later(1), &[settled]).await.unwrap();
    store.take("two", later(6), later(20), 1).await.unwrap();

    let taken = store
        .second()
        .take_call("three", later(30), "x")
        .await
        .unwrap();
    let nothing = store.take_call("three", later(30), "z").await.unwrap();

    assert_eq!((users(&taken), nothing.len()), (vec!["ada", "eve"], 0));
    for row in taken {
        assert_eq!(row.lease, Some(lease("three", later(30))));
    }
    assert_eq!(
        store.hold("two", later(40), &ids[..1]).await.unwrap(),
        [false],
        "who held it does so no more"
    );
}

/// A person's unknown delivery, closed.
pub(super) async fn unknown(store: &Fresh, person: &str) -> DeliveryId {
    let id = open(store, &[person]).await.remove(0);
    let unknown = settlement(&id, DeliveryState::Unknown);
    store.settle("one", later(1), &[unknown]).await.unwrap();
    store.close(std::slice::from_ref(&id)).await.unwrap();
    id
}

pub async fn who_knows_better_ends_an_unknown_delivery(store: Fresh) {
    let (sent, not_sent) = (unknown(&store, "ada").await, unknown(&store, "bob").await);

    let judged = (
        store.judge(&sent, later(9), Verdict::Sent, "seen").await,
        store
            .judge(&not_sent, later(9), Verdict::NotSent, "lost")
            .await,
    );

    assert_eq!(
        (judged.0.unwrap(), judged.1.unwrap()),
        (Corrected::Done, Corrected::Done)
    );
    let (ada, bob) = (row(&store, &sent).await, row(&store, &not_sent).await);
    assert_eq!(ada.state, DeliveryState::Sent);
    assert_eq!(ada.open, false);
    assert_eq!(ada.outcome.settled, Some(later(9)));
    assert_eq!(bob.state, DeliveryState::Pending);
    assert_eq!(bob.open, true);
    assert_eq!(bob.outcome.settled, None);
    let reasons = [ada.outcome.reason, bob.outcome.reason].map(Option::unwrap);
    assert_eq!(reasons, ["seen", "lost"]);
    let claimed = store.take("two", later(9), later(20), 9).await.unwrap();
    assert_eq!(users(&claimed), ["bob"]);
    assert_eq!(
        store
            .open(&[delivery("bob", "2014-04-23", "one")])
            .await
            .unwrap(),
        [false],
        "it has its slot again"
    );
}

pub async fn only_a_closed_unknown_delivery_is_judged_and_only_where_its_slot_is_free(
    store: Fresh,
) {
    let busy = unknown(&store, "ada").await;
    store
        .open(&[delivery("ada", "2014-04-23", "one")])
        .await
        .unwrap();
    let pending = open(&store, &["bob"]).await.remove(0);
    let nobodys = DeliveryId::stored("digest:zoe:daily:2014-04-22");

    let mut judged = Vec::new();
    for (id, verdict) in [
        (&busy, Verdict::NotSent),
        (&pending, Verdict::Sent),
        (&nobodys, Verdict::Sent),
    ] {
        judged.push(store.judge(id, later(9), verdict, "x").await.unwrap());
    }

    let other = Corrected::OtherState;
    assert_eq!(judged, [Corrected::Busy, other, other]);
    assert_eq!(row(&store, &busy).await.state, DeliveryState::Unknown);
    assert_eq!(
        store
            .judge(&busy, later(9), Verdict::Sent, "x")
            .await
            .unwrap(),
        Corrected::Done,
        "it takes no slot"
    );
}

pub async fn a_lost_lease_can_neither_send_nor_settle(store: Fresh) {
    let ids = open(&store, &["ada"]).await;
    store.take("two", later(10), later(20), 10).await.unwrap();

    let moved = sending(&store, "one", later(30), &ids).await;
    let settled = store
        .settle(
            "one",
            later(11),
            &[settlement(&ids[0], DeliveryState::Sent)],
        )
        .await
        .unwrap();

    assert_eq!((moved, settled), (vec![false], vec![false]));
    let ada = row(&store, &ids[0]).await;
    assert_eq!(ada.state, DeliveryState::Pending);
    assert_eq!(ada.attempts.made, 0);
    assert_eq!(ada.lease, Some(lease("two", later(20))));
}

pub async fn a_settled_row_says_how_it_ended_and_stays_open(store: Fresh) {
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
    let settled = store
        .settle("one", later(2), &[sent, canceled])
        .await
        .unwrap();

    assert_eq!(settled, [true, true]);
    let (ada, bob) = (row(&store, &ids[0]).await, row(&store, &ids[1]).await);
    assert_eq!(
        (ada.state, ada.open, ada.outcome.items, ada.outcome.settled),
        (DeliveryState::Sent, true, 4, Some(later(2)))
    );
    assert_eq!(ada.outcome.provider_id.as_deref(), Some("<1@esp>"));
    assert_eq!(ada.outcome.reason, None);
    assert_eq!(bob.state, DeliveryState::Canceled);
    assert_eq!(bob.open, true);
    assert_eq!(bob.outcome.items, 0);
    assert_eq!(bob.outcome.provider_id, None);
    assert_eq!(bob.outcome.reason.as_deref(), Some("nothing is left"));
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
    let moved = sending(&store, "one", later(20), &ids[..1]).await;

    assert_eq!(
        (first, second, moved),
        (vec![true], vec![false, false, true], vec![false])
    );
    let ada = row(&store, &ids[0]).await;
    assert_eq!(ada.state, DeliveryState::Sent);
    assert_eq!(ada.outcome.settled, Some(later(1)));
}

pub async fn a_settled_row_is_claimed_again_until_it_is_closed(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let both = [
        settlement(&ids[0], DeliveryState::Sent),
        settlement(&ids[1], DeliveryState::Unknown),
    ];
    store.settle("one", later(1), &both).await.unwrap();

    store.second().close(&ids[..1]).await.unwrap();
    let claimed = store.take("two", later(10), later(20), 10).await.unwrap();

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
    sending(&store, "one", later(20), &ids[1..2]).await;
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
    sending(&store, "one", later(20), &ids[..2]).await;
    let ends = [
        settlement(&ids[0], DeliveryState::Sent),
        settlement(&ids[2], DeliveryState::Failed),
        settlement(&ids[3], DeliveryState::Canceled),
        settlement(&ids[4], DeliveryState::Unknown),
        settlement(&ids[5], DeliveryState::Sent),
    ];
    store.settle("one", later(1), &ends).await.unwrap();
    store.close(&ids[5..6]).await.unwrap();

    let all = store.delivery_counts(&DeliveryState::ALL).await.unwrap();
    let asked = [DeliveryState::Sending, DeliveryState::Pending];
    let some = store.delivery_counts(&asked).await.unwrap();
    let counts: BTreeMap<_, _> = all.into_iter().collect();
    assert_eq!(some, asked.map(|state| (state, counts[&state])));

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
        sending(&store, "one", later(20), &ids)
            .await
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
            .take("two", later(60), later(80), 10)
            .await
            .unwrap()
            .is_empty()
    );
    let rows = store.deliveries(&ids).await.unwrap();
    assert!(rows.iter().all(Option::is_some));
    assert!(
        !store
            .open(&[delivery("p00007", "2014-04-22", "one")])
            .await
            .unwrap()[0]
    );
}

pub async fn closed_rows_of_long_ago_are_forgotten_and_unknown_ones_stay(store: Fresh) {
    let ids = open(&store, &["a", "b", "c", "d", "e", "f"]).await;
    let ends = [
        DeliveryState::Sent,
        DeliveryState::Canceled,
        DeliveryState::Unknown,
        DeliveryState::Failed,
        DeliveryState::Sent,
    ];
    for (minute, (id, state)) in (1..).zip(ids.iter().zip(ends)) {
        let end = settlement(id, state);
        store.settle("one", later(minute), &[end]).await.unwrap();
    }
    // The last of them is settled and not closed yet, and one is not even settled.
    store.close(&ids[..4]).await.unwrap();
    let left = || async {
        let rows = store.deliveries(&ids).await.unwrap();
        rows.iter().map(Option::is_some).collect::<Vec<_>>()
    };

    let forget = |before, limit| store.forget(Forgettable::Deliveries, before, limit);
    assert_eq!(forget(later(1), 10).await.unwrap(), 0);
    assert_eq!(forget(later(60), 1).await.unwrap(), 1);
    assert_eq!(left().await, [false, true, true, true, true, true]);
    assert_eq!(forget(later(60), 10).await.unwrap(), 2);
    assert_eq!(forget(later(60), 10).await.unwrap(), 0);
    assert_eq!(left().await, [false, false, true, false, true, true]);
}
