//! Contract tests of `Deliveries` for retries: attempts are counted, failed deliveries are
//! reopened, and pending ones are canceled.

use tidings::domain::delivery::{Corrected, Correction, Deferral, Reopening, Settlement};
use tidings::domain::{DeliveryId, DeliveryState, Feedback, ReportKind, StackId};
use tidings::store::{DeliveryFilter, LeasesToEnd, TimeRange};

use super::deliveries::{later, open, row, sending, settle, settlement, users};
use super::settling::{deferral, unknown};

use crate::support::*;

pub async fn only_deferrals_that_spend_a_try_are_counted(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let used_up = Deferral { has_failed: true, ..deferral(&ids[0], DeliveryState::Pending, 2) };
    let unreached = deferral(&ids[1], DeliveryState::Pending, 2);

    for _ in 0..3 {
        sending(&store, "one", later(20), &ids).await;
        let requested = [used_up.clone(), unreached.clone()];
        store.defer("one", &requested).await;
        store.defer("one", &requested).await;
        store.take("one", later(3), later(20), 9).await;
    }

    let (ada, bob) = (row(&store, &ids[0]).await, row(&store, &ids[1]).await);
    assert_eq!((ada.attempts.made, ada.attempts.failed), (3, 3));
    assert_eq!((bob.attempts.made, bob.attempts.failed), (3, 0));
}

/// Creates a closed delivery in the state `failed`.
async fn failed(store: &Fresh, person: &str) -> DeliveryId {
    let id = open(store, &[person]).await.remove(0);
    sending(store, "one", later(5), std::slice::from_ref(&id)).await;
    let failed =
        Settlement { reason: Some("550".into()), ..settlement(&id, DeliveryState::Failed) };
    store.settle("one", later(1), &[failed]).await;
    store.close(std::slice::from_ref(&id)).await.unwrap();
    id
}

fn reopening(id: &DeliveryId) -> Reopening {
    Reopening::new(id.clone())
}

pub async fn deferred_deliveries_can_be_released_unless_they_are_sending(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    sending(&store, "one", later(20), &ids).await;
    let requested = [
        deferral(&ids[0], DeliveryState::Pending, 600),
        deferral(&ids[1], DeliveryState::Sending, 600),
    ];
    assert_eq!(store.defer("one", &requested).await, [true, true]);

    store.second().release(&LeasesToEnd::Deferred(later(1))).await.unwrap();

    let free = store.take("two", later(2), later(9), 9).await;
    let free: Vec<&DeliveryId> = free.iter().map(|row| &row.id).collect();
    assert_eq!(free, [&ids[0]]);
}

pub async fn a_failed_delivery_is_reopened_as_a_new_one(store: Fresh) {
    let (ada, bob) = (failed(&store, "ada").await, failed(&store, "bob").await);
    let watermarks = vec![(StackId::for_day(today()), 9)];
    let held = Reopening {
        watermarks: Some(watermarks.clone()),
        lease: Some(lease("two", later(30))),
        reopened: 3,
        ..reopening(&bob)
    };

    let requested = [reopening(&ada), held];
    let reopened = store.second().reopen(later(9), &requested).await;

    assert_eq!(reopened, [Corrected::Done; 2]);
    let (ada, bob) = (row(&store, &ada).await, row(&store, &bob).await);
    let old = delivery("ada", "2014-04-22", "one");
    assert_eq!(
        (ada.state, ada.open, ada.created, ada.outcome.settled),
        (DeliveryState::Pending, true, later(9), None)
    );
    assert_eq!(ada.attempts.call, None);
    assert_eq!(ada.attempts.called_at, None);
    assert_eq!(ada.lease, None);
    assert_eq!(ada.attempts.made, 1);
    assert_eq!(ada.attempts.failed, 0);
    assert_eq!(ada.outcome.provider_id, None);
    assert_eq!((ada.attempts.reopened, bob.attempts.reopened), (0, 3));
    assert_eq!((ada.watermarks, ada.marker), (old.watermarks, old.marker));
    assert_eq!((bob.watermarks, bob.lease), (watermarks, Some(lease("two", later(30)))));
    let free = store.take("one", later(10), later(20), 9).await;
    assert_eq!(users(&free), ["ada"], "bob's is held");
}

pub async fn only_a_closed_failed_delivery_with_a_free_slot_is_reopened(store: Fresh) {
    let busy = failed(&store, "ada").await;
    let next = delivery("ada", "2014-04-23", "one");
    store.open(&[next]).await.unwrap();
    let unknown = unknown(&store, "bob").await;
    let pending = open(&store, &["eve"]).await.remove(0);
    let missing = DeliveryId::stored("digest:zoe:daily:2014-04-22");

    let requested = [&busy, &unknown, &pending, &missing].map(reopening);
    let answers = store.reopen(later(9), &requested).await;

    let not_failed = Corrected::OtherState;
    assert_eq!(answers, [Corrected::Busy, not_failed, not_failed, not_failed]);
    assert_eq!(row(&store, &busy).await.state, DeliveryState::Failed);
    assert_eq!(row(&store, &unknown).await.state, DeliveryState::Unknown);
}

fn cancel(id: &DeliveryId) -> Correction {
    Correction::Cancel(id.clone(), "the user was erased".into())
}

