//! P7: the public pages. One click unsubscribes, following a link changes nothing, and only valid
//! links work.
//!
//! The tests send requests as a browser, a mail client or a link scanner would: without a key, a
//! cookie or a script. See `stops.rs` for the scope of each email's links.
//!
//! Long because every page is requested with valid, forged and damaged links and forms.

use chrono::{DateTime, TimeDelta, Utc};
use reqwest::header::HeaderMap;
use tidings::clock::Clock;
use tidings::domain::{Address, Cadence, StopAction, Subject, User};
use tidings::engine::access::links::Links;

use super::Api;
use crate::support::town::{Town, mostly_on_sqlite, saturday};
use crate::support::{
    FailingStore, Fault, Fresh, Then, assert_contains, assert_starts_with, kind, user,
};

mostly_on_sqlite! {
    one_click_unsubscribes_and_a_second_click_changes_nothing
    following_a_link_changes_nothing
    saved_preferences_are_shown
}

on_sqlite! {
    both_body_types_of_rfc_8058_are_accepted
    a_link_works_after_thirty_days_but_not_after_a_year
    a_forged_link_opens_nothing
    a_body_other_than_one_click_changes_nothing
    pages_are_not_cached_or_indexed_and_load_nothing
    other_methods_get_a_405_that_lists_the_allowed_ones
    a_click_for_a_deleted_user_succeeds
    a_click_on_a_deleted_users_mute_link_suppresses_nothing
    while_the_store_is_down_a_page_asks_to_try_again
    an_invalid_choice_changes_nothing
    choosing_a_cadence_subscribes_again
    links_are_signed_with_the_configured_or_the_stored_secret
}

/// The base of links in these tests. Requests go to the server's own address.
pub const PUBLIC: &str = "https://news.example.org/mail";
pub const SECRET: &str = "the link secret of the tests";

const TYPES: &str =
    "[types.ArtworkPublished]\nheading = \"New works\"\n[types.Alert]\nroute = \"immediate\"";

/// A page as a browser receives it.
pub struct Shown {
    pub status: u16,
    headers: HeaderMap,
    pub html: String,
}

pub async fn api(fresh: &Fresh) -> Api {
    Api::of(Town::found(fresh, true, &config()).await)
}

pub fn config() -> String {
    format!(
        "server.listen = \"127.0.0.1:0\"\nserver.public_url = \"{PUBLIC}\"\nserver.link_secret = \"{SECRET}\"\n{TYPES}"
    )
}

/// Returns the path of a user's unsubscribe link in an email built at this time.
pub async fn path(api: &Api, id: &str, begun: DateTime<Utc>) -> String {
    let links = Links::new(api.town.store.clone(), Some(PUBLIC.into()), Some(SECRET.into()));
    let maker = links.link_maker().await.unwrap().unwrap();
    let link = maker
        .recipient_links(&user(id), None, Some(&StopAction::All), None, begun)
        .unsubscribe
        .unwrap();
    link.strip_prefix(PUBLIC).unwrap().to_owned()
}

pub async fn shown(request: reqwest::RequestBuilder) -> Shown {
    let response = request.send().await.unwrap();
    Shown {
        status: response.status().as_u16(),
        headers: response.headers().clone(),
        html: response.text().await.unwrap(),
    }
}

impl Api {
    pub async fn browse(&self, path: &str) -> Shown {
        shown(self.anonymous("GET", path)).await
    }

    async fn send(&self, path: &str, kind: &str, body: impl Into<String>) -> Shown {
        let request = self.anonymous("POST", path);
        shown(request.header("Content-Type", kind).body(body.into())).await
    }

    /// Submits a form, as a browser or a mailbox provider would.
    pub async fn submit(&self, path: &str, body: &str) -> Shown {
        self.send(path, FORM, body).await
    }
}

const FORM: &str = "application/x-www-form-urlencoded";
pub const CLICK: &str = "List-Unsubscribe=One-Click";

async fn stored(api: &Api, id: &str) -> User {
    let found = api.town.store.users(&[user(id)]).await.unwrap();
    found.into_iter().next().unwrap().unwrap()
}

async fn one_click_unsubscribes_and_a_second_click_changes_nothing(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;

    let first = api.submit(&path, CLICK).await;
    let left = stored(&api, "ada").await;
    api.town.clock.advance(TimeDelta::days(1));
    let again = api.submit(&path, CLICK).await;

    assert_eq!((first.status, again.status), (200, 200));
    assert_contains!(first.html, "You are unsubscribed");
    assert!(first.html.contains("a…@example.org"));
    assert_eq!(left.unsubscribed, Some(saturday()));
    assert_eq!(left.digest.cadence, Some(Cadence::Never));
    assert_eq!(stored(&api, "ada").await, left);
    assert_eq!(stored(&api, "ben").await.unsubscribed, None);
    api.stop().await;
}

