//! Tests of the headers `Auto-Submitted` (RFC 3834), `List-Id` (RFC 2919), `References` and
//! `In-Reply-To` (RFC 5322).

use chrono::TimeDelta;
use tidings::email::Message;
use tidings::engine::NoProgress;

use crate::support::town::{Town, followers_of, monday, mostly_on_sqlite, request, saturday, to};
use crate::support::{Fresh, kind};

mostly_on_sqlite! {
    emails_about_one_object_share_a_thread_for_all_users
    an_email_about_several_objects_has_no_thread
    the_list_of_a_batch_is_its_category_or_type
    digests_have_their_own_list_in_the_senders_domain
    shared_headers_contain_nothing_personal
}

const IMMEDIATE: &str = r#"
mail.list_domain = "Lists.art.example"
server.public_url = "https://news.example.org"
types.ArtworkPublished.route = "immediate"
types.Sale.route = "immediate"
"#;

const BATCHED: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.category = "Works"
types.ArtworkPublished.window = "5m"
types.Sale.route = "immediate"
"#;

/// Sets the clock to `minutes` after the start, closes due batches, and sends their emails.
async fn send_due_after(town: &Town, minutes: i64) {
    town.send_due_at(saturday() + TimeDelta::minutes(minutes)).await;
}

/// Accepts a `Sale` of the work and fans it out.
async fn sell(town: &Town, work: &str, people: &[&str]) {
    let app = town.process();
    let sale = tidings::engine::ingest::NewEvent {
        kind: kind("Sale"),
        ..request(&[work], to(people), None)
    };
    app.notify().accept(vec![sale]).await.unwrap();
    app.fanouts().drain(&NoProgress).await.unwrap();
}

/// Returns the header's value. Fails if there are several.
fn header<'a>(email: &'a Message, name: &str) -> Option<&'a str> {
    let mut named = email.extra_headers.iter().filter(|(known, _)| known == name);
    let found = named.next().map(|(_, value)| value.as_str());
    assert!(named.next().is_none(), "{name} stands twice");
    found
}

/// Checks that each email has `Auto-Submitted` exactly once.
fn assert_auto_submitted(emails: &[Message]) {
    for email in emails {
        let mut named = email.headers();
        named.retain(|(name, _)| name == "Auto-Submitted");
        assert_eq!(named, [("Auto-Submitted".into(), "auto-generated".into())]);
    }
}

async fn emails_about_one_object_share_a_thread_for_all_users(fresh: Fresh) {
    let town = Town::found(&fresh, true, IMMEDIATE).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    send_due_after(&town, 1).await;
    sell(&town, "a1", &["ada"]).await;
    send_due_after(&town, 2).await;
    sell(&town, "a2", &["ada"]).await;
    send_due_after(&town, 3).await;

    let emails = town.emails();
    assert_eq!(emails.len(), 4);
    let roots: Vec<&str> =
        emails.iter().map(|email| header(email, "References").unwrap()).collect();
    assert!(roots[0] == roots[1] && roots[1] == roots[2] && roots[2] != roots[3]);
    for (email, root) in emails.iter().zip(roots) {
        assert_eq!(header(email, "In-Reply-To"), Some(root));
        let id = root.strip_prefix("<thread-").unwrap();
        let (digits, domain) = id.split_once('@').unwrap();
        assert!(digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_eq!(domain, "lists.art.example>");
    }
}

async fn an_email_about_several_objects_has_no_thread(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    send_due_after(&town, 6).await;
    town.happens(&["a3"], to(&["cem"])).await;
    town.happens(&["a3"], to(&["cem"])).await;
    send_due_after(&town, 12).await;

    let emails = town.emails();
    assert_eq!(emails.len(), 2);
    assert_eq!(header(&emails[0], "References"), None);
    assert_eq!(header(&emails[0], "In-Reply-To"), None);
    assert!(header(&emails[1], "References").is_some());
}

async fn the_list_of_a_batch_is_its_category_or_type(fresh: Fresh) {
    let town = Town::found(&fresh, true, BATCHED).await;
    town.happens(&["a1"], to(&["ada"])).await;
    send_due_after(&town, 6).await;
    sell(&town, "a2", &["ada"]).await;
    send_due_after(&town, 7).await;

    let emails = town.emails();
    let lists: Vec<_> = emails.iter().map(|email| header(email, "List-Id")).collect();
    let ours = ["Works", "Sale"].map(|list| format!("<{list}.localhost.localdomain>"));
    assert_eq!(lists, [Some(ours[0].as_str()), Some(ours[1].as_str())]);
    assert_auto_submitted(&emails);
}

async fn digests_have_their_own_list_in_the_senders_domain(fresh: Fresh) {
    let town = Town::found(&fresh, true, "mail.from = \"news@Bücher.example\"").await;
    town.happens(&["a3"], followers_of("artist:1")).await;

    town.digests_at(monday(0)).await;

    let emails = town.emails();
    assert_eq!(emails.len(), 2);
    for email in &emails {
        let list = header(email, "List-Id");
        assert_eq!(list, Some("<digest.xn--bcher-kva.example>"));
        assert_eq!(header(email, "References"), None);
    }
    assert_auto_submitted(&emails);
}

async fn shared_headers_contain_nothing_personal(fresh: Fresh) {
    let town = Town::found(&fresh, true, IMMEDIATE).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    send_due_after(&town, 1).await;

    let emails = town.emails();
    assert_eq!(emails.len(), 3);
    for email in &emails {
        assert_eq!(email.extra_headers, emails[0].extra_headers);
        let headers = format!("{:?}", email.extra_headers);
        for hidden in ["@example.org", "ben", "cem", "Work"] {
            assert!(!headers.contains(hidden), "{headers}");
        }
    }
}
