//! P7: several records with one address. A click stops email to its own record, and the page offers
//! to stop the others without revealing them.

use futures::FutureExt;
use tidings::domain::{Address, Cadence, FollowKey, Mutes, Route, Stop, Subject, User};
use tidings::engine::access::links::Links;

use super::Api;
use super::pages::{CLICK, PUBLIC, SECRET, api, config};
use super::stops::form;
use crate::support::town::{Town, mostly_on_sqlite, saturday};
use crate::support::{FailingStore, Fresh, Shorthand, kind, user};

mostly_on_sqlite! {
    one_click_stops_its_own_record_and_the_page_offers_the_others
    the_button_applies_the_links_stop_to_the_other_records
    a_record_whose_address_changes_concurrently_is_not_stopped
}

on_sqlite! {
    a_page_offers_nothing_for_an_unproven_address_or_nothing_to_stop
    a_click_on_a_deleted_users_mute_link_suppresses_nothing
    a_page_stops_a_limited_number_of_records_and_offers_the_rest
    a_record_at_the_mute_limit_does_not_prevent_stops_of_others
    a_click_succeeds_even_if_the_other_records_cannot_be_read
}

const OFFER: &str = "Another account has the same address";
const BUTTON: &str = "Stop them for all accounts with this address";
const DONE: &str = "We also stopped these emails for the other accounts";
const ALL: &str = "List-Unsubscribe=One-Click&records=all";

/// Returns the path of ada's link for this stop, in an email to the address.
async fn path(api: &Api, stop: &Stop, address: Option<&str>) -> String {
    let secret = Some(SECRET.into());
    let links = Links::new(api.town.store.clone(), Some(PUBLIC.into()), secret);
    let maker = links.maker().await.unwrap().unwrap();
    let address = address.map(|address| Address::new(address).unwrap());
    let maker = match &address {
        Some(address) => maker.to(address),
        None => maker,
    };
    let (stop, mute) = match stop {
        Stop::Subject(..) => (None, Some(stop)),
        _ => (Some(stop), None),
    };
    let personal = maker.personal(&user("ada"), stop, mute, saturday());
    let link = personal.unsubscribe.or(personal.mute).unwrap();
    link.strip_prefix(PUBLIC).unwrap().to_owned()
}

async fn put(api: &Api, id: &str) {
    let record = User {
        email: Some(Address::new("ADA@example.org").unwrap()),
        name: Some("Zelda Hidden".into()),
        confirmed: true,
        ..User::new(user(id))
    };
    assert_eq!(api.town.store.put_users(&[record]).await.unwrap(), [true]);
}

async fn stored(api: &Api, id: &str) -> User {
    let found = api.town.store.users(&[user(id)]).await.unwrap();
    found.into_iter().next().unwrap().unwrap()
}

async fn one_click_stops_its_own_record_and_the_page_offers_the_others(fresh: Fresh) {
    let api = api(&fresh).await;
    let own = path(&api, &Stop::All, Some("ada@example.org")).await;
    let alone = api.submit(&own, CLICK).await.html;
    put(&api, "zelda-7").await;

    let clicked = api.submit(&own, CLICK).await.html;
    let after_click = stored(&api, "zelda-7").await;
    let opened = api.browse(&own).await;
    let (action, fields) = form(&opened, BUTTON);
    let pressed = api.submit(&action, &fields).await.html;
    let again = api.submit(&action, &fields).await.html;
    let later = api.browse(&own).await.html;

    assert!(!alone.contains(OFFER), "{alone}");
    assert!(clicked.contains(OFFER), "{clicked}");
    assert_eq!(after_click.unsubscribed, None);
    assert_eq!((action, fields.as_str()), (own, ALL));
    for html in [&clicked, &opened.html, &pressed] {
        assert!(!html.contains("elda"), "{html}");
    }
    for html in [&pressed, &again] {
        assert!(html.contains(DONE) && !html.contains(OFFER), "{html}");
    }
    assert!(!later.contains(OFFER) && !later.contains(DONE), "{later}");
    assert_eq!(stored(&api, "zelda-7").await.unsubscribed, Some(saturday()));
    assert_eq!(stored(&api, "ben").await.unsubscribed, None);
    api.stop().await;
}

