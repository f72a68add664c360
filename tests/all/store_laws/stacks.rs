//! Contract tests of `Stacks::push`: it is durable, idempotent, capped and ordered.

use tidings::domain::{Entry, EventType, ObjectId};
use tidings::store::{PushOutcome, PushRequest};

use crate::support::*;

/// A cap that these tests do not reach.
const LARGE_CAP: usize = 1_000;

fn nothing_capped() -> PushOutcome {
    PushOutcome::default()
}

pub async fn entries_keep_the_order_in_which_they_were_pushed(store: Fresh) {
    let ada = user("ada");
    let first = vec![event("c", 1), event("a", 1)];
    let second = vec![event("b", 2)];

    for list in [&first, &second] {
        let pushed = store.push_list(&ada, list.clone()).await;
        assert_eq!(pushed, nothing_capped());
    }

    assert_eq!(store.entries_of(&ada, today()).await, entries([first, second].concat()));
}

pub async fn an_empty_push_succeeds(store: Fresh) {
    let pushed = store.push(today(), LARGE_CAP, &PushRequest::default()).await.unwrap();
    assert_eq!(pushed, nothing_capped());

    store.push_list(&user("ada"), Vec::new()).await;

    assert_eq!(store.entries_of(&user("ada"), today()).await, []);
}

pub async fn each_day_has_its_own_stack(store: Fresh) {
    let ada = user("ada");

    store
        .push(today().days_before(1), LARGE_CAP, &push_to(&ada, vec![event("a", 1)]))
        .await
        .unwrap();
    store.push_list(&ada, vec![event("a", 1)]).await;

    for day in [today().days_before(1), today()] {
        assert_eq!(store.entries_of(&ada, day).await, entries([event("a", 1)]));
    }
    assert_eq!(store.entries_of(&ada, today().days_before(2)).await, []);
}

pub async fn a_repeated_push_adds_nothing(store: Fresh) {
    let (ada, list) = (user("ada"), events(3, 1));

    for _ in 0..3 {
        let pushed = store.push_list(&ada, list.clone()).await;
        assert_eq!(pushed, nothing_capped());
    }
    store.push_list(&ada, events(1, 2)).await;
    store.push_list(&ada, list.clone()).await;

    assert_eq!(store.entries_of(&ada, today()).await, entries([list, events(1, 2)].concat()));
}

pub async fn a_partly_repeated_push_adds_only_missing_entries(store: Fresh) {
    let users = people(4);
    let (done, half) = (&users[..2], &users[2..3]);
    store.push_list_to_all(done, events(3, 1)).await;
    store.push_list_to_all(half, vec![event("a1", 1)]).await;

    store.push_list_to_all(&users, events(3, 1)).await;

    let whole = entries(events(3, 1));
    for person in [&users[0], &users[1], &users[3]] {
        assert_eq!(store.entries_of(person, today()).await, whole, "{person}");
    }
    assert_eq!(
        store.entries_of(&users[2], today()).await,
        entries([event("a1", 1), event("a0", 1), event("a2", 1)])
    );
}

pub async fn two_fan_outs_about_one_object_are_both_stored(store: Fresh) {
    let ada = user("ada");

    for fanout in [1, 2, 1, 2] {
        store.push_list(&ada, vec![event("a", fanout)]).await;
    }

    assert_eq!(store.entries_of(&ada, today()).await, entries([event("a", 1), event("a", 2)]));
}

pub async fn one_fan_out_with_two_types_for_an_object_is_stored_twice(store: Fresh) {
    let ada = user("ada");
    let (published, mut sold) = (event("a", 1), event("a", 1));
    sold.kind = kind("ArtworkSold");

    for _ in 0..2 {
        let list = vec![published.clone(), sold.clone()];
        store.push_list(&ada, list).await;
    }

    assert_eq!(store.entries_of(&ada, today()).await, entries([published, sold]));
}

pub async fn concurrent_first_pushes_of_a_day_lose_no_event(store: Fresh) {
    let writers = 16;

    let push = |store: Fresh, n| async move {
        let list = vec![event("a", n)];
        store.push_list(&user("ada"), list).await
    };
    let pushed = store.at_once(writers, push).await;

    assert!(pushed.iter().all(|pushed| *pushed == nothing_capped()));
    let mut found = store.entries_of(&user("ada"), today()).await;
    found.sort_by_key(|entry| match entry {
        Entry::Event(event) => event.fanout_id,
        Entry::DigestMarker(_) | Entry::BatchMarker(_) | Entry::Other => None,
    });
    assert_eq!(found, entries((0..writers).map(|n| event("a", n))));
}

pub async fn concurrent_repeats_of_a_push_add_no_duplicates(store: Fresh) {
    let users = people(50);
    let push =
        |store: Fresh, _| async move { store.push_list_to_all(&people(50), events(3, 1)).await };

    store.at_once(16, push).await;

    for person in &users {
        assert_eq!(store.entries_of(person, today()).await, entries(events(3, 1)), "{person}");
    }
}

