//! Laws of `Notes`: one text a name, the same for everybody.

use crate::support::*;

pub async fn a_note_is_read_by_everybody_until_it_is_forgotten(store: Fresh) {
    assert_eq!(store.note("pause").await.unwrap(), None);

    store.put_note("pause", "the key is wrong").await.unwrap();
    store
        .put_note("pause", "the key was \u{1f511} $set.x")
        .await
        .unwrap();
    store.put_note("other", "").await.unwrap();

    let second = store.second();
    assert_eq!(
        second.note("pause").await.unwrap().as_deref(),
        Some("the key was \u{1f511} $set.x")
    );
    assert_eq!(second.note("other").await.unwrap().as_deref(), Some(""));

    let standing = second.note("pause").await.unwrap();
    let mut told = Vec::new();
    for read in [
        Some("another"),
        standing.as_deref(),
        standing.as_deref(),
        None,
    ] {
        told.push(second.swap_note("pause", read, None).await.unwrap());
    }
    assert_eq!(told, [false, true, false, false]);
    assert_eq!(store.note("pause").await.unwrap(), None);
}

pub async fn of_many_who_write_a_note_first_at_once_all_are_told_the_same(store: Fresh) {
    let keepers = (0..16).map(|n| {
        let (store, own) = (store.second(), format!("of {n}"));
        async move {
            store.swap_note("secret", None, Some(&own)).await.unwrap();
            store.note("secret").await.unwrap().unwrap()
        }
    });

    let told = futures::future::join_all(keepers).await;

    let standing = store.note("secret").await.unwrap().unwrap();
    assert!(told.iter().all(|one| *one == standing), "{told:?}");
    assert!(!store.swap_note("secret", None, Some("late")).await.unwrap());
}

pub async fn a_note_is_changed_only_from_what_was_read(store: Fresh) {
    assert!(store.swap_note("day", None, Some("one")).await.unwrap());

    let late = store
        .second()
        .swap_note("day", None, Some("two"))
        .await
        .unwrap();
    let stale = store
        .swap_note("day", Some("other"), Some("two"))
        .await
        .unwrap();
    let absent = store
        .swap_note("else", Some("one"), Some("two"))
        .await
        .unwrap();
    let own = store
        .swap_note("day", Some("one"), Some("three"))
        .await
        .unwrap();

    assert_eq!((late, stale, absent, own), (false, false, false, true));
    assert_eq!(store.note("day").await.unwrap().as_deref(), Some("three"));
    assert_eq!(store.note("else").await.unwrap(), None);
}

pub async fn of_many_who_change_a_note_at_once_one_is_told_yes(store: Fresh) {
    store.put_note("day", "read").await.unwrap();

    let told = store
        .at_once(16, |store, n| async move {
            let text = format!("of {n}");
            store
                .swap_note("day", Some("read"), Some(&text))
                .await
                .unwrap()
        })
        .await;

    let winner = told.iter().position(|yes| *yes).unwrap();
    assert_eq!(told.iter().filter(|yes| **yes).count(), 1, "{told:?}");
    let standing = store.note("day").await.unwrap();
    assert_eq!(standing, Some(format!("of {winner}")));
}

pub async fn notes_are_found_by_how_their_names_begin(store: Fresh) {
    for name in [
        "day:20140423",
        "day",
        "day:20140422",
        "days",
        "day:$x",
        "dayz:1",
    ] {
        store.put_note(name, &format!("of {name}")).await.unwrap();
    }

    let found = store.second().notes("day:").await.unwrap();

    let expected = ["day:$x", "day:20140422", "day:20140423"];
    let expected = expected.map(|name| (name.to_owned(), format!("of {name}")));
    assert_eq!(found, expected);
    assert_eq!(store.notes("none:").await.unwrap(), []);
}

pub async fn notes_are_read_by_their_names_in_the_given_order(store: Fresh) {
    for name in ["a", "b", "B", "$ne"] {
        store.put_note(name, &format!("of {name}")).await.unwrap();
    }

    let names = ["b", "none", "$ne", "a", "b"].map(str::to_owned);
    let found = store.second().notes_named(&names).await.unwrap();

    let of = |name: &str| Some(format!("of {name}"));
    assert_eq!(found, [of("b"), None, of("$ne"), of("a"), of("b")]);
    assert!(store.notes_named(&[]).await.unwrap().is_empty());
}
