//! P7: an email's unsubscribe link ends only the types or the digest of that email.
//!
//! The tests follow links from emails that were sent, as a mail client or a browser would, and
//! check later emails.

use chrono::TimeDelta;
use tidings::domain::{Cadence, Route, User};
use tidings::email::Message;
use tidings::engine::ingest::NewEvent;

use super::pages::{CLICK, PUBLIC, Shown, path};
use super::{Api, pages};
use crate::support::town::{Town, monday, mostly_on_sqlite, request, saturday, to};
use crate::support::{Fresh, assert_contains, kind, user};

mostly_on_sqlite! {
    one_click_in_a_comment_email_ends_only_comment_emails
    a_digests_link_ends_only_the_digest
    the_link_of_an_email_with_several_types_ends_only_these
    undo_restores_emails_without_sending_the_backlog
    a_stop_applies_to_open_batches
}

on_sqlite! {
    following_the_link_of_a_type_changes_nothing
    a_link_cannot_be_changed_to_end_another_type
    the_page_offers_to_end_the_other_emails
    a_link_in_the_old_form_still_ends_everything
    a_type_that_became_mandatory_cannot_be_ended
    the_link_of_an_email_does_not_end_its_mandatory_types
    an_immediate_email_ends_its_type_and_undo_restores_the_route
}

pub(super) const TYPES: &str = r#"
[types.ArtworkPublished]
heading = "New works"
[types.Comment]
heading = "Comments"
route = "batch"
window = "5m"
[types.Mention]
heading = "Mentions"
route = "batch"
window = "5m"
[types.Alarm]
heading = "Alarms"
route = "immediate"
"#;

pub(super) async fn api(fresh: &Fresh, types: &str) -> Api {
    let config = format!(
        "server.listen = \"127.0.0.1:0\"\nserver.public_url = \"{PUBLIC}\"\nserver.link_secret = \"{}\"\n{types}",
        pages::SECRET
    );
    Api::of(Town::found(fresh, true, &config).await)
}

impl Api {
    /// Accepts an event of this type for ada, and fans it out.
    pub(super) async fn happens(&self, name: &str, object: &str) {
        let request = NewEvent { kind: kind(name), ..request(&[object], to(&["ada"]), None) };
        self.app.notify().accept(vec![request]).await.unwrap();
        self.fan_out().await;
    }

    /// Closes the batches that are due, and sends their emails.
    pub(super) async fn batches(&self) {
        self.town.send_due_in(6).await;
    }

    pub(super) fn last(&self) -> Message {
        self.town.emails().pop().unwrap()
    }

    pub(super) async fn ada(&self) -> User {
        let found = self.town.store.users(&[user("ada")]).await.unwrap();
        found.into_iter().next().unwrap().unwrap()
    }
}

/// Returns the path of the `List-Unsubscribe` header, after checking that the body links to it.
fn link(email: &Message) -> String {
    let headers = email.headers();
    let header = headers.iter().find(|(name, _)| name == "List-Unsubscribe");
    let link = &header.unwrap().1;
    let link = link.trim_start_matches('<').trim_end_matches('>');
    let filled = email.fill_links();
    assert!(filled.html.contains(link) && filled.text.contains(link));
    link.strip_prefix(PUBLIC).unwrap().to_owned()
}

/// Returns the action path and the fields of the form with this button.
pub fn form(page: &Shown, button: &str) -> (String, String) {
    let forms = page.html.split("<form").skip(1);
    let forms = forms.map(|form| form.split_once("</form>").unwrap().0);
    let mut with = forms.filter(|form| form.contains(&format!("{button}</button>")));
    let form = with.next();
    let form = form.unwrap_or_else(|| panic!("no button {button} in {}", page.html));
    let action = form.split_once("action=\"").unwrap().1;
    let action = action.split_once('"').unwrap().0;
    let fields = form.split("<input").skip(1).map(|input| {
        let of = |name: &str| {
            let (_, value) = input.split_once(&format!("{name}=\"")).unwrap();
            value.split_once('"').unwrap().0.to_owned()
        };
        format!("{}={}", of("name"), of("value"))
    });
    let fields: Vec<String> = fields.collect();
    (format!("/u/{action}"), fields.join("&"))
}

