//! Faults of a database over a network: lost replies, primaries that step down, lost cursors.
//!
//! Fail points of the server cause them on the connections of one test. A write concern error
//! follows a write that took effect. The store therefore retries a command that succeeded, and must
//! still report the correct outcome.

use std::sync::Arc;
use std::time::Duration;

use bson::oid::ObjectId;
use bson::{Document, doc};
use tidings::clock::ManualClock;
use tidings::domain::batch::Accumulator;
use tidings::domain::delivery::Settlement;
use tidings::domain::{Defect, DeliveryState, FanoutProgress, User};
use tidings::engine::archive::expired_records::Cleaner;
use tidings::store::mongo::MongoOptions;
use tidings::store::{Acceptance, Error};

use crate::store_laws::batches::opened;
use crate::support::mongo::{Faulty, faulty, with_faults};
use crate::support::*;

with_faults! {
    a_push_with_a_lost_reply_is_stored_once
    a_document_that_cannot_take_entries_affects_only_its_owner
    a_push_that_exceeds_the_time_limit_continues_in_smaller_parts
    a_foreign_unique_index_affects_only_the_rejected_user
    capped_entries_are_reported_after_a_lost_reply
    a_push_survives_lost_connections_and_elections
    a_user_record_with_a_lost_reply_counts_as_written
    a_record_of_another_program_can_be_replaced_once_after_a_read
    a_marker_with_a_lost_reply_is_stored_once
    an_event_with_a_lost_reply_is_new_and_stored_once
    an_audience_in_parts_of_an_earlier_version_is_read_and_removed
    a_retried_claim_or_save_reports_success
    a_delivery_with_a_lost_reply_counts_as_opened
    a_sent_email_is_counted_once_after_lost_replies
    a_lease_with_a_lost_reply_counts_as_acquired
    a_scan_continues_after_its_cursors_are_lost
    an_accumulator_that_moves_during_a_search_is_returned_once
}

const LARGE_CAP: usize = 1_000;

/// The commands that a push may use.
const PUSH: &str = "insert update";

fn commands(names: &str) -> Vec<&str> {
    names.split(' ').collect()
}

/// The command takes effect, but its reply reports that the primary is shutting down.
pub(crate) fn lost_reply(command: &str) -> Document {
    doc! {"failCommands": commands(command), "writeConcernError": {"code": 91, "errmsg": "shutting down"}}
}

/// The command fails with this code before it takes effect.
pub(crate) fn refused(command: &str, code: i32) -> Document {
    doc! {"failCommands": commands(command), "errorCode": code}
}

async fn a_push_with_a_lost_reply_is_stored_once(store: &Faulty) {
    let users = people(1_500);
    store.fails(1, lost_reply(PUSH)).await;

    let pushed = store.push(today(), LARGE_CAP, &push_to_all(&users, events(3, 1))).await;

    assert_eq!(pushed.unwrap().capped, []);
    let found = store.everybody(None, 100).await;
    assert_eq!(found.len(), users.len());
    for person in found {
        assert_eq!(person.stacks[0].entries, entries(events(3, 1)));
    }
}

async fn a_document_that_cannot_take_entries_affects_only_its_owner(store: &Faulty) {
    let users = people(3);
    let broken = r#"{"_id":"p00001","events":"none"}"#.to_owned();
    let day = [broken];
    store.restore_stacks(today(), &day).await;

    for _ in 0..2 {
        let pushes = push_to_all(&users, events(2, 1));
        let pushed = store.push(today(), LARGE_CAP, &pushes).await.unwrap();

        assert_eq!(pushed.capped, [(1, vec![0, 1])]);
        let lengths =
            users.iter().map(async |person| store.entries_of(person, today()).await.len());
        assert_eq!(futures::future::join_all(lengths).await, [2, 0, 2]);
    }
}