async fn following_a_link_changes_nothing(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;
    let before = stored(&api, "ada").await;

    for method in ["GET", "HEAD", "GET"] {
        for path in [path.clone(), format!("{path}/preferences"), format!("{path}?utm_source=mail")]
        {
            let page = shown(api.anonymous(method, &path)).await;
            assert_eq!(page.status, 200, "{method} {path}");
            assert_eq!(page.html.is_empty(), method == "HEAD");
        }
    }

    assert_eq!(stored(&api, "ada").await, before);
    let page = api.browse(&path).await.html;
    assert_contains!(page, "<strong dir=\"ltr\">a…@example.org</strong>");
    assert!(page.contains("<form class=\"act\" method=\"post\"") && page.contains("One-Click"));
    assert!(!page.contains("ada@") && !page.contains("<script"));
    api.stop().await;
}

async fn both_body_types_of_rfc_8058_are_accepted(fresh: Fresh) {
    let api = api(&fresh).await;
    let multipart = "--b\r\nContent-Disposition: form-data; name=\"List-Unsubscribe\"\r\n\r\nOne-Click\r\n--b--\r\n";

    for (id, kind, body) in [
        ("ada", FORM, CLICK),
        (
            "ben",
            "application/x-www-form-urlencoded; charset=UTF-8",
            "a=b&List-Unsubscribe=One%2DClick\r\n",
        ),
        ("cem", "multipart/form-data; boundary=b", multipart),
        ("dee", "Multipart/Form-Data; Boundary=\"b\"", multipart),
    ] {
        let path = path(&api, id, saturday()).await + ".";
        let answer = api.send(&path, kind, body).await;
        assert_eq!(answer.status, 200, "{kind}: {}", answer.html);
        assert!(stored(&api, id).await.unsubscribed.is_some(), "{kind}");
    }
    api.stop().await;
}

async fn a_link_works_after_thirty_days_but_not_after_a_year(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;

    api.town.clock.set(saturday() + TimeDelta::days(366));
    for late in [api.browse(&path).await, api.submit(&path, CLICK).await] {
        assert_eq!(late.status, 410);
        assert!(late.html.contains("This link is too old") && late.html.contains("newer email"));
    }
    assert_eq!(stored(&api, "ada").await.unsubscribed, None);

    api.town.clock.set(saturday() + TimeDelta::days(30));
    assert_eq!(api.submit(&path, CLICK).await.status, 200);
    assert!(stored(&api, "ada").await.unsubscribed.is_some());
    api.stop().await;
}

async fn a_forged_link_opens_nothing(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;
    let before = stored(&api, "ada").await;
    let (start, last) = path.split_at(path.len() - 1);
    let other = if last == "A" { "B" } else { "A" };

    for forged in [
        format!("{start}{other}"),
        start.to_owned(),
        format!("{path}A"),
        "/u/ada".to_owned(),
        "/u/%24ne".to_owned(),
        "/u/%FF".to_owned(),
        format!("/u/{}", "1".repeat(4_000)),
    ] {
        for suffix in ["", "/preferences"] {
            let path = format!("{forged}{suffix}");
            for page in [api.browse(&path).await, api.submit(&path, CLICK).await] {
                assert_eq!(page.status, 404, "{path}");
                assert!(page.html.contains("This link does not work"), "{path}: {}", page.html);
            }
        }
    }

    assert_eq!(stored(&api, "ada").await, before);
    api.stop().await;
}

async fn a_body_other_than_one_click_changes_nothing(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;
    let before = stored(&api, "ada").await;
    let endless = format!("{CLICK}&x={}", "x".repeat(70_000));
    let long = &endless;

    for (kind, body, status, reason) in [
        (FORM, "", 400, "does not say"),
        (FORM, "List-Unsubscribe=one-click", 400, "does not say"),
        (FORM, "list-unsubscribe=One-Click", 400, "does not say"),
        (FORM, "List-Unsubscribe=One-Click&List-Unsubscribe=No", 400, "twice"),
        (FORM, "%FF%00=&;;==&&&", 400, "does not say"),
        (FORM, long, 413, "larger than 64 KiB"),
        (
            "application/json",
            "{\"List-Unsubscribe\": \"One-Click\"}",
            415,
            "it is not application/x-www-form-urlencoded",
        ),
        ("text/plain", CLICK, 415, "it is not application/x-www-form-urlencoded"),
        ("multipart/form-data", CLICK, 400, "cannot be read"),
        ("multipart/form-data; boundary=b", CLICK, 400, "cannot be read"),
        ("multipart/form-data; boundary=b", "--b\r\n\r\nx", 400, "cannot be read"),
    ] {
        let page = api.send(&path, kind, body).await;
        let shows_reason = page.html.contains(reason) && page.html.contains("Nothing was changed");
        assert_eq!((page.status, shows_reason), (status, true), "{kind} {body:.40}: {}", page.html);
    }
    let zipped = api
        .anonymous("POST", &path)
        .header("Content-Type", FORM)
        .header("Content-Encoding", "gzip");
    assert_eq!(shown(zipped.body(CLICK)).await.status, 415);

    assert_eq!(stored(&api, "ada").await, before);
    api.stop().await;
}

