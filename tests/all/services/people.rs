//! P7: people's own choices outlive whatever the application says at the same moment, and coming
//! back mails nothing older.

use std::sync::Arc;

use tidings::clock::Clock;
use tidings::domain::policy::Route;
use tidings::domain::user::Unmailable;
use tidings::domain::{Cadence, User};
use tidings::engine::directory::people::{PeopleService, PreferencesChange, UserInput};

use crate::support::town::{Town, monday, on_both_stores, to};
use crate::support::{Fresh, kind, user};

on_both_stores! {
    an_unsubscribe_outlives_every_record_put_at_the_same_moment
    of_many_choices_at_the_same_moment_none_is_lost
    a_record_that_does_not_mention_choices_changes_none
    a_record_that_mentions_a_digest_brings_nobody_back
    a_record_can_say_that_somebody_unsubscribed_elsewhere
    who_unsubscribes_is_mailed_by_no_route
    unsubscribing_again_changes_nothing
    who_comes_back_is_mailed_nothing_older
    an_hour_alone_brings_nobody_back
}

/// Two types that make mails of their own beside the works of the digest.
const ALONE: &str = "types.Alert.route = \"immediate\"\ntypes.Reply.route = \"batch\"\ntypes.ArtworkPublished.route = \"digest\"";

fn input(json: &str) -> UserInput {
    serde_json::from_str(json).unwrap()
}

fn preferences(json: &str) -> PreferencesChange {
    serde_json::from_str(json).unwrap()
}

async fn ada(people: &PeopleService) -> User {
    people.get(&user("ada")).await.unwrap().unwrap()
}

async fn an_unsubscribe_outlives_every_record_put_at_the_same_moment(fresh: Fresh) {
    let town = Arc::new(Town::of(&fresh).await);

    for round in 0..10 {
        let id = user(&format!("p{round}"));
        let put =
            format!("{{\"id\": \"{id}\", \"email\": \"p@example.org\", \"confirmed\": true}}");
        town.process()
            .people()
            .put(vec![input(&put)])
            .await
            .unwrap();
        let (asked, town) = (id.clone(), town.clone());
        fresh
            .at_once(9, move |store, n| {
                let people = town.process_on(&store.handle()).people();
                let (id, put) = (
                    asked.clone(),
                    put.replace("true}", &format!("true, \"name\": \"{n}\"}}")),
                );
                async move {
                    match n {
                        4 => drop(people.unsubscribe(&id).await.unwrap()),
                        _ => people.put(vec![input(&put)]).await.unwrap(),
                    }
                }
            })
            .await;

        let standing = fresh.users(&[id]).await.unwrap().remove(0).unwrap();
        assert!(standing.unsubscribed.is_some(), "round {round}");
        assert_eq!(standing.digest.cadence, Some(Cadence::Never));
        assert!(standing.name.is_some());
    }
}

async fn of_many_choices_at_the_same_moment_none_is_lost(fresh: Fresh) {
    let town = Arc::new(Town::of(&fresh).await);

    let sharing = town.clone();
    fresh
        .at_once(12, move |store, n| {
            let people = sharing.process_on(&store.handle()).people();
            async move {
                let choice = format!("{{\"types\": {{\"T{n}\": {{\"route\": \"never\"}}}}}}");
                people
                    .prefer(&user("ada"), preferences(&choice))
                    .await
                    .unwrap();
            }
        })
        .await;

    assert_eq!(ada(&town.process().people()).await.types.len(), 12);
}

async fn a_record_that_does_not_mention_choices_changes_none(fresh: Fresh) {
    let town = Town::found(&fresh, true, ALONE).await;
    let people = town.process().people();
    let choice = "{\"tz\": \"Europe/Paris\", \"digest\": {\"cadence\": \"daily\"}, \"types\": {\"Alert\": {\"route\": \"never\"}}}";
    people
        .prefer(&user("ada"), preferences(choice))
        .await
        .unwrap();
    let chosen = ada(&people).await;
    people.unsubscribe(&user("ada")).await.unwrap();
    let unsubscribed = ada(&people).await;

    let put =
        "{\"id\": \"ada\", \"email\": \"ada@example.com\", \"confirmed\": true, \"name\": \"Ada\"}";
    people.put(vec![input(put)]).await.unwrap();

    let standing = ada(&people).await;
    assert_eq!(
        (standing.name.as_deref(), standing.tz),
        (Some("Ada"), chosen.tz)
    );
    assert_eq!(
        (standing.digest, &standing.types),
        (unsubscribed.digest, &unsubscribed.types)
    );
    assert_eq!(standing.unsubscribed, Some(town.clock.now()));
    let taken_back = "{\"id\": \"ada\", \"tz\": null}";
    people.put(vec![input(taken_back)]).await.unwrap();
    assert_eq!(ada(&people).await.tz, None);
}