async fn a_push_that_exceeds_the_time_limit_continues_in_smaller_parts(store: &Faulty) {
    let users = people(700);
    store.push_list_to_all(&users, events(6, 1)).await;
    // MaxTimeMSExpired, several times in a row, for statements of any size.
    store.fails(6, refused(PUSH, 50)).await;

    let pushes = push_to_all(&users, events(8, 2));
    let pushed = store.push(today(), LARGE_CAP, &pushes).await;

    assert_eq!(pushed.unwrap().capped, []);
    for person in store.everybody(None, 100).await {
        let both = [events(6, 1), events(8, 2)].concat();
        assert_eq!(person.stacks[0].entries, entries(both));
    }
}

async fn a_foreign_unique_index_affects_only_the_rejected_user(store: &Faulty) {
    let (ada, ben) = (user("ada"), user("ben"));
    for person in [&ada, &ben] {
        let first = vec![event(&format!("of {person}"), 1)];
        store.push_list(person, first).await;
    }
    store.unique_index(&today().collection_name(), "events.o").await;

    let both = push_to_all(&[ada.clone(), ben.clone()], events(1, 2));
    let pushed = store.push(today(), LARGE_CAP, &both).await.unwrap();

    assert_eq!(pushed.defects, [(1, Defect::Refused)]);
    assert_eq!(store.entries_of(&ada, today()).await.len(), 2);
    assert_eq!(store.entries_of(&ben, today()).await.len(), 1);
}

async fn capped_entries_are_reported_after_a_lost_reply(store: &Faulty) {
    let ada = user("ada");
    store.push_capped(4, &ada, events(3, 1)).await;
    store.fails(3, lost_reply(PUSH)).await;

    let pushed = store.push_capped(4, &ada, events(3, 2)).await;

    assert_eq!(pushed.capped, [(0, vec![1, 2])]);
    assert_eq!(store.entries_of(&ada, today()).await.len(), 4);
}

async fn a_push_survives_lost_connections_and_elections(store: &Faulty) {
    let ada = user("ada");
    let lost = doc! {"failCommands": ["create", "insert"], "closeConnection": true};
    let faults = [lost, refused(PUSH, 10107), refused(PUSH, 11602), refused("create", 91)];
    for (n, fault) in (1..).zip(faults) {
        store.fails(2, fault).await;
        store.push(today().days_before(n), LARGE_CAP, &push_to(&ada, events(2, n))).await.unwrap();
    }

    let stacks = store.stacks_of(&ada).await;
    assert_eq!(stacks.len(), 4);
    assert!(stacks.iter().all(|stack| stack.entries.len() == 2));
}

async fn a_user_record_with_a_lost_reply_counts_as_written(store: &Faulty) {
    let named = |name: &str, before: &User| User { name: Some(name.into()), ..before.clone() };
    store.fails(1, lost_reply("update")).await;
    let created = store.put_users(&[User::new(user("ada"))]).await;
    let read = store.user_record(&user("ada")).await.unwrap();
    store.fails(1, lost_reply("update")).await;
    let ours = store.put_users(&[named("ours", &read)]).await;
    store.fails(1, lost_reply("update")).await;
    let theirs = store.put_users(&[named("theirs", &read)]).await;

    assert_eq!(
        (created.unwrap(), ours.unwrap(), theirs.unwrap()),
        (vec![true], vec![true], vec![false])
    );
    let stored = store.user_record(&user("ada")).await;
    assert_eq!(stored.unwrap().name.as_deref(), Some("ours"));
}

async fn a_record_of_another_program_can_be_replaced_once_after_a_read(store: &Faulty) {
    store.write("users", doc! {"_id": "ada", "email": "ada@example.org", "confirmed": true}).await;
    let read = store.user_record(&user("ada")).await.unwrap();
    let change = |hour| {
        let mut ada = read.clone();
        ada.digest.hour = Some(hour);
        ada
    };

    let first = store.put_users(&[change(7)]).await.unwrap();
    let second = store.put_users(&[change(8)]).await.unwrap();

    assert_eq!((first, second), (vec![true], vec![false]));
    let stored = store.user_record(&user("ada")).await.unwrap();
    assert_eq!((stored.digest.hour, stored.confirmed), (Some(7), true));
}

