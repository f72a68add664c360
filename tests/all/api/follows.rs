//! Why a mail concerns its reader, and how they unfollow what they follow, over real HTTP.
//!
//! The rule (P7, P8): a mail names what its reader follows at that moment; its link asks, changes
//! nothing by being read, ends one follow and lets nobody follow what they never did.

use std::collections::HashSet;

use chrono::TimeDelta;
use serde_json::json;
use tidings::domain::{Audience, FollowKey};
use tidings::email::Message;
use tidings::engine::Silent;
use tidings::store::FollowChange;

use super::pages::{CLICK, PUBLIC, path};
use super::stops::form;
use super::{Api, pages};
use crate::support::town::{followers_of, monday, on_both_stores, request, saturday, to};
use crate::support::{Fresh, Shorthand, key, user};

on_both_stores! {
    a_mail_says_what_its_reader_follows_and_its_link_unfollows_it
    whoever_follows_the_same_shares_a_mail_and_nobody_else
}

on_sqlite! {
    of_several_keys_the_one_is_named_that_is_followed
    nothing_is_said_of_what_has_no_name_or_is_withdrawn
    a_batch_says_it_too
    nobody_can_follow_by_a_link_what_they_do_not
    a_mail_that_is_looked_at_says_what_the_mail_will_say
    of_many_follows_three_are_named_most_of_it_first
    what_was_unfollowed_is_followed_again_on_the_page_and_not_later
    what_lost_its_name_is_unfollowed_by_its_key
}

async fn api(fresh: &Fresh) -> Api {
    let api = pages::api(fresh).await;
    for (artist, name) in [("1", "Ines Tavoro"), ("2", "Bo “B” Lind")] {
        let record = json!({"title": name, "url": format!("https://example.org/{artist}")});
        api.put(&format!("/v1/objects/artist/{artist}"), record)
            .await;
    }
    api
}

fn mail_to(api: &Api, person: &str) -> Message {
    let mails = api.town.mails().into_iter();
    let address = format!("{person}@example.org");
    let mut theirs = mails.filter(|mail| mail.to.reveal() == address);
    theirs
        .next_back()
        .unwrap_or_else(|| panic!("no mail to {person}"))
}

/// The path behind the link to unfollow this.
fn unfollow(mail: &Message, key: &str) -> String {
    let text = mail.filled().text;
    let links = text.lines().filter_map(|line| line.strip_prefix(PUBLIC));
    let mut links = links.filter(|link| link.ends_with(&format!("?unfollow={key}")));
    let link = links.next();
    link.unwrap_or_else(|| panic!("no link to unfollow {key} in {text}"))
        .to_owned()
}

async fn follows(api: &Api, person: &str) -> Vec<String> {
    let found = api.town.store.follows(&user(person), None, 100).await;
    found.unwrap().iter().map(FollowKey::to_string).collect()
}

async fn a_mail_says_what_its_reader_follows_and_its_link_unfollows_it(fresh: Fresh) {
    let api = api(&fresh).await;
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    api.town.digests_at(monday(0)).await;
    let mail = mail_to(&api, "ada");
    let link = unfollow(&mail, "artist%3A1");

    let asked = api.browse(&link).await;
    let unchanged = follows(&api, "ada").await;
    let (path, fields) = form(&asked, "Unfollow");
    let ended = api.submit(&path, &fields).await;
    let left = follows(&api, "ada").await;
    let twice = api.submit(&path, &fields).await;
    let old = api.browse(&link).await;
    let (undo, again) = form(&ended, "Undo");
    let back = api.submit(&undo, &again).await;
    let followed = follows(&api, "ada").await;
    api.submit(&path, &fields).await;
    api.town.happens(&["a2"], followers_of("artist:1")).await;
    api.town.digests_at(monday(1)).await;
    let told = api.town.told_to("ada");

    let (html, text) = (mail.filled().html, mail.filled().text);
    assert!(text.contains("Because you follow Ines Tavoro"), "{text}");
    assert!(html.contains(">Ines Tavoro</span></a>"), "{html}");
    assert!(html.contains("?unfollow=artist%3A1\""), "{html}");
    assert!(
        asked.html.contains("<h1>Unfollow Ines Tavoro?</h1>"),
        "{}",
        asked.html
    );
    assert_eq!(unchanged, ["artist:1", "artist:2"], "GET changes nothing");
    assert_eq!((ended.status, twice.status), (200, 200));
    for page in [&ended, &twice] {
        assert!(page.html.contains("You no longer follow"), "{}", page.html);
    }
    assert_eq!(left, ["artist:2"]);
    assert_eq!(old.status, 200);
    assert!(old.html.contains("You do not follow this"), "{}", old.html);
    assert_eq!(told, ["a1"], "nothing more of it comes");
    assert!(back.html.contains("again."), "{}", back.html);
    assert_eq!(followed, ["artist:1", "artist:2"]);
    api.stop().await;
}

