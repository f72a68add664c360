//! Contract tests of `Deliveries` for opening, claiming and reading. There is one row for each
//! email, one open row for each slot, and one holder of each row.
//!
//! [`super::settling`] covers how rows end.

use std::collections::BTreeSet;

use chrono::{DateTime, TimeDelta, Utc};
use tidings::domain::delivery::Settlement;
use tidings::domain::{Delivery, DeliveryId, DeliverySource, DeliveryState, IdForm, StackId};
use tidings::store::LeasesToEnd;

use crate::support::*;

pub(super) fn later(n: i64) -> DateTime<Utc> {
    noon() + minutes(n)
}

/// Opens today's delivery for each of these users, leased by `one` until 12:05.
pub(super) async fn open(store: &Fresh, people: &[&str]) -> Vec<DeliveryId> {
    let rows: Vec<_> = people.iter().map(|person| delivery(person, "2014-04-22", "one")).collect();
    let opened = store.open(&rows).await.unwrap();
    assert!(opened.iter().all(|opened| *opened));
    rows.into_iter().map(|row| row.id).collect()
}

pub(super) fn settlement(id: &DeliveryId, state: DeliveryState) -> Settlement {
    Settlement {
        id: id.clone(),
        from: DeliveryState::Sending,
        state,
        items: 4,
        provider_id: Some("<1@esp>".into()),
        reason: None,
        cause: None,
    }
}

/// Settles a delivery of the owner `one`.
pub(super) async fn settle(
    store: &Fresh,
    at: DateTime<Utc>,
    id: &DeliveryId,
    state: DeliveryState,
) -> Vec<bool> {
    store.settle("one", at, &[settlement(id, state)]).await
}

/// Marks each delivery `sending`, in a separate call.
pub(super) async fn sending(
    store: &Fresh,
    owner: &str,
    until: DateTime<Utc>,
    ids: &[DeliveryId],
) -> Vec<bool> {
    let call = |id: &DeliveryId| handover(id, &format!("call of {id}"));
    let calls: Vec<_> = ids.iter().map(call).collect();
    store.sending(owner, noon(), until, &calls).await
}

pub(super) async fn row(store: &Fresh, id: &DeliveryId) -> Delivery {
    store.delivery(id).await.unwrap()
}

pub(super) fn users(rows: &[Delivery]) -> Vec<&str> {
    rows.iter().map(|row| row.user.as_str()).collect()
}

pub async fn an_opened_delivery_is_read_back_with_every_field(store: Fresh) {
    let plain = delivery("ada", "2014-04-22", "one");
    let mut odd = Delivery {
        source: DeliverySource::Batch(id(77), noon() + TimeDelta::milliseconds(5)),
        watermarks: vec![
            (StackId { day: today(), form: IdForm::ObjectId }, 0),
            (StackId::for_day(today()), u32::MAX),
        ],
        lease: None,
        created: noon() + TimeDelta::milliseconds(3),
        ..delivery("0", "2014-W17", "one")
    };
    odd.outcome.reason = Some(String::new());
    odd.outcome.provider_id = Some(String::new());
    let bare = Delivery { watermarks: Vec::new(), ..delivery("ü.$x", "2014-04-22", "one") };
    let mut tried = delivery("eve", "2014-04-23", "one");
    tried.lease = None;
    tried.attempts.not_before = Some(later(7));
    tried.attempts.call = Some("c0ffee".into());
    tried.attempts.called_at = Some(later(2));

    let all = [plain, odd, bare, tried];
    assert_eq!(store.open(&all).await.unwrap(), [true; 4]);

    for row in all {
        assert_eq!(store.second().delivery(&row.id).await, Some(row));
    }
    assert_eq!(store.delivery(&DeliveryId::stored("digest:eve:daily:2014-04-22")).await, None);
}