async fn a_marker_with_a_lost_reply_is_stored_once(store: &Faulty) {
    let ada = user("ada");
    store.push_list(&ada, events(2, 1)).await;
    store.fails(1, lost_reply("update")).await;

    let marker = new_marker(&ada, today(), id(90), 2);
    store.write_markers(&[marker]).await.unwrap();

    assert_eq!(store.entries_of(&ada, today()).await.len(), 3);
}

async fn an_event_with_a_lost_reply_is_new_and_stored_once(store: &Faulty) {
    store.accept(&[fanout(1)]).await.unwrap();
    store.fails(1, lost_reply("insert")).await;

    let again = tidings::domain::Fanout { key: fanout(1).key, ..fanout(3) };
    let answers = store.accept(&[fanout(2), again]).await.unwrap();

    let known = Acceptance::Duplicate(Box::new(fanout(1)));
    assert_eq!(answers, [Acceptance::New, known]);
    assert_eq!(store.backlog().await.pending, 2);
}

async fn an_audience_in_parts_of_an_earlier_version_is_read_and_removed(store: &Faulty) {
    let event = ObjectId::from_bytes(id(1).bytes());
    let part = |n: i32, users: &[&str]| doc! {"_id": {"f": event, "n": n}, "users": users};
    let parts = vec![part(0, &["ada", "ben"]), part(1, &["cem"])];
    store.write_all("audiences", parts).await;
    let at = bson::DateTime::from_millis(noon().timestamp_millis());
    let written = doc! {
        "_id": event, "key": "1", "type": "T", "objects": ["a1"], "audience": {"parts": 2},
        "except": [], "day": "20140419", "at": at, "state": "done", "counts": {},
    };
    store.write_all("fanouts", vec![written]).await;

    let read = store.fanout(id(1)).await.unwrap().unwrap();
    let clock = Arc::new(ManualClock::at(noon() + chrono::TimeDelta::days(400)));
    let cleaner = Cleaner::new(context(store.handle(), clock, "test"));
    cleaner.step().await.unwrap();

    let all = ["ada", "ben", "cem"].map(user);
    let all = tidings::domain::Audience::users(all).unwrap();
    assert_eq!(read.audience, all);
    assert_eq!(store.fanout(id(1)).await.unwrap(), None);
    assert_eq!(store.stored("audiences").await, 0);
}

async fn a_retried_claim_or_save_reports_success(store: &Faulty) {
    let (now, until) = (noon(), noon() + minutes(1));
    store.accept(&[fanout(1), fanout(2)]).await.unwrap();

    store.fails(1, lost_reply("update")).await;
    let claimed = store.claim_fanouts(&lease("one", until), now, 10.into()).await.unwrap().fanouts;
    store.fails(1, lost_reply("update")).await;
    let done = FanoutProgress { done: true, ..FanoutProgress::default() };
    let requested = [(id(1), done.clone()), (id(9), done)];
    let saved = store.save_fanouts(&lease("one", until), &requested).await.unwrap();

    assert_eq!(claimed.len(), 2);
    assert_eq!(saved, [true, false]);
    assert_eq!(store.backlog().await.done, 1);
}

async fn a_delivery_with_a_lost_reply_counts_as_opened(store: &Faulty) {
    let (mine, other) =
        (delivery("ada", "2014-04-22", "one"), delivery("bob", "2014-04-22", "two"));
    store.open(&[other]).await.unwrap();
    store.fails(1, lost_reply("insert")).await;

    let occupied = delivery("bob", "2014-04-22", "one");
    let opened = store.open(&[mine, occupied]).await.unwrap();

    assert_eq!(opened, [true, false]);
}