async fn whoever_follows_the_same_shares_a_mail_and_nobody_else(fresh: Fresh) {
    let api = api(&fresh).await;
    let crowd = api.town.crowd(20).await;
    let all: Vec<_> = crowd
        .iter()
        .map(|one| (key("artist:1"), user(one)))
        .collect();
    api.town.store.follow(&all).await.unwrap();
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    // Before their mail is made, one of them has had enough, of what is on its way too.
    let unfollow = FollowChange::Unfollow;
    let store = &api.town.store;
    store.change_follows(unfollow, &all[..1]).await.unwrap();

    api.town.digests_at(monday(0)).await;

    let mails = api.town.mails();
    let because = |mail: &&Message| mail.filled().text.contains("Because you follow");
    let (said, unsaid): (Vec<&Message>, Vec<&Message>) = mails.iter().partition(because);
    let contents = |mails: &[&Message]| {
        let all = mails.iter().map(|mail| &*mail.content);
        all.collect::<HashSet<_>>().len()
    };
    let unsaid_to: Vec<&str> = unsaid.iter().map(|mail| mail.to.reveal()).collect();
    assert_eq!(unsaid_to, [format!("{}@example.org", crowd[0])]);
    assert_eq!((said.len(), contents(&said)), (mails.len() - 1, 1));
    api.stop().await;
}

async fn of_several_keys_the_one_is_named_that_is_followed(fresh: Fresh) {
    let api = api(&fresh).await;
    let keys = ["artist:2", "artist:1"].map(key);
    let both = Audience::followers_of(keys).unwrap();
    api.town.happens(&["a1"], both).await;

    api.town.digests_at(monday(0)).await;

    let text = |mail: Message| mail.filled().text;
    let (ben, cem) = (mail_to(&api, "ben"), mail_to(&api, "cem"));
    let (ben, cem) = (text(ben), text(cem));
    assert!(
        ben.contains("Ines Tavoro") && !ben.contains("Lind"),
        "{ben}"
    );
    assert!(cem.contains("Lind") && !cem.contains("Tavoro"), "{cem}");
    api.stop().await;
}

async fn nothing_is_said_of_what_has_no_name_or_is_withdrawn(fresh: Fresh) {
    let api = api(&fresh).await;
    let hidden = json!({"title": "Ines Tavoro", "notifiable": false});
    api.put("/v1/objects/artist/1", hidden).await;
    api.put("/v1/objects/artist/2", json!({"title": " "})).await;
    let nameless = [(key("artist:3"), user("ada"))];
    api.town.store.follow(&nameless).await.unwrap();
    for (work, artist) in [("a1", "1"), ("a2", "2"), ("a3", "3")] {
        let followers = followers_of(&format!("artist:{artist}"));
        api.town.happens(&[work], followers).await;
    }
    api.town.happens(&["a4"], to(&["ada"])).await;

    api.town.digests_at(monday(0)).await;

    let text = mail_to(&api, "ada").filled().text;
    assert!(
        text.contains("Work a4.") && text.contains("Work a1."),
        "{text}"
    );
    assert!(!text.contains("Because you follow"), "{text}");
    assert!(!text.contains("unfollow"), "{text}");
    api.stop().await;
}

async fn a_batch_says_it_too(fresh: Fresh) {
    let api = api(&fresh).await;
    let alert = tidings::engine::ingest::notify::Request {
        kind: tidings::domain::EventType::stored("Alert"),
        ..request(&["a1"], followers_of("artist:2"), None)
    };
    api.app.notify().accept(vec![alert]).await.unwrap();
    api.fan_out().await;
    api.town.clock.advance(TimeDelta::minutes(6));
    api.app.closer().drain(&Silent).await.unwrap();
    api.app.sender().drain().await.unwrap();

    let mail = mail_to(&api, "cem");
    let html = mail.filled().html;
    assert!(html.contains("Bo “B” Lind"), "{html}");
    unfollow(&mail, "artist%3A2");
    api.stop().await;
}

async fn nobody_can_follow_by_a_link_what_they_do_not(fresh: Fresh) {
    let api = api(&fresh).await;
    let own = path(&api, "ada", saturday()).await;
    let before = follows(&api, "ada").await;

    let asked = api
        .browse(&format!("{own}/preferences?unfollow=secret%3A1"))
        .await;
    let ended = api.submit(&own, &format!("{CLICK}&follow=again")).await;

    assert_eq!(asked.status, 200);
    assert!(
        asked.html.contains("You do not follow this"),
        "{}",
        asked.html
    );
    assert!(!asked.html.contains("<form"), "{}", asked.html);
    // To a link that ends no follow the field says nothing.
    assert!(
        ended.html.contains("You are unsubscribed"),
        "{}",
        ended.html
    );
    assert_eq!(follows(&api, "ada").await, before);
    api.stop().await;
}

