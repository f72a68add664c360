//! P8: a new user with the id of a deleted user receives none of the deleted user's data.

use chrono::{DateTime, TimeDelta, Utc};
use serde_json::{Value, json};
use tidings::clock::Clock;
use tidings::domain::delivery::Handover;
use tidings::email::Message;
use tidings::engine::NoProgress;

use super::access::token;
use super::pages::{CLICK, config, path};
use super::{Answer, Api, answer};
use crate::support::town::{Town, monday, mostly_on_sqlite};
use crate::support::{FailingStore, Fault, Fresh, Shorthand, Then, user};

mostly_on_sqlite! {
    a_new_user_gets_no_data_of_the_deleted_user_with_their_id
    an_id_can_be_reused_within_the_second_of_its_deletion
    events_from_before_a_first_record_are_shown_and_emailed
    batches_and_deliveries_of_a_deleted_user_are_canceled
    a_batch_whose_email_is_being_sent_is_not_canceled
    repeating_an_interrupted_deletion_finishes_it
    the_next_creation_finishes_an_interrupted_deletion
    a_deleted_actor_has_no_name_in_feeds_and_emails
    a_deleted_user_can_still_unsubscribe_their_address
}

const TYPES: &str = r#"
[types.Comment]
route = "batch"
window = "5m"
[tokens.keys.one]
secret = "a-secret-that-only-these-tests-have"
"#;

async fn served(fresh: &Fresh) -> Api {
    Api::of(Town::found(fresh, true, &format!("{}{TYPES}", config())).await)
}

async fn post_event(api: &Api, kind: &str, object: &str) {
    let event = json!({"type": kind, "objects": object, "to": ["ada"]});
    assert_eq!(api.post("/v1/events", event).await.status, 202);
}

/// Fans everything out, and sends every email that is due at this moment.
async fn sent_at(api: &Api, at: DateTime<Utc>) -> Vec<Message> {
    api.fan_out().await;
    api.town.clock.set(at.max(api.town.clock.now()));
    api.app.batches().drain(&NoProgress).await.unwrap();
    let before = api.town.emails().len();
    api.town.digests_at(at).await;
    api.town.emails().split_off(before)
}

async fn feed_by(api: &Api, token: &str) -> Answer {
    answer(api.anonymous("GET", "/v1/users/ada/feed").bearer_auth(token)).await
}

/// Leaves ada with pending events, a batch's delivery, an open batch, a read item, and an event
/// that no worker has fanned out.
async fn create_history(api: &Api) {
    post_event(api, "Comment", "a5").await;
    api.fan_out().await;
    api.town.clock.advance(TimeDelta::minutes(10));
    api.app.batches().drain(&NoProgress).await.unwrap();
    post_event(api, "ArtworkPublished", "a1").await;
    post_event(api, "Comment", "a2").await;
    api.fan_out().await;
    let feed = api.get("/v1/users/ada/feed").await;
    let marks = json!({"mark": "read", "to": feed.body["cursor"]});
    assert_eq!(api.post("/v1/users/ada/feed/marks", marks).await.status, 200);
    post_event(api, "ArtworkPublished", "a3").await;
    post_event(api, "Comment", "a4").await;
}

async fn create_again(api: &Api) {
    let record = json!({"email": "new@example.org", "confirmed": true});
    assert_eq!(api.put("/v1/users/ada", record).await.status, 204);
}

/// Returns the feed's object ids, unseen count and unread count.
fn feed_state(feed: &Answer) -> (Vec<&str>, &Value, &Value) {
    let items = feed.body["items"].as_array().unwrap().iter();
    let ids = items.map(|item| item["object"]["id"].as_str().unwrap());
    (ids.collect(), &feed.body["unseen"], &feed.body["unread"])
}

async fn a_new_user_gets_no_data_of_the_deleted_user_with_their_id(fresh: Fresh) {
    let api = served(&fresh).await;
    let (old_token, old_link) = (token(&api, "ada"), path(&api, "ada", api.town.clock.now()).await);
    create_history(&api).await;
    assert_eq!(feed_by(&api, &old_token).await.status, 200);
    api.town.clock.advance(TimeDelta::minutes(1));

    assert_eq!(api.delete("/v1/users/ada").await.status, 204);
    let after_deletion = api.get("/v1/users/ada/feed").await;
    api.town.clock.advance(TimeDelta::minutes(1));
    create_again(&api).await;
    let emails = sent_at(&api, monday(0)).await;

    assert_eq!(feed_state(&after_deletion).0, [""; 0]);
    let to_new = emails.iter().filter(|email| email.to.reveal() == "new@example.org");
    assert_eq!(to_new.count(), 0);
    let feed = api.get("/v1/users/ada/feed").await;
    assert_eq!(feed_state(&feed), (vec![], &json!(0), &json!(0)));
    let explained = api.app.explain().user(&user("ada"), None).await.unwrap();
    assert!(explained.events.is_empty() && explained.deliveries.is_empty());
    assert_eq!(feed_by(&api, &old_token).await.status, 401);
    assert_eq!(api.browse(&old_link).await.status, 404);
    assert_eq!(api.browse(&format!("{old_link}/preferences")).await.status, 404);
    assert_eq!(api.submit(&old_link, CLICK).await.status, 200);
    let record = api.get("/v1/users/ada").await;
    assert_eq!(record.body["unsubscribed"], false);
    assert_eq!(feed_by(&api, &token(&api, "ada")).await.status, 200);
    api.stop().await;
}

