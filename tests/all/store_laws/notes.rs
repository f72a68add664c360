//! Contract tests of `Notes`: a name has one text, which all processes share.

use tidings::store::NoteFilter;

use crate::support::*;

pub async fn a_note_is_visible_to_all_handles_until_it_is_deleted(store: Fresh) {
    assert_eq!(store.note("pause").await.unwrap(), None);

    store.put_note("pause", "the key is wrong").await;
    store.put_note("pause", "the key was \u{1f511} $set.x").await;
    store.put_note("other", "").await;

    let second = store.second();
    assert_eq!(
        second.note("pause").await.unwrap().as_deref(),
        Some("the key was \u{1f511} $set.x")
    );
    assert_eq!(second.note("other").await.unwrap().as_deref(), Some(""));

    let current = second.note("pause").await.unwrap();
    let mut results = Vec::new();
    for read in [Some("another"), current.as_deref(), current.as_deref(), None] {
        results.push(second.swap_note("pause", read, None).await.unwrap());
    }
    assert_eq!(results, [false, true, false, false]);
    assert_eq!(store.note("pause").await.unwrap(), None);
}

pub async fn concurrent_creators_of_a_note_all_read_the_same_text(store: Fresh) {
    let creators = (0..16).map(|n| {
        let (store, own) = (store.second(), format!("of {n}"));
        async move {
            store.swap_note("secret", None, Some(&own)).await.unwrap();
            store.note("secret").await.unwrap().unwrap()
        }
    });

    let results = futures::future::join_all(creators).await;

    let current = store.note("secret").await.unwrap().unwrap();
    assert!(results.iter().all(|one| *one == current), "{results:?}");
    assert!(!store.swap_note("secret", None, Some("late")).await.unwrap());
}

pub async fn a_note_is_changed_only_from_its_current_text(store: Fresh) {
    assert!(store.swap_note("day", None, Some("one")).await.unwrap());

    let late = store.second().swap_note("day", None, Some("two")).await.unwrap();
    let stale = store.swap_note("day", Some("other"), Some("two")).await.unwrap();
    let absent = store.swap_note("else", Some("one"), Some("two")).await.unwrap();
    let own = store.swap_note("day", Some("one"), Some("three")).await.unwrap();

    assert_eq!((late, stale, absent, own), (false, false, false, true));
    assert_eq!(store.note("day").await.unwrap().as_deref(), Some("three"));
    assert_eq!(store.note("else").await.unwrap(), None);
}

pub async fn one_of_many_concurrent_changes_of_a_note_succeeds(store: Fresh) {
    store.put_note("day", "read").await;

    let results = store
        .at_once(16, |store, n| async move {
            let text = format!("of {n}");
            store.swap_note("day", Some("read"), Some(&text)).await.unwrap()
        })
        .await;

    let winner = results.iter().position(|yes| *yes).unwrap();
    assert_eq!(results.iter().filter(|yes| **yes).count(), 1, "{results:?}");
    let current = store.note("day").await.unwrap();
    assert_eq!(current, Some(format!("of {winner}")));
}

pub async fn notes_are_found_by_the_prefix_of_their_names(store: Fresh) {
    for name in ["day:20140423", "day", "day:20140422", "days", "day:$x", "dayz:1"] {
        store.put_note(name, &format!("of {name}")).await;
    }

    let found = store.second().notes(NoteFilter::Prefix("day:")).await.unwrap();

    let expected = ["day:$x", "day:20140422", "day:20140423"];
    let expected = expected.map(|name| (name.to_owned(), format!("of {name}")));
    assert_eq!(found, expected);
    assert_eq!(store.notes(NoteFilter::Prefix("none:")).await.unwrap(), []);
}

pub async fn named_notes_are_returned_once_by_name(store: Fresh) {
    for name in ["a", "b", "B", "$ne"] {
        store.put_note(name, &format!("of {name}")).await;
    }

    let named = NoteFilter::Named(&["b", "none", "$ne", "a", "b"]);
    let found = store.second().notes(named).await.unwrap();

    let of = |name: &str| (name.to_owned(), format!("of {name}"));
    assert_eq!(found, [of("$ne"), of("a"), of("b")]);
    assert_eq!(store.notes(NoteFilter::Named(&[])).await.unwrap(), []);
}