pub async fn a_delivery_is_opened_once_for_each_id(store: Fresh) {
    let first = delivery("ada", "2014-04-22", "one");
    store.open(std::slice::from_ref(&first)).await.unwrap();
    settle(&store, noon(), &first.id, DeliveryState::Sent).await;
    store.close(std::slice::from_ref(&first.id)).await.unwrap();

    let again = delivery("ada", "2014-04-22", "two");
    let opened =
        store.open(&[again.clone(), delivery("bob", "2014-04-22", "two"), again]).await.unwrap();

    assert_eq!(opened, [false, true, false]);
    assert_eq!(row(&store, &first.id).await.state, DeliveryState::Sent);
}

pub async fn a_slot_has_one_open_delivery(store: Fresh) {
    let (monday, tuesday) =
        (delivery("ada", "2014-04-21", "one"), delivery("ada", "2014-04-22", "two"));
    let twice = [delivery("bob", "2014-04-21", "two"), delivery("bob", "2014-04-22", "two")];

    assert_eq!(store.open(std::slice::from_ref(&monday)).await.unwrap(), [true]);
    assert_eq!(store.open(std::slice::from_ref(&tuesday)).await.unwrap(), [false]);
    assert_eq!(store.open(&twice).await.unwrap(), [true, false]);
    assert_eq!(store.delivery(&tuesday.id).await, None);

    settle(&store, noon(), &monday.id, DeliveryState::Sent).await;
    assert_eq!(
        store.open(std::slice::from_ref(&tuesday)).await.unwrap(),
        [false],
        "settled is not closed"
    );
    store.close(&[monday.id]).await.unwrap();
    assert_eq!(store.open(&[tuesday]).await.unwrap(), [true], "the slot is free again");
}

pub async fn one_of_many_concurrent_openings_of_a_delivery_succeeds(store: Fresh) {
    let same_id = |store: Fresh, n: u32| async move {
        store.open_row(delivery("ada", "2014-04-22", &format!("owner {n}"))).await
    };
    let same_slot = |store: Fresh, n: u32| async move {
        store.open_row(delivery("bob", &format!("2014-04-{n}"), "one")).await
    };

    let wins = store.wins(16, same_id).await;
    let slots = store.wins(16, same_slot).await;

    assert_eq!((wins, slots), (1, 1));
    assert_eq!(store.deliveries_of(&user("bob"), 100).await.len(), 1);
}

pub async fn a_leased_delivery_is_not_claimed_until_its_lease_expires(store: Fresh) {
    open(&store, &["ada", "bob"]).await;
    let free = Delivery { lease: None, ..delivery("eve", "2014-04-22", "one") };
    store.open(&[free]).await.unwrap();

    let now = store.take("two", later(1), later(20), 10).await;
    let after = store.take("three", later(10), later(30), 10).await;
    let own = store.take("three", later(10), later(30), 10).await;

    assert_eq!(users(&now), ["eve"]);
    assert_eq!(users(&after), ["ada", "bob"]);
    assert_eq!(users(&own), [""; 0]);
    assert_eq!(after[0].lease, Some(lease("three", later(30))));
    assert_eq!(row(&store, &after[0].id).await, after[0]);
}

pub async fn deliveries_are_claimed_in_slot_order_up_to_the_limit(store: Fresh) {
    open(&store, &["eve", "0", "ü", "ada", "bob"]).await;

    let first = store.take("two", later(10), later(20), 3).await;
    let rest = store.take("two", later(10), later(20), 10).await;

    assert_eq!(users(&first), ["0", "ada", "bob"]);
    assert_eq!(users(&rest), ["eve", "ü"]);
}

pub async fn concurrent_claims_of_deliveries_never_overlap(store: Fresh) {
    let all_users = people(60);
    let names: Vec<_> = all_users.iter().map(|person| person.as_str()).collect();
    open(&store, &names).await;

    let claim = |store: Fresh, n: u32| async move {
        let owner = format!("owner {n}");
        let mut held = Vec::new();
        loop {
            let claimed = store.take(&owner, later(10), later(20), 3).await;
            if claimed.is_empty() {
                return held;
            }
            held.extend(claimed.into_iter().map(|row| row.user));
        }
    };
    let held = store.at_once(8, claim).await.concat();

    let each: BTreeSet<_> = held.iter().collect();
    assert_eq!((held.len(), each.len()), (60, 60));
}

