//! Laws about documents that older writers left: read as what they mean, kept as they stand.
//!
//! They are put there as the archive would restore them, so that both stores hold the same bytes.

use tidings::domain::{Entry, Event, Form, Id, Marker, ObjectId, StackId, Watermarks};
use tidings::store::{Meeting, NewMarker, People};

use crate::support::*;

const ROOMY: usize = 1_000;
/// An id as text, and inside an ObjectId.
const HEX: &str = "533998b1c9dc24c371000041";

fn hex() -> Id {
    Id::from_hex(HEX).unwrap()
}

fn old_form(day: tidings::domain::Day) -> StackId {
    StackId {
        day,
        form: Form::ObjectId,
    }
}

/// `{t, o}`, as it was before events carried their fan-out.
fn old_event(object: &str) -> Event {
    Event {
        t: kind("ArtworkPublished"),
        o: ObjectId::stored(object),
        i: None,
    }
}

/// A document with these entries, each as Extended JSON.
fn document(id: &str, entries: &[&str]) -> String {
    format!(r#"{{"_id":{id},"events":[{}]}}"#, entries.join(","))
}

async fn put(store: &Fresh, id: &str, entries: &[&str]) {
    store
        .restore_day(today(), &[document(id, entries)], Meeting::Same)
        .await
        .unwrap();
}

pub async fn events_without_a_fan_out_are_read(store: Fresh) {
    put(
        &store,
        r#""ada""#,
        &[
            r#"{"t":"ArtworkPublished","o":"a"}"#,
            r#"{"o":"b","t":"ArtworkPublished"}"#,
        ],
    )
    .await;

    let found = store.entries_of(&user("ada"), today()).await;

    assert_eq!(found, entries([old_event("a"), old_event("b")]));
}

pub async fn a_bare_marker_covers_all_before_it(store: Fresh) {
    let marker = format!(r#"{{"flushed":{{"$oid":"{HEX}"}}}}"#);
    let (a, b) = (
        r#"{"t":"ArtworkPublished","o":"a"}"#,
        r#"{"t":"ArtworkPublished","o":"b"}"#,
    );
    put(&store, r#""ada""#, &[a, &marker, b]).await;

    let person = store.everybody(None, 10).await.remove(0);

    assert_eq!(
        person.stacks[0].entries[1],
        Entry::Marker(Marker {
            id: Some(hex()),
            n: None
        })
    );
    let pending: Vec<_> = person.pending().iter().map(|p| p.event.clone()).collect();
    assert_eq!(pending, [old_event("b")]);
}

pub async fn a_reach_of_any_number_type_is_read(store: Fresh) {
    let marker = |n: &str| format!(r#"{{"flushed":{{"$oid":"{HEX}"}},"n":{n}}}"#);
    let [int, long, double] = [
        marker(r#"{"$numberInt":"2"}"#),
        marker(r#"{"$numberLong":"3"}"#),
        marker(r#"{"$numberDouble":"4.0"}"#),
    ];
    put(&store, r#""ada""#, &[&int, &long, &double]).await;

    let found = store.entries_of(&user("ada"), today()).await;

    let expected = [2, 3, 4].map(|n| {
        Entry::Marker(Marker {
            id: Some(hex()),
            n: Some(n),
        })
    });
    assert_eq!(found, expected);
}

pub async fn a_marker_without_an_id_is_a_marker_all_the_same(store: Fresh) {
    let bare = [
        r#"{"flushed":true}"#,
        r#"{"flushed":null,"n":{"$numberInt":"-1"}}"#,
        r#"{"flushed":"x","n":"2"}"#,
        r#"{"flushed":null,"n":{"$numberDouble":"2.9"},"t":"T","o":"a"}"#,
    ];
    put(&store, r#""ada""#, &bare).await;

    let found = store.entries_of(&user("ada"), today()).await;

    let expected = [None, Some(0), None, Some(2)].map(|n| Entry::Marker(Marker { id: None, n }));
    assert_eq!(found, expected);
}

pub async fn a_document_under_an_object_id_belongs_to_its_hex_text(store: Fresh) {
    put(
        &store,
        &format!(r#"{{"$oid":"{HEX}"}}"#),
        &[r#"{"t":"ArtworkPublished","o":"a"}"#],
    )
    .await;

    let asked = [user(HEX)];
    for people in [People::Each(&asked), People::Between(&asked)] {
        let found = store.windows(window(), people).await.unwrap();
        assert_eq!(found[0].stacks.len(), 1);
        assert_eq!(found[0].stacks[0].id, old_form(today()));
        assert_eq!(found[0].stacks[0].entries, entries([old_event("a")]));
    }
    assert_eq!(
        store.everybody(None, 10).await,
        store.windows(window(), People::Each(&asked)).await.unwrap()
    );
}

pub async fn an_object_under_an_object_id_is_read_as_its_hex_text(store: Fresh) {
    let entry = format!(
        r#"{{"t":"ArtworkPublished","o":{{"$oid":"{HEX}"}},"i":{{"$oid":"{}"}}}}"#,
        id(1)
    );
    put(&store, r#""ada""#, &[&entry]).await;

    let found = store.entries_of(&user("ada"), today()).await;

    assert_eq!(found, entries([event(HEX, 1)]));
}

pub async fn both_forms_of_a_person_come_together(store: Fresh) {
    put(
        &store,
        &format!(r#"{{"$oid":"{HEX}"}}"#),
        &[r#"{"t":"ArtworkPublished","o":"a"}"#],
    )
    .await;
    let person = user(HEX);
    store
        .push(today(), ROOMY, &push_to(&person, events(1, 1)))
        .await
        .unwrap();
    store
        .push(today().back(1), ROOMY, &push_to(&person, events(1, 1)))
        .await
        .unwrap();

    let scanned = store.everybody(None, 10).await;

    let forms: Vec<_> = scanned[0].stacks.iter().map(|stack| stack.id).collect();
    assert_eq!(scanned.len(), 1);
    assert_eq!(
        forms,
        [
            StackId::of(today().back(1)),
            old_form(today()),
            StackId::of(today())
        ]
    );
    let asked = [person];
    for people in [People::Each(&asked), People::Between(&asked)] {
        assert_eq!(store.windows(window(), people).await.unwrap(), scanned);
    }
}

pub async fn people_under_object_ids_are_met_in_the_order_of_their_text(store: Fresh) {
    let oids = [
        "100000000000000000000000",
        "533998b1c9dc24c371000041",
        "ffffffffffffffffffffffff",
    ];
    for oid in oids {
        put(
            &store,
            &format!(r#"{{"$oid":"{oid}"}}"#),
            &[r#"{"t":"T","o":"a"}"#],
        )
        .await;
    }
    let texts = [
        "0",
        "533998b1c9dc24c371000040",
        "533998b1c9dc24c371000042",
        "ada",
        "g",
    ]
    .map(user);
    store
        .push(today(), ROOMY, &push_to_all(&texts, events(1, 1)))
        .await
        .unwrap();
    let mut everybody = [texts.to_vec(), oids.map(user).to_vec()].concat();
    everybody.sort_unstable();

    for chunk in [1, 3, 100] {
        for (n, person) in everybody.iter().enumerate() {
            let found = store.everybody(Some(person.clone()), chunk).await;
            let found: Vec<_> = found.into_iter().map(|p| p.user).collect();
            assert_eq!(
                found,
                everybody[n + 1..],
                "after {person} in chunks of {chunk}"
            );
        }
    }
    assert_eq!(store.everybody(None, 2).await.len(), everybody.len());
}

pub async fn a_marker_goes_to_the_form_it_names(store: Fresh) {
    put(
        &store,
        &format!(r#"{{"$oid":"{HEX}"}}"#),
        &[r#"{"t":"ArtworkPublished","o":"a"}"#],
    )
    .await;
    let person = user(HEX);
    store
        .push(today(), ROOMY, &push_to(&person, events(2, 1)))
        .await
        .unwrap();

    let watermarks: Watermarks = vec![(old_form(today()), 1)];
    for _ in 0..2 {
        let mark = NewMarker::Flushed {
            user: person.clone(),
            marker: id(90),
            watermarks: watermarks.clone(),
        };
        store.write_markers(&[mark]).await.unwrap();
    }

    let found = store.stacks_of(&person).await;
    assert_eq!(
        found[0].entries[1],
        Entry::Marker(Marker {
            id: Some(id(90)),
            n: Some(1)
        })
    );
    assert_eq!((found[0].entries.len(), found[1].entries.len()), (2, 2));
}

pub async fn a_marker_for_the_old_form_of_somebody_who_has_none_is_no_error(store: Fresh) {
    let ada = user("ada");
    store
        .push(today(), ROOMY, &push_to(&ada, events(1, 1)))
        .await
        .unwrap();

    let watermarks: Watermarks = vec![(old_form(today()), 1)];
    store
        .write_markers(&[NewMarker::Flushed {
            user: ada.clone(),
            marker: id(90),
            watermarks,
        }])
        .await
        .unwrap();

    assert_eq!(store.entries_of(&ada, today()).await, entries(events(1, 1)));
}

pub async fn what_nobody_knows_holds_its_place(store: Fresh) {
    let strange = [
        r#""text""#,
        "null",
        r#"{"$numberInt":"5"}"#,
        r#"{"x":{"$numberInt":"1"}}"#,
        "[]",
        r#"{"t":"T"}"#,
    ];
    let mut all = strange.to_vec();
    all.push(r#"{"t":"ArtworkPublished","o":"a"}"#);
    put(&store, r#""ada""#, &all).await;

    let found = store.entries_of(&user("ada"), today()).await;

    assert_eq!(found.len(), strange.len() + 1);
    assert!(
        found[..strange.len()]
            .iter()
            .all(|entry| *entry == Entry::Other),
        "{found:?}"
    );
    assert_eq!(found[strange.len()], Entry::Event(old_event("a")));
}

pub async fn a_push_onto_an_old_document_keeps_what_stood_there(store: Fresh) {
    let old = [
        r#"{"t":"ArtworkPublished","o":"a0","by":"elder"}"#,
        r#"{"x":{"$numberInt":"1"}}"#,
    ];
    put(&store, r#""ada""#, &old).await;

    for _ in 0..2 {
        store
            .push(today(), 4, &push_to(&user("ada"), events(3, 1)))
            .await
            .unwrap();
    }

    let found = store.entries_of(&user("ada"), today()).await;
    assert_eq!(
        found[2..],
        entries(events(2, 1)),
        "an entry without `i` is another entry"
    );
    let exported = store.exported(today()).await;
    let kept = format!(r#"{{"_id":"ada","events":[{},{},"#, old[0], old[1]);
    assert!(exported[0].starts_with(&kept), "{}", exported[0]);
}