async fn a_sent_email_is_counted_once_after_lost_replies(store: &Faulty) {
    let row = delivery("ada", "2014-04-22", "one");
    store.open(std::slice::from_ref(&row)).await.unwrap();
    let until = noon() + minutes(9);

    store.fails(1, lost_reply("update")).await;
    let sending = store.sending("one", noon(), until, &[handover(&row.id, "call")]).await;
    store.fails(1, lost_reply("update")).await;
    let sent = Settlement {
        from: DeliveryState::Sending,
        ..Settlement::for_row(&row, DeliveryState::Sent, 1, None)
    };
    let settled = store.settle("one", noon(), &[sent]).await;

    assert_eq!((sending, settled), (vec![true], vec![true]));
    let stored = store.delivery(&row.id).await.unwrap();
    assert_eq!(stored.attempts.made, 1);
}

async fn a_lease_with_a_lost_reply_counts_as_acquired(store: &Faulty) {
    store.fails(2, lost_reply("update")).await;

    let until = lease("one", noon() + minutes(1));
    let acquired = store.lease("digest", &until, noon()).await.unwrap();
    let other = store.second().lease("digest", &lease("two", until.until), noon()).await.unwrap();

    assert_eq!((acquired, other), (true, false));
}

async fn a_scan_continues_after_its_cursors_are_lost(store: &Faulty) {
    let users = people(3_500);
    for back in 0..2 {
        let pushes = push_to_all(&users, events(1, 1));
        store.push(today().days_before(back), LARGE_CAP, &pushes).await.unwrap();
    }
    for fault in [refused("getMore", 43), refused("find", 11600), refused("getMore", 10107)] {
        store.fails(3, fault).await;

        let found = store.everybody(None, 300).await;

        let scanned: Vec<_> = found.iter().map(|person| person.user.clone()).collect();
        assert_eq!(scanned, users);
        assert!(found.iter().all(|person| person.stacks.len() == 2));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn permanent_errors_fail_at_once_and_retries_are_limited() {
    let brief = MongoOptions { retry_timeout: Duration::from_secs(2), ..MongoOptions::default() };
    faulty(brief, async |store: &Faulty| {
        let cause = async |fault: Document, times: i32| {
            store.fails(times, fault).await;
            let pushes = push_to(&user("ada"), events(1, 1));
            match store.push(today(), LARGE_CAP, &pushes).await.unwrap_err() {
                Error::Database { doing, cause } => format!("{doing}: {cause}"),
                other => panic!("{other}"),
            }
        };

        let unauthorized = cause(refused(PUSH, 13), 1).await;
        let away = cause(refused(PUSH, 91), 1_000).await;

        assert_starts_with!(unauthorized, "inserting into notifications_20140422: code 13:");
        assert_starts_with!(away, "inserting into notifications_20140422: code 91:");
    })
    .await;
}

async fn an_accumulator_that_moves_during_a_search_is_returned_once(store: &Faulty) {
    let accumulators: Vec<Accumulator> =
        (0..150).map(|n| opened(&format!("p{n:03}"), "k", n, i64::from(n))).collect();
    store.put_accumulators(&accumulators, id(5_000)).await.unwrap();
    let first = accumulators[0].id.clone();
    // The server returns 100 documents and then waits for a `getMore`.
    let held = store.holds_back("getMore", Duration::from_secs(2)).await;
    let (other, late) = (store.second(), noon() + minutes(300));
    let search = tokio::spawn(async move { other.due_accumulators(late, 500).await });
    held.await;

    let mut moved =
        store.accumulators(std::slice::from_ref(&first)).await.unwrap().remove(0).unwrap();
    moved.open.as_mut().unwrap().closes_at = noon() + minutes(200);
    assert_eq!(store.put_accumulators(&[moved], id(5_001)).await.unwrap(), [true]);

    let due = search.await.unwrap();
    let met: Vec<&Accumulator> = due.iter().filter(|accumulator| accumulator.id == first).collect();
    assert_eq!((met.len(), due.len()), (1, 150));
}