async fn a_record_that_mentions_a_digest_brings_nobody_back(fresh: Fresh) {
    let town = Town::found(&fresh, true, ALONE).await;
    let people = town.process().people();
    people.unsubscribe(&user("ada")).await.unwrap();
    let nightly = "{\"id\": \"ada\", \"email\": \"ada@example.org\", \"confirmed\": true, \"digest\": {\"cadence\": \"weekly\"},
                    \"types\": {\"Alert\": {\"route\": \"immediate\"}}}";

    people.put(vec![input(nightly)]).await.unwrap();
    town.happens(&["a1"], to(&["ada"])).await;
    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.due.users, report.mails.sent), (0, 0));
    assert_eq!(report.users.unmailable.get("unsubscribed"), Some(&1));
    let said = nightly.replace("\"confirmed\"", "\"unsubscribed\": false, \"confirmed\"");
    people.put(vec![input(&said)]).await.unwrap();
    assert!(ada(&people).await.unsubscribed.is_some());
    let back = preferences("{\"digest\": {\"cadence\": \"weekly\"}}");
    people.prefer(&user("ada"), back).await.unwrap();
    town.happens(&["a2"], to(&["ada"])).await;
    town.digests_at(monday(1)).await;
    assert_eq!(town.told_to("ada"), ["a2"], "what they missed stays missed");
    let alert = ada(&people).await.types[&kind("Alert")];
    assert_eq!((alert.route, alert.since), (Route::Immediate, monday(0)));
}

async fn a_record_can_say_that_somebody_unsubscribed_elsewhere(fresh: Fresh) {
    let town = Town::found(&fresh, true, ALONE).await;
    let people = town.process().people();
    let put = "{\"id\": \"ada\", \"email\": \"ada@example.org\", \"confirmed\": true, \"unsubscribed\": true, \"digest\": {\"cadence\": \"daily\"}}";

    people
        .put(vec![input(put), input(&put.replace("ada", "new"))])
        .await
        .unwrap();

    for id in ["ada", "new"] {
        let left = people.get(&user(id)).await.unwrap().unwrap();
        assert_eq!(left.unsubscribed, Some(town.clock.now()));
        assert_eq!(
            (left.digest.cadence, left.types[&kind("Alert")].route),
            (Some(Cadence::Never), Route::Never)
        );
    }
}

async fn who_unsubscribes_is_mailed_by_no_route(fresh: Fresh) {
    let town = Town::found(&fresh, true, ALONE).await;
    let people = town.process().people();
    let choice =
        "{\"types\": {\"Mention\": {\"route\": \"batch\"}, \"Loan\": {\"route\": \"digest\"}}}";
    people
        .prefer(&user("ada"), preferences(choice))
        .await
        .unwrap();

    let left = people.unsubscribe(&user("ada")).await.unwrap().unwrap();

    assert_eq!(left.mailable(), Err(Unmailable::Unsubscribed));
    assert_eq!(left.digest.cadence, Some(Cadence::Never));
    let routes = ["Alert", "Reply", "Mention", "Loan"].map(|name| left.types[&kind(name)].route);
    assert_eq!(
        routes,
        [Route::Never, Route::Never, Route::Never, Route::Digest]
    );
    assert_eq!(people.unsubscribe(&user("nobody")).await.unwrap(), None);
}

async fn unsubscribing_again_changes_nothing(fresh: Fresh) {
    let town = Town::found(&fresh, true, ALONE).await;
    let people = town.process().people();
    let first = people.unsubscribe(&user("ada")).await.unwrap();
    town.clock.set(monday(4));

    let again = people.unsubscribe(&user("ada")).await.unwrap();

    assert_eq!(again, first);
}

async fn who_comes_back_is_mailed_nothing_older(fresh: Fresh) {
    let town = Town::found(&fresh, true, ALONE).await;
    let people = town.process().people();
    town.happens(&["a1"], to(&["ada"])).await;
    people.unsubscribe(&user("ada")).await.unwrap();
    town.clock.advance(chrono::TimeDelta::hours(1));
    town.happens(&["a2"], to(&["ada"])).await;
    town.clock.advance(chrono::TimeDelta::hours(1));

    let back = "{\"digest\": {\"cadence\": \"weekly\"}}";
    let back = people
        .prefer(&user("ada"), preferences(back))
        .await
        .unwrap()
        .unwrap();
    town.happens(&["a3"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;

    assert_eq!(back.unsubscribed, None);
    assert_eq!(town.told_to("ada"), ["a3"]);
    assert_eq!(
        back.types[&kind("Alert")].route,
        Route::Never,
        "they asked for the digest alone"
    );
}

async fn an_hour_alone_brings_nobody_back(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let people = town.process().people();
    people.unsubscribe(&user("ada")).await.unwrap();

    for choice in [
        "{\"digest\": {\"hour\": 7}, \"tz\": \"Europe/Paris\"}",
        "{\"digest\": {\"cadence\": \"never\"}}",
        "{\"types\": {\"ArtworkPublished\": {\"route\": \"digest\"}}}",
    ] {
        let left = people
            .prefer(&user("ada"), preferences(choice))
            .await
            .unwrap()
            .unwrap();
        assert!(left.unsubscribed.is_some(), "{choice}");
    }

    let alone = "{\"types\": {\"ArtworkPublished\": {\"route\": \"immediate\"}}}";
    let back = people
        .prefer(&user("ada"), preferences(alone))
        .await
        .unwrap()
        .unwrap();
    assert_eq!(back.unsubscribed, None);
}
