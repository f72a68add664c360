//! Contract tests of documents from older writers: they are read in both forms and stored
//! unchanged.
//!
//! The tests restore them like an archive, so that both stores hold the same bytes.

use tidings::domain::{DigestMarker, Entry, Event, Id, IdForm, ObjectId, StackId, Watermarks};
use tidings::store::NewMarker;

use crate::support::*;

const LARGE_CAP: usize = 1_000;
/// A user id as text. The same digits also occur in an ObjectId.
const HEX: &str = "533998b1c9dc24c371000041";

fn hex() -> Id {
    Id::from_hex(HEX).unwrap()
}

fn old_form(day: tidings::domain::Day) -> StackId {
    StackId { day, form: IdForm::ObjectId }
}

/// An event `{t, o}` from before events had the id of their fan-out.
fn old_event(object: &str) -> Event {
    Event { kind: kind("ArtworkPublished"), object: ObjectId::stored(object), fanout_id: None }
}

/// A document with these entries. The id and the entries are Extended JSON.
fn document(id: &str, entries: &[&str]) -> String {
    format!(r#"{{"_id":{id},"events":[{}]}}"#, entries.join(","))
}

async fn put(store: &Fresh, id: &str, entries: &[&str]) {
    store.restore_stacks(today(), &[document(id, entries)]).await;
}

pub async fn events_without_a_fan_out_id_are_read(store: Fresh) {
    put(
        &store,
        r#""ada""#,
        &[r#"{"t":"ArtworkPublished","o":"a"}"#, r#"{"o":"b","t":"ArtworkPublished"}"#],
    )
    .await;

    let found = store.entries_of(&user("ada"), today()).await;

    assert_eq!(found, entries([old_event("a"), old_event("b")]));
}

pub async fn a_bare_marker_covers_all_events_before_it(store: Fresh) {
    let marker = format!(r#"{{"flushed":{{"$oid":"{HEX}"}}}}"#);
    let (a, b) = (r#"{"t":"ArtworkPublished","o":"a"}"#, r#"{"t":"ArtworkPublished","o":"b"}"#);
    put(&store, r#""ada""#, &[a, &marker, b]).await;

    let person = store.everybody(None, 10).await.remove(0);

    assert_eq!(
        person.stacks[0].entries[1],
        Entry::DigestMarker(DigestMarker { id: Some(hex()), n: None })
    );
    let pending: Vec<_> = person.pending().iter().map(|p| p.event.clone()).collect();
    assert_eq!(pending, [old_event("b")]);
}

pub async fn a_marker_count_of_any_number_type_is_read(store: Fresh) {
    let marker = |n: &str| format!(r#"{{"flushed":{{"$oid":"{HEX}"}},"n":{n}}}"#);
    let [int, long, double] = [
        marker(r#"{"$numberInt":"2"}"#),
        marker(r#"{"$numberLong":"3"}"#),
        marker(r#"{"$numberDouble":"4.0"}"#),
    ];
    put(&store, r#""ada""#, &[&int, &long, &double]).await;

    let found = store.entries_of(&user("ada"), today()).await;

    let expected =
        [2, 3, 4].map(|n| Entry::DigestMarker(DigestMarker { id: Some(hex()), n: Some(n) }));
    assert_eq!(found, expected);
}

pub async fn a_marker_without_an_object_id_is_read_as_a_marker(store: Fresh) {
    let bare = [
        r#"{"flushed":true}"#,
        r#"{"flushed":null,"n":{"$numberInt":"-1"}}"#,
        r#"{"flushed":"x","n":"2"}"#,
        r#"{"flushed":null,"n":{"$numberDouble":"2.9"},"t":"T","o":"a"}"#,
    ];
    put(&store, r#""ada""#, &bare).await;

    let found = store.entries_of(&user("ada"), today()).await;

    let expected =
        [None, Some(0), None, Some(2)].map(|n| Entry::DigestMarker(DigestMarker { id: None, n }));
    assert_eq!(found, expected);
}

pub async fn a_document_with_an_object_id_belongs_to_the_user_of_its_hex_text(store: Fresh) {
    put(&store, &format!(r#"{{"$oid":"{HEX}"}}"#), &[r#"{"t":"ArtworkPublished","o":"a"}"#]).await;

    let requested = [user(HEX)];
    let found = store.windows(window(), &requested).await.unwrap();
    assert_eq!(found[0].stacks.len(), 1);
    assert_eq!(found[0].stacks[0].id, old_form(today()));
    assert_eq!(found[0].stacks[0].entries, entries([old_event("a")]));
    assert_eq!(store.everybody(None, 10).await, found);
}

pub async fn an_object_that_is_an_object_id_is_read_as_its_hex_text(store: Fresh) {
    let entry =
        format!(r#"{{"t":"ArtworkPublished","o":{{"$oid":"{HEX}"}},"i":{{"$oid":"{}"}}}}"#, id(1));
    put(&store, r#""ada""#, &[&entry]).await;

    let found = store.entries_of(&user("ada"), today()).await;

    assert_eq!(found, entries([event(HEX, 1)]));
}

pub async fn both_documents_of_a_user_are_returned_together(store: Fresh) {
    put(&store, &format!(r#"{{"$oid":"{HEX}"}}"#), &[r#"{"t":"ArtworkPublished","o":"a"}"#]).await;
    let person = user(HEX);
    store.push_list(&person, events(1, 1)).await;
    store.push(today().days_before(1), LARGE_CAP, &push_to(&person, events(1, 1))).await.unwrap();

    let scanned = store.everybody(None, 10).await;

    let forms: Vec<_> = scanned[0].stacks.iter().map(|stack| stack.id).collect();
    assert_eq!(scanned.len(), 1);
    assert_eq!(
        forms,
        [StackId::for_day(today().days_before(1)), old_form(today()), StackId::for_day(today())]
    );
    let requested = [person];
    assert_eq!(store.windows(window(), &requested).await.unwrap(), scanned);
}

pub async fn users_with_object_ids_are_scanned_in_the_order_of_their_text(store: Fresh) {
    let oids = ["100000000000000000000000", "533998b1c9dc24c371000041", "ffffffffffffffffffffffff"];
    for oid in oids {
        put(&store, &format!(r#"{{"$oid":"{oid}"}}"#), &[r#"{"t":"T","o":"a"}"#]).await;
    }
    let texts = ["0", "533998b1c9dc24c371000040", "533998b1c9dc24c371000042", "ada", "g"].map(user);
    store.push_list_to_all(&texts, events(1, 1)).await;
    let mut all_users = [texts.to_vec(), oids.map(user).to_vec()].concat();
    all_users.sort_unstable();

    for chunk in [1, 3, 100] {
        for (n, person) in all_users.iter().enumerate() {
            let found = store.everybody(Some(person.clone()), chunk).await;
            let found: Vec<_> = found.into_iter().map(|p| p.user).collect();
            assert_eq!(found, all_users[n + 1..], "after {person} in chunks of {chunk}");
        }
    }
    assert_eq!(store.everybody(None, 2).await.len(), all_users.len());
}

pub async fn a_marker_is_written_to_the_named_document_form(store: Fresh) {
    put(&store, &format!(r#"{{"$oid":"{HEX}"}}"#), &[r#"{"t":"ArtworkPublished","o":"a"}"#]).await;
    let person = user(HEX);
    store.push_list(&person, events(2, 1)).await;

    let watermarks: Watermarks = vec![(old_form(today()), 1)];
    for _ in 0..2 {
        let mark = NewMarker::Flushed(person.clone(), id(90), watermarks.clone());
        store.write_markers(&[mark]).await.unwrap();
    }

    let found = store.stacks_of(&person).await;
    assert_eq!(
        found[0].entries[1],
        Entry::DigestMarker(DigestMarker { id: Some(id(90)), n: Some(1) })
    );
    assert_eq!((found[0].entries.len(), found[1].entries.len()), (2, 2));
}

pub async fn a_marker_for_a_missing_old_document_is_ignored(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, events(1, 1)).await;

    let watermarks: Watermarks = vec![(old_form(today()), 1)];
    store.write_markers(&[NewMarker::Flushed(ada.clone(), id(90), watermarks)]).await.unwrap();

    assert_eq!(store.entries_of(&ada, today()).await, entries(events(1, 1)));
}

pub async fn unknown_entries_keep_their_index(store: Fresh) {
    let unknown = [
        r#""text""#,
        "null",
        r#"{"$numberInt":"5"}"#,
        r#"{"x":{"$numberInt":"1"}}"#,
        "[]",
        r#"{"t":"T"}"#,
    ];
    let mut all = unknown.to_vec();
    all.push(r#"{"t":"ArtworkPublished","o":"a"}"#);
    put(&store, r#""ada""#, &all).await;

    let found = store.entries_of(&user("ada"), today()).await;

    assert_eq!(found.len(), unknown.len() + 1);
    assert!(found[..unknown.len()].iter().all(|entry| *entry == Entry::Other), "{found:?}");
    assert_eq!(found[unknown.len()], Entry::Event(old_event("a")));
}

pub async fn a_push_onto_an_old_document_keeps_its_entries(store: Fresh) {
    let old = [r#"{"t":"ArtworkPublished","o":"a0","by":"elder"}"#, r#"{"x":{"$numberInt":"1"}}"#];
    put(&store, r#""ada""#, &old).await;

    for _ in 0..2 {
        store.push_capped(4, &user("ada"), events(3, 1)).await;
    }

    let found = store.entries_of(&user("ada"), today()).await;
    assert_eq!(found[2..], entries(events(2, 1)), "an entry without `i` is another entry");
    let exported = store.exported(today()).await;
    let kept = format!(r#"{{"_id":"ada","events":[{},{},"#, old[0], old[1]);
    assert!(exported[0].starts_with(&kept), "{}", exported[0]);
}