async fn pages_are_not_cached_or_indexed_and_load_nothing(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;

    let pages = [
        api.browse(&path).await,
        api.browse(&format!("{path}/preferences")).await,
        api.browse("/u/forged").await,
        api.submit(&path, "").await,
        api.submit(&path, CLICK).await,
    ];

    for page in pages {
        let header =
            |name: &str| page.headers.get(name).map_or("", |value| value.to_str().unwrap());
        assert_eq!(header("Content-Type"), "text/html; charset=utf-8");
        assert_eq!(header("Cache-Control"), "no-store");
        assert_eq!(header("Referrer-Policy"), "no-referrer");
        assert_eq!(header("X-Robots-Tag"), "noindex, nofollow");
        assert_eq!(header("X-Content-Type-Options"), "nosniff");
        assert_eq!(header("Set-Cookie"), "");
        let policy = header("Content-Security-Policy");
        assert_starts_with!(policy, "default-src 'none'; style-src 'sha256-");
        assert!(policy.contains("frame-ancestors 'none'") && policy.contains("form-action 'self'"));
        for loaded in ["<script", "<link", "<img", "src=", "@import", "url(", "style=\""] {
            assert!(!page.html.contains(loaded), "{loaded} in {}", page.html);
        }
    }
    api.stop().await;
}

async fn other_methods_get_a_405_that_lists_the_allowed_ones(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;

    for method in ["PUT", "DELETE", "PATCH", "OPTIONS"] {
        let page = shown(api.anonymous(method, &path)).await;
        assert_eq!(
            (page.status, &page.headers["allow"]),
            (405, &"GET, HEAD, POST".parse().unwrap())
        );
    }

    assert_eq!(stored(&api, "ada").await.unsubscribed, None);
    api.stop().await;
}

async fn a_click_for_a_deleted_user_succeeds(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;
    fresh.delete_user(&user("ada")).await.unwrap();

    let viewed = api.browse(&path).await;
    let clicked = api.submit(&path, CLICK).await;
    let chosen = api.submit(&format!("{path}/preferences"), "cadence=daily").await;

    // A mailbox provider's click must succeed: a deleted user gets no email anyway.
    assert_eq!((viewed.status, clicked.status, chosen.status), (404, 200, 404));
    assert!(clicked.html.contains("You get no emails from us"));
    assert_eq!(fresh.users(&[user("ada")]).await.unwrap(), [None]);
    api.stop().await;
}

async fn a_click_on_a_deleted_users_mute_link_suppresses_nothing(fresh: Fresh) {
    let api = api(&fresh).await;
    let links = Links::new(api.town.store.clone(), Some(PUBLIC.into()), Some(SECRET.into()));
    let maker = links.link_maker().await.unwrap().unwrap();
    let address = Address::new("ada@example.org").unwrap();
    let thread = StopAction::Subject(Subject::stored("Thread:9"), None);
    let personal =
        maker.recipient_links(&user("ada"), Some(&address), None, Some(&thread), saturday());
    let mute = personal.mute.unwrap();
    fresh.delete_user(&user("ada")).await.unwrap();

    let page = api.submit(mute.strip_prefix(PUBLIC).unwrap(), CLICK).await;

    assert_eq!(page.status, 200);
    assert_eq!(fresh.suppressions(None, 9).await.unwrap(), []);
    api.stop().await;
}

async fn while_the_store_is_down_a_page_asks_to_try_again(fresh: Fresh) {
    let town = Town::found(&fresh, true, &config()).await;
    let down = FailingStore::new(town.store.clone(), 0, Fault::Refused, Then::StaysDown);
    let api = Api::with_store(town, &(down as _));
    let path = path(&api, "ada", saturday()).await;

    let page = api.submit(&path, CLICK).await;

    assert_eq!(page.status, 503);
    assert_eq!(page.headers["retry-after"], "30");
    assert!(page.html.contains("Please try again") && !page.html.contains("wanted it to fail"));
    api.stop().await;
}

