//! Contract tests of `Notes` for leases: a name has one holder until the lease is released or
//! expires.

use crate::support::*;

/// Requests a lease at this minute after noon, until another one. Returns whether it was given.
async fn request(store: &Fresh, name: &str, owner: &str, now: i64, until: i64) -> bool {
    let wanted = lease(owner, noon() + minutes(until));
    let given = store.lease(name, &wanted, noon() + minutes(now)).await;
    given.unwrap()
}

/// Requests the lease `digests`, now until 12:05, as one of many.
async fn request_as(store: Fresh, n: u32) -> bool {
    request(&store, "digests", &format!("owner {n}"), 0, 5).await
}

pub async fn a_lease_is_exclusive(store: Fresh) {
    assert!(request(&store, "digests", "one", 0, 5).await);
    assert!(!request(&store.second(), "digests", "two", 1, 5).await);

    assert!(request(&store, "archive", "two", 0, 5).await);
}

pub async fn an_expired_lease_is_free(store: Fresh) {
    request(&store, "digests", "one", 0, 5).await;

    assert!(request(&store, "digests", "two", 6, 11).await);
    assert!(!request(&store, "digests", "one", 6, 11).await);
}

pub async fn a_holder_extends_its_lease(store: Fresh) {
    request(&store, "digests", "one", 0, 5).await;

    assert!(request(&store, "digests", "one", 4, 10).await);

    assert!(!request(&store, "digests", "two", 7, 12).await);
}

pub async fn a_released_lease_is_free(store: Fresh) {
    request(&store, "digests", "one", 0, 5).await;

    store.unlease("digests", "two").await;
    let after_other = request(&store, "digests", "two", 0, 5).await;
    store.unlease("digests", "one").await;
    store.unlease("digests", "one").await;

    assert!(!after_other, "only its holder releases it");
    assert!(request(&store, "digests", "two", 0, 5).await);
}

pub async fn one_of_many_concurrent_requests_gets_the_lease(store: Fresh) {
    assert_eq!(store.wins(16, request_as).await, 1);
}

pub async fn one_of_many_concurrent_requests_gets_an_expired_lease(store: Fresh) {
    request(&store, "digests", "gone", -9, -1).await;

    assert_eq!(store.wins(16, request_as).await, 1);
}

pub async fn unusual_names_can_be_leased(store: Fresh) {
    for name in ["0", "$ne", "a.b", "ü"] {
        assert!(request(&store, name, "one", 0, 5).await, "{name}");
        assert!(!request(&store, name, "two", 0, 5).await, "{name}");
    }
}