fn works_in(emails: &[Message]) -> Vec<String> {
    let works = |email: &Message| {
        let text = email.fill_links().text;
        let works = ["a1", "a2", "a3", "a4", "a5", "a6"].into_iter();
        let works = works.filter(|work| text.contains(&format!("Work {work}.")));
        works.collect::<Vec<_>>().join(" ")
    };
    emails.iter().map(works).collect()
}

async fn one_click_in_a_comment_email_ends_only_comment_emails(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("Comment", "a1").await;
    api.batches().await;
    let link = link(&api.last());

    let first = api.submit(&link, CLICK).await;
    let after = api.ada().await;
    api.town.clock.advance(TimeDelta::minutes(1));
    let again = api.submit(&link, CLICK).await;
    let second = api.ada().await;
    for (name, object) in [("Comment", "a2"), ("Mention", "a3"), ("ArtworkPublished", "a4")] {
        api.happens(name, object).await;
    }
    api.batches().await;
    api.town.digests_at(monday(0)).await;

    assert_eq!((first.status, again.status), (200, 200));
    assert_contains!(first.html, "No more of these emails");
    assert!(first.html.contains("<bdi>Comments</bdi>"), "{}", first.html);
    assert_contains!(first.html, "Mondays at 09:00 (UTC)");
    assert!(first.html.contains("<bdi>Mentions</bdi>"), "{}", first.html);
    assert_eq!(after.types[&kind("Comment")].route, Route::Never);
    assert_eq!((after.unsubscribed, after.digest.cadence), (None, None));
    assert_eq!(second, after, "again, it changes nothing");
    assert_eq!(works_in(&api.town.emails()), ["a1", "a3", "a4"]);
    let feed = api.feed("/v1/users/ada/feed").await;
    assert!(feed.contains(&"a2".to_owned()), "it stays in the feed: {feed:?}");
    api.stop().await;
}

async fn a_digests_link_ends_only_the_digest(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("ArtworkPublished", "a1").await;
    api.town.digests_at(monday(0)).await;
    let link = link(&api.last());

    let page = api.submit(&link, CLICK).await;
    api.happens("ArtworkPublished", "a2").await;
    api.happens("Comment", "a3").await;
    api.batches().await;
    api.town.digests_at(monday(1)).await;

    assert!(page.html.contains("No more digests"), "{}", page.html);
    assert!(page.html.contains("<bdi>Comments</bdi>"), "{}", page.html);
    assert!(!page.html.contains("Stop the digest"), "{}", page.html);
    let ada = api.ada().await;
    assert_eq!(ada.digest.cadence, Some(Cadence::Never));
    assert!(ada.unsubscribed.is_none() && ada.types.is_empty());
    assert_eq!(works_in(&api.town.emails()), ["a1", "a3"]);
    api.stop().await;
}

async fn the_link_of_an_email_with_several_types_ends_only_these(fresh: Fresh) {
    let types = TYPES.replace("window = \"5m\"", "window = \"5m\"\nbatch_key = \"talk\"");
    let api = api(&fresh, &types).await;
    api.happens("Comment", "a1").await;
    api.happens("Mention", "a2").await;
    api.batches().await;
    let email = api.last();

    let page = api.submit(&link(&email), CLICK).await;

    let text = email.fill_links().text;
    assert_contains!(text, "Unsubscribe from Comments and Mentions:");
    for named in ["<bdi>Comments</bdi>", "<bdi>Mentions</bdi>", "these kinds"] {
        assert!(page.html.contains(named), "{named}: {}", page.html);
    }
    let ada = api.ada().await;
    let never = ada.types.iter().filter(|(_, chosen)| chosen.route == Route::Never);
    let never: Vec<&str> = never.map(|(kind, _)| kind.as_str()).collect();
    assert_eq!(never, ["Comment", "Mention"]);
    api.stop().await;
}