async fn saved_preferences_are_shown(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = format!("{}/preferences", path(&api, "ada", saturday()).await);
    let slow = serde_json::json!({"types": {"Alert": {"route": "batch", "window": "1h"}}});
    api.put("/v1/users/ada/preferences", slow).await;
    let before = api.browse(&path).await.html;
    assert!(before.contains("value=\"weekly\" checked"), "{before}");
    assert!(before.contains("New works") && before.contains("name=\"type.Alert\""));

    let form = "cadence=daily&weekday=fri&hour=18&tz=America%2FSao_Paulo&type.ArtworkPublished=never&type.Alert=digest";
    let saved = api.submit(&path, form).await;

    assert_eq!(saved.status, 200);
    for text in [
        "<strong>Saved.</strong> You get at most one digest a day, at 18:00 (America/Sao_Paulo).",
        "value=\"daily\" checked",
        "value=\"fri\" selected",
        "value=\"18\" selected",
        "value=\"America/Sao_Paulo\" selected",
    ] {
        assert!(saved.html.contains(text), "{text} in {}", saved.html);
    }
    let ada = stored(&api, "ada").await;
    assert_eq!((ada.digest.cadence, ada.digest.hour), (Some(Cadence::Daily), Some(18)));
    assert_eq!(ada.tz, Some(chrono_tz::America::Sao_Paulo));
    let chosen = |name| ada.types[&kind(name)];
    assert_eq!(chosen("Alert").route.as_str(), "digest");
    assert_eq!(chosen("ArtworkPublished").route.as_str(), "never");
    let kept = chosen("Alert").window;
    assert_eq!(kept, Some(TimeDelta::hours(1)), "the form has no windows");
    api.stop().await;
}

async fn an_invalid_choice_changes_nothing(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = format!("{}/preferences", path(&api, "ada", saturday()).await);
    let before = stored(&api, "ada").await;

    for (form, reason) in [
        ("cadence=hourly", "hourly"),
        ("cadence=daily&weekday=caturday", "caturday"),
        ("cadence=daily&hour=24", "24"),
        ("cadence=daily&hour=-1", "-1"),
        ("cadence=daily&tz=Mars%2FOlympus", "Mars/Olympus"),
        ("cadence=daily&type.Alert=pigeon", "pigeon"),
        ("cadence=daily&%3Cb%3E=red", "&lt;b&gt;"),
        ("cadence=daily&cadence=weekly", "twice"),
    ] {
        let page = api.submit(&path, form).await;
        assert_eq!(page.status, 400, "{form}");
        let shows_reason = page.html.contains(reason) && page.html.contains("Nothing was changed");
        assert!(shows_reason, "{form}: {}", page.html);
    }

    assert_eq!(stored(&api, "ada").await, before);
    api.stop().await;
}

async fn choosing_a_cadence_subscribes_again(fresh: Fresh) {
    let api = api(&fresh).await;
    let path = path(&api, "ada", saturday()).await;
    api.submit(&path, CLICK).await;
    assert!(api.browse(&path).await.html.contains("You are unsubscribed"));
    let preferences = format!("{path}/preferences");
    let page = api.browse(&preferences).await.html;
    assert_contains!(page, "You are unsubscribed since <time");
    assert_contains!(page, "19 April 2014");
    api.town.clock.advance(TimeDelta::hours(1));

    let back = api.submit(&preferences, "cadence=weekly&weekday=mon&hour=9&type.Alert=never").await;

    assert_contains!(back.html, "at most one digest a week, on Mondays at 09:00 (UTC)",);
    let ada = stored(&api, "ada").await;
    assert_eq!((ada.unsubscribed, ada.digest.since), (None, Some(api.town.clock.now())));
    api.stop().await;
}

async fn links_are_signed_with_the_configured_or_the_stored_secret(fresh: Fresh) {
    let town = Town::found(&fresh, true, "server.listen = \"127.0.0.1:0\"").await;
    let api = Api::of(town);
    // This link is signed with a configured secret, but the server uses the secret in the store.
    let foreign = path(&api, "ada", saturday()).await;
    assert_eq!(api.browse(&foreign).await.status, 404);

    let links = Links::new(api.town.store.clone(), Some(PUBLIC.into()), None);
    let maker = links.link_maker().await.unwrap().unwrap();
    let ours = maker.recipient_links(&user("ada"), None, None, None, saturday()).preferences;

    assert_eq!(api.browse(ours.strip_prefix(PUBLIC).unwrap()).await.status, 200);
    api.stop().await;
}
