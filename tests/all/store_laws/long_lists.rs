//! Contract tests of `Stacks::push` with lists of many entries. A store may add these in another
//! way than short lists.

use tidings::domain::{BatchMarker, Entry};
use tidings::store::{NewMarker, PushOutcome};

use crate::support::*;

/// A cap that these tests do not reach.
const LARGE_CAP: usize = 1_000;

pub async fn concurrent_repeats_of_long_lists_add_no_duplicates(store: Fresh) {
    let users = people(5);
    let push = |store: Fresh, n: u32| async move {
        // Half of the writers push one fan-out. The others push it together with a second one.
        let list = match n % 2 {
            0 => events(40, 1),
            _ => [events(40, 1), events(30, 2)].concat(),
        };
        let pushes = push_to_all(&people(5), list);
        store.push(today(), LARGE_CAP, &pushes).await.unwrap()
    };

    store.at_once(12, push).await;

    for person in &users {
        let found = store.entries_of(person, today()).await;
        let of = |n| -> Vec<Entry> {
            let is_of = |entry: &&Entry| matches!(entry, Entry::Event(event) if event.fanout_id == Some(id(n)));
            found.iter().filter(is_of).cloned().collect()
        };
        assert_eq!(found.len(), 70, "{person}");
        assert_eq!((of(1), of(2)), (entries(events(40, 1)), entries(events(30, 2))));
    }
}

pub async fn a_merged_long_list_adds_only_missing_entries(store: Fresh) {
    let users = people(3);
    store.push_list_to_all(&users[..1], events(20, 1)).await;
    store.push_list_to_all(&users[1..2], events(5, 9)).await;
    let merged = [events(20, 1), events(30, 2)].concat();

    for _ in 0..2 {
        let pushes = push_to_all(&users, merged.clone());
        let pushed = store.push(today(), LARGE_CAP, &pushes).await.unwrap();
        assert_eq!(pushed, PushOutcome::default());
    }

    let other = [events(5, 9), merged.clone()].concat();
    for (person, expected) in users.iter().zip([merged.clone(), other, merged]) {
        assert_eq!(store.entries_of(person, today()).await, entries(expected));
    }
}

pub async fn a_long_list_is_stored_up_to_the_cap(store: Fresh) {
    let users = people(3);
    for (person, stored) in users.iter().zip([10, 11, 60]) {
        store.push_capped(60, person, events(stored, 1)).await;
    }

    for _ in 0..2 {
        let pushes = push_to_all(&users, events(50, 2));
        let pushed = store.push(today(), 60, &pushes).await.unwrap();
        let all = (0..50).collect();
        assert_eq!(pushed.capped, [(1, vec![49]), (2, all)]);
    }

    for (person, added) in users.iter().zip([50, 49, 0]) {
        let found = store.entries_of(person, today()).await;
        let whole = entries(events(50, 2));
        assert_eq!(found[found.len() - added..], whole[..added], "{person}");
        assert_eq!(found.len(), 60, "{person}");
    }
}

pub async fn a_mailed_marker_does_not_prevent_a_push_of_its_events(store: Fresh) {
    let ada = user("ada");
    store.push_list(&ada, events(1, 1)).await;
    let mailed = BatchMarker { id: id(90), fanouts: vec![id(2)] };
    let mark = NewMarker::Mailed(ada.clone(), today(), mailed);
    store.write_markers(&[mark]).await.unwrap();

    for _ in 0..2 {
        let pushes = push_to(&ada, events(9, 2));
        assert_eq!(store.push(today(), LARGE_CAP, &pushes).await.unwrap(), PushOutcome::default());
    }

    let found = store.entries_of(&ada, today()).await;
    assert_eq!(found[2..], entries(events(9, 2)));
}
