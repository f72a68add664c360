//! Contract tests of `Stacks::write_markers`: a marker is appended once, past the cap, to stacks
//! that exist.

use tidings::domain::{BatchMarker, DigestMarker, Entry, StackId};
use tidings::store::{CountedRecords, NewMarker};

use crate::support::*;

const LARGE_CAP: usize = 1_000;

fn marker(id: tidings::domain::Id, n: u32) -> Entry {
    Entry::DigestMarker(DigestMarker { id: Some(id), n: Some(n) })
}

pub async fn a_marker_is_appended_to_each_named_stack(store: Fresh) {
    let ada = user("ada");
    let days = [today().days_before(2), today().days_before(1), today()];
    for day in days {
        store.push(day, LARGE_CAP, &push_to(&ada, events(2, 1))).await.unwrap();
    }
    let watermarks = vec![(StackId::for_day(days[0]), 2), (StackId::for_day(days[2]), 1)];

    store.write_markers(&[NewMarker::Flushed(ada.clone(), id(90), watermarks)]).await.unwrap();

    let plain = entries(events(2, 1));
    let found = store.stacks_of(&ada).await;
    assert_eq!(found[0].entries, [plain.clone(), vec![marker(id(90), 2)]].concat());
    assert_eq!(found[1].entries, plain);
    assert_eq!(found[2].entries, [plain, vec![marker(id(90), 1)]].concat());
}

pub async fn a_repeated_marker_is_stored_once(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, events(2, 1)).await;

    let markers = [new_marker(&ada, today(), id(90), 2)];
    store.write_markers(&markers).await.unwrap();
    store.write_markers(&markers).await.unwrap();
    store.push_list(&ada, events(1, 2)).await;
    store.write_markers(&markers).await.unwrap();

    let found = store.entries_of(&ada, today()).await;
    assert_eq!(found.len(), 4);
    assert_eq!(found[2], marker(id(90), 2));
}

pub async fn concurrent_repeats_of_a_marker_store_it_once(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, events(2, 1)).await;

    let repeat = |store: Fresh, _| async move {
        store.mark_stack(&user("ada"), id(90), 2).await;
    };
    store.at_once(16, repeat).await;

    assert_eq!(store.entries_of(&ada, today()).await.len(), 3);
}

pub async fn markers_with_different_ids_or_watermarks_are_all_stored(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, events(2, 1)).await;

    store
        .write_markers(&[
            new_marker(&ada, today(), id(90), 1),
            new_marker(&ada, today(), id(91), 1),
        ])
        .await
        .unwrap();
    store.mark_stack(&ada, id(90), 2).await;

    let found = store.entries_of(&ada, today()).await;
    assert_eq!(found.len(), 5);
    for expected in [marker(id(90), 1), marker(id(91), 1), marker(id(90), 2)] {
        assert!(found[2..].contains(&expected), "{expected:?}");
    }
}

pub async fn a_marker_is_written_past_the_cap(store: Fresh) {
    let ada = user("ada");
    store.push_capped(3, &ada, events(3, 1)).await;

    store.mark_stack(&ada, id(90), 3).await;

    let found = store.entries_of(&ada, today()).await;
    assert_eq!(found.len(), 4);
    assert_eq!(found[3], marker(id(90), 3));
}

pub async fn a_marker_creates_neither_a_stack_nor_a_day(store: Fresh) {
    let (ada, eve) = (user("ada"), user("eve"));
    store.push_list(&ada, events(1, 1)).await;

    let absent = today().days_before(1);
    store
        .write_markers(&[new_marker(&ada, absent, id(90), 1), new_marker(&eve, today(), id(91), 1)])
        .await
        .unwrap();

    assert_eq!(store.entries_of(&eve, today()).await, []);
    assert_eq!(store.entries_of(&ada, absent).await, []);
    assert_eq!(store.days().await.unwrap(), [today()]);
    let stacks = [CountedRecords::Stacks(today())];
    assert_eq!(store.count(&stacks).await.unwrap(), [1]);
}

pub async fn a_marker_for_a_dropped_day_is_ignored(store: Fresh) {
    let ada = user("ada");
    let gone = today().days_before(1);
    store.push(gone, LARGE_CAP, &push_to(&ada, events(1, 1))).await.unwrap();
    store.push_list(&ada, events(1, 1)).await;
    store.remove_day(gone).await;

    let watermarks = vec![(StackId::for_day(gone), 1), (StackId::for_day(today()), 1)];
    store.write_markers(&[NewMarker::Flushed(ada.clone(), id(90), watermarks)]).await.unwrap();

    assert_eq!(store.entries_of(&ada, gone).await, []);
    assert_eq!(store.entries_of(&ada, today()).await.len(), 2);
}

pub async fn an_event_pushed_between_read_and_marker_stays_pending(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, events(2, 1)).await;
    let covered = store.everybody(None, 10).await[0].watermarks();

    store.push_list(&ada, vec![event("late", 2)]).await;
    store.write_markers(&[NewMarker::Flushed(ada, id(90), covered)]).await.unwrap();

    let person = store.everybody(None, 10).await.remove(0);
    let pending: Vec<_> = person.pending().iter().map(|p| p.event.clone()).collect();
    assert_eq!(pending, [event("late", 2)]);
}