async fn the_button_applies_the_links_stop_to_the_other_records(fresh: Fresh) {
    let api = api(&fresh).await;
    put(&api, "zelda").await;
    let thread = Subject::stored("Thread:9");
    let stops = [
        Stop::Digest,
        Stop::of_types([&kind("Alert")]),
        Stop::Subject(thread.clone(), None),
    ];

    for stop in stops {
        let own = path(&api, &stop, Some("ada@example.org")).await;
        let prompt = api.browse(&own).await.html;
        let clicked = api.submit(&own, CLICK).await;
        let before = stored(&api, "zelda").await;
        let (action, fields) = form(&clicked, BUTTON);
        let pressed = api.submit(&action, &fields).await.html;
        let after = stored(&api, "zelda").await;

        assert!(!prompt.contains(OFFER), "{stop:?}");
        assert!(pressed.contains(DONE), "{stop:?}: {pressed}");
        let of = |user: &User| {
            let route = user.types.get(&kind("Alert")).map(|chosen| chosen.route);
            let muted = user.mutes.for_good(&thread);
            (user.digest.cadence, route, muted, user.unsubscribed)
        };
        let (never, silent) = (Some(Cadence::Never), Some(Route::Never));
        let (expected_before, expected) = match stop {
            Stop::Digest => ((None, None, false, None), (never, None, false, None)),
            Stop::Types(_) => ((never, None, false, None), (never, silent, false, None)),
            _ => ((never, silent, false, None), (never, silent, true, None)),
        };
        assert_eq!(of(&before), expected_before, "{stop:?}");
        assert_eq!(of(&after), expected, "{stop:?}");
    }
    api.stop().await;
}

/// A link without an address, or with an earlier one, does not prove that its reader receives email
/// at the current address.
async fn a_page_offers_nothing_for_an_unproven_address_or_nothing_to_stop(fresh: Fresh) {
    let api = api(&fresh).await;
    put(&api, "zelda").await;
    let follow = Stop::Follow(FollowKey::stored("artist:1"));
    let key = FollowKey::stored("artist:1");
    let follows = [(key.clone(), user("ada")), (key, user("zelda"))];
    api.town.store.follow(&follows).await;

    for (stop, address) in [
        (&Stop::All, None),
        (&Stop::All, Some("former@example.org")),
        (&follow, Some("ada@example.org")),
    ] {
        let own = path(&api, stop, address).await;
        for body in [CLICK, ALL] {
            let page = api.submit(&own, body).await;
            assert_eq!(page.status, 200);
            let offers = page.html.contains(OFFER) || page.html.contains(DONE);
            assert!(!offers, "{stop:?} {address:?}: {}", page.html);
        }
    }

    let zelda = stored(&api, "zelda").await;
    assert_eq!((zelda.unsubscribed, zelda.digest.cadence), (None, None));
    assert_eq!(
        api.town.store.following(&follows[1..]).await.unwrap(),
        [true]
    );
    api.town
        .change("zelda", |user| user.unsubscribed = Some(saturday()))
        .await;
    let thread = Stop::Subject(Subject::stored("Thread:9"), None);
    for stop in [Stop::Digest, thread] {
        let own = path(&api, &stop, Some("ada@example.org")).await;
        let page = api.submit(&own, CLICK).await.html;
        assert!(!page.contains(OFFER), "{stop:?}: {page}");
    }
    api.stop().await;
}

async fn a_click_on_a_deleted_users_mute_link_suppresses_nothing(fresh: Fresh) {
    let api = api(&fresh).await;
    let thread = Stop::Subject(Subject::stored("Thread:9"), None);
    let own = path(&api, &thread, Some("ada@example.org")).await;
    api.town.store.delete_user(&user("ada")).await.unwrap();

    let page = api.submit(&own, CLICK).await;

    assert_eq!(page.status, 200);
    assert_eq!(api.town.store.suppressions(None, 9).await.unwrap(), []);
    api.stop().await;
}

