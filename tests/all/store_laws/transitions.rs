//! Contract tests of `Deliveries::advance`: each transition of a list succeeds or fails by itself.

use tidings::domain::delivery::{Deferral, Handover, Settlement, Transition};
use tidings::domain::{DeliveryId, DeliveryState};

use super::deliveries::{later, open, row, sending, settle, settlement};
use super::settling::deferral;
use crate::support::*;

/// Makes the transitions as `two`, who holds none of the deliveries, and then as `one`.
async fn advance_as_two_and_one(store: &Fresh, requested: &[Transition]) -> Vec<bool> {
    let (at, until) = (later(1), later(30));
    let others = store.second().advance(&lease("two", until), at, requested).await;
    assert_eq!(others.unwrap(), vec![false; requested.len()]);
    let made = store.advance(&lease("one", until), at, requested).await;
    made.unwrap()
}

pub async fn each_transition_is_made_only_if_its_condition_holds(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "cem", "dan", "eve", "fay", "gus", "hal"]).await;
    sending(&store, "one", later(20), &ids[1..3]).await;
    settle(&store, noon(), &ids[6], DeliveryState::Sent).await;
    let unknown = DeliveryId::stored("digest:nobody:daily:2014-04-22");
    let deferral = |id: &DeliveryId| Deferral {
        id: id.clone(),
        from: DeliveryState::Sending,
        state: DeliveryState::Pending,
        not_before: later(60),
        reason: Some("429".into()),
        has_failed: true,
    };
    let settle = |id: &DeliveryId| Transition::Settle(settlement(id, DeliveryState::Failed));

    let requested = [
        Transition::HandOver(handover(&ids[0], "x")),
        Transition::ReturnToPending(ids[1].clone()),
        settle(&ids[2]),
        // This delivery was never sent.
        Transition::ReturnToPending(ids[3].clone()),
        Transition::Defer(deferral(&ids[4])),
        settle(&unknown),
        Transition::RenewLease(ids[5].clone()),
        // This delivery is already settled.
        Transition::HandOver(handover(&ids[6], "x")),
        settle(&ids[7]),
    ];
    let made = advance_as_two_and_one(&store, &requested).await;

    let expected = [true, true, true, false, true, false, true, false, true];
    assert_eq!(made, expected);
    let mut states = Vec::new();
    for id in &ids {
        let row = row(&store, id).await;
        let until = row.lease.map(|lease| lease.until);
        states.push((row.state, row.attempts.made, until));
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
    assert_eq!(states, expected);
}

pub async fn a_delivery_in_no_call_is_deferred_or_settled_only_while_it_is_pending(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "cem", "dan", "eve", "fay"]).await;
    let (pending, sent) = (DeliveryState::Pending, DeliveryState::Sent);
    // Another task of the same owner sends the first three meanwhile.
    sending(&store, "one", later(20), &ids[..3]).await;
    let end = |from, id: &DeliveryId| Settlement { from, ..settlement(id, sent) };
    let advance = async |from: DeliveryState, ids: &[DeliveryId]| {
        let deferral = Deferral { from, ..deferral(&ids[0], pending, 15) };
        let requested = [
            Transition::Defer(deferral),
            Transition::Settle(end(from, &ids[1])),
            Transition::SettleAndClose(end(from, &ids[2])),
        ];
        let one = lease("one", later(30));
        let made = store.advance(&one, later(1), &requested);
        made.await.unwrap()
    };

    assert_eq!(advance(pending, &ids[..3]).await, [false; 3]);
    for id in &ids[..3] {
        let row = row(&store, id).await;
        assert_eq!(row.state, DeliveryState::Sending, "{id}");
        assert_eq!(row.lease, Some(lease("one", later(20))), "{id}");
    }
    assert_eq!(advance(pending, &ids[3..]).await, [true; 3]);
    // A call's answer always applies.
    assert_eq!(advance(DeliveryState::Sending, &ids[..3]).await, [true; 3]);
    for (n, id) in ids.iter().enumerate() {
        let expected = if n % 3 == 0 { pending } else { sent };
        assert_eq!(row(&store, id).await.state, expected, "{id}");
    }
}