async fn undo_restores_emails_without_sending_the_backlog(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("Comment", "a1").await;
    api.batches().await;
    let ended = api.submit(&link(&api.last()), CLICK).await;
    api.happens("Comment", "a2").await;
    api.batches().await;

    let (path, fields) = form(&ended, "Undo");
    let back = api.submit(&path, &fields).await;
    api.batches().await;
    api.happens("Comment", "a3").await;
    api.batches().await;

    assert_eq!(fields, "type.Comment=batch");
    assert!(back.html.contains("Saved."), "{}", back.html);
    assert_eq!(api.ada().await.types[&kind("Comment")].route, Route::Batch);
    assert_eq!(works_in(&api.town.emails()), ["a1", "a3"]);

    // A digest is restored to its previous cadence.
    let weekly = serde_json::json!({"digest": {"cadence": "daily"}});
    api.put("/v1/users/ada/preferences", weekly).await;
    api.happens("ArtworkPublished", "a4").await;
    api.town.digests_at(monday(0)).await;
    let ended = api.submit(&link(&api.last()), CLICK).await;
    let (path, fields) = form(&ended, "Undo");
    assert_eq!(fields, "cadence=daily");
    api.submit(&path, &fields).await;
    assert_eq!(api.ada().await.digest.cadence, Some(Cadence::Daily));
    api.stop().await;
}

async fn a_stop_applies_to_open_batches(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("Comment", "a1").await;
    api.batches().await;
    api.happens("Comment", "a2").await;
    api.happens("Mention", "a3").await;
    api.submit(&link(&api.last()), CLICK).await;

    api.batches().await;

    assert_eq!(works_in(&api.town.emails()), ["a1", "a3"]);
    api.stop().await;
}

async fn following_the_link_of_a_type_changes_nothing(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("Comment", "a1").await;
    api.batches().await;
    let link = link(&api.last());
    let before = api.ada().await;

    for method in ["GET", "HEAD", "GET"] {
        for path in [link.clone(), format!("{link}/preferences")] {
            let page = pages::shown(api.anonymous(method, &path)).await;
            assert_eq!(page.status, 200, "{method} {path}");
        }
    }
    let empty = api.submit(&link, "").await;

    assert_eq!(empty.status, 400);
    assert_eq!(api.ada().await, before);
    let page = api.browse(&link).await.html;
    assert!(page.contains("Stop these emails?"), "{page}");
    assert!(page.contains("<bdi>Comments</bdi>") && !page.contains("ada@"));
    api.stop().await;
}

async fn a_link_cannot_be_changed_to_end_another_type(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("Comment", "a1").await;
    api.happens("Mention", "a2").await;
    api.batches().await;
    let emails = api.town.emails();
    let [one, other] = [&emails[0], &emails[1]].map(link);
    let before = api.ada().await;

    // Splices of both links at several places, and a link with the version of links that end
    // everything.
    let (one, other) = (one.as_bytes(), other.as_bytes());
    let mut forged: Vec<Vec<u8>> = (4..one.len())
        .step_by(7)
        .map(|at| [&one[..at], other.get(at..).unwrap_or_default()].concat())
        .collect();
    forged.retain(|mixed| mixed != one && mixed != other);
    forged.push([b"/u/1", &one[4..]].concat());
    for path in &forged {
        let path = std::str::from_utf8(path).unwrap();
        assert_eq!(api.submit(path, CLICK).await.status, 404, "{path}");
    }

    assert!(forged.len() > 3);
    assert_eq!(api.ada().await, before);
    api.stop().await;
}

async fn the_page_offers_to_end_the_other_emails(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("Comment", "a1").await;
    api.batches().await;
    let ended = api.submit(&link(&api.last()), CLICK).await;

    let (path, fields) = form(&ended, "Stop the digest");
    let digest = api.submit(&path, &fields).await;
    let after_digest = api.ada().await;
    let (path, fields) = form(&digest, "Unsubscribe from everything");
    let everything = api.submit(&path, &fields).await;

    assert!(digest.html.contains("No more digests"), "{}", digest.html);
    assert_eq!(after_digest.digest.cadence, Some(Cadence::Never));
    assert_eq!(after_digest.unsubscribed, None);
    let html = everything.html;
    assert!(html.contains("You are unsubscribed"), "{html}");
    let ada = api.ada().await;
    assert!(ada.unsubscribed.is_some() && ada.types[&kind("Alarm")].route == Route::Never);
    api.stop().await;
}