/// Uses more records with one address than one read of the store returns.
async fn a_page_stops_a_limited_number_of_records_and_offers_the_rest(fresh: Fresh) {
    let api = api(&fresh).await;
    for n in 0..70 {
        put(&api, &format!("z{n:02}")).await;
    }
    let own = path(&api, &Stop::All, Some("ada@example.org")).await;

    for (expected, has_more) in [(20, true), (40, true), (60, true), (70, false)] {
        let page = api.submit(&own, ALL).await.html;

        let mut stopped = 0;
        for n in 0..70 {
            let record = stored(&api, &format!("z{n:02}")).await;
            stopped += usize::from(record.unsubscribed.is_some());
        }
        assert_eq!(stopped, expected);
        let shown = (page.contains(OFFER), page.contains(DONE));
        assert_eq!(shown, (has_more, !has_more), "{expected}: {page}");
    }
    api.stop().await;
}

async fn a_record_at_the_mute_limit_does_not_prevent_stops_of_others(fresh: Fresh) {
    let api = api(&fresh).await;
    put(&api, "yara").await;
    put(&api, "zelda").await;
    let fill = |user: &mut User| {
        for n in 0..Mutes::MOST {
            let subject = Subject::stored(format!("Thread:full-{n}"));
            user.mutes.mute(subject, None, None, saturday());
        }
    };
    api.town.change("yara", fill).await;
    let thread = Subject::stored("Thread:9");
    let stop = Stop::Subject(thread.clone(), None);
    let own = path(&api, &stop, Some("ada@example.org")).await;

    let page = api.submit(&own, ALL).await;

    assert_eq!(page.status, 200, "{}", page.html);
    assert!(page.html.contains(OFFER) && !page.html.contains(DONE));
    for (id, is_muted) in [("ada", true), ("yara", false), ("zelda", true)] {
        let record = stored(&api, id).await;
        assert_eq!(record.mutes.for_good(&thread), is_muted, "{id}");
    }
    api.stop().await;
}

/// The record changes between the page's read and the write of the stop.
async fn a_record_whose_address_changes_concurrently_is_not_stopped(fresh: Fresh) {
    let thread = Subject::stored("Thread:9");
    for stop in [Stop::All, Stop::Subject(thread.clone(), None)] {
        fresh.clear().await;
        let town = Town::found(&fresh, true, &config()).await;
        let people = town.process().people();
        people.stop(&user("ada"), &stop).await.unwrap();
        let store = town.store.clone();
        let move_away = async move {
            let mut record = store.user_record(&user("zelda")).await;
            let moved = record.as_mut().unwrap();
            moved.email = Some(Address::new("zelda@example.org").unwrap());
            assert_eq!(store.put_users(&[record.unwrap()]).await.unwrap(), [true]);
        };
        // Ada's record does not change, so the first write concerns the other record.
        let watched = FailingStore::before(town.store.clone(), "put_users", move_away.boxed());
        let api = Api::with_store(town, &(watched as _));
        put(&api, "zelda").await;
        let own = path(&api, &stop, Some("ada@example.org")).await;

        let page = api.submit(&own, ALL).await;

        let zelda = stored(&api, "zelda").await;
        assert_eq!(page.status, 200, "{}", page.html);
        assert_eq!(zelda.email, Address::new("zelda@example.org").ok());
        assert_eq!(zelda.unsubscribed, None);
        assert!(!zelda.mutes.for_good(&thread));
        api.stop().await;
    }
}

async fn a_click_succeeds_even_if_the_other_records_cannot_be_read(fresh: Fresh) {
    let town = Town::found(&fresh, true, &config()).await;
    let failing = FailingStore::of_verb(town.store.clone(), "find_people", 0);
    let api = Api::with_store(town, &(failing.clone() as _));
    let own = path(&api, &Stop::All, Some("ada@example.org")).await;

    let page = api.submit(&own, CLICK).await;

    assert_eq!(page.status, 200, "{}", page.html);
    assert!(page.html.contains("You are unsubscribed"));
    assert_eq!(failing.struck(), Some("find_people"));
    assert!(stored(&api, "ada").await.unsubscribed.is_some());
    api.stop().await;
}
