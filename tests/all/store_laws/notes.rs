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

    second.drop_note("pause").await.unwrap();
    second.drop_note("pause").await.unwrap();
    assert_eq!(store.note("pause").await.unwrap(), None);
}

pub async fn of_many_who_keep_a_note_at_once_all_are_told_the_same(store: Fresh) {
    let keepers = (0..16).map(|n| {
        let store = store.second();
        async move { store.keep_note("secret", &format!("of {n}")).await.unwrap() }
    });

    let told = futures::future::join_all(keepers).await;

    let standing = store.note("secret").await.unwrap().unwrap();
    assert!(told.iter().all(|one| *one == standing), "{told:?}");
    assert_eq!(store.keep_note("secret", "late").await.unwrap(), standing);
}
