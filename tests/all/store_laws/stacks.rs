//! Laws of `Stacks::push`: durable, harmless again, capped, in order.

use tidings::domain::{Entry, EventType, ObjectId};
use tidings::store::{Pushed, Pushes};

use crate::support::*;

/// A cap that is not what a law is about.
const ROOMY: usize = 1_000;

fn nothing_capped() -> Pushed {
    Pushed::default()
}

pub async fn entries_stand_in_the_order_they_were_pushed(store: Fresh) {
    let ada = user("ada");
    let first = vec![event("c", 1), event("a", 1)];
    let second = vec![event("b", 2)];

    for list in [&first, &second] {
        let pushed = store
            .push(today(), ROOMY, &push_to(&ada, list.clone()))
            .await
            .unwrap();
        assert_eq!(pushed, nothing_capped());
    }

    assert_eq!(
        store.entries_of(&ada, today()).await,
        entries([first, second].concat())
    );
}

pub async fn a_push_of_nothing_is_no_error(store: Fresh) {
    let pushed = store
        .push(today(), ROOMY, &Pushes::default())
        .await
        .unwrap();
    assert_eq!(pushed, nothing_capped());

    store
        .push(today(), ROOMY, &push_to(&user("ada"), Vec::new()))
        .await
        .unwrap();

    assert_eq!(store.entries_of(&user("ada"), today()).await, []);
}

pub async fn days_are_kept_apart(store: Fresh) {
    let ada = user("ada");

    store
        .push(today().back(1), ROOMY, &push_to(&ada, vec![event("a", 1)]))
        .await
        .unwrap();
    store
        .push(today(), ROOMY, &push_to(&ada, vec![event("a", 1)]))
        .await
        .unwrap();

    for day in [today().back(1), today()] {
        assert_eq!(store.entries_of(&ada, day).await, entries([event("a", 1)]));
    }
    assert_eq!(store.entries_of(&ada, today().back(2)).await, []);
}

pub async fn a_repeated_push_adds_nothing(store: Fresh) {
    let (ada, list) = (user("ada"), events(3, 1));

    for _ in 0..3 {
        let pushed = store
            .push(today(), ROOMY, &push_to(&ada, list.clone()))
            .await
            .unwrap();
        assert_eq!(pushed, nothing_capped());
    }
    store
        .push(today(), ROOMY, &push_to(&ada, events(1, 2)))
        .await
        .unwrap();
    store
        .push(today(), ROOMY, &push_to(&ada, list.clone()))
        .await
        .unwrap();

    assert_eq!(
        store.entries_of(&ada, today()).await,
        entries([list, events(1, 2)].concat())
    );
}

pub async fn a_partly_repeated_push_adds_only_what_is_missing(store: Fresh) {
    let everybody = people(4);
    let (done, half) = (&everybody[..2], &everybody[2..3]);
    store
        .push(today(), ROOMY, &push_to_all(done, events(3, 1)))
        .await
        .unwrap();
    store
        .push(today(), ROOMY, &push_to_all(half, vec![event("a1", 1)]))
        .await
        .unwrap();

    store
        .push(today(), ROOMY, &push_to_all(&everybody, events(3, 1)))
        .await
        .unwrap();

    let whole = entries(events(3, 1));
    for person in [&everybody[0], &everybody[1], &everybody[3]] {
        assert_eq!(store.entries_of(person, today()).await, whole, "{person}");
    }
    assert_eq!(
        store.entries_of(&everybody[2], today()).await,
        entries([event("a1", 1), event("a0", 1), event("a2", 1)])
    );
}

pub async fn an_entry_twice_in_one_list_stands_once(store: Fresh) {
    let (ada, bob) = (user("ada"), user("bob"));
    store
        .push(today(), ROOMY, &push_to(&bob, vec![event("z", 9)]))
        .await
        .unwrap();
    let list = vec![event("a", 1), event("b", 1), event("a", 1)];

    store
        .push(
            today(),
            ROOMY,
            &push_to_all(&[ada.clone(), bob.clone()], list),
        )
        .await
        .unwrap();

    let once = [event("a", 1), event("b", 1)];
    assert_eq!(store.entries_of(&ada, today()).await, entries(once.clone()));
    assert_eq!(store.entries_of(&bob, today()).await[1..], entries(once));
}

