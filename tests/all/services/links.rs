//! Tests of the links in emails (P7): each email has its own user's links, and building it again
//! gives the same ones.

use chrono::TimeDelta;
use tidings::clock::Clock;
use tidings::domain::{Address, DeliveryState, StopAction};
use tidings::engine::access::links::Links;
use tidings::render::MAX_BYTES;

use crate::support::town::{Town, busy, followers_of, monday, mostly_on_sqlite, to};
use crate::support::{Fresh, user};

mostly_on_sqlite! {
    an_email_contains_links_of_its_own_user
    an_email_that_is_built_again_has_the_same_links
    unsubscribing_cancels_a_pending_email
    emails_have_no_links_without_a_public_url
}

const PUBLIC_URL: &str = "server.public_url = \"https://news.example.org\"\n";

async fn an_email_contains_links_of_its_own_user(fresh: Fresh) {
    let town = Town::found(&fresh, true, PUBLIC_URL).await;
    town.happens(&["a1"], followers_of("artist:1")).await;

    town.digests_at(monday(0)).await;

    let emails = town.emails();
    let tokens: Vec<String> = emails
        .iter()
        .map(|email| email.links.as_ref().unwrap().unsubscribe.clone().unwrap())
        .collect();
    assert!(tokens.len() == 2 && tokens[0] != tokens[1]);
    for (email, link) in emails.iter().zip(&tokens) {
        let token = link.strip_prefix("https://news.example.org/u/").unwrap();
        let opened = town.process().identities.default.links.open(token, town.clock.now()).await;
        let person = email.delivery.as_str().split(':').nth(1).unwrap();
        let opened = opened.unwrap().unwrap();
        assert_eq!((opened.user, opened.stop), (user(person), StopAction::Digest));
        let filled = email.fill_links();
        for body in [&filled.html, &filled.text] {
            let choices = &email.links.as_ref().unwrap().preferences;
            assert!(body.contains(link.as_str()) && body.contains(choices.as_str()));
            assert!(!body.contains(".invalid") && body.len() < MAX_BYTES);
        }
        let headers = email.headers();
        let header = |name: &str| {
            let found = headers.iter().find(|(known, _)| known == name);
            found.map(|(_, value)| value.as_str())
        };
        assert_eq!(header("List-Unsubscribe"), Some(format!("<{link}>").as_str()));
        assert_eq!(header("List-Unsubscribe-Post"), Some("List-Unsubscribe=One-Click"));
        assert_eq!(header("Feedback-ID"), Some("2014-W17:weekly:digest:tidings"));
    }
}

async fn an_email_that_is_built_again_has_the_same_links(fresh: Fresh) {
    let town = Town::found(&fresh, true, PUBLIC_URL).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([busy()]);
    town.digests_at(monday(0)).await;
    let row = town.deliveries_of("ada").await.remove(0);

    town.digests_at(monday(0) + TimeDelta::days(1)).await;

    let secret = fresh.note("link_secret").await.unwrap();
    let links = Links::new(fresh.handle(), Some("https://news.example.org".into()), secret);
    let address = Address::new("ada@example.org").unwrap();
    let maker = links.link_maker().await.unwrap().unwrap();
    let stop = Some(&StopAction::Digest);
    let first = maker.recipient_links(&user("ada"), Some(&address), stop, None, row.created);
    assert!(town.emails()[0].links == Some(first));
}

async fn unsubscribing_cancels_a_pending_email(fresh: Fresh) {
    let town = Town::found(&fresh, true, PUBLIC_URL).await;
    town.happens(&["a1"], to(&["ada"])).await;
    town.answer([busy()]);
    town.digests_at(monday(0)).await;
    town.process().users().unsubscribe(&user("ada")).await.unwrap();

    let report = town.digests_at(monday(0) + TimeDelta::days(1)).await;

    assert_eq!((report.emails.canceled, report.emails.sent), (1, 0));
    let row = town.deliveries_of("ada").await.remove(0);
    assert_eq!(row.state, DeliveryState::Canceled);
    let reason = row.outcome.reason.as_deref();
    assert_eq!(reason, Some("the person is unsubscribed"));
    assert!(town.emails().is_empty());
}

async fn emails_have_no_links_without_a_public_url(fresh: Fresh) {
    let town = Town::found(&fresh, true, "site.feedback_id = \"\"").await;
    town.happens(&["a1"], to(&["ada"])).await;

    town.digests_at(monday(0)).await;

    let email = town.emails().remove(0);
    let headers = email.headers();
    let names: Vec<&str> = headers.iter().map(|(name, _)| name.as_str()).collect();
    assert!(email.links.is_none());
    assert_eq!(names, ["Auto-Submitted", "List-Id"]);
    let text = email.fill_links().text;
    assert!(!text.contains("Unsubscribe") && !text.contains(".invalid"), "{text}");
    assert_eq!(fresh.note("link_secret").await.unwrap(), None);
}
