//! P7, P8: the follows that an email names as its reason, and the links that unfollow them.
//!
//! An email names only what its reader follows when it is built. GET on its link changes nothing.
//! The link ends one follow, and cannot add a follow that did not exist before.

use std::collections::HashSet;

use chrono::TimeDelta;
use serde_json::json;
use tidings::domain::{Audience, FollowKey};
use tidings::email::Message;
use tidings::store::FollowChange;

use super::pages::{PUBLIC, path};
use super::stops::form;
use super::{Api, pages};
use crate::support::town::{followers_of, monday, mostly_on_sqlite, request, saturday, to};
use crate::support::{Fresh, Shorthand, assert_contains, key, user};

mostly_on_sqlite! {
    an_email_names_what_its_reader_follows_and_can_unfollow_it
    only_readers_who_follow_the_same_keys_share_an_email
}

on_sqlite! {
    of_several_keys_an_email_names_the_followed_one
    an_email_does_not_name_untitled_or_withdrawn_follows
    a_batch_email_names_what_its_reader_follows
    a_link_cannot_add_a_follow
    a_preview_names_the_same_follows_as_the_email
    an_email_names_three_follows_by_number_of_events
    an_untitled_object_is_unfollowed_by_its_key
}

async fn api(fresh: &Fresh) -> Api {
    let api = pages::api(fresh).await;
    for (artist, name) in [("1", "Ines Tavoro"), ("2", "Bo “B” Lind")] {
        let record = json!({"title": name, "url": format!("https://example.org/{artist}")});
        api.put(&format!("/v1/objects/artist/{artist}"), record).await;
    }
    api
}

fn email_to(api: &Api, person: &str) -> Message {
    let emails = api.town.emails().into_iter();
    let address = format!("{person}@example.org");
    let mut theirs = emails.filter(|email| email.to.reveal() == address);
    theirs.next_back().unwrap_or_else(|| panic!("no email to {person}"))
}

/// Returns the path of the link that unfollows this key.
fn unfollow(email: &Message, key: &str) -> String {
    let text = email.fill_links().text;
    let links = text.lines().filter_map(|line| line.strip_prefix(PUBLIC));
    let mut links = links.filter(|link| link.ends_with(&format!("?unfollow={key}")));
    let link = links.next();
    link.unwrap_or_else(|| panic!("no link to unfollow {key} in {text}")).to_owned()
}

async fn follows(api: &Api, person: &str) -> Vec<String> {
    let found = api.town.store.follows(&user(person), None, 100).await;
    found.unwrap().iter().map(FollowKey::to_string).collect()
}

async fn an_email_names_what_its_reader_follows_and_can_unfollow_it(fresh: Fresh) {
    let api = api(&fresh).await;
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    api.town.digests_at(monday(0)).await;
    let email = email_to(&api, "ada");
    let link = unfollow(&email, "artist%3A1");

    let prompt = api.browse(&link).await;
    let unchanged = follows(&api, "ada").await;
    let (path, fields) = form(&prompt, "Unfollow");
    let ended = api.submit(&path, &fields).await;
    let left = follows(&api, "ada").await;
    let twice = api.submit(&path, &fields).await;
    let old = api.browse(&link).await;
    api.town.happens(&["a2"], followers_of("artist:1")).await;
    api.town.digests_at(monday(1)).await;
    let emailed = api.town.emailed_to("ada");

    let (html, text) = (email.fill_links().html, email.fill_links().text);
    assert!(text.contains("Because you follow Ines Tavoro"), "{text}");
    assert!(html.contains(">Ines Tavoro</span></a>"), "{html}");
    assert!(html.contains("?unfollow=artist%3A1\""), "{html}");
    assert_contains!(prompt.html, "<h1>Unfollow Ines Tavoro?</h1>");
    assert_eq!(unchanged, ["artist:1", "artist:2"], "GET changes nothing");
    assert_eq!((ended.status, twice.status), (200, 200));
    for page in [&ended, &twice] {
        assert!(page.html.contains("You no longer follow"), "{}", page.html);
    }
    assert_eq!(left, ["artist:2"]);
    assert_eq!(old.status, 200);
    assert!(old.html.contains("You do not follow this"), "{}", old.html);
    assert_eq!(emailed, ["a1"], "nothing more of it comes");
    api.stop().await;
}

async fn only_readers_who_follow_the_same_keys_share_an_email(fresh: Fresh) {
    let api = api(&fresh).await;
    let crowd = api.town.crowd(20).await;
    let all: Vec<_> = crowd.iter().map(|one| (key("artist:1"), user(one))).collect();
    api.town.store.follow(&all).await;
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    // One follower unfollows after the fan-out, but before the email is built.
    let unfollow = FollowChange::Unfollow;
    let store = &api.town.store;
    store.change_follows(unfollow, &all[..1]).await.unwrap();

    api.town.digests_at(monday(0)).await;

    let emails = api.town.emails();
    let because = |email: &&Message| email.fill_links().text.contains("Because you follow");
    let (with_reason, without_reason): (Vec<&Message>, Vec<&Message>) =
        emails.iter().partition(because);
    let contents = |emails: &[&Message]| {
        let all = emails.iter().map(|email| &*email.content);
        all.collect::<HashSet<_>>().len()
    };
    let without_reason_to: Vec<&str> =
        without_reason.iter().map(|email| email.to.reveal()).collect();
    assert_eq!(without_reason_to, [format!("{}@example.org", crowd[0])]);
    assert_eq!((with_reason.len(), contents(&with_reason)), (emails.len() - 1, 1));
    api.stop().await;
}

