//! Contract tests of `Directory` for follows and locations.

use tidings::domain::audience::MAX_KM;
use tidings::domain::{FollowKey, Point, User, UserId};
use tidings::store::{FollowChange, UserFilter};

use crate::support::*;

fn followers(follow: &str, who: &[UserId]) -> Vec<(FollowKey, UserId)> {
    who.iter().map(|person| (key(follow), person.clone())).collect()
}

fn at(lng: f64, lat: f64) -> Point {
    Point::new(lng, lat).unwrap()
}

/// Creates or moves users to these coordinates.
async fn place_users(store: &Fresh, locations: &[(&str, f64, f64)]) {
    for (name, lng, lat) in locations {
        place_user(store, name, Some(at(*lng, *lat))).await;
    }
}

async fn place_user(store: &Fresh, name: &str, loc: Option<Point>) {
    let name = user(name);
    let stored = store.users(std::slice::from_ref(&name)).await.unwrap();
    let before = stored.into_iter().flatten().next();
    let before = before.unwrap_or_else(|| User::new(name));
    let put = store.put_users(&[User { loc, ..before }]).await.unwrap();
    assert_eq!(put, [true]);
}

pub async fn followers_are_returned_in_pages_in_ascending_order(store: Fresh) {
    let mut all_users = people(25);
    all_users.extend(["0", "$ne", "ü", "a.b"].map(user));
    store.follow(&followers("artist:558", &all_users)).await;
    all_users.sort_unstable();

    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.followers(&key("artist:558"), after.as_ref(), 7).await;
        assert!(page.len() <= 7 && found.len() <= all_users.len());
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        found.extend(page);
    }

    assert_eq!(found, all_users);
}

pub async fn the_follows_of_a_user_are_returned_in_pages_in_ascending_order(store: Fresh) {
    let mut keys: Vec<FollowKey> = (0..25).map(|n| key(&format!("artist:{n:02}"))).collect();
    keys.extend(["$ne", "a.b", "ü", "0"].map(key));
    let of_ada = keys.iter().map(|key| (key.clone(), user("ada")));
    let others = [(key("artist:99"), user("ad")), (key("artist:99"), user("adaa"))];
    store.follow(&of_ada.chain(others).collect::<Vec<_>>()).await;
    keys.sort_unstable();

    let (mut found, mut after) = (Vec::new(), None);
    while found.len() <= keys.len() {
        let page = store.follows(&user("ada"), after.as_ref(), 7).await.unwrap();
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        found.extend(page);
    }

    assert_eq!(found, keys);
    assert_eq!(store.follows(&user("nobody"), None, 7).await.unwrap(), []);
    assert_eq!(store.follows(&user("ada"), None, 0).await.unwrap(), []);
}

pub async fn all_users_with_a_record_are_returned_in_pages(store: Fresh) {
    let mut all_users = people(25);
    all_users.extend(["0", "$ne", "ü", "a.b"].map(user));
    let records: Vec<User> = all_users.iter().cloned().map(User::new).collect();
    store.put_users(&records).await.unwrap();
    store.follow(&followers("artist:558", &[user("no-record")])).await;
    all_users.sort_unstable();

    let (mut found, mut after) = (Vec::new(), None);
    while found.len() <= all_users.len() {
        let all = UserFilter::All;
        let page = store.find_users(&all, after.as_ref(), 7).await.unwrap();
        assert!(page.len() <= 7);
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        found.extend(page);
    }

    assert_eq!(found, all_users);
}

pub async fn a_repeated_follow_is_stored_once(store: Fresh) {
    let twice = followers("artist:558", &[user("ada"), user("ada")]);
    store.follow(&twice).await;
    store.second().follow(&twice).await;

    assert_eq!(store.followers(&key("artist:558"), None, 10).await, [user("ada")]);
}

pub async fn many_follows_are_stored_in_one_call(store: Fresh) {
    let all_users = people(2_500);
    store.follow(&followers("artist:558", &all_users)).await;

    assert_eq!(store.followers(&key("artist:558"), None, 5_000).await, all_users);
}

