//! Contract tests of `Directory` for user records: every field is kept, and no concurrent change is
//! lost.

use std::collections::BTreeMap;

use chrono::{DateTime, TimeDelta, Weekday};
use tidings::domain::mutes_and_quiet_hours::Title;
use tidings::domain::user::{DigestPreference, Revision, TypePreference};
use tidings::domain::user_id_reuse::RecordStart;
use tidings::domain::{Address, Cadence, Mute, Mutes, Point, Route, Subject, User, UserId};

use crate::support::*;

pub(super) fn full(id: &str) -> User {
    let types = [
        ("ArtworkPublished", Route::Digest),
        ("a.b", Route::Never),
        ("$set", Route::Immediate),
        ("0", Route::Batch),
        ("", Route::Never),
        ("ü.$x", Route::Digest),
    ];
    User {
        email: Some(Address::new("ada.lovelace@example.org").unwrap()),
        name: Some("Ada \"Countess\" Löwe".into()),
        confirmed: true,
        tz: Some(chrono_tz::Europe::Berlin),
        locale: Some("de-DE".into()),
        brand: "acme-2_b".parse().ok(),
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
                (kind(name), TypePreference::new(route, noon() + TimeDelta::milliseconds(7)))
            })
            .collect(),
        mutes: Mutes::stored(["Thread:9", "a.b", "$set", "0", "ü.$x"].map(|name| {
            let mute = Mute {
                at: noon() + TimeDelta::milliseconds(3),
                until: (name != "0").then(|| noon() + minutes(5)),
                title: Title::cut(name).filter(|_| name != "$set"),
            };
            (Subject::stored(name), mute)
        })),
        quiet: serde_json::from_str(r#"{"from": "22:00", "to": "07:05"}"#).unwrap(),
        suppressed: Some(noon() + minutes(1)),
        unsubscribed: Some(noon() + minutes(2)),
        ..User::new(user(id))
    }
}

pub async fn a_damaged_field_keeps_the_start_of_a_user_record(store: Fresh) {
    let start = RecordStart::new(noon(), id(1), None);
    let ada = User { start: Some(start), ..full("ada") };
    store.put_users(&[ada]).await.unwrap();
    let field = match poison::database(&store).await {
        Some(database) => {
            let users = database.collection::<bson::Document>("users");
            let set = bson::doc! {"$set": {"quiet": 7}};
            users.update_one(bson::doc! {"_id": "ada"}, set).await.unwrap();
            "quiet"
        }
        None => {
            let damage = "UPDATE users SET preferences = '[1]'";
            poison::file(&store).execute(damage, []).unwrap();
            "preferences"
        }
    };

    let read = record(&store, "ada").await;

    assert_eq!((read.start, read.name), (Some(start), full("ada").name));
    let fields: Vec<&str> = read.unreadable.iter().map(|of| &*of.field).collect();
    assert_eq!(fields, [field]);
}

/// Reads these records without their revisions, so that they equal the written ones.
async fn records(store: &Fresh, ids: &[UserId]) -> Vec<Option<User>> {
    let found = store.users(ids).await.unwrap().into_iter();
    let bare = |user| User { revision: Revision::NONE, ..user };
    found.map(|user| user.map(bare)).collect()
}

/// Reads one record, with its revision.
async fn record(store: &Fresh, id: &str) -> User {
    let found = store.users(&[user(id)]).await.unwrap();
    found.into_iter().flatten().next().unwrap()
}

