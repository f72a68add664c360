//! Options of event types: categories, mandatory types, and types that feeds do not show.

use serde_json::{Value, json};
use tidings::clock::Clock;
use tidings::domain::{Cadence, Route};
use tidings::wire::explanation::EventStatus;

use super::marks::{counts, feed, mark};
use super::pages::path;
use super::{Api, objects};
use crate::support::town::{Town, monday, mostly_on_sqlite, saturday};
use crate::support::{Fresh, assert_contains, kind, user};

mostly_on_sqlite! {
    a_type_hidden_from_feeds_is_only_emailed
    feeds_and_marks_can_be_filtered_by_category
    preferences_are_grouped_by_category
    a_mandatory_type_ignores_stored_choices_and_rejects_new_ones
    the_page_locks_mandatory_types_and_rejects_choices_of_them
}

const CONFIG: &str = r#"
server.listen = "127.0.0.1:0"
server.public_url = "https://news.example.org/mail"
server.link_secret = "the link secret of the tests"
[types.Loan]
category = "Gallery"
heading = "Loans"
[types.Reply]
category = "Community"
[types.Show]
category = "Gallery"
[types.Plain]
[types.Notice]
category = "Account"
heading = "Security notices"
route = "immediate"
mandatory = "Security notices cannot be turned off"
[types.Quiet]
feed = false
"#;

async fn api(fresh: &Fresh) -> Api {
    Api::of(Town::found(fresh, true, CONFIG).await)
}

async fn post_event(api: &Api, name: &str, names: &[&str]) {
    let event = json!({"type": name, "objects": names, "to": "ada"});
    assert_eq!(api.post("/v1/events", event).await.status, 202);
    api.fan_out().await;
}

async fn a_type_hidden_from_feeds_is_only_emailed(fresh: Fresh) {
    let api = api(&fresh).await;
    post_event(&api, "Quiet", &["a1"]).await;
    let empty = feed(&api, "").await;
    post_event(&api, "Loan", &["a2"]).await;
    post_event(&api, "Quiet", &["a3", "a2"]).await;

    let page = feed(&api, "").await;
    let hidden_type = feed(&api, "?type=Quiet&state=all").await;
    let since = format!("?after={}", empty.body["cursor"].as_str().unwrap());
    let since = feed(&api, &since).await;
    let counted = api.get("/v1/users/ada/feed/count").await;
    let position = |n: usize| format!("20140419.{n}");
    let hidden = mark(&api, json!({"mark": "read", "ids": [position(0), position(2)]})).await;
    let cursor = page.body["cursor"].clone();
    let read = mark(&api, json!({"mark": "read", "to": cursor})).await;

    assert_eq!((objects(&empty), counts(&empty)), (vec![], (0, 0)));
    assert_eq!((objects(&page), counts(&page)), (vec!["a2".into()], (1, 1)));
    // Positions and the cursor count hidden items too.
    assert_eq!(page.body["items"][0]["id"], position(1));
    assert_eq!(cursor, "c20140419.4");
    assert!(objects(&hidden_type).is_empty());
    assert_eq!(objects(&since), ["a2"]);
    assert_eq!((counts(&counted), counts(&hidden)), ((1, 1), (1, 1)));
    assert_eq!(counts(&read), (0, 0));

    // The marks did not affect the hidden items.
    let shown = CONFIG.replace("feed = false", "feed = true");
    let town = Town::on(fresh.handle(), tidings::email::Resolution::Impossible, &shown);
    let later = town.process().feeds().counts(&user("ada"), false).await.unwrap();
    assert_eq!((later.answer.unseen, later.answer.unread), (3, 3));

    let explained = api.app.explain().user(&user("ada"), None).await.unwrap();
    let fates = explained.events.iter().rev();
    let fates: Vec<_> = fates.map(|fate| (fate.in_feed, fate.status)).collect();
    let (quiet, loan) = ((false, EventStatus::NextDigest), (true, EventStatus::NextDigest));
    assert_eq!(fates, [quiet, loan, quiet, quiet]);
    assert_eq!(api.town.digests_at(monday(0)).await.emails.events, 4);
    api.stop().await;
}

async fn feeds_and_marks_can_be_filtered_by_category(fresh: Fresh) {
    let api = api(&fresh).await;
    for (name, work) in
        [("Loan", "a1"), ("Reply", "a2"), ("Show", "a3"), ("Plain", "a4"), ("Nobody", "a5")]
    {
        post_event(&api, name, &[work]).await;
    }

    let gallery = feed(&api, "?category=Gallery").await;
    let loans = feed(&api, "?category=Gallery&type=Loan").await;
    let replies = feed(&api, "?category=Gallery&type=Reply").await;
    let unknown = feed(&api, "?category=Kitchen").await;
    let nothing = api.get("/v1/users/ada/feed?category=").await;
    let cursor = gallery.body["cursor"].clone();
    let some = json!({"mark": "read", "to": cursor, "category": "Gallery"});
    let some = mark(&api, some).await;
    let none = json!({"mark": "read", "to": cursor, "category": "Kitchen"});
    let none = mark(&api, none).await;
    let ids = json!({"mark": "read", "ids": ["20140419.3"], "category": "Gallery"});
    let ids = mark(&api, ids).await;

    assert_eq!(objects(&gallery), ["a3", "a1"]);
    assert_eq!(objects(&loans), ["a1"]);
    assert!(objects(&replies).is_empty() && objects(&unknown).is_empty());
    assert_eq!((nothing.status, ids.status), (400, 400));
    let detail = ids.body["detail"].as_str().unwrap();
    assert_contains!(detail, "category \"Gallery\" is only known beside to");
    assert_eq!((counts(&some), counts(&none)), ((3, 3), (3, 3)));
    let read = feed(&api, "?state=read").await;
    assert_eq!(objects(&read), ["a3", "a1"]);
    api.stop().await;
}

