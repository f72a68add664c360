//! Contract tests of `Directory` for addresses: the users with an address, and addresses that
//! several records share.

use tidings::domain::{Address, User, UserId};
use tidings::store::UserFilter;

use crate::support::*;

/// Writes a record with this address for each user.
async fn put(store: &Fresh, records: &[(&str, Option<&str>)]) {
    let record = |(id, email): &(&str, Option<&str>)| User {
        email: email.map(|email| Address::stored(email).unwrap()),
        ..User::new(user(id))
    };
    let records: Vec<User> = records.iter().map(record).collect();
    let put = store.put_users(&records).await.unwrap();
    assert!(put.iter().all(|put| *put));
}

async fn found(store: &Fresh, address: &str, after: Option<&UserId>, limit: usize) -> Vec<String> {
    let address = Address::stored(address).unwrap();
    let at = UserFilter::Address(&address);
    let found = store.find_users(&at, after, limit).await.unwrap();
    found.iter().map(ToString::to_string).collect()
}

pub async fn users_are_found_by_address_in_any_case_and_form(store: Fresh) {
    let records = [
        ("ada", Some("Ada@Example.org")),
        ("ben", Some("ada@example.org")),
        ("cem", Some("ada@example.org.uk")),
        ("dee", Some("lada@example.org")),
        ("eve", None),
        ("fay", Some("x@xn--e1afmkfd.example")),
        ("gil", Some("x@пример.example")),
        ("hal", Some("rene\u{301}@example.org")),
        ("ida", Some("rene@example.org")),
    ];
    put(&store, &records).await;
    let store = store.second();

    for (address, expected) in [
        ("ada@example.org", vec!["ada", "ben"]),
        ("ADA@EXAMPLE.ORG", vec!["ada", "ben"]),
        ("x@пример.example", vec!["fay", "gil"]),
        ("X@XN--E1AFMKFD.example", vec!["fay", "gil"]),
        ("ren\u{e9}@example.org", vec!["hal"]),
        ("a%@example.org", vec![]),
        (".*@example.org", vec![]),
    ] {
        assert_eq!(found(&store, address, None, 10).await, expected, "{address}");
    }
}

pub async fn users_with_one_address_are_returned_in_pages(store: Fresh) {
    let ids = ["p4", "p1", "p5", "p2", "p3"];
    let records = ids.map(|id| (id, Some("desk@example.org")));
    put(&store, &records).await;

    let first = found(&store, "desk@example.org", None, 2).await;
    let rest = found(&store, "desk@example.org", Some(&user("p2")), 9).await;

    assert_eq!(
        (first, rest),
        (vec!["p1".into(), "p2".into()], vec!["p3".into(), "p4".into(), "p5".into()])
    );
}
