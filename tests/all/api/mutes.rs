//! Mutes over the API and through the links in emails.
//!
//! The tests use links from emails that were sent, and check mutes in later emails and feeds.

use chrono::TimeDelta;
use serde_json::{Value, json};
use tidings::clock::Clock;
use tidings::domain::{Object, ObjectKey};
use tidings::email::Message;

use super::pages::{CLICK, PUBLIC};
use super::stops::{TYPES, api, form};
use super::{Api, pages};
use crate::support::Fresh;
use crate::support::town::{monday, mostly_on_sqlite};

mostly_on_sqlite! {
    a_subject_is_muted_listed_and_unmuted
    the_link_of_an_email_about_one_subject_mutes_only_that
    a_mute_takes_effect_in_a_cached_feed_at_once
}

on_sqlite! {
    invalid_mutes_are_rejected
    following_the_link_changes_nothing
    only_emails_about_one_subject_have_a_mute_link
    the_preferences_page_lists_mutes_and_removes_them
    a_mute_beyond_the_limit_is_rejected_and_changes_nothing
    quiet_hours_can_be_set_by_the_api_and_on_the_page
}

const MUTES: &str = "/v1/users/ada/mutes";

/// Returns the path of the mute link in an email's body, if there is one.
fn mute_link(email: &Message) -> Option<String> {
    let filled = email.fill_links();
    let (_, after) = filled.text.split_once("\nMute ")?;
    let link = after.lines().nth(1).unwrap();
    assert!(filled.html.contains(&format!("href=\"{link}\"")), "{link}");
    let headers = email.headers();
    assert!(!headers.iter().any(|(_, value)| value.contains(link)));
    Some(link.strip_prefix(PUBLIC).unwrap().to_owned())
}

/// Posts a comment on the budget, a document with its own URL.
async fn comment(api: &Api, name: &str) {
    let object = Object {
        title: Some(format!("Work {name}.")),
        data: json!({"about": {"title": "Budget <2014>", "url": "https://docs.example/b?x=1"}})
            .into(),
        ..Object::without_data(ObjectKey::stored(name))
    };
    api.town.store.put_objects(&[object]).await.unwrap();
    api.happens("Comment", name).await;
}

async fn list_mutes(api: &Api) -> Value {
    api.get(MUTES).await.body["mutes"].clone()
}

async fn a_subject_is_muted_listed_and_unmuted(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    let path = format!("{MUTES}/https%3A%2F%2Fdocs.example%2Fb%3Fx%3D1");
    let now = api.town.clock.now();
    let until = now + TimeDelta::days(7);

    let bare = super::answer(api.ask("PUT", &format!("{MUTES}/artist:7"))).await;
    let body = json!({"until": until, "title": "Budget"});
    let put = api.put(&path, body).await;
    let listed = list_mutes(&api).await;
    let gone = api.delete(&path).await;
    let again = api.delete(&path).await;
    let past = api.put(&format!("{MUTES}/a9"), json!({"until": now})).await;

    let statuses = [bare, put, gone, again, past].map(|answer| answer.status);
    assert_eq!(statuses, [204; 5]);
    let zulu = |at: chrono::DateTime<chrono::Utc>| json!(at);
    assert_eq!(
        listed,
        json!([
            {"subject": "artist:7", "title": null, "at": zulu(now), "until": null},
            {"subject": "https://docs.example/b?x=1", "title": "Budget", "at": zulu(now), "until": zulu(until)},
        ])
    );
    let left = list_mutes(&api).await;
    assert_eq!((left.as_array().unwrap().len(), &left[0]["subject"]), (1, &json!("artist:7")));
    api.stop().await;
}

async fn invalid_mutes_are_rejected(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    let long = format!("{MUTES}/{}", "x".repeat(257));
    for (path, body, status) in [
        (format!("{MUTES}/a%00"), json!({}), 400),
        (long, json!({}), 400),
        (format!("{MUTES}/a1"), json!({"until": "soon"}), 400),
        (format!("{MUTES}/a1"), json!({"title": "a\nb"}), 400),
        (format!("{MUTES}/a1"), json!({"till": null}), 400),
        (format!("{MUTES}/a1"), json!([]), 400),
        ("/v1/users/nobody/mutes/a1".to_owned(), json!({}), 404),
    ] {
        let refused = api.put(&path, body.clone()).await;
        assert_eq!(refused.status, status, "{path} {body}: {}", refused.body);
    }
    for (method, path) in
        [("GET", "/v1/users/nobody/mutes"), ("DELETE", "/v1/users/nobody/mutes/a")]
    {
        let unknown = super::answer(api.ask(method, path)).await;
        assert_eq!((unknown.status, unknown.code()), (404, "unknown_user"));
    }
    assert_eq!(list_mutes(&api).await, json!([]));
    api.stop().await;
}