pub async fn two_fan_outs_about_one_object_both_stand(store: Fresh) {
    let ada = user("ada");

    for fanout in [1, 2, 1, 2] {
        store
            .push(today(), ROOMY, &push_to(&ada, vec![event("a", fanout)]))
            .await
            .unwrap();
    }

    assert_eq!(
        store.entries_of(&ada, today()).await,
        entries([event("a", 1), event("a", 2)])
    );
}

pub async fn one_fan_out_about_an_object_by_two_types_stands_twice(store: Fresh) {
    let ada = user("ada");
    let (published, mut sold) = (event("a", 1), event("a", 1));
    sold.t = kind("ArtworkSold");

    for _ in 0..2 {
        let list = vec![published.clone(), sold.clone()];
        store
            .push(today(), ROOMY, &push_to(&ada, list))
            .await
            .unwrap();
    }

    assert_eq!(
        store.entries_of(&ada, today()).await,
        entries([published, sold])
    );
}

pub async fn concurrent_writers_on_a_persons_first_event_of_the_day_lose_nothing(store: Fresh) {
    let writers = 16;

    let push = |store: Fresh, n| async move {
        let list = vec![event("a", n)];
        store
            .push(today(), ROOMY, &push_to(&user("ada"), list))
            .await
            .unwrap()
    };
    let pushed = store.at_once(writers, push).await;

    assert!(pushed.iter().all(|pushed| *pushed == nothing_capped()));
    let mut found = store.entries_of(&user("ada"), today()).await;
    found.sort_by_key(|entry| match entry {
        Entry::Event(event) => event.i,
        Entry::Marker(_) | Entry::Mailed(_) | Entry::Other => None,
    });
    assert_eq!(found, entries((0..writers).map(|n| event("a", n))));
}

pub async fn concurrent_repeats_of_one_push_double_nothing(store: Fresh) {
    let everybody = people(50);
    let push = |store: Fresh, _| async move {
        store
            .push(today(), ROOMY, &push_to_all(&people(50), events(3, 1)))
            .await
            .unwrap()
    };

    store.at_once(16, push).await;

    for person in &everybody {
        assert_eq!(
            store.entries_of(person, today()).await,
            entries(events(3, 1)),
            "{person}"
        );
    }
}

pub async fn a_push_reaches_each_of_many_people_with_their_list(store: Fresh) {
    let everybody = people(2_500);
    let pushes = Pushes {
        lists: vec![events(1, 1), events(2, 2), events(3, 3)],
        people: everybody
            .iter()
            .cloned()
            .enumerate()
            .map(|(n, who)| (who, n % 3))
            .collect(),
    };

    for _ in 0..2 {
        let pushed = store.push(today(), ROOMY, &pushes).await.unwrap();
        assert_eq!(pushed, nothing_capped());
    }

    let found = store.everybody(None, 500).await;
    assert_eq!(found.len(), everybody.len());
    for (n, person) in found.iter().enumerate() {
        assert_eq!(person.user, everybody[n]);
        assert_eq!(
            person.stacks[0].entries,
            entries(pushes.lists[n % 3].clone())
        );
    }
}

pub async fn a_long_list_is_pushed_whole(store: Fresh) {
    let ada = user("ada");

    store
        .push(today(), ROOMY, &push_to(&ada, events(1_000, 1)))
        .await
        .unwrap();

    assert_eq!(
        store.entries_of(&ada, today()).await,
        entries(events(1_000, 1))
    );
}

