//! Contract tests of `Stacks::scan` and `Stacks::windows`: each user occurs once, in order, with
//! all days of the window.

use chrono::TimeDelta;
use tidings::domain::{Day, StackId, UserId};

use crate::support::*;

const LARGE_CAP: usize = 1_000;

/// Ids with an unusual sort order or a special look, in the order of their bytes.
fn odd_people() -> Vec<UserId> {
    let long = "x".repeat(256);
    let odd = [
        "$ne", "-1", "0", "00", "1", "10", "2", "A", "Z", "a", "a b", "a.b", "ab", "false", "null",
        &long, "z", "Ärger", "ß", "é", "ﬀ", "日本", "\u{ffff}", "𝄞",
    ];
    let mut people: Vec<_> = odd.iter().map(|id| user(id)).collect();
    people.sort_unstable();
    people
}

/// Pushes to user `n` on those days of the window whose bit is set in `n + 1`.
async fn push_by_bits(store: &Fresh, people: &[UserId]) {
    for back in 0..8 {
        let earlier = |n: usize| (n + 1) & (1 << back) != 0;
        let who: Vec<_> =
            (0..people.len()).filter(|n| earlier(*n)).map(|n| people[n].clone()).collect();
        store
            .push(today().days_before(back), LARGE_CAP, &push_to_all(&who, events(2, back)))
            .await
            .unwrap();
    }
}

fn days_of(n: usize) -> Vec<Day> {
    (0..8)
        .rev()
        .filter(|back| (n + 1) & (1 << back) != 0)
        .map(|back| today().days_before(back))
        .collect()
}

pub async fn a_scan_returns_each_user_once_in_ascending_order(store: Fresh) {
    let people = odd_people();
    push_by_bits(&store, &people).await;

    let found: Vec<_> = store.everybody(None, 100).await.into_iter().map(|p| p.user).collect();

    assert_eq!(found, people);
}

pub async fn the_chunks_of_a_scan_have_no_gaps_or_overlaps(store: Fresh) {
    let people = odd_people();
    push_by_bits(&store, &people).await;

    for chunk in [1, 2, 3, 7, 1_000] {
        let chunks = store.chunks(None, chunk).await;
        assert!(chunks.iter().all(|part| part.len() <= 2 * chunk), "chunks of {chunk}");
        let found: Vec<_> = chunks.concat().into_iter().map(|p| p.user).collect();
        assert_eq!(found, people, "chunks of {chunk}");
    }
}

pub async fn a_scan_returns_all_days_of_a_user_in_order(store: Fresh) {
    let people = odd_people();
    push_by_bits(&store, &people).await;

    let found = store.everybody(None, 5).await;

    for (n, person) in found.iter().enumerate() {
        let days: Vec<_> = person.stacks.iter().map(|stack| stack.id).collect();
        let expected: Vec<_> = days_of(n).into_iter().map(StackId::for_day).collect();
        assert_eq!(days, expected, "{}", person.user);
        for stack in &person.stacks {
            let back = (0..8).find(|back| today().days_before(*back) == stack.id.day).unwrap();
            assert_eq!(stack.entries, entries(events(2, back)));
        }
    }
}

pub async fn a_scan_continues_after_any_user(store: Fresh) {
    let people = odd_people();
    push_by_bits(&store, &people).await;

    for (n, person) in people.iter().enumerate() {
        let found = store.everybody(Some(person.clone()), 4).await;
        let found: Vec<_> = found.into_iter().map(|p| p.user).collect();
        assert_eq!(found, people[n + 1..], "after {person}");
    }
    let after_unknown = store.everybody(Some(user("a.a")), 4).await;
    assert_eq!(after_unknown[0].user, user("a.b"), "whoever is named need not have a stack");
}

pub async fn a_scan_excludes_days_outside_the_window(store: Fresh) {
    let (ada, bob) = (user("ada"), user("bob"));
    let tomorrow = Day::of(today().start() + TimeDelta::days(1));
    for day in [today().days_before(8), today().days_before(7), today(), tomorrow] {
        store.push(day, LARGE_CAP, &push_to(&ada, events(1, 1))).await.unwrap();
    }
    store.push(today().days_before(8), LARGE_CAP, &push_to(&bob, events(1, 1))).await.unwrap();

    let found = store.everybody(None, 10).await;

    assert_eq!(found.len(), 1);
    let days: Vec<_> = found[0].stacks.iter().map(|stack| stack.id.day).collect();
    assert_eq!(days, [today().days_before(7), today()]);
}

pub async fn a_scan_of_an_empty_window_is_empty(store: Fresh) {
    assert!(store.everybody(None, 10).await.is_empty());
    assert!(store.everybody(Some(user("ada")), 10).await.is_empty());
}

pub async fn a_scan_during_pushes_returns_each_earlier_user(store: Fresh) {
    let earlier = people(600);
    store.push_list_to_all(&earlier, events(1, 1)).await;

    let work = |store: Fresh, n: u32| async move {
        if n == 0 {
            return store.everybody(None, 50).await.into_iter().map(|p| p.user).collect();
        }
        let more: Vec<_> = (0..600).map(|m| user(&format!("p{m:05}-{n}"))).collect();
        store.push_list_to_all(&more, events(1, n)).await;
        Vec::new()
    };
    let found = store.at_once(4, work).await.swap_remove(0);

    assert!(found.is_sorted_by(|a, b| a < b), "each once, ascending");
    assert!(earlier.iter().all(|person| found.binary_search(person).is_ok()));
}

pub async fn windows_are_returned_in_the_order_of_the_request(store: Fresh) {
    let known = odd_people();
    push_by_bits(&store, &known).await;
    let mut requested = known.clone();
    requested.extend([user("a.a"), user("nobody"), user("￿￿")]);
    requested.sort_unstable();

    let found = store.windows(window(), &requested).await.unwrap();
    let users: Vec<_> = found.iter().map(|person| person.user.clone()).collect();
    assert_eq!(users, requested);
    for person in &found {
        let days: Vec<_> = person.stacks.iter().map(|stack| stack.id.day).collect();
        let expected = known.iter().position(|id| *id == person.user).map_or(Vec::new(), days_of);
        assert_eq!(days, expected, "{}", person.user);
    }
}

pub async fn windows_include_only_the_requested_users(store: Fresh) {
    let known = people(30);
    push_by_bits(&store, &known).await;
    let requested: Vec<_> = known.iter().step_by(7).cloned().collect();

    let found = store.windows(window(), &requested).await.unwrap();

    assert_eq!(found.len(), requested.len());
    let scanned = store.everybody(None, 10).await;
    assert!(found.iter().all(|person| scanned.contains(person)));
}

pub async fn windows_of_many_users_are_read_in_one_call(store: Fresh) {
    let known = people(2_500);
    store.push_list_to_all(&known, events(1, 1)).await;
    store
        .push(today().days_before(3), LARGE_CAP, &push_to_all(&known[1_000..], events(1, 2)))
        .await
        .unwrap();

    let found = store.windows(window(), &known).await.unwrap();
    assert_eq!(found.len(), known.len());
    assert_eq!(found[999].stacks.len(), 1);
    assert_eq!(found[1_000].stacks.len(), 2);
    assert_eq!(found[2_499].stacks.len(), 2);
}

pub async fn windows_of_no_users_are_empty(store: Fresh) {
    store.push_list(&user("ada"), events(1, 1)).await;

    assert!(store.windows(window(), &[]).await.unwrap().is_empty());
}