pub async fn unfollowing_removes_a_follower_and_can_be_repeated(store: Fresh) {
    store.follow(&followers("artist:558", &[user("ada"), user("bob")])).await;
    store.follow(&followers("artist:7", &[user("ada")])).await;

    for _ in 0..2 {
        store
            .change_follows(
                FollowChange::Unfollow,
                &followers("artist:558", &[user("ada"), user("eve")]),
            )
            .await
            .unwrap();
    }

    assert_eq!(store.followers(&key("artist:558"), None, 10).await, [user("bob")]);
    assert_eq!(store.followers(&key("artist:7"), None, 10).await, [user("ada")]);
}

pub async fn similar_follow_keys_are_distinct(store: Fresh) {
    let keys = [
        "artist:5",
        "artist:55",
        "artist:",
        "artist",
        "Artist:5",
        "artist:5.",
        "$gt",
        "ärtist",
        "日本",
    ];
    for (n, name) in keys.iter().enumerate() {
        store.follow(&followers(name, &[user(&format!("u{n}")), user("shared")])).await;
    }

    for (n, name) in keys.iter().enumerate() {
        let found = store.followers(&key(name), None, 10).await;
        let mut expected = [user(&format!("u{n}")), user("shared")];
        expected.sort_unstable();
        assert_eq!(found, expected, "{name}");
    }
    assert!(store.followers(&key("art"), None, 10).await.is_empty());
}

pub async fn an_unknown_key_has_no_followers(store: Fresh) {
    store.follow(&[]).await;
    store.change_follows(FollowChange::Unfollow, &[]).await.unwrap();

    assert!(store.followers(&key("artist:558"), None, 10).await.is_empty());
    assert!(store.followers(&key("artist:558"), Some(&user("ada")), 10).await.is_empty());
}

pub async fn deleting_a_user_removes_their_follows(store: Fresh) {
    store.put_users(&[User::new(user("ada"))]).await.unwrap();
    for follow in ["artist:5", "artist:55", "zine:1"] {
        store.follow(&followers(follow, &[user("ada"), user("adam")])).await;
    }

    assert!(store.delete_user(&user("ada")).await.unwrap());

    for follow in ["artist:5", "artist:55", "zine:1"] {
        assert_eq!(store.followers(&key(follow), None, 10).await, [user("adam")]);
    }
}

pub async fn near_finds_users_within_the_radius(store: Fresh) {
    // A degree of latitude is 111.32 km on a sphere of 6378.1 km.
    place_users(
        &store,
        &[
            ("here", 13.4, 52.5),
            ("north", 13.4, 53.0),
            ("far north", 13.4, 54.0),
            ("paris", 2.35, 48.86),
        ],
    )
    .await;
    store.put_users(&[User::new(user("nowhere"))]).await.unwrap();
    let berlin = at(13.4, 52.5);

    for (km, expected) in [
        (1.0, vec!["here"]),
        (55.6, vec!["here"]),
        (55.7, vec!["here", "north"]),
        (166.9, vec!["here", "north"]),
        (167.1, vec!["far north", "here", "north"]),
        (900.0, vec!["far north", "here", "north", "paris"]),
    ] {
        let found = store.near(berlin, km, None, 10).await;
        assert_eq!(found, expected.into_iter().map(user).collect::<Vec<_>>(), "{km} km");
    }
}

pub async fn near_returns_pages_in_ascending_order(store: Fresh) {
    let all_users = people(60);
    let users: Vec<_> = all_users
        .iter()
        .enumerate()
        .map(|(n, person)| User {
            loc: Some(at(n as f64 / 1_000.0, 0.0)),
            ..User::new(person.clone())
        })
        .collect();
    store.put_users(&users).await.unwrap();

    let (mut found, mut after) = (Vec::new(), None);
    loop {
        let page = store.near(at(0.0, 0.0), 4.5, after.as_ref(), 7).await;
        assert!(page.len() <= 7 && found.len() <= all_users.len());
        let Some(last) = page.last() else { break };
        after = Some(last.clone());
        found.extend(page);
    }

    // 0.0404 degrees of longitude are 4.5 km on the equator.
    assert_eq!(found, all_users[..=40]);
}