pub async fn a_released_delivery_can_be_claimed_at_once(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    store.open_row(delivery("eve", "2014-04-22", "two")).await;
    settle(&store, later(1), &ids[1], DeliveryState::Sent).await;

    store.release(&LeasesToEnd::Deliveries("one")).await.unwrap();
    store.release(&LeasesToEnd::Deliveries("nobody")).await.unwrap();

    let claimed = store.take("three", later(1), later(20), 10).await;
    assert_eq!(users(&claimed), ["ada", "bob"], "what others hold stays theirs");
    assert_eq!(sending(&store, "one", later(20), &ids[..1]).await, [false]);
}

pub async fn the_deliveries_of_a_user_are_returned_newest_first(store: Fresh) {
    for n in [3, 1, 2] {
        let row =
            Delivery { created: later(n), ..delivery("ada", &format!("2014-04-0{n}"), "one") };
        store.open(std::slice::from_ref(&row)).await.unwrap();
        settle(&store, later(n), &row.id, DeliveryState::Sent).await;
        store.close(&[row.id]).await.unwrap();
    }
    open(&store, &["adam", "ad"]).await;

    let all = store.deliveries_of(&user("ada"), 10).await;
    let some = store.deliveries_of(&user("ada"), 2).await;

    let period = |row: &Delivery| match &row.source {
        DeliverySource::Digest(_, period) => period.clone(),
        DeliverySource::Batch(..) => panic!("{row:?} is of a batch"),
    };
    let periods: Vec<_> = all.iter().map(period).collect();
    assert_eq!(periods, ["2014-04-03", "2014-04-02", "2014-04-01"]);
    assert_eq!(some, all[..2]);
    assert!(store.deliveries_of(&user("$ne"), 10).await.is_empty());
}

pub async fn empty_requests_for_deliveries_do_nothing(store: Fresh) {
    assert!(store.open(&[]).await.unwrap().is_empty());
    assert!(store.sending("one", noon(), later(1), &[]).await.is_empty());
    assert!(store.hold("one", later(1), &[]).await.is_empty());
    assert!(store.defer("one", &[]).await.is_empty());
    assert!(store.deliveries(&[]).await.unwrap().is_empty());
    assert!(store.settle("one", later(1), &[]).await.is_empty());
    store.close(&[]).await.unwrap();

    assert!(store.take("one", noon(), later(1), 10).await.is_empty());
}

pub async fn deliveries_are_returned_in_the_order_of_the_request(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let unknown = DeliveryId::stored("digest:eve:daily:2014-04-22");

    let requested = [ids[1].clone(), unknown, ids[0].clone(), ids[1].clone()];
    let rows = store.second().deliveries(&requested).await.unwrap();

    let found: Vec<_> = rows.iter().map(|row| row.as_ref().map(|row| row.user.as_str())).collect();
    assert_eq!(found, [Some("bob"), None, Some("ada"), Some("bob")]);
}

pub async fn deliveries_in_a_state_are_returned_newest_first(store: Fresh) {
    for (n, name) in [(1, "ada"), (3, "bob"), (2, "eve")] {
        let row = Delivery { created: later(n), ..delivery(name, "2014-04-22", "one") };
        store.open(&[row]).await.unwrap();
    }
    let ids = open(&store, &["zoe"]).await;
    sending(&store, "one", later(20), &ids).await;

    let pending = store.deliveries_in(DeliveryState::Pending, 2).await;
    let sending = store.deliveries_in(DeliveryState::Sending, 9).await;

    assert_eq!((users(&pending), users(&sending)), (vec!["bob", "eve"], vec!["zoe"]));
    assert!(store.deliveries_in(DeliveryState::Unknown, 9).await.is_empty());
}