async fn an_id_can_be_reused_within_the_second_of_its_deletion(fresh: Fresh) {
    let api = served(&fresh).await;
    let (old_token, old_link) = (token(&api, "ada"), path(&api, "ada", api.town.clock.now()).await);
    create_history(&api).await;

    assert_eq!(api.delete("/v1/users/ada").await.status, 204);
    create_again(&api).await;
    post_event(&api, "ArtworkPublished", "a5").await;
    post_event(&api, "Comment", "a6").await;
    api.fan_out_elsewhere().await;
    let feed = api.get("/v1/users/ada/feed").await;
    let emails = sent_at(&api, monday(0)).await;

    assert_eq!(feed_state(&feed), (vec!["a6", "a5"], &json!(2), &json!(2)));
    let to_new = emails.iter().filter(|email| email.to.reveal() == "new@example.org");
    let texts: Vec<String> = to_new.map(|email| email.fill_links().text).collect();
    assert_eq!(texts.len(), 2, "{texts:?}");
    for old in ["a1", "a2", "a3", "a4"] {
        assert!(!texts.iter().any(|text| text.contains(&format!("Work {old}."))), "{texts:?}");
    }
    assert_eq!(feed_by(&api, &old_token).await.status, 401);
    assert_eq!(api.browse(&old_link).await.status, 404);
    let new_link = emails.iter().find_map(|email| email.links.as_ref()?.unsubscribe.clone());
    let new_link = new_link.unwrap();
    let (_, new_token) = new_link.split_once("/u/").unwrap();
    assert_eq!(api.browse(&format!("/u/{new_token}")).await.status, 200);
    api.stop().await;
}

async fn events_from_before_a_first_record_are_shown_and_emailed(fresh: Fresh) {
    let api = served(&fresh).await;
    let event = json!({"type": "ArtworkPublished", "objects": "a1", "to": ["zoe"]});
    assert_eq!(api.post("/v1/events", event).await.status, 202);
    api.fan_out().await;

    let record = json!({"email": "zoe@example.org", "confirmed": true});
    api.put("/v1/users/zoe", record).await;
    let emails = sent_at(&api, monday(0)).await;

    assert_eq!(api.feed("/v1/users/zoe/feed").await, ["a1"]);
    assert_eq!(emails.len(), 1);
    assert_eq!(api.delete("/v1/users/nobody").await.status, 404);
    api.stop().await;
}

async fn batches_and_deliveries_of_a_deleted_user_are_canceled(fresh: Fresh) {
    let api = served(&fresh).await;
    post_event(&api, "Comment", "a1").await;
    api.fan_out().await;
    api.town.clock.advance(TimeDelta::minutes(10));
    // This batch has a delivery, the next one is open.
    api.app.batches().drain(&NoProgress).await.unwrap();
    post_event(&api, "Comment", "a2").await;
    api.fan_out().await;

    assert_eq!(api.delete("/v1/users/ada").await.status, 204);

    let states: Vec<_> =
        api.town.deliveries_of("ada").await.iter().map(|row| row.state.as_str()).collect();
    assert_eq!(states, ["canceled"]);
    let batches = api.get("/v1/batches?user=ada").await;
    let states = batches.body["batches"].as_array().unwrap().iter();
    let states: Vec<&Value> = states.map(|batch| &batch["state"]).collect();
    assert_eq!(states, ["canceled", "canceled"]);
    assert!(sent_at(&api, monday(0)).await.is_empty());
    assert_eq!(api.delete("/v1/users/ada").await.status, 404);
    api.stop().await;
}

async fn a_batch_whose_email_is_being_sent_is_not_canceled(fresh: Fresh) {
    let api = served(&fresh).await;
    post_event(&api, "Comment", "a1").await;
    api.fan_out().await;
    api.town.clock.advance(TimeDelta::minutes(10));
    api.app.batches().drain(&NoProgress).await.unwrap();
    let (inner, now) = (api.town.store.clone(), api.town.clock.now());
    let until = now + TimeDelta::minutes(5);
    let leaves = async move {
        let rows = inner.take("worker", now, until, 10).await;
        let handover = Handover { id: rows[0].id.clone(), call: "call".into(), items: 1 };
        let noted = inner.sending("worker", now, until, &[handover]).await;
        assert_eq!(noted, [true]);
    };
    let store = FailingStore::before(api.town.store.clone(), "correct", Box::pin(leaves));

    let process = api.town.process_on(&(store as _));
    process.users().erase(&user("ada")).await.unwrap();

    let rows = api.town.deliveries_of("ada").await;
    let states: Vec<_> = rows.iter().map(|row| row.state.as_str()).collect();
    assert_eq!(states, ["sending"]);
    let batches = api.get("/v1/batches?user=ada").await;
    assert_eq!(batches.body["batches"][0]["state"], "closing");
    api.stop().await;
}