async fn a_mail_that_is_looked_at_says_what_the_mail_will_say(fresh: Fresh) {
    let api = api(&fresh).await;
    // More than a mail shows, and older than what it shows.
    let many: Vec<String> = (0..250).map(|n| format!("b{n}")).collect();
    let many: Vec<&str> = many.iter().map(String::as_str).collect();
    api.town.put_works(&many, |_| true).await;
    for works in many.chunks(100) {
        api.town.happens(works, to(&["ada"])).await;
    }
    api.town.clock.advance(TimeDelta::minutes(1));
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    let drafts = api.app.of_person().drafts(&user("ada")).await.unwrap();
    api.town.digests_at(monday(0)).await;
    let row = api.town.deliveries_of("ada").await.pop().unwrap();
    let story = api.app.compose().story(row).await.unwrap();

    let named = |because: &[tidings::domain::content::Followed]| {
        let names = because.iter().map(|one| one.name.clone());
        names.collect::<Vec<_>>()
    };
    assert_eq!(named(&drafts[0].content.because), ["Ines Tavoro"]);
    assert!(story.mail.unwrap().text.contains("Ines Tavoro"));
    api.stop().await;
}

async fn of_many_follows_three_are_named_most_of_it_first(fresh: Fresh) {
    let api = api(&fresh).await;
    for artist in ["3", "4", "5"] {
        let record = json!({"title": format!("Artist {artist}")});
        api.put(&format!("/v1/objects/artist/{artist}"), record)
            .await;
        let follow = [(key(&format!("artist:{artist}")), user("ada"))];
        api.town.store.follow(&follow).await.unwrap();
    }
    for (work, artist) in [
        ("a1", "4"),
        ("a2", "5"),
        ("a3", "1"),
        ("a4", "3"),
        ("a5", "3"),
        ("a6", "3"),
    ] {
        let followers = followers_of(&format!("artist:{artist}"));
        api.town.happens(&[work], followers).await;
    }

    api.town.digests_at(monday(0)).await;

    let text = mail_to(&api, "ada").filled().text;
    let because = "Because you follow Artist 3, Ines Tavoro and Artist 5.\n";
    assert!(text.contains(because), "{text}");
    assert_eq!(text.matches("Because").count(), 1);
    api.stop().await;
}

async fn what_was_unfollowed_is_followed_again_on_the_page_and_not_later(fresh: Fresh) {
    let api = api(&fresh).await;
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    api.town.digests_at(monday(0)).await;
    let link = |person| unfollow(&person, "artist%3A1");
    let (ada, ben) = (mail_to(&api, "ada"), mail_to(&api, "ben"));
    let mut undo = Vec::new();
    for link in [link(ada), link(ben)] {
        let (path, fields) = form(&api.browse(&link).await, "Unfollow");
        undo.push(form(&api.submit(&path, &fields).await, "Undo"));
    }

    api.town.clock.advance(TimeDelta::hours(2));
    let late = api.submit(&undo[0].0, &undo[0].1).await;
    api.town.store.delete_user(&user("ben")).await.unwrap();
    let gone = api.submit(&undo[1].0, &undo[1].1).await;

    assert_eq!((late.status, gone.status), (410, 200));
    assert!(
        gone.html.contains("no longer have a record"),
        "{}",
        gone.html
    );
    assert_eq!(follows(&api, "ada").await, ["artist:2"]);
    assert_eq!(follows(&api, "ben").await, [] as [String; 0]);
    api.stop().await;
}

async fn what_lost_its_name_is_unfollowed_by_its_key(fresh: Fresh) {
    let api = api(&fresh).await;
    api.town.happens(&["a1"], followers_of("artist:1")).await;
    api.town.digests_at(monday(0)).await;
    let link = unfollow(&mail_to(&api, "ada"), "artist%3A1");
    api.put("/v1/objects/artist/1", json!({"title": " "})).await;

    let asked = api.browse(&link).await;
    let (path, fields) = form(&asked, "Unfollow");
    let ended = api.submit(&path, &fields).await;

    assert!(asked.html.contains("Unfollow artist:1?"), "{}", asked.html);
    assert!(
        ended.html.contains("You no longer follow artist:1"),
        "{}",
        ended.html
    );
    assert_eq!(follows(&api, "ada").await, ["artist:2"]);
    api.stop().await;
}
