//! Laws of `Directory` about people's records.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Weekday};
use tidings::domain::user::{DigestPreference, TypePreference};
use tidings::domain::{Address, Cadence, Point, Route, User};

use crate::support::*;

fn full(id: &str) -> User {
    let types = [
        ("ArtworkPublished", Route::Digest),
        ("a.b", Route::Never),
        ("$set", Route::Immediate),
        ("0", Route::Batch),
        ("", Route::Never),
        ("ü.$x", Route::Digest),
    ];
    User {
        id: user(id),
        email: Some(Address::new("ada.lovelace@example.org").unwrap()),
        name: Some("Ada \"Countess\" Löwe".into()),
        confirmed: true,
        tz: Some(chrono_tz::Europe::Berlin),
        locale: Some("de-DE".into()),
        loc: Some(Point::new(13.405, 52.52).unwrap()),
        digest: DigestPreference {
            cadence: Some(Cadence::Weekly),
            weekday: Some(Weekday::Sun),
            hour: Some(23),
            since: Some(noon() + TimeDelta::milliseconds(1)),
        },
        types: types
            .into_iter()
            .map(|(name, route)| {
                (
                    kind(name),
                    TypePreference {
                        route,
                        since: noon() + TimeDelta::milliseconds(7),
                    },
                )
            })
            .collect(),
        suppressed: Some(noon() + minutes(1)),
    }
}

/// Every field is there, and looks as if it were not.
fn falsy(id: &str) -> User {
    User {
        email: None,
        name: Some(String::new()),
        confirmed: false,
        tz: Some(chrono_tz::UTC),
        locale: Some(String::new()),
        loc: Some(Point::new(0.0, 0.0).unwrap()),
        digest: DigestPreference {
            cadence: Some(Cadence::Never),
            weekday: Some(Weekday::Mon),
            hour: Some(0),
            since: Some(DateTime::UNIX_EPOCH),
        },
        types: BTreeMap::new(),
        suppressed: Some(DateTime::UNIX_EPOCH),
        ..User::new(user(id))
    }
}

pub async fn a_record_comes_back_with_every_field(store: Fresh) {
    let users = [full("ada"), falsy("0"), User::new(user("bare"))];

    store.put_users(&users).await.unwrap();

    let ids = users.clone().map(|user| user.id);
    assert_eq!(store.users(&ids).await.unwrap(), users.map(Some));
}

pub async fn every_cadence_weekday_and_route_comes_back(store: Fresh) {
    let weekdays = (0..7).map(|n| Weekday::try_from(n).unwrap());
    let cadences = [Cadence::Never, Cadence::Daily, Cadence::Weekly]
        .into_iter()
        .cycle();
    let routes = [Route::Never, Route::Immediate, Route::Batch, Route::Digest]
        .into_iter()
        .cycle();
    let users: Vec<_> = weekdays
        .zip(cadences)
        .zip(routes)
        .map(|((weekday, cadence), route)| User {
            digest: DigestPreference {
                cadence: Some(cadence),
                weekday: Some(weekday),
                ..DigestPreference::default()
            },
            types: BTreeMap::from([(
                kind("T"),
                TypePreference {
                    route,
                    since: noon(),
                },
            )]),
            ..User::new(user(&weekday.to_string()))
        })
        .collect();

    store.put_users(&users).await.unwrap();

    let ids: Vec<_> = users.iter().map(|user| user.id.clone()).collect();
    let found: Vec<_> = store
        .users(&ids)
        .await
        .unwrap()
        .into_iter()
        .flatten()
        .collect();
    assert_eq!(found, users);
}

pub async fn records_come_in_the_order_asked_and_the_unknown_are_none(store: Fresh) {
    store.put_users(&[full("ada"), full("bob")]).await.unwrap();

    let asked = ["eve", "bob", "ada", "$ne", "bob"].map(user);
    let found = store.users(&asked).await.unwrap();

    assert_eq!(
        found,
        [
            None,
            Some(full("bob")),
            Some(full("ada")),
            None,
            Some(full("bob"))
        ]
    );
    assert!(store.users(&[]).await.unwrap().is_empty());
}

pub async fn putting_a_record_again_replaces_it_whole(store: Fresh) {
    store.put_users(&[full("ada"), full("bob")]).await.unwrap();

    store
        .second()
        .put_users(&[User::new(user("ada"))])
        .await
        .unwrap();
    store.put_users(&[]).await.unwrap();

    let found = store.users(&[user("ada"), user("bob")]).await.unwrap();
    assert_eq!(found, [Some(User::new(user("ada"))), Some(full("bob"))]);
}

pub async fn many_records_are_put_and_read_at_once(store: Fresh) {
    let users: Vec<_> = people(2_500).into_iter().map(User::new).collect();

    store.put_users(&users).await.unwrap();

    let found = store.users(&people(2_500)).await.unwrap();
    assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), users);
}

pub async fn odd_ids_have_records_like_any_other(store: Fresh) {
    let odd = [
        "0",
        "false",
        "null",
        "$ne",
        "a.b",
        "Ärger",
        "日本",
        "a b",
        "533998b1c9dc24c371000041",
    ];
    let users = odd.map(full);

    store.put_users(&users).await.unwrap();

    assert_eq!(store.users(&odd.map(user)).await.unwrap(), users.map(Some));
    assert!(store.delete_user(&user("$ne")).await.unwrap());
    let left = store
        .users(&odd.map(user))
        .await
        .unwrap()
        .into_iter()
        .flatten()
        .count();
    assert_eq!(left, odd.len() - 1);
}

pub async fn a_deleted_record_is_gone_and_stacks_stay(store: Fresh) {
    let ada = user("ada");
    store.put_users(&[full("ada"), full("adam")]).await.unwrap();
    store
        .push(today(), 10, &push_to(&ada, events(1, 1)))
        .await
        .unwrap();
    store
        .open(&[delivery("ada", "2014-04-22", "one")])
        .await
        .unwrap();

    assert!(store.delete_user(&ada).await.unwrap());
    assert!(
        !store.delete_user(&ada).await.unwrap(),
        "there is nobody any more"
    );

    assert_eq!(
        store.users(&[ada.clone(), user("adam")]).await.unwrap(),
        [None, Some(full("adam"))]
    );
    assert_eq!(store.entries_of(&ada, today()).await.len(), 1);
    assert_eq!(store.deliveries_of(&ada, 10).await.unwrap().len(), 1);
}