pub async fn concurrent_markers_and_pushes_are_all_stored(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, events(1, 0)).await;

    let work = |store: Fresh, n: u32| async move {
        let ada = user("ada");
        if n.is_multiple_of(2) {
            store.push_list(&ada, vec![event("a", 1 + n)]).await;
        } else {
            store.mark_stack(&ada, id(90 + n), 1).await;
        }
    };
    store.at_once(16, work).await;

    let found = store.entries_of(&ada, today()).await;
    let markers = found.iter().filter(|entry| matches!(entry, Entry::DigestMarker(_))).count();
    assert_eq!((found.len(), markers), (1 + 16, 8));
}

pub async fn each_of_many_users_gets_a_separate_marker(store: Fresh) {
    let users = people(2_500);
    store.push_list_to_all(&users, events(3, 1)).await;
    let markers: Vec<_> = (0..)
        .zip(&users)
        .map(|(n, person)| new_marker(person, today(), id(100 + n), 1 + n % 3))
        .collect();

    for _ in 0..2 {
        store.write_markers(&markers).await.unwrap();
    }

    let found = store.everybody(None, 500).await;
    assert_eq!(found.len(), users.len());
    for (n, person) in (0..).zip(&found) {
        assert_eq!(person.stacks[0].entries[3..], [marker(id(100 + n), 1 + n % 3)]);
    }
}

pub async fn an_empty_list_of_markers_succeeds(store: Fresh) {
    store.write_markers(&[]).await.unwrap();
    let watermarks = Vec::new();
    store.write_markers(&[NewMarker::Flushed(user("ada"), id(90), watermarks)]).await.unwrap();

    assert!(store.days().await.unwrap().is_empty());
}

fn of(marker: u32, fanouts: &[u32]) -> BatchMarker {
    BatchMarker { id: id(marker), fanouts: fanouts.iter().map(|n| id(*n)).collect() }
}

fn mailed(person: &str, marker: u32, fanouts: &[u32]) -> NewMarker {
    NewMarker::Mailed(user(person), today(), of(marker, fanouts))
}

pub async fn a_repeated_mailed_marker_is_stored_once_at_the_end(store: Fresh) {
    let ada = user("ada");
    let pushes = push_to(&ada, events(2, 1));
    store.push(today(), 2, &pushes).await.unwrap();

    for _ in 0..2 {
        let markers = [mailed("ada", 90, &[1, 7]), mailed("ada", 91, &[])];
        store.write_markers(&markers).await.unwrap();
    }

    let expected = [
        entries(events(2, 1)),
        vec![Entry::BatchMarker(of(90, &[1, 7])), Entry::BatchMarker(of(91, &[]))],
    ];
    assert_eq!(store.entries_of(&ada, today()).await, expected.concat());
}

pub async fn a_mailed_marker_creates_no_stack_and_covers_its_events(store: Fresh) {
    let ada = user("ada");
    let of_two = [events(2, 1), events(1, 2)].concat();
    store.push_list(&ada, of_two).await;
    let day_before = NewMarker::Mailed(ada.clone(), today().days_before(1), of(90, &[1]));

    store
        .write_markers(&[mailed("ada", 90, &[1]), mailed("ben", 91, &[1]), day_before])
        .await
        .unwrap();

    let both = [ada, user("ben")];
    let found = store.windows(window(), &both).await.unwrap();
    let pending: Vec<_> = found[0].pending().iter().map(|p| p.event.clone()).collect();
    assert_eq!(pending, events(1, 2));
    assert_eq!(found[0].stacks.len(), 1);
    assert!(found[1].stacks.is_empty());
}

pub async fn equal_markers_are_stored_once_and_only_for_the_named_users(store: Fresh) {
    let users = people(200);
    let days = [today().days_before(1), today()];
    for day in days {
        let pushes = push_to_all(&users, events(2, 1));
        store.push(day, LARGE_CAP, &pushes).await.unwrap();
    }
    let covered = |n: usize| (n < 160 && n.is_multiple_of(2)).then_some(1 + (n % 4 / 2) as u32);
    let of = |person: &tidings::domain::UserId, n| {
        NewMarker::Flushed(
            person.clone(),
            id(90),
            days.map(|day| (StackId::for_day(day), n)).to_vec(),
        )
    };
    let known = users.iter().enumerate();
    let known = known.filter_map(|(n, person)| Some(of(person, covered(n)?)));
    let markers: Vec<NewMarker> = known.chain([of(&user("p00001x"), 1)]).collect();

    for _ in 0..2 {
        assert_eq!(store.write_markers(&markers).await.unwrap(), []);
    }

    let plain = entries(events(2, 1));
    for (n, person) in users.iter().enumerate() {
        let marker = covered(n).map(|n| marker(id(90), n));
        let expected: Vec<Entry> = plain.iter().cloned().chain(marker).collect();
        for day in days {
            assert_eq!(store.entries_of(person, day).await, expected, "{person}");
        }
    }
    assert_eq!(store.entries_of(&user("p00001x"), today()).await, []);
}