async fn of_several_keys_an_email_names_the_followed_one(fresh: Fresh) {
    let api = api(&fresh).await;
    let keys = ["artist:2", "artist:1"].map(key);
    let both = Audience::followers_of(keys).unwrap();
    api.town.happens(&["a1"], both).await;

    api.town.digests_at(monday(0)).await;

    let text = |email: Message| email.fill_links().text;
    let (ben, cem) = (email_to(&api, "ben"), email_to(&api, "cem"));
    let (ben, cem) = (text(ben), text(cem));
    assert!(ben.contains("Ines Tavoro") && !ben.contains("Lind"), "{ben}");
    assert!(cem.contains("Lind") && !cem.contains("Tavoro"), "{cem}");
    api.stop().await;
}

async fn an_email_does_not_name_untitled_or_withdrawn_follows(fresh: Fresh) {
    let api = api(&fresh).await;
    let hidden = json!({"title": "Ines Tavoro", "notifiable": false});
    api.put("/v1/objects/artist/1", hidden).await;
    api.put("/v1/objects/artist/2", json!({"title": " "})).await;
    let nameless = [(key("artist:3"), user("ada"))];
    api.town.store.follow(&nameless).await;
    for (work, artist) in [("a1", "1"), ("a2", "2"), ("a3", "3")] {
        let followers = followers_of(&format!("artist:{artist}"));
        api.town.happens(&[work], followers).await;
    }
    api.town.happens(&["a4"], to(&["ada"])).await;

    api.town.digests_at(monday(0)).await;

    let text = email_to(&api, "ada").fill_links().text;
    assert_contains!(text, "Work a4.");
    assert_contains!(text, "Work a1.");
    assert!(!text.contains("Because you follow"), "{text}");
    assert!(!text.contains("unfollow"), "{text}");
    api.stop().await;
}

async fn a_batch_email_names_what_its_reader_follows(fresh: Fresh) {
    let api = api(&fresh).await;
    let alert = tidings::engine::ingest::NewEvent {
        kind: tidings::domain::EventType::stored("Alert"),
        ..request(&["a1"], followers_of("artist:2"), None)
    };
    api.app.notify().accept(vec![alert]).await.unwrap();
    api.fan_out().await;
    api.town.send_due_in(6).await;

    let email = email_to(&api, "cem");
    let html = email.fill_links().html;
    assert!(html.contains("Bo “B” Lind"), "{html}");
    unfollow(&email, "artist%3A2");
    api.stop().await;
}

async fn a_link_cannot_add_a_follow(fresh: Fresh) {
    let api = api(&fresh).await;
    let own = path(&api, "ada", saturday()).await;
    let before = follows(&api, "ada").await;

    let page = api.browse(&format!("{own}/preferences?unfollow=secret%3A1")).await;

    assert_eq!(page.status, 200);
    assert_contains!(page.html, "You do not follow this");
    assert!(!page.html.contains("<form"), "{}", page.html);
    assert_eq!(follows(&api, "ada").await, before);
    api.stop().await;
}

async fn a_preview_names_the_same_follows_as_the_email(fresh: Fresh) {
    let api = api(&fresh).await;
    // More events than an email shows, and older ones than those it shows.
    let many: Vec<String> = (0..250).map(|n| format!("b{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    api.town.put_works(&many, |_| true).await;
    for works in many.chunks(100) {
        api.town.happens(works, to(&["ada"])).await;
    }
    api.town.clock.advance(TimeDelta::minutes(1));
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    let drafts = api.app.user_emails().draft_emails(&user("ada"), None).await.unwrap();
    api.town.digests_at(monday(0)).await;
    let row = api.town.deliveries_of("ada").await.pop().unwrap();
    let story = api.app.compose().describe_delivery(row).await.unwrap();

    let named = |because: &[tidings::domain::email_sections::FollowReason]| {
        let names = because.iter().map(|one| one.name.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(named(&drafts[0].content.follow_reasons), ["Ines Tavoro"]);
    assert!(story.email.unwrap().text.contains("Ines Tavoro"));
    api.stop().await;
}

async fn an_email_names_three_follows_by_number_of_events(fresh: Fresh) {
    let api = api(&fresh).await;
    for artist in ["3", "4", "5"] {
        let record = json!({"title": format!("Artist {artist}")});
        api.put(&format!("/v1/objects/artist/{artist}"), record).await;
        let follow = [(key(&format!("artist:{artist}")), user("ada"))];
        api.town.store.follow(&follow).await;
    }
    for (work, artist) in
        [("a1", "4"), ("a2", "5"), ("a3", "1"), ("a4", "3"), ("a5", "3"), ("a6", "3")]
    {
        let followers = followers_of(&format!("artist:{artist}"));
        api.town.happens(&[work], followers).await;
    }

    api.town.digests_at(monday(0)).await;

    let text = email_to(&api, "ada").fill_links().text;
    let because = "Because you follow Artist 3, Ines Tavoro and Artist 5.\n";
    assert!(text.contains(because), "{text}");
    assert_eq!(text.matches("Because").count(), 1);
    api.stop().await;
}

async fn an_untitled_object_is_unfollowed_by_its_key(fresh: Fresh) {
    let api = api(&fresh).await;
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    api.town.digests_at(monday(0)).await;
    let link = unfollow(&email_to(&api, "ada"), "artist%3A1");
    api.put("/v1/objects/artist/1", json!({"title": " "})).await;

    let prompt = api.browse(&link).await;
    let (path, fields) = form(&prompt, "Unfollow");
    let ended = api.submit(&path, &fields).await;

    assert_contains!(prompt.html, "Unfollow artist:1?");
    assert_contains!(ended.html, "You no longer follow artist:1");
    assert_eq!(follows(&api, "ada").await, ["artist:2"]);
    api.stop().await;
}
