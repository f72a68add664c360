//! P7: users' own choices survive concurrent writes of their records by the application. A user who
//! resubscribes gets no older events.

use std::sync::Arc;

use tidings::clock::Clock;
use tidings::domain::type_policy::Route;
use tidings::domain::user::UnmailableReason;
use tidings::domain::{Cadence, User};
use tidings::engine::users::input::{FollowInput, PreferencesChange, UserInput};
use tidings::engine::users::service::UserService;

use crate::support::town::{Town, monday, on_both_stores, to};
use crate::support::{Fresh, Shorthand, kind, user};

on_both_stores! {
    an_unsubscribe_survives_concurrent_writes_of_the_record
    concurrent_choices_are_all_stored
    a_record_without_choices_changes_no_choice
    a_record_with_a_digest_does_not_resubscribe_a_user
    a_record_can_unsubscribe_a_user
    an_unsubscribed_user_gets_no_email_by_any_route
    unsubscribing_again_changes_nothing
    a_resubscribed_user_gets_no_older_events
    a_digest_hour_alone_does_not_resubscribe_a_user
    an_export_contains_all_follows
}

/// A configuration with two types that are emailed on their own, and one in the digest.
const SEPARATE_EMAILS: &str = "types.Alert.route = \"immediate\"\ntypes.Reply.route = \"batch\"\ntypes.ArtworkPublished.route = \"digest\"";

fn input(json: &str) -> UserInput {
    serde_json::from_str(json).unwrap()
}

fn preferences(json: &str) -> PreferencesChange {
    serde_json::from_str(json).unwrap()
}

async fn ada(people: &UserService) -> User {
    people.user(&user("ada")).await.unwrap().unwrap()
}

async fn an_unsubscribe_survives_concurrent_writes_of_the_record(fresh: Fresh) {
    let town = Arc::new(Town::of(&fresh).await);

    for round in 0..10 {
        let id = user(&format!("p{round}"));
        let put =
            format!("{{\"id\": \"{id}\", \"email\": \"p@example.org\", \"confirmed\": true}}");
        town.process().users().put_users(vec![input(&put)]).await.unwrap();
        let (user_id, town) = (id.clone(), town.clone());
        fresh
            .at_once(9, move |store, n| {
                let people = town.process_on(&store.handle()).users();
                let (id, put) =
                    (user_id.clone(), put.replace("true}", &format!("true, \"name\": \"{n}\"}}")));
                async move {
                    match n {
                        4 => drop(people.unsubscribe(&id).await.unwrap()),
                        _ => people.put_users(vec![input(&put)]).await.unwrap(),
                    }
                }
            })
            .await;

        let stored = fresh.user_record(&id).await.unwrap();
        assert!(stored.unsubscribed.is_some(), "round {round}");
        assert_eq!(stored.digest.cadence, Some(Cadence::Never));
        assert!(stored.name.is_some());
    }
}

async fn concurrent_choices_are_all_stored(fresh: Fresh) {
    let town = Arc::new(Town::of(&fresh).await);

    let sharing = town.clone();
    fresh
        .at_once(12, move |store, n| {
            let people = sharing.process_on(&store.handle()).users();
            async move {
                let choice = format!("{{\"types\": {{\"T{n}\": {{\"route\": \"never\"}}}}}}");
                people.change_preferences(&user("ada"), preferences(&choice)).await.unwrap();
            }
        })
        .await;

    assert_eq!(ada(&town.process().users()).await.types.len(), 12);
}

async fn a_record_without_choices_changes_no_choice(fresh: Fresh) {
    let town = Town::found(&fresh, true, SEPARATE_EMAILS).await;
    let people = town.process().users();
    let choice = "{\"tz\": \"Europe/Paris\", \"digest\": {\"cadence\": \"daily\"}, \"types\": {\"Alert\": {\"route\": \"never\"}}}";
    people.change_preferences(&user("ada"), preferences(choice)).await.unwrap();
    let chosen = ada(&people).await;
    people.unsubscribe(&user("ada")).await.unwrap();
    let unsubscribed = ada(&people).await;

    let put =
        "{\"id\": \"ada\", \"email\": \"ada@example.com\", \"confirmed\": true, \"name\": \"Ada\"}";
    people.put_users(vec![input(put)]).await.unwrap();

    let stored = ada(&people).await;
    assert_eq!((stored.name.as_deref(), stored.tz), (Some("Ada"), chosen.tz));
    assert_eq!((stored.digest, &stored.types), (unsubscribed.digest, &unsubscribed.types));
    assert_eq!(stored.unsubscribed, Some(town.clock.now()));
    let without_tz = "{\"id\": \"ada\", \"tz\": null}";
    people.put_users(vec![input(without_tz)]).await.unwrap();
    assert_eq!(ada(&people).await.tz, None);
}

