//! Contract tests of `Leases`: a name has one holder until the lease is released or expires.

use crate::support::*;

pub async fn a_lease_is_exclusive(store: Fresh) {
    let until = noon() + minutes(5);

    assert!(
        store
            .lease("digests", &lease("one", until), noon())
            .await
            .unwrap()
    );
    assert!(
        !store
            .second()
            .lease("digests", &lease("two", until), noon() + minutes(1))
            .await
            .unwrap()
    );

    assert!(
        store
            .lease("archive", &lease("two", until), noon())
            .await
            .unwrap(),
        "another name"
    );
}

pub async fn an_expired_lease_is_free(store: Fresh) {
    store
        .lease("digests", &lease("one", noon() + minutes(5)), noon())
        .await
        .unwrap();

    let six = noon() + minutes(6);
    assert!(
        store
            .lease("digests", &lease("two", six + minutes(5)), six)
            .await
            .unwrap()
    );
    assert!(
        !store
            .lease("digests", &lease("one", six + minutes(5)), six)
            .await
            .unwrap()
    );
}

pub async fn a_holder_extends_its_lease(store: Fresh) {
    store
        .lease("digests", &lease("one", noon() + minutes(5)), noon())
        .await
        .unwrap();

    assert!(
        store
            .lease(
                "digests",
                &lease("one", noon() + minutes(10)),
                noon() + minutes(4)
            )
            .await
            .unwrap()
    );

    let later = noon() + minutes(7);
    assert!(
        !store
            .lease("digests", &lease("two", later + minutes(5)), later)
            .await
            .unwrap()
    );
}

pub async fn a_released_lease_is_free(store: Fresh) {
    let until = noon() + minutes(5);
    store
        .lease("digests", &lease("one", until), noon())
        .await
        .unwrap();

    store.unlease("digests", "two").await;
    assert!(
        !store
            .lease("digests", &lease("two", until), noon())
            .await
            .unwrap(),
        "only its holder gives it up"
    );
    store.unlease("digests", "one").await;
    store.unlease("digests", "one").await;

    assert!(
        store
            .lease("digests", &lease("two", until), noon())
            .await
            .unwrap()
    );
}

pub async fn one_of_many_concurrent_requests_gets_the_lease(store: Fresh) {
    let ask = |store: Fresh, n: u32| async move {
        let wanted = lease(&format!("owner {n}"), noon() + minutes(5));
        store.lease("digests", &wanted, noon()).await.unwrap()
    };

    let first = store
        .at_once(16, ask)
        .await
        .into_iter()
        .filter(|got| *got)
        .count();

    assert_eq!(first, 1);
}

pub async fn one_of_many_concurrent_requests_gets_an_expired_lease(store: Fresh) {
    store
        .lease(
            "digests",
            &lease("gone", noon() - minutes(1)),
            noon() - minutes(9),
        )
        .await
        .unwrap();

    let ask = |store: Fresh, n: u32| async move {
        let wanted = lease(&format!("owner {n}"), noon() + minutes(5));
        store.lease("digests", &wanted, noon()).await.unwrap()
    };
    let got = store
        .at_once(16, ask)
        .await
        .into_iter()
        .filter(|got| *got)
        .count();

    assert_eq!(got, 1);
}

pub async fn unusual_names_can_be_leased(store: Fresh) {
    let until = noon() + minutes(5);
    for name in ["0", "$ne", "a.b", "ü"] {
        assert!(
            store
                .lease(name, &lease("one", until), noon())
                .await
                .unwrap(),
            "{name}"
        );
        assert!(
            !store
                .lease(name, &lease("two", until), noon())
                .await
                .unwrap(),
            "{name}"
        );
    }
}