/// A record whose fields are set to empty or zero values.
pub(super) fn falsy(id: &str) -> User {
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

pub async fn a_user_record_is_read_back_with_every_field(store: Fresh) {
    let users = [full("ada"), falsy("0"), User::new(user("bare"))];

    store.put_users(&users).await.unwrap();

    let ids = users.clone().map(|user| user.id);
    assert_eq!(records(&store, &ids).await, users.map(Some));
}

pub async fn every_cadence_weekday_and_route_is_read_back(store: Fresh) {
    let weekdays = (0..7).map(|n| Weekday::try_from(n).unwrap());
    let cadences = [Cadence::Never, Cadence::Daily, Cadence::Weekly].into_iter().cycle();
    let routes = [Route::Never, Route::Immediate, Route::Batch, Route::Digest].into_iter().cycle();
    let users: Vec<_> = weekdays
        .zip(cadences)
        .zip(routes)
        .map(|((weekday, cadence), route)| User {
            digest: DigestPreference {
                cadence: Some(cadence),
                weekday: Some(weekday),
                ..DigestPreference::default()
            },
            types: BTreeMap::from([(kind("T"), TypePreference::new(route, noon()))]),
            ..User::new(user(&weekday.to_string()))
        })
        .collect();

    store.put_users(&users).await.unwrap();

    let ids: Vec<_> = users.iter().map(|user| user.id.clone()).collect();
    let found = records(&store, &ids).await.into_iter();
    assert_eq!(found.flatten().collect::<Vec<_>>(), users);
}

pub async fn type_preferences_with_and_without_a_window_are_read_back(store: Fresh) {
    let windows = [
        ("second", Some(TimeDelta::seconds(1))),
        ("odd", Some(TimeDelta::milliseconds(90_001))),
        ("hour", Some(TimeDelta::hours(1))),
        ("month", Some(TimeDelta::days(30))),
        ("none", None),
    ];
    let chosen = |route, window| TypePreference { window, ..TypePreference::new(route, noon()) };
    let ada = User {
        types: windows
            .into_iter()
            .zip(Route::ALL.into_iter().cycle())
            .map(|((name, window), route)| (kind(name), chosen(route, window)))
            .collect(),
        ..User::new(user("ada"))
    };

    store.put_users(std::slice::from_ref(&ada)).await.unwrap();

    assert_eq!(records(&store, &[user("ada")]).await, [Some(ada)]);
}

pub async fn user_records_are_returned_in_the_order_of_the_request(store: Fresh) {
    store.put_users(&[full("ada"), full("bob")]).await.unwrap();

    let requested = ["eve", "bob", "ada", "$ne", "bob"].map(user);
    let found = records(&store, &requested).await;

    assert_eq!(found, [None, Some(full("bob")), Some(full("ada")), None, Some(full("bob"))]);
    assert!(store.users(&[]).await.unwrap().is_empty());
}

pub async fn writing_a_record_again_replaces_all_fields(store: Fresh) {
    store.put_users(&[full("ada"), full("bob")]).await.unwrap();

    let bare = User { revision: record(&store, "ada").await.revision, ..User::new(user("ada")) };
    let put = store.second().put_users(&[bare]).await.unwrap();
    assert_eq!(put, [true]);
    assert!(store.put_users(&[]).await.unwrap().is_empty());

    let found = records(&store, &[user("ada"), user("bob")]).await;
    assert_eq!(found, [Some(User::new(user("ada"))), Some(full("bob"))]);
}

pub async fn many_user_records_are_written_and_read_in_one_call(store: Fresh) {
    let users: Vec<_> = people(2_500).into_iter().map(User::new).collect();

    store.put_users(&users).await.unwrap();

    let found = records(&store, &people(2_500)).await;
    assert_eq!(found.into_iter().flatten().collect::<Vec<_>>(), users);
}

pub async fn unusual_user_ids_have_records(store: Fresh) {
    let odd =
        ["0", "false", "null", "$ne", "a.b", "Ärger", "日本", "a b", "533998b1c9dc24c371000041"];
    let users = odd.map(full);

    store.put_users(&users).await.unwrap();

    assert_eq!(records(&store, &odd.map(user)).await, users.map(Some));
    assert!(store.delete_user(&user("$ne")).await.unwrap());
    let remaining = store.users(&odd.map(user)).await.unwrap().into_iter().flatten().count();
    assert_eq!(remaining, odd.len() - 1);
}

pub async fn deleting_a_user_record_keeps_stacks_and_deliveries(store: Fresh) {
    let ada = user("ada");
    store.put_users(&[full("ada"), full("adam")]).await.unwrap();
    store.push_capped(10, &ada, events(1, 1)).await;
    store.open_row(delivery("ada", "2014-04-22", "one")).await;

    assert!(store.delete_user(&ada).await.unwrap());
    assert!(!store.delete_user(&ada).await.unwrap(), "there is nobody any more");

    assert_eq!(records(&store, &[ada.clone(), user("adam")]).await, [None, Some(full("adam"))]);
    assert_eq!(store.entries_of(&ada, today()).await.len(), 1);
    assert_eq!(store.deliveries_of(&ada, 10).await.len(), 1);
}

pub async fn a_user_record_replaces_only_the_revision_that_was_read(store: Fresh) {
    store.put_users(&[User::new(user("ada"))]).await.unwrap();
    let read = record(&store, "ada").await;
    let renamed = |name: &str| User { name: Some(name.into()), ..read.clone() };

    let first = store.second().put_users(&[renamed("first")]).await;
    let second = store.put_users(&[renamed("second")]).await;
    let unread = store.put_users(&[User::new(user("ada"))]).await;

    assert_eq!(
        (first.unwrap(), second.unwrap(), unread.unwrap()),
        (vec![true], vec![false], vec![false])
    );
    let stored = record(&store, "ada").await;
    assert_eq!(stored.name.as_deref(), Some("first"));
    assert_ne!(stored.revision, read.revision);
    assert_eq!(record(&store.second(), "ada").await.revision, stored.revision);
}

pub async fn outcomes_of_many_writes_are_in_the_order_of_the_request(store: Fresh) {
    let names = people(2_500);
    store.put_users(&names.iter().cloned().map(User::new).collect::<Vec<_>>()).await.unwrap();
    let read: Vec<User> = store.users(&names).await.unwrap().into_iter().flatten().collect();
    let confirmed = |user: &User| User { confirmed: true, ..user.clone() };
    // Another writer changes every third record first.
    let faster: Vec<User> = read.iter().step_by(3).map(confirmed).collect();
    store.put_users(&faster).await.unwrap();

    let named =
        read.iter().rev().map(|user| User { name: Some("Somebody".into()), ..user.clone() });
    let put = store.put_users(&named.collect::<Vec<_>>()).await.unwrap();

    let expected: Vec<bool> = (0..2_500).rev().map(|n| n % 3 != 0).collect();
    assert_eq!(put, expected);
    for (n, user) in store.users(&names).await.unwrap().into_iter().enumerate() {
        let user = user.unwrap();
        assert_eq!((user.confirmed, user.name.is_some()), (n % 3 == 0, n % 3 != 0));
    }
}

pub async fn concurrent_changes_of_a_user_record_are_all_stored(store: Fresh) {
    store.put_users(&[User::new(user("ada"))]).await.unwrap();

    store
        .at_once(16, |store, n| async move {
            loop {
                let mut ada = record(&store, "ada").await;
                let (route, since) = (Route::Never, noon());
                let mine = (kind(&format!("T{n}")), TypePreference::new(route, since));
                ada.types.extend([mine]);
                if store.put_users(&[ada]).await.unwrap() == [true] {
                    break;
                }
            }
        })
        .await;

    assert_eq!(record(&store, "ada").await.types.len(), 16);
}

pub async fn one_of_many_concurrent_creators_of_a_record_succeeds(store: Fresh) {
    let written = store
        .at_once(16, |store, n| async move {
            let ada = User { name: Some(format!("Ada {n}")), ..User::new(user("ada")) };
            store.put_users(&[ada]).await.unwrap() == [true]
        })
        .await;

    let winners: Vec<usize> = (0..16).filter(|n| written[*n]).collect();
    let name = record(&store, "ada").await.name.unwrap();
    assert_eq!(winners.len(), 1, "{written:?}");
    assert_eq!(name, format!("Ada {}", winners[0]));
}

pub async fn a_stale_write_does_not_restore_a_deleted_record(store: Fresh) {
    store.put_users(&[full("ada")]).await.unwrap();
    let read = record(&store, "ada").await;
    store.second().delete_user(&user("ada")).await.unwrap();

    let put = store.put_users(&[read]).await.unwrap();

    assert_eq!(put, [false]);
    assert_eq!(store.users(&[user("ada")]).await.unwrap(), [None]);
    let created = store.put_users(&[full("ada")]).await.unwrap();
    assert_eq!(created, [true]);
}