async fn a_record_with_a_digest_does_not_resubscribe_a_user(fresh: Fresh) {
    let town = Town::found(&fresh, true, SEPARATE_EMAILS).await;
    let people = town.process().users();
    people.unsubscribe(&user("ada")).await.unwrap();
    let nightly = "{\"id\": \"ada\", \"email\": \"ada@example.org\", \"confirmed\": true, \"digest\": {\"cadence\": \"weekly\"},
                    \"types\": {\"Alert\": {\"route\": \"immediate\"}}}";

    people.put_users(vec![input(nightly)]).await.unwrap();
    town.happens(&["a1"], to(&["ada"])).await;
    let report = town.digests_at(monday(0)).await;

    assert_eq!((report.due.users, report.emails.sent), (0, 0));
    assert_eq!(report.users.unmailable.get("unsubscribed"), Some(&1));
    let subscribed = nightly.replace("\"confirmed\"", "\"unsubscribed\": false, \"confirmed\"");
    people.put_users(vec![input(&subscribed)]).await.unwrap();
    assert!(ada(&people).await.unsubscribed.is_some());
    let back = preferences("{\"digest\": {\"cadence\": \"weekly\"}}");
    people.change_preferences(&user("ada"), back).await.unwrap();
    town.happens(&["a2"], to(&["ada"])).await;
    town.digests_at(monday(1)).await;
    assert_eq!(town.emailed_to("ada"), ["a2"], "what they missed stays missed");
    let alert = ada(&people).await.types[&kind("Alert")];
    assert_eq!((alert.route, alert.since), (Route::Immediate, monday(0)));
}

async fn a_record_can_unsubscribe_a_user(fresh: Fresh) {
    let town = Town::found(&fresh, true, SEPARATE_EMAILS).await;
    let people = town.process().users();
    let put = "{\"id\": \"ada\", \"email\": \"ada@example.org\", \"confirmed\": true, \"unsubscribed\": true, \"digest\": {\"cadence\": \"daily\"}}";

    people.put_users(vec![input(put), input(&put.replace("ada", "new"))]).await.unwrap();

    for id in ["ada", "new"] {
        let left = people.user(&user(id)).await.unwrap().unwrap();
        assert_eq!(left.unsubscribed, Some(town.clock.now()));
        assert_eq!(
            (left.digest.cadence, left.types[&kind("Alert")].route),
            (Some(Cadence::Never), Route::Never)
        );
    }
}

async fn an_unsubscribed_user_gets_no_email_by_any_route(fresh: Fresh) {
    let town = Town::found(&fresh, true, SEPARATE_EMAILS).await;
    let people = town.process().users();
    let choice =
        "{\"types\": {\"Mention\": {\"route\": \"batch\"}, \"Loan\": {\"route\": \"digest\"}}}";
    people.change_preferences(&user("ada"), preferences(choice)).await.unwrap();

    let left = people.unsubscribe(&user("ada")).await.unwrap().unwrap();

    assert_eq!(left.mailable_address(), Err(UnmailableReason::Unsubscribed));
    assert_eq!(left.digest.cadence, Some(Cadence::Never));
    let routes = ["Alert", "Reply", "Mention", "Loan"].map(|name| left.types[&kind(name)].route);
    assert_eq!(routes, [Route::Never, Route::Never, Route::Never, Route::Digest]);
    assert_eq!(people.unsubscribe(&user("nobody")).await.unwrap(), None);
}

async fn unsubscribing_again_changes_nothing(fresh: Fresh) {
    let town = Town::found(&fresh, true, SEPARATE_EMAILS).await;
    let people = town.process().users();
    let first = people.unsubscribe(&user("ada")).await.unwrap();
    town.clock.set(monday(4));

    let again = people.unsubscribe(&user("ada")).await.unwrap();

    assert_eq!(again, first);
}

async fn a_resubscribed_user_gets_no_older_events(fresh: Fresh) {
    let town = Town::found(&fresh, true, SEPARATE_EMAILS).await;
    let people = town.process().users();
    town.happens(&["a1"], to(&["ada"])).await;
    people.unsubscribe(&user("ada")).await.unwrap();
    town.clock.advance(chrono::TimeDelta::hours(1));
    town.happens(&["a2"], to(&["ada"])).await;
    town.clock.advance(chrono::TimeDelta::hours(1));

    let back = "{\"digest\": {\"cadence\": \"weekly\"}}";
    let back = people.change_preferences(&user("ada"), preferences(back)).await.unwrap().unwrap();
    town.happens(&["a3"], to(&["ada"])).await;
    town.digests_at(monday(0)).await;

    assert_eq!(back.unsubscribed, None);
    assert_eq!(town.emailed_to("ada"), ["a3"]);
    assert_eq!(back.types[&kind("Alert")].route, Route::Never, "they asked for the digest alone");
}

async fn a_digest_hour_alone_does_not_resubscribe_a_user(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let people = town.process().users();
    people.unsubscribe(&user("ada")).await.unwrap();

    for choice in [
        "{\"digest\": {\"hour\": 7}, \"tz\": \"Europe/Paris\"}",
        "{\"digest\": {\"cadence\": \"never\"}}",
        "{\"types\": {\"ArtworkPublished\": {\"route\": \"digest\"}}}",
    ] {
        let left =
            people.change_preferences(&user("ada"), preferences(choice)).await.unwrap().unwrap();
        assert!(left.unsubscribed.is_some(), "{choice}");
    }

    let alone = "{\"types\": {\"ArtworkPublished\": {\"route\": \"immediate\"}}}";
    let back = people.change_preferences(&user("ada"), preferences(alone)).await.unwrap().unwrap();
    assert_eq!(back.unsubscribed, None);
}

async fn an_export_contains_all_follows(fresh: Fresh) {
    let town = Town::of(&fresh).await;
    let follow =
        |n: usize| FollowInput { user: user("ada"), key: format!("tag:{n}").parse().unwrap() };
    let before = town.process().users().export(&user("ada")).await.unwrap();
    let before = before.unwrap().follows.len();

    let follows = (0..2_500).map(follow).collect();
    town.process().users().follow(follows).await.unwrap();
    let export = town.process().users().export(&user("ada")).await.unwrap();

    let mut follows = export.unwrap().follows;
    assert!(follows.is_sorted());
    follows.dedup();
    assert_eq!(follows.len(), before + 2_500);
}