pub async fn a_push_stores_the_list_of_each_of_many_users(store: Fresh) {
    let users = people(2_500);
    let pushes = PushRequest {
        lists: vec![events(1, 1), events(2, 2), events(3, 3)],
        users: users.iter().cloned().enumerate().map(|(n, who)| (who, n % 3)).collect(),
    };

    for _ in 0..2 {
        let pushed = store.push(today(), LARGE_CAP, &pushes).await.unwrap();
        assert_eq!(pushed, nothing_capped());
    }

    let found = store.everybody(None, 500).await;
    assert_eq!(found.len(), users.len());
    for (n, person) in found.iter().enumerate() {
        assert_eq!(person.user, users[n]);
        assert_eq!(person.stacks[0].entries, entries(pushes.lists[n % 3].clone()));
    }
}

pub async fn a_long_list_is_stored_completely(store: Fresh) {
    let ada = user("ada");

    store.push_list(&ada, events(1_000, 1)).await;

    assert_eq!(store.entries_of(&ada, today()).await, entries(events(1_000, 1)));
}

pub async fn the_cap_is_exact_and_a_repeat_reports_the_same_overflow(store: Fresh) {
    let (ada, bob) = (user("ada"), user("bob"));
    store.push_capped(3, &ada, events(2, 1)).await;
    let both = push_to_all(&[ada.clone(), bob.clone()], vec![event("b", 2), event("c", 2)]);

    for _ in 0..3 {
        let pushed = store.push(today(), 3, &both).await.unwrap();
        assert_eq!(pushed.capped, [(0, vec![1])]);
    }

    assert_eq!(
        store.entries_of(&ada, today()).await,
        entries([events(2, 1), vec![event("b", 2)]].concat())
    );
    assert_eq!(store.entries_of(&bob, today()).await.len(), 2);
}

pub async fn a_full_stack_rejects_and_reports_every_entry(store: Fresh) {
    let ada = user("ada");
    store.push_capped(4, &ada, events(4, 1)).await;

    let pushed = store.push_capped(4, &ada, events(2, 2)).await;
    let lower = store.push_capped(2, &ada, events(2, 3)).await;

    assert_eq!(pushed.capped, [(0, vec![0, 1])]);
    assert_eq!(lower.capped, [(0, vec![0, 1])], "a cap that was lowered takes nothing away");
    assert_eq!(store.entries_of(&ada, today()).await, entries(events(4, 1)));
}

pub async fn the_entries_of_a_first_list_that_fit_are_stored_in_order(store: Fresh) {
    let ada = user("ada");

    for _ in 0..2 {
        let pushed = store.push_capped(5, &ada, events(8, 1)).await;
        assert_eq!(pushed.capped, [(0, vec![5, 6, 7])]);
    }

    assert_eq!(store.entries_of(&ada, today()).await, entries(events(5, 1)));
}

pub async fn stored_entries_do_not_count_against_the_cap_again(store: Fresh) {
    let ada = user("ada");
    let stored = vec![event("b", 1), event("d", 1)];
    store.push_capped(4, &ada, stored.clone()).await;
    let list = ["a", "b", "c", "d", "e"].map(|object| event(object, 1)).to_vec();

    for _ in 0..2 {
        let pushed = store.push_capped(4, &ada, list.clone()).await;
        assert_eq!(pushed.capped, [(0, vec![4])]);
    }

    assert_eq!(
        store.entries_of(&ada, today()).await,
        entries([stored, vec![event("a", 1), event("c", 1)]].concat())
    );
}

pub async fn capped_users_are_reported_by_their_index(store: Fresh) {
    let users = people(1_500);
    let full = [3, 700, 1_499];
    for n in full {
        store.push_capped(2, &users[n], events(2, 1)).await;
    }

    let pushed = store.push(today(), 2, &push_to_all(&users, events(1, 2))).await.unwrap();

    assert_eq!(pushed.capped, full.map(|n| (n, vec![0])));
}

pub async fn markers_count_against_the_cap(store: Fresh) {
    let ada = user("ada");
    store.push_capped(3, &ada, events(1, 1)).await;
    store.mark_stack(&ada, id(90), 1).await;

    let pushed = store.push_capped(3, &ada, events(2, 2)).await;

    assert_eq!(pushed.capped, [(0, vec![1])]);
    assert_eq!(store.entries_of(&ada, today()).await.len(), 3);
}

pub async fn concurrent_pushes_never_grow_a_stack_past_its_cap(store: Fresh) {
    let push =
        |store: Fresh, n| async move { store.push_capped(5, &user("ada"), events(2, n)).await };

    let pushed = store.at_once(16, push).await;

    let capped: usize =
        pushed.iter().flat_map(|pushed| &pushed.capped).map(|(_, which)| which.len()).sum();
    assert_eq!(store.entries_of(&user("ada"), today()).await.len(), 5);
    assert_eq!(capped, 16 * 2 - 5);
}

pub async fn unusual_type_and_object_names_are_stored_unchanged(store: Fresh) {
    let ada = user("ada");
    let odd =
        ["0", "false", "null", "$ne", "$where", "a.b", "a\"b\\c", "ü€𝄞", "{\"$oid\":1}", "a\nb"];
    let named = odd.map(|name| tidings::domain::Event {
        kind: EventType::stored(name),
        object: ObjectId::stored(name),
        fanout_id: Some(id(1)),
    });

    for _ in 0..2 {
        store.push_list(&ada, named.to_vec()).await;
    }

    assert_eq!(store.entries_of(&ada, today()).await, entries(named));
}