async fn a_link_in_the_old_form_still_ends_everything(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    // Links had this form before they named the emails that they end.
    let old = path(&api, "ada", saturday()).await;
    assert!(old.starts_with("/u/1"));

    let prompt = api.browse(&old).await;
    let ended = api.submit(&old, CLICK).await;
    let (undo, fields) = form(&ended, "Undo");
    let ada = api.ada().await;
    api.submit(&undo, &fields).await;

    assert!(prompt.html.contains("Unsubscribe?"), "{}", prompt.html);
    assert!(ada.unsubscribed.is_some());
    let back = api.ada().await;
    assert_eq!((back.unsubscribed, back.digest.cadence), (None, Some(Cadence::Weekly)));
    let routes = ["Alarm", "Comment", "Mention"].map(|name| back.types[&kind(name)].route);
    assert_eq!(routes, [Route::Immediate, Route::Batch, Route::Batch]);
    api.stop().await;
}

async fn a_type_that_became_mandatory_cannot_be_ended(fresh: Fresh) {
    let before = api(&fresh, TYPES).await;
    before.happens("Comment", "a1").await;
    before.batches().await;
    let link = link(&before.last());
    before.stop().await;
    let types = TYPES.replace(
        "heading = \"Comments\"",
        "heading = \"Comments\"\nmandatory = \"We have to tell you of comments.\"",
    );
    fresh.clear().await;
    let api = api(&fresh, &types).await;

    for page in [api.browse(&link).await, api.submit(&link, CLICK).await] {
        let html = page.html;
        assert_eq!(page.status, 200);
        assert!(html.contains("This cannot be turned off"), "{html}");
        assert!(html.contains("We have to tell you of comments."), "{html}");
        assert!(html.contains("Nothing was changed"), "{html}");
    }
    assert!(api.ada().await.types.is_empty());
    api.stop().await;
}

async fn the_link_of_an_email_does_not_end_its_mandatory_types(fresh: Fresh) {
    let types = TYPES.replace("window = \"5m\"", "window = \"5m\"\nbatch_key = \"talk\"");
    let types = types.replace("heading = \"Mentions\"", "heading = \"Mentions\"\nmandatory = true");
    let api = api(&fresh, &types).await;
    api.happens("Comment", "a1").await;
    api.happens("Mention", "a2").await;
    api.batches().await;
    let email = api.last();

    let page = api.submit(&link(&email), CLICK).await;
    api.happens("Comment", "a3").await;
    api.happens("Mention", "a4").await;
    api.batches().await;

    let text = email.fill_links().text;
    assert!(text.contains("Unsubscribe from Comments:"), "{text}");
    assert!(page.html.contains("Mentions</bdi> <span class=\"soft\">(cannot be turned off)"));
    assert_eq!(works_in(&api.town.emails()), ["a1 a2", "a4"]);
    let last = api.last().headers();
    assert!(last.iter().all(|(name, _)| name != "List-Unsubscribe"));
    api.stop().await;
}

async fn an_immediate_email_ends_its_type_and_undo_restores_the_route(fresh: Fresh) {
    let api = api(&fresh, TYPES).await;
    api.happens("Alarm", "a1").await;
    api.batches().await;
    let link = link(&api.last());
    let ended = api.submit(&link, CLICK).await;
    let again = api.submit(&link, CLICK).await;
    let viewed = api.browse(&link).await;

    // Only the response to the first click knows the previous choice.
    assert_eq!(form(&ended, "Undo").1, "type.Alarm=immediate");
    for page in [again, viewed] {
        assert!(!page.html.contains("Undo"), "{}", page.html);
    }
    assert!(api.ada().await.types[&kind("Alarm")].route == Route::Never);
    api.stop().await;
}