async fn preferences_are_grouped_by_category(fresh: Fresh) {
    let api = api(&fresh).await;
    post_event(&api, "Nobody", &["a1"]).await;

    let preferences = api.get("/v1/users/ada/preferences").await;

    assert_eq!(
        preferences.body["categories"],
        json!([
            {"name": null, "types": ["Plain", "Quiet"]},
            {"name": "Gallery", "types": ["Loan", "Show"]},
            {"name": "Community", "types": ["Reply"]},
            {"name": "Account", "types": ["Notice"]},
        ])
    );
    assert_eq!(
        preferences.body["types"]["Notice"],
        json!({
            "heading": "Security notices", "category": "Account", "route": "immediate", "window": null,
            "chosen": false, "mandatory": "Security notices cannot be turned off", "feed": true,
        })
    );
    assert_eq!(preferences.body["types"]["Quiet"]["feed"], false);
    assert_eq!(preferences.body["types"]["Loan"]["mandatory"], Value::Null);
    api.stop().await;
}

async fn a_mandatory_type_ignores_stored_choices_and_rejects_new_ones(fresh: Fresh) {
    let api = api(&fresh).await;
    let choice = json!({"types": {"Loan": {"route": "never"}, "Notice": {"route": "never"}}});
    let preferences = "/v1/users/ada/preferences";

    let refused = api.put(preferences, choice.clone()).await;
    let before = api.get(preferences).await;
    let patched = api.ask("PATCH", "/v1/users/ada").json(&choice);
    let patched = patched.send().await.unwrap().status().as_u16();
    let after = api.get(preferences).await;
    let cleared = api.put(preferences, json!({"types": {"Notice": null}})).await;
    let unsubscribed = api
        .put(
            "/v1/users/ben",
            json!({"unsubscribed": true, "types": {"Notice": {"route": "never"}}}),
        )
        .await;
    let null = json!({"types": {"Notice": null}});
    let ben = api.put("/v1/users/ben/preferences", null).await;

    assert_eq!(refused.status, 400, "{}", refused.body);
    let detail = refused.body["detail"].as_str().unwrap();
    let expected = "type \"Notice\" is mandatory (Security notices cannot be turned off), so there is no choice; leave it out";
    assert!(detail.contains(expected), "{detail}");
    assert_eq!(before.body["types"]["Loan"]["route"], "digest", "taken whole or not");
    assert_eq!(patched, 200);
    assert_eq!(after.body["types"]["Loan"]["route"], "never");
    let notice = &after.body["types"]["Notice"];
    assert_eq!((&notice["route"], &notice["chosen"]), (&json!("immediate"), &json!(false)));
    assert_eq!((cleared.status, unsubscribed.status), (200, 204));
    assert_eq!(ben.body["unsubscribed"], true, "to take a choice back is no wish for emails");
    api.stop().await;
}

async fn the_page_locks_mandatory_types_and_rejects_choices_of_them(fresh: Fresh) {
    let api = api(&fresh).await;
    let link = path(&api, "ada", saturday()).await;
    let link_to_choose = format!("{link}/preferences");
    let browse = async |path: &str| {
        let response = api.anonymous("GET", path).send().await.unwrap();
        response.text().await.unwrap()
    };
    let submit = async |path: &str, form: &'static str| {
        let form = api
            .anonymous("POST", path)
            .header("Content-Type", "application/x-www-form-urlencoded")
            .body(form);
        let response = form.send().await.unwrap();
        (response.status().as_u16(), response.text().await.unwrap())
    };

    let page = browse(&link_to_choose).await;
    let prompt = browse(&link).await;
    let form = "cadence=daily&type.Notice=never";
    let (status, refused) = submit(&link_to_choose, form).await;
    let kept = api.town.store.users(&[user("ada")]).await.unwrap();
    let (_, left) = submit(&link, "List-Unsubscribe=One-Click").await;
    let page_after = browse(&link_to_choose).await;

    assert!(!page.contains("name=\"type.Notice\""), "{page}");
    assert!(page.contains("Security notices cannot be turned off"));
    assert!(page.contains("name=\"type.Loan\""));
    let at = |text: &str| page.find(&format!("<legend dir=\"auto\">{text}</legend>")).unwrap();
    assert!(at("What") < at("Gallery") && at("Gallery") < at("Community"));
    assert_eq!(status, 400);
    assert!(refused.contains("cannot be turned off"), "{refused}");
    let kept = kept.into_iter().next().unwrap().unwrap();
    assert_eq!(kept.digest.cadence, None::<Cadence>);
    assert!(kept.types.is_empty());
    let but = "but those that cannot be turned off: Security notices.";
    assert!(prompt.contains(but) && left.contains(but), "{left}");
    assert!(page_after.contains("get no emails but those that cannot be turned off"));
    let ada = api.town.store.users(&[user("ada")]).await.unwrap();
    let ada = ada.into_iter().next().unwrap().unwrap();
    let now = api.town.clock.now();
    let policies = &api.app.config.policies;
    assert_eq!(ada.route(&kind("Notice"), now, policies), Route::Immediate);
    api.stop().await;
}