/// Asserts that a deletion has reached all of ada's data.
async fn assert_erased(api: &Api) {
    let store = &api.town.store;
    let follows = store.follows(&user("ada"), None, 10).await.unwrap();
    let inboxes = store.inboxes(&[user("ada")]).await.unwrap();
    let batches = api.get("/v1/batches?user=ada&state=open").await;
    assert!(follows.is_empty() && inboxes == [None], "{follows:?} {inboxes:?}");
    assert_eq!(batches.body["batches"], json!([]));
    let batches = api.get("/v1/batches?user=ada&state=closing").await;
    assert_eq!(batches.body["batches"], json!([]));
    let rows = api.town.deliveries_of("ada").await;
    assert!(rows.iter().all(|row| row.state.is_settled()), "{rows:?}");
}

/// Deletes ada in a process that dies at its nth store call. Returns whether it died.
async fn dies_at(api: &Api, nth: usize, fault: Fault) -> bool {
    let store = FailingStore::new(api.town.store.clone(), nth, fault, Then::StaysDown);
    let process = api.town.process_on(&(store as _));
    process.users().erase(&user("ada")).await.is_err()
}

async fn repeating_an_interrupted_deletion_finishes_it(fresh: Fresh) {
    for fault in [Fault::Refused, Fault::Unheard] {
        for nth in 0.. {
            fresh.clear().await;
            let api = served(&fresh).await;
            create_history(&api).await;
            let died = dies_at(&api, nth, fault).await;

            let repeated = api.delete("/v1/users/ada").await;

            let expected = if died { [204, 404].as_slice() } else { &[404] };
            assert!(expected.contains(&repeated.status), "{nth} {fault:?}");
            assert_erased(&api).await;
            api.stop().await;
            if !died {
                break;
            }
        }
    }
}

async fn the_next_creation_finishes_an_interrupted_deletion(fresh: Fresh) {
    for nth in 0.. {
        fresh.clear().await;
        let api = served(&fresh).await;
        create_history(&api).await;
        let died = dies_at(&api, nth, Fault::Refused).await;
        let gone = api.get("/v1/users/ada").await.status == 404;

        create_again(&api).await;

        if gone {
            assert_erased(&api).await;
            let feed = api.get("/v1/users/ada/feed").await;
            assert_eq!(feed_state(&feed).0, [""; 0], "{nth}");
        }
        api.stop().await;
        if !died {
            break;
        }
    }
}

async fn a_deleted_actor_has_no_name_in_feeds_and_emails(fresh: Fresh) {
    let api = served(&fresh).await;
    let event = json!({
        "type": "Comment", "objects": "a1", "to": ["ada"], "text": "Benedict was here",
        "actor": {"id": "ben", "name": "Benedict", "url": "https://a.example/ben"}, "data": {"by": "Benedict"},
    });
    assert_eq!(api.post("/v1/events", event).await.status, 202);
    api.fan_out().await;
    let before = api.get("/v1/users/ada/feed").await;
    assert!(before.body.to_string().contains("Benedict"));

    assert_eq!(api.delete("/v1/users/ben").await.status, 204);

    let feed = api.get("/v1/users/ada/feed").await;
    assert!(!feed.body.to_string().contains("Benedict"), "{}", feed.body);
    let emails = sent_at(&api, monday(0)).await;
    assert_eq!(emails.len(), 1);
    assert!(!emails[0].fill_links().text.contains("Benedict"));
    api.stop().await;
}

async fn a_deleted_user_can_still_unsubscribe_their_address(fresh: Fresh) {
    let api = served(&fresh).await;
    post_event(&api, "Comment", "a1").await;
    let emails = sent_at(&api, monday(0)).await;
    let link = emails[0].links.as_ref().unwrap().unsubscribe.clone();
    let link = link.unwrap();
    let (_, link) = link.split_once("/u/").unwrap();
    let link = format!("/u/{link}");
    assert_eq!(api.delete("/v1/users/ada").await.status, 204);
    let suppressed = async || {
        let list = api.get("/v1/suppressions").await;
        list.body["suppressions"].clone()
    };

    let read = api.browse(&link).await;
    let before = suppressed().await;
    let clicks = [api.submit(&link, CLICK).await, api.submit(&link, CLICK).await];

    assert_eq!((read.status, before), (404, json!([])));
    assert_eq!(clicks.map(|click| click.status), [200, 200]);
    let after = suppressed().await;
    assert_eq!(after.as_array().unwrap().len(), 1, "{after}");
    assert_eq!(after[0]["address"], "a…@example.org");
    assert_eq!(after[0]["reason"], "unsubscribe");
    api.stop().await;
}