async fn the_link_of_an_email_about_one_subject_mutes_only_that(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    comment(&api, "a1").await;
    comment(&api, "a2").await;
    api.batches().await;
    let link = mute_link(&api.last()).unwrap();

    let done = api.submit(&link, CLICK).await;
    let after = api.ada().await;
    comment(&api, "a3").await;
    api.happens("Comment", "a4").await;
    api.batches().await;
    let text = api.last().fill_links().text;
    api.town.clock.advance(TimeDelta::minutes(1));
    let again = api.submit(&link, CLICK).await;

    assert_eq!((done.status, again.status), (200, 200));
    for fragment in
        ["<h1>Muted</h1>", "<bdi>Budget &lt;2014&gt;</bdi>", "Comments", ">Unmute</button>"]
    {
        assert!(done.html.contains(fragment), "{fragment}: {}", done.html);
    }
    assert!(after.types.is_empty() && after.unsubscribed.is_none());
    assert!(text.contains("Work a4.") && !text.contains("Work a3."), "{text}");
    assert_eq!(api.ada().await, after, "again, it changes nothing");
    assert!(again.html.contains(">Unmute</button>"), "{}", again.html);
    assert_eq!(list_mutes(&api).await[0]["title"], "Budget <2014>");

    // Events of the muted period are not emailed later.
    let (path, fields) = form(&done, "Unmute");
    let back = api.submit(&path, &fields.replace("&#x2f;", "/")).await;
    api.town.clock.advance(TimeDelta::minutes(1));
    comment(&api, "a5").await;
    api.batches().await;
    assert!(back.html.contains("Saved."), "{}", back.html);
    let text = api.last().fill_links().text;
    assert!(text.contains("Work a5.") && !text.contains("Work a3."), "{text}");
    assert_eq!(list_mutes(&api).await, json!([]));
    api.stop().await;
}

async fn following_the_link_changes_nothing(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    comment(&api, "a1").await;
    api.batches().await;
    let link = mute_link(&api.last()).unwrap();
    let before = api.ada().await;

    for method in ["GET", "HEAD", "GET"] {
        for path in [link.clone(), format!("{link}/preferences")] {
            let page = pages::shown(api.anonymous(method, &path)).await;
            assert_eq!(page.status, 200, "{method} {path}");
        }
    }
    let empty = api.submit(&link, "").await;
    let both = api.submit(&format!("{link}/preferences"), "unmute=a1&cadence=daily").await;

    assert_eq!((empty.status, both.status), (400, 400));
    assert_eq!(api.ada().await, before);
    let page = api.browse(&link).await.html;
    assert!(page.contains("Mute this?") && page.contains("<bdi>Budget &lt;2014&gt;</bdi>"));
    assert!(!page.contains("ada@"));
    api.stop().await;
}

async fn only_emails_about_one_subject_have_a_mute_link(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    comment(&api, "a1").await;
    api.happens("Comment", "a4").await;
    api.batches().await;
    let several = api.last();
    api.happens("ArtworkPublished", "a2").await;
    api.town.digests_at(monday(0)).await;
    let digest = api.last();
    api.happens("Alarm", "a3").await;
    api.batches().await;
    let alone = api.last();

    assert_eq!((mute_link(&several), mute_link(&digest)), (None, None));
    assert!(alone.fill_links().text.contains("\nMute Work a3.:"));
    assert!(mute_link(&alone).is_some());
    api.stop().await;
}

async fn the_preferences_page_lists_mutes_and_removes_them(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    let path = pages::path(&api, "ada", api.town.clock.now()).await + "/preferences";
    assert!(!api.browse(&path).await.html.contains("Muted"));
    let until = api.town.clock.now() + TimeDelta::days(7);
    api.put(&format!("{MUTES}/a1"), json!({})).await;
    api.put(&format!("{MUTES}/artist:7"), json!({"title": "Ines Tavoro", "until": until})).await;
    api.put(&format!("{MUTES}/b"), json!({})).await;
    api.delete(&format!("{MUTES}/b")).await;

    let shown = api.browse(&path).await.html;
    let unmuted = api.submit(&path, "unmute=a1").await;

    for fragment in ["<bdi>Work a1.</bdi>", "<bdi>Ines Tavoro</bdi>", "26 April 2014"] {
        assert!(shown.contains(fragment), "{fragment}: {shown}");
    }
    assert_eq!(shown.matches(">Unmute</button>").count(), 2);
    assert_eq!(unmuted.status, 200);
    assert!(unmuted.html.contains("Saved.") && !unmuted.html.contains("Work a1."));
    assert_eq!(list_mutes(&api).await[0]["subject"], "artist:7");
    assert_eq!(list_mutes(&api).await.as_array().unwrap().len(), 1);
    api.stop().await;
}