pub async fn near_crosses_the_antimeridian(store: Fresh) {
    place_users(
        &store,
        &[
            ("east", 179.9, 10.0),
            ("west", -179.9, 10.0),
            ("line", 180.0, 10.0),
            ("far", 178.0, 10.0),
        ],
    )
    .await;

    for lng in [179.95, -179.95, 180.0, -180.0] {
        let found = store.near(at(lng, 10.0), 40.0, None, 10).await;
        assert_eq!(found, ["east", "line", "west"].map(user), "from {lng}");
    }
}

pub async fn near_a_pole_includes_every_longitude(store: Fresh) {
    for (pole, sign) in [(90.0, 1.0), (-90.0, -1.0)] {
        place_users(
            &store,
            &[("a", 0.0, 89.9 * sign), ("b", 120.0, 89.9 * sign), ("c", -120.0, 89.9 * sign)],
        )
        .await;
        place_users(&store, &[("far", 0.0, 80.0 * sign), ("pole", 45.0, pole)]).await;

        let found = store.near(at(10.0, pole), 50.0, None, 10).await;
        assert_eq!(found, ["a", "b", "c", "pole"].map(user), "at {pole}");
        let over = store.near(at(0.0, 89.9 * sign), 25.0, None, 10).await;
        assert_eq!(over, ["a", "b", "c", "pole"].map(user), "across {pole}");
        let beside = store.near(at(0.0, 89.9 * sign), 15.0, None, 10).await;
        assert_eq!(beside, ["a", "pole"].map(user), "beside {pole}");
    }
}

pub async fn near_with_the_maximum_radius_finds_every_user_with_a_location(store: Fresh) {
    place_users(
        &store,
        &[("a", 0.0, 0.0), ("b", 179.0, -1.0), ("c", 90.0, 89.0), ("d", -70.0, -90.0)],
    )
    .await;
    store.put_users(&[User::new(user("nowhere"))]).await.unwrap();

    let found = store.near(at(0.0, 0.0), MAX_KM, None, 10).await;

    assert_eq!(found, ["a", "b", "c", "d"].map(user));
}

pub async fn near_finds_users_at_their_current_location(store: Fresh) {
    place_users(
        &store,
        &[("ada", 13.4, 52.5), ("bob", 13.4, 52.5), ("eve", 13.4, 52.5), ("zoe", 13.4, 52.5)],
    )
    .await;

    place_users(&store, &[("ada", 2.35, 48.86)]).await;
    place_user(&store, "bob", None).await;
    store.delete_user(&user("eve")).await.unwrap();

    assert_eq!(store.near(at(13.4, 52.5), 10.0, None, 10).await, [user("zoe")]);
    assert_eq!(store.near(at(2.35, 48.86), 10.0, None, 10).await, [user("ada")]);
}

pub async fn follow_lookups_are_answered_in_the_order_of_the_request(store: Fresh) {
    let odd = ["artist:558", "$ne", "", "ü"].map(FollowKey::stored);
    let all: Vec<(FollowKey, UserId)> =
        odd.iter().flat_map(|key| people(700).into_iter().map(|who| (key.clone(), who))).collect();
    let (stored, absent): (Vec<_>, Vec<_>) =
        all.iter().cloned().enumerate().partition(|(n, _)| n % 3 != 0);
    let stored: Vec<_> = stored.into_iter().map(|(_, follow)| follow).collect();
    store.follow(&stored).await;
    let removed = [stored[0].clone()];
    let unfollow = FollowChange::Unfollow;
    store.change_follows(unfollow, &removed).await.unwrap();

    let answers = store.following(&all).await.unwrap();
    let twice = [removed[0].clone(), stored[1].clone(), stored[1].clone()];
    let twice = store.following(&twice).await.unwrap();
    let nothing = store.following(&[]).await.unwrap();

    let expected = (0..all.len()).map(|n| n % 3 != 0 && all[n] != removed[0]);
    assert_eq!(answers, expected.collect::<Vec<_>>());
    assert!(answers.iter().filter(|is_stored| !**is_stored).count() == absent.len() + 1);
    assert_eq!(twice, [false, true, true]);
    assert_eq!(nothing, [] as [bool; 0]);
}