pub async fn a_pending_delivery_is_canceled_even_if_it_is_leased(store: Fresh) {
    let ids = open(&store, &["ada", "bob"]).await;
    let waiting = deferral(&ids[1], DeliveryState::Pending, 60);
    sending(&store, "one", later(20), &ids[1..]).await;
    assert_eq!(store.defer("one", &[waiting]).await, [true]);

    let requested = [cancel(&ids[1]), cancel(&ids[0])];
    let canceled = store.second().correct(later(9), &requested).await.unwrap();

    assert_eq!(canceled, [Corrected::Done; 2]);
    for id in &ids {
        let row = row(&store, id).await;
        assert_eq!(
            (row.state, row.open, row.lease, row.outcome.settled),
            (DeliveryState::Canceled, false, None, Some(later(9)))
        );
        assert_eq!(row.outcome.reason.as_deref(), Some("the user was erased"));
    }
    assert_eq!(sending(&store, "one", later(20), &ids[..1]).await, [false]);
    assert_eq!(store.take("two", later(90), later(99), 9).await, []);
    let next = ["ada", "bob"].map(|person| delivery(person, "2014-04-23", "one"));
    assert_eq!(store.open(&next).await.unwrap(), [true; 2], "slots are free");
}

pub async fn only_a_pending_delivery_is_canceled(store: Fresh) {
    let sent = open(&store, &["ada"]).await;
    sending(&store, "one", later(20), &sent).await;
    settle(&store, later(1), &sent[0], DeliveryState::Sent).await;
    let sending_now = open(&store, &["bob"]).await;
    sending(&store, "one", later(20), &sending_now).await;
    let ids = [
        sent[0].clone(),
        sending_now[0].clone(),
        unknown(&store, "eve").await,
        failed(&store, "fay").await,
        DeliveryId::stored("digest:zoe:daily:2014-04-22"),
    ];
    let before = store.deliveries(&ids).await.unwrap();

    let requested = ids.each_ref().map(cancel);
    let canceled = store.correct(later(9), &requested).await.unwrap();

    assert_eq!(canceled, [Corrected::OtherState; 5]);
    assert_eq!(store.deliveries(&ids).await.unwrap(), before);
}

pub async fn the_open_digests_of_users_are_found(store: Fresh) {
    let ids = open(&store, &["ada", "bob", "eve"]).await;
    let sent = settlement(&ids[1], DeliveryState::Sent);
    let done = settlement(&ids[2], DeliveryState::Sent);
    store.settle("one", later(1), &[sent, done]).await;
    store.close(&ids[2..]).await.unwrap();

    let people = ["eve", "bob", "nobody", "ada"].map(user);
    let open = DeliveryFilter::OpenDigests(&people);
    let found = store.find_deliveries(&open, 10).await.unwrap();

    let mut found: Vec<_> = found.into_iter().map(|row| row.id).collect();
    found.sort_unstable();
    assert_eq!(found, ids[..2], "one that is settled is open until it is closed");
}

pub async fn deliveries_in_a_state_are_found_by_creation_time(store: Fresh) {
    for (person, minutes) in [("ada", 0), ("bob", 1), ("eve", 2), ("zoe", 3)] {
        let mut row = delivery(person, "2014-04-21", "one");
        row.created = later(minutes);
        assert_eq!(store.open(std::slice::from_ref(&row)).await.unwrap(), [true]);
        let state = match person {
            "zoe" => DeliveryState::Sent,
            _ => DeliveryState::Failed,
        };
        settle(&store, later(4), &row.id, state).await;
        store.close(&[row.id]).await.unwrap();
    }

    let since = DeliveryFilter::State(DeliveryState::Failed, TimeRange::since(later(1)), None);
    let found = store.find_deliveries(&since, 10).await.unwrap();

    let found: Vec<_> = found.into_iter().map(|row| row.user).collect();
    assert_eq!(found, ["eve", "bob"].map(user), "newest first");
}

pub async fn deliveries_in_a_state_are_found_by_span_and_feedback(store: Fresh) {
    let people = ["ada", "bob", "eve", "zoe"];
    let ids: Vec<DeliveryId> =
        people.iter().map(|person| delivery(person, "2014-04-21", "one").id).collect();
    for (minutes, person) in (0..).zip(people) {
        let mut row = delivery(person, "2014-04-21", "one");
        row.created = later(minutes);
        store.open(std::slice::from_ref(&row)).await.unwrap();
        settle(&store, later(4), &row.id, DeliveryState::Sent).await;
    }
    let feedback = |news| Feedback { news, at: later(5) };
    let (bounced, delivered) = (ReportKind::Bounced, ReportKind::Delivered);
    let news = [
        (ids[0].clone(), feedback(bounced)),
        (ids[1].clone(), feedback(delivered)),
        (ids[2].clone(), feedback(bounced)),
    ];
    store.note_feedback(&news).await.unwrap();
    let found = async |since: Option<i64>, until: Option<i64>, kind| {
        let (since, until) = (since.map(later), until.map(later));
        let within = DeliveryFilter::State(DeliveryState::Sent, TimeRange { since, until }, kind);
        let rows = store.find_deliveries(&within, 10).await.unwrap();
        let names = rows.into_iter().map(|row| row.user.to_string());
        names.collect::<Vec<_>>().join(" ")
    };

    assert_eq!(found(None, None, None).await, "zoe eve bob ada");
    assert_eq!(found(Some(1), Some(3), None).await, "eve bob");
    assert_eq!(found(None, None, Some(bounced)).await, "eve ada");
    assert_eq!(found(Some(1), None, Some(bounced)).await, "eve");
    assert_eq!(found(None, Some(0), Some(bounced)).await, "");
}
