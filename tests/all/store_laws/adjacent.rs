//! Contract tests of pushes to many users with adjacent ids.

use std::collections::BTreeMap;

use tidings::domain::{Entry, Event, UserId};
use tidings::store::PushRequest;

use crate::support::*;

const CAP: usize = 12;

/// The expected entries by user.
type Model = BTreeMap<UserId, Vec<Event>>;

/// Pushes to the store and to the model. Repeats the push, which must have no effect.
async fn push(store: &Fresh, model: &mut Model, pushes: &PushRequest) {
    let mut capped = Vec::new();
    for (item, (person, list)) in pushes.users.iter().enumerate() {
        let (stack, mut over) = (model.entry(person.clone()).or_default(), Vec::new());
        for (index, event) in pushes.lists[*list].iter().enumerate() {
            if stack.contains(event) {
                continue;
            }
            match stack.len() < CAP {
                true => stack.push(event.clone()),
                false => over.push(index),
            }
        }
        if !over.is_empty() {
            capped.push((item, over));
        }
    }
    for _ in 0..2 {
        let pushed = store.push(today(), CAP, pushes).await.unwrap();
        assert_eq!(pushed.capped, capped);
    }
}

async fn assert_stored(store: &Fresh, model: &Model) {
    let mut found = Model::new();
    for person in store.everybody(None, 300).await {
        let entries = person.stacks.into_iter().flat_map(|stack| stack.entries);
        let event = |entry| match entry {
            Entry::Event(event) => event,
            other => panic!("{other:?} was not pushed"),
        };
        found.insert(person.user, entries.map(event).collect());
    }
    assert!(found == *model, "something else stands than was pushed");
}

fn to_all(people: impl IntoIterator<Item = UserId>, lists: Vec<Vec<Event>>) -> PushRequest {
    let many = lists.len();
    let people = people.into_iter().enumerate();
    PushRequest {
        // Adjacent users get different lists.
        users: people.map(|(n, person)| (person, n % many)).collect(),
        lists,
    }
}

pub async fn a_range_push_stores_each_entry_once_and_only_for_its_users(store: Fresh) {
    let (crowd, mut model) = (people(800), Model::new());
    // The first push creates the stacks. The next two append to them.
    for n in 1..=3 {
        push(&store, &mut model, &push_to_all(&crowd, events(1, n))).await;
    }
    let every = |nth: usize| crowd.iter().step_by(nth).cloned();

    // Every second user, with two lists in turn.
    let lists = vec![events(1, 4), events(3, 5)];
    push(&store, &mut model, &to_all(every(2), lists)).await;
    // A list that is long enough to be appended.
    push(&store, &mut model, &to_all(every(2), vec![events(5, 6)])).await;
    // Few users in a dense range.
    push(&store, &mut model, &to_all(every(16), vec![events(2, 7)])).await;

    assert_stored(&store, &model).await;
}

pub async fn a_range_push_detects_missing_and_full_stacks(store: Fresh) {
    let (crowd, mut model) = (people(600), Model::new());
    for n in 1..=3 {
        push(&store, &mut model, &push_to_all(&crowd, events(1, n))).await;
    }
    let full = crowd.iter().skip(7).step_by(97).cloned();
    push(&store, &mut model, &to_all(full, vec![events(9, 4)])).await;
    let nearly = crowd.iter().skip(11).step_by(89).cloned();
    push(&store, &mut model, &to_all(nearly, vec![events(7, 5)])).await;
    let new = ["p00003b", "p00250b", "p00251b", "p00599b", "q"].map(user);
    let mut all: Vec<UserId> = crowd.into_iter().chain(new).collect();
    all.sort();

    for (n, count) in [(6, 1), (7, 4), (8, 6), (9, 2)] {
        let pushes = push_to_all(&all, events(count, n));
        push(&store, &mut model, &pushes).await;
    }

    assert_stored(&store, &model).await;
}

pub async fn concurrent_pushes_to_one_range_are_all_stored(store: Fresh) {
    let crowd = people(300);
    for n in 1..=3 {
        let pushes = push_to_all(&crowd, events(1, n));
        store.push(today(), 1_000, &pushes).await.unwrap();
    }

    let push = |store: Fresh, n: u32| {
        let pushes = push_to_all(&crowd, events(2, 10 + n));
        async move { store.push(today(), 1_000, &pushes).await.unwrap() }
    };
    store.at_once(8, push).await;

    for person in store.everybody(None, 300).await {
        assert_eq!(person.stacks[0].entries.len(), 3 + 16, "{}", person.user);
        for n in 0..8 {
            let mine = entries(events(2, 10 + n));
            let is_stored = |entry| person.stacks[0].entries.contains(entry);
            assert!(mine.iter().all(is_stored));
        }
    }
}