pub async fn the_cap_is_honoured_exactly_and_reported_again_on_repeat(store: Fresh) {
    let (ada, bob) = (user("ada"), user("bob"));
    store
        .push(today(), 3, &push_to(&ada, events(2, 1)))
        .await
        .unwrap();
    let both = push_to_all(
        &[ada.clone(), bob.clone()],
        vec![event("b", 2), event("c", 2)],
    );

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

pub async fn a_full_stack_takes_nothing_and_all_is_reported(store: Fresh) {
    let ada = user("ada");
    store
        .push(today(), 4, &push_to(&ada, events(4, 1)))
        .await
        .unwrap();

    let pushed = store
        .push(today(), 4, &push_to(&ada, events(2, 2)))
        .await
        .unwrap();
    let lower = store
        .push(today(), 2, &push_to(&ada, events(2, 3)))
        .await
        .unwrap();

    assert_eq!(pushed.capped, [(0, vec![0, 1])]);
    assert_eq!(
        lower.capped,
        [(0, vec![0, 1])],
        "a cap that was lowered takes nothing away"
    );
    assert_eq!(store.entries_of(&ada, today()).await, entries(events(4, 1)));
}

pub async fn what_fits_of_a_first_list_is_stored_in_list_order(store: Fresh) {
    let ada = user("ada");

    for _ in 0..2 {
        let pushed = store
            .push(today(), 5, &push_to(&ada, events(8, 1)))
            .await
            .unwrap();
        assert_eq!(pushed.capped, [(0, vec![5, 6, 7])]);
    }

    assert_eq!(store.entries_of(&ada, today()).await, entries(events(5, 1)));
}

pub async fn entries_that_stand_already_take_no_room_again(store: Fresh) {
    let ada = user("ada");
    let standing = vec![event("b", 1), event("d", 1)];
    store
        .push(today(), 4, &push_to(&ada, standing.clone()))
        .await
        .unwrap();
    let list = ["a", "b", "c", "d", "e"]
        .map(|object| event(object, 1))
        .to_vec();

    for _ in 0..2 {
        let pushed = store
            .push(today(), 4, &push_to(&ada, list.clone()))
            .await
            .unwrap();
        assert_eq!(pushed.capped, [(0, vec![4])]);
    }

    assert_eq!(
        store.entries_of(&ada, today()).await,
        entries([standing, vec![event("a", 1), event("c", 1)]].concat())
    );
}

pub async fn the_capped_are_told_by_their_place_among_the_people(store: Fresh) {
    let everybody = people(1_500);
    let full = [3, 700, 1_499];
    for n in full {
        store
            .push(today(), 2, &push_to(&everybody[n], events(2, 1)))
            .await
            .unwrap();
    }

    let pushed = store
        .push(today(), 2, &push_to_all(&everybody, events(1, 2)))
        .await
        .unwrap();

    assert_eq!(pushed.capped, full.map(|n| (n, vec![0])));
}

pub async fn markers_take_room_under_the_cap(store: Fresh) {
    let ada = user("ada");
    store
        .push(today(), 3, &push_to(&ada, events(1, 1)))
        .await
        .unwrap();
    store
        .write_markers(&[new_marker(&ada, today(), id(90), 1)])
        .await
        .unwrap();

    let pushed = store
        .push(today(), 3, &push_to(&ada, events(2, 2)))
        .await
        .unwrap();

    assert_eq!(pushed.capped, [(0, vec![1])]);
    assert_eq!(store.entries_of(&ada, today()).await.len(), 3);
}

pub async fn concurrent_pushes_never_grow_a_stack_past_its_cap(store: Fresh) {
    let push = |store: Fresh, n| async move {
        store
            .push(today(), 5, &push_to(&user("ada"), events(2, n)))
            .await
            .unwrap()
    };

    let pushed = store.at_once(16, push).await;

    let capped: usize = pushed
        .iter()
        .flat_map(|pushed| &pushed.capped)
        .map(|(_, which)| which.len())
        .sum();
    assert_eq!(store.entries_of(&user("ada"), today()).await.len(), 5);
    assert_eq!(capped, 16 * 2 - 5);
}

pub async fn odd_names_are_kept_as_they_are(store: Fresh) {
    let ada = user("ada");
    let odd = [
        "0",
        "false",
        "null",
        "$ne",
        "$where",
        "a.b",
        "a\"b\\c",
        "ü€𝄞",
        "{\"$oid\":1}",
        "a\nb",
    ];
    let named = odd.map(|name| tidings::domain::Event {
        t: EventType::stored(name),
        o: ObjectId::stored(name),
        i: Some(id(1)),
    });

    for _ in 0..2 {
        store
            .push(today(), ROOMY, &push_to(&ada, named.to_vec()))
            .await
            .unwrap();
    }

    assert_eq!(store.entries_of(&ada, today()).await, entries(named));
}