async fn a_mute_beyond_the_limit_is_rejected_and_changes_nothing(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    comment(&api, "a1").await;
    api.batches().await;
    let link = mute_link(&api.last()).unwrap();
    let now = api.town.clock.now();
    api.town
        .change("ada", |ada| {
            for n in 0..1_000 {
                let subject = format!("Thread:{n}").parse().unwrap();
                ada.mutes.mute(subject, None, None, now);
            }
        })
        .await;

    let refused = api.submit(&link, CLICK).await;
    let too_many = api.put(&format!("{MUTES}/a1"), json!({})).await;

    assert_eq!(refused.status, 400);
    assert!(refused.html.contains("1000 subjects"), "{}", refused.html);
    assert_eq!((too_many.status, too_many.code()), (413, "limit_exceeded"));
    assert_eq!(api.ada().await.mutes.len(), 1_000);
    api.stop().await;
}

async fn a_mute_takes_effect_in_a_cached_feed_at_once(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("Comment", "a1").await;
    let page = api.get("/v1/users/ada/feed").await;
    let tag = page.header("ETag").to_owned();

    api.put(&format!("{MUTES}/a1"), json!({})).await;
    let poll = api.ask("GET", "/v1/users/ada/feed");
    let poll = super::answer(poll.header("If-None-Match", tag)).await;

    assert_eq!((&page.body["unread"], poll.status), (&json!(1), 200));
    assert_eq!(poll.body["unread"], 0);
    assert_eq!(poll.body["items"][0]["state"], "read");
    api.stop().await;
}

async fn quiet_hours_can_be_set_by_the_api_and_on_the_page(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    let preferences = "/v1/users/ada/preferences";
    let path = pages::path(&api, "ada", api.town.clock.now()).await + "/preferences";
    let night = json!({"from": "22:00", "to": "07:30"});

    let put = api.put(preferences, json!({"quiet": night})).await;
    let stored = api.get(preferences).await;
    // A PUT of the user's record without quiet hours does not change them.
    let record = json!({"email": "ada@example.org", "confirmed": true});
    api.put("/v1/users/ada", record).await;
    let page = api.browse(&path).await.html;

    assert_eq!((put.status, &put.body["quiet"]), (200, &night));
    assert_eq!(stored.body["quiet"], night);
    assert_eq!(api.get("/v1/users/ada").await.body["quiet"], night);
    for field in ["name=\"quiet-from\" value=\"22:00\"", "name=\"quiet-to\" value=\"07:30\""] {
        assert!(page.contains(field), "{field}: {page}");
    }
    for wrong in [
        json!({"from": "22:00"}),
        json!({"from": "22:00", "to": "22:00"}),
        json!({"from": "22", "to": "07:00"}),
        json!(["22:00", "07:00"]),
        json!("22:00"),
    ] {
        let refused = api.put(preferences, json!({"quiet": wrong})).await;
        assert_eq!(refused.status, 400, "{wrong}: {}", refused.body);
    }
    for wrong in ["quiet-from=22:00", "quiet-from=22:00&quiet-to=", "quiet-from=x&quiet-to=07:00"] {
        assert_eq!(api.submit(&path, wrong).await.status, 400, "{wrong}");
    }
    for half in ["quiet-from=22:00&quiet-to=", "quiet-from=&quiet-to=07:00"] {
        let page = api.submit(&path, half).await.html;
        for part in [
            "Quiet hours need both times, or neither",
            "“From” and “Until”",
            "<a href=\"preferences\">",
        ] {
            assert!(page.contains(part), "{half}: {part}: {page}");
        }
    }
    assert_eq!(api.get(preferences).await.body["quiet"], night);

    // Another choice does not change them; empty fields on the page clear them.
    api.submit(&path, "cadence=daily").await;
    assert_eq!(api.get(preferences).await.body["quiet"], night);
    api.submit(&path, "quiet-from=21:00&quiet-to=06:00").await;
    let others = json!({"from": "21:00", "to": "06:00"});
    assert_eq!(api.get(preferences).await.body["quiet"], others);
    api.submit(&path, "quiet-from=&quiet-to=").await;
    assert_eq!(api.get(preferences).await.body["quiet"], Value::Null);
    api.put(preferences, json!({"quiet": night})).await;
    api.put("/v1/users/ada", json!({"quiet": null})).await;
    assert_eq!(api.get(preferences).await.body["quiet"], Value::Null);
    api.stop().await;
}