pub async fn equal_transitions_of_many_deliveries_keep_separate_values(store: Fresh) {
    let all_users = people(450);
    let names: Vec<_> = all_users.iter().map(|person| person.as_str()).collect();
    let ids = open(&store, &names).await;
    let others = store.open(&[delivery("zoe", "2014-04-22", "two")]).await;
    assert_eq!(others.unwrap(), [true]);
    let zoe = delivery("zoe", "2014-04-22", "two").id;
    let all = || ids.iter().chain([&zoe]).enumerate();
    let call = |n: usize| ["x", "y"][n % 2];
    let state = |n: usize| match n % 3 {
        0 => DeliveryState::Failed,
        _ => DeliveryState::Sent,
    };
    let hand_over = |(n, id): (usize, &DeliveryId)| {
        Transition::HandOver(Handover { items: n as u32 % 7, ..handover(id, call(n)) })
    };
    let settle = |(n, id): (usize, &DeliveryId)| {
        Transition::Settle(Settlement {
            items: n as u32 % 5,
            provider_id: (n % 3 > 0).then(|| format!("$id.{n}")),
            reason: (n % 3 == 0).then(|| "$refused".into()),
            ..settlement(id, state(n))
        })
    };

    for transitions in [all().map(hand_over).collect::<Vec<_>>(), all().map(settle).collect()] {
        let one = lease("one", later(30));
        let made = store.advance(&one, later(1), &transitions);
        let made = made.await.unwrap();
        assert!(made[..450].iter().all(|made| *made));
        assert!(!made[450], "it is somebody else's");
        if matches!(transitions[0], Transition::HandOver(_)) {
            let rows = store.deliveries(&ids).await.unwrap();
            let rows = rows.iter().flatten();
            let items = rows.map(|row| (row.outcome.items, row.attempts.made));
            let expected = (0..450).map(|n| (n % 7, 1));
            assert!(items.eq(expected));
        }
    }

    let rows = store.deliveries(&ids).await.unwrap();
    for (n, row) in rows.into_iter().flatten().enumerate() {
        assert_eq!(row.state, state(n));
        assert_eq!(row.attempts.call.as_deref(), Some(call(n)));
        assert_eq!((row.outcome.items, row.attempts.made), (n as u32 % 5, 1));
        let provider_id = (n % 3 > 0).then(|| format!("$id.{n}"));
        assert_eq!(row.outcome.provider_id, provider_id);
        assert_eq!(row.outcome.reason.is_some(), n % 3 == 0);
        assert_eq!(row.outcome.settled, Some(later(1)));
    }
}

pub async fn a_concluded_delivery_is_settled_and_closed_and_frees_its_slot(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "cem", "dan", "eve"]).await;
    sending(&store, "one", later(20), &ids[1..]).await;
    settle(&store, noon(), &ids[4], DeliveryState::Failed).await;
    let sent = |id: &DeliveryId| settlement(id, DeliveryState::Sent);
    let requested = [
        Transition::SettleAndClose(sent(&ids[0])),
        Transition::SettleAndClose(Settlement { provider_id: Some("$2".into()), ..sent(&ids[1]) }),
        Transition::Settle(sent(&ids[2])),
        Transition::SettleAndClose(Settlement {
            state: DeliveryState::Canceled,
            reason: Some("$left".into()),
            ..sent(&ids[3])
        }),
        // This delivery is already settled.
        Transition::SettleAndClose(sent(&ids[4])),
    ];

    let made = advance_as_two_and_one(&store, &requested).await;
    let again = store.advance(&lease("one", later(30)), later(2), &requested).await;

    assert_eq!(made, [true, true, true, true, false]);
    assert_eq!(again.unwrap(), [false; 5]);
    let (by_one, by_eve) = (Some(later(1)), Some(noon()));
    let expected = [
        (DeliveryState::Sent, false, by_one),
        (DeliveryState::Sent, false, by_one),
        (DeliveryState::Sent, true, by_one),
        (DeliveryState::Canceled, false, by_one),
        (DeliveryState::Failed, true, by_eve),
    ];
    for (id, expected) in ids.iter().zip(expected) {
        let row = row(&store, id).await;
        assert_eq!((row.state, row.open, row.outcome.settled), expected, "{id}");
        assert_eq!(row.lease.is_some(), row.open, "{id}");
    }
    let bob = row(&store, &ids[1]).await;
    assert_eq!(bob.outcome.items, 4);
    assert_eq!(bob.outcome.provider_id.as_deref(), Some("$2"));
    let next = ["ada", "bob", "cem", "dan", "eve"].map(|who| delivery(who, "2014-04-23", "one"));
    let opened = store.open(&next).await.unwrap();
    assert_eq!(opened, [true, true, false, true, false]);
    let claimed = store.take("two", later(40), later(50), 10).await;
    assert_eq!(claimed.len(), 5, "two that are settled, and three new ones");
}
