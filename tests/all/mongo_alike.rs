//! Updates that MongoDB applies to many users with one statement have the effect of separate
//! statements, even after faults.

use bson::doc;
use tidings::domain::delivery::{Handover, Settlement, Transition};
use tidings::domain::{Defect, Delivery, DeliveryState, UserId};
use tidings::store::{NewMarker, PushOutcome};

use crate::support::mongo::{Faulty, with_faults};
use crate::support::*;

with_faults! {
    many_sent_emails_are_counted_once_after_lost_replies
    only_the_document_that_cannot_take_a_marker_is_reported
    a_range_push_with_lost_replies_stores_each_entry_once
    only_the_document_that_cannot_take_entries_is_reported
}

/// An update takes effect, but its reply reports an error.
fn lost_reply() -> bson::Document {
    let error = doc! {"code": 91, "errmsg": "shutting down"};
    doc! {"failCommands": ["update"], "writeConcernError": error}
}

/// Pushes several times, so that the store knows that all of these users have stacks.
async fn create_stacks(store: &Faulty, users: &[UserId]) {
    for n in 1..=3 {
        store.push_list_to_all(users, events(1, n)).await;
    }
}

async fn many_sent_emails_are_counted_once_after_lost_replies(store: &Faulty) {
    let users = people(30);
    let row = |person: &UserId| delivery(person.as_str(), "2014-04-22", "one");
    let rows: Vec<Delivery> = users.iter().map(row).collect();
    store.open(&rows).await.unwrap();
    let hand_over =
        |(n, row): (usize, &Delivery)| Handover { items: n as u32, ..handover(&row.id, "call") };
    let handovers: Vec<Handover> = rows.iter().enumerate().map(hand_over).collect();
    let settle = |(n, row): (usize, &Delivery)| Settlement {
        from: DeliveryState::Sending,
        provider_id: Some(format!("<{n}@esp>")),
        ..Settlement::for_row(row, DeliveryState::Sent, n as u32, None)
    };
    let ends: Vec<Settlement> = rows.iter().enumerate().map(settle).collect();

    store.fails(1, lost_reply()).await;
    let until = noon() + minutes(9);
    let sending = store.sending("one", noon(), until, &handovers).await;
    store.fails(1, lost_reply()).await;
    // Half of the deliveries are closed in the same update.
    let end = |(n, end): (usize, &Settlement)| match n % 2 {
        0 => Transition::Settle(end.clone()),
        _ => Transition::SettleAndClose(end.clone()),
    };
    let made: Vec<Transition> = ends.iter().enumerate().map(end).collect();
    let settled = store.advance(&lease("one", until), noon(), &made).await;

    assert_eq!(sending, vec![true; 30]);
    assert_eq!(settled.unwrap(), vec![true; 30]);
    let ids: Vec<_> = rows.iter().map(|row| row.id.clone()).collect();
    let rows = store.deliveries(&ids).await.unwrap();
    for (n, row) in rows.into_iter().flatten().enumerate() {
        assert_eq!((row.outcome.items, row.attempts.made), (n as u32, 1));
        assert_eq!(row.outcome.provider_id, Some(format!("<{n}@esp>")));
        assert_eq!(row.open, n % 2 == 0);
    }
}

async fn only_the_document_that_cannot_take_a_marker_is_reported(store: &Faulty) {
    let users = people(80);
    let broken = [r#"{"_id":"p00040","events":"none"}"#.to_owned()];
    store.restore_stacks(today(), &broken).await;
    store.push_list_to_all(&users, events(2, 1)).await;
    let markers: Vec<NewMarker> =
        users.iter().map(|person| new_marker(person, today(), id(90), 2)).collect();

    let bad = store.write_markers(&markers).await.unwrap();

    let named: Vec<&UserId> = bad.iter().map(|bad| &bad.user).collect();
    assert_eq!(named, [&users[40]]);
    for (n, person) in users.iter().enumerate() {
        let entries = store.entries_of(person, today()).await.len();
        assert_eq!(entries, if n == 40 { 0 } else { 3 });
    }
}

async fn a_range_push_with_lost_replies_stores_each_entry_once(store: &Faulty) {
    let users = people(600);
    create_stacks(store, &users).await;

    // A short list is compared with the stored entries. A long one is appended.
    for (n, count) in [(4, 2), (5, 7)] {
        store.fails(1, lost_reply()).await;
        let pushes = push_to_all(&users, events(count, n));
        let pushed = store.push(today(), 1_000, &pushes).await.unwrap();
        assert_eq!(pushed, PushOutcome::default());
    }

    for person in store.everybody(None, 1_000).await {
        let entries = person.stacks[0].entries.len();
        assert_eq!(entries, 3 + 2 + 7, "{}", person.user);
    }
}

async fn only_the_document_that_cannot_take_entries_is_reported(store: &Faulty) {
    let users = people(600);
    let broken = [r#"{"_id":"p00040","events":"none"}"#.to_owned()];
    store.restore_stacks(today(), &broken).await;
    create_stacks(store, &users).await;

    let pushes = push_to_all(&users, events(2, 4));
    let pushed = store.push(today(), 1_000, &pushes).await.unwrap();

    assert_eq!(pushed.defects, [(40, Defect::NoList)]);
    assert_eq!(pushed.capped, [(40, vec![0, 1])]);
    for (n, person) in users.iter().enumerate() {
        let entries = store.entries_of(person, today()).await.len();
        assert_eq!(entries, if n == 40 { 0 } else { 3 + 2 }, "{person}");
    }
}
