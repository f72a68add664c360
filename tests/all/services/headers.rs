//! What mails say of themselves in headers: that a program wrote them, of which list they are, and
//! on which thread.

use chrono::TimeDelta;
use tidings::email::Message;
use tidings::engine::Silent;

use crate::support::town::{Town, followers_of, monday, on_both_stores, request, saturday, to};
use crate::support::{Fresh, kind};

on_both_stores! {
    mails_about_one_thing_are_on_one_thread_whoever_they_are_for
    a_mail_about_several_things_is_on_no_thread
    a_batch_is_of_its_category_or_its_type
    digests_are_a_list_of_their_own_in_the_senders_domain
    who_is_told_the_same_has_the_same_headers_but_for_their_link
}

const SINGLE: &str = r#"
mail.list_domain = "Lists.art.example"
server.public_url = "https://news.example.org"
types.ArtworkPublished.route = "immediate"
types.Sale.route = "immediate"
"#;

const GATHERED: &str = r#"
types.ArtworkPublished.route = "batch"
types.ArtworkPublished.category = "Works"
types.ArtworkPublished.window = "5m"
types.Sale.route = "immediate"
"#;

/// Ends the batches that are due so long after the beginning, and mails them.
async fn mailed_after(town: &Town, minutes: i64) {
    town.clock.set(saturday() + TimeDelta::minutes(minutes));
    let app = town.process();
    app.closer().drain(&Silent).await.unwrap();
    app.sender().drain().await.unwrap();
}

/// A work is sold.
async fn sold(town: &Town, work: &str, people: &[&str]) {
    let app = town.process();
    let sale = tidings::engine::ingest::notify::Request {
        kind: kind("Sale"),
        ..request(&[work], to(people), None)
    };
    app.notify().accept(vec![sale]).await.unwrap();
    app.fanouts().drain(&Silent).await.unwrap();
}

fn header<'a>(mail: &'a Message, name: &str) -> Option<&'a str> {
    let mut named = mail.further.iter().filter(|(known, _)| known == name);
    let found = named.next().map(|(_, value)| value.as_str());
    assert!(named.next().is_none(), "{name} stands twice");
    found
}

/// Each says once that no person wrote it.
fn are_automatic(mails: &[Message]) {
    for mail in mails {
        let mut named = mail.headers();
        named.retain(|(name, _)| name == "Auto-Submitted");
        assert_eq!(named, [("Auto-Submitted".into(), "auto-generated".into())]);
    }
}

async fn mails_about_one_thing_are_on_one_thread_whoever_they_are_for(fresh: Fresh) {
    let town = Town::found(&fresh, true, SINGLE).await;
    town.happens(&["a1"], to(&["ada", "ben"])).await;
    mailed_after(&town, 1).await;
    sold(&town, "a1", &["ada"]).await;
    mailed_after(&town, 2).await;
    sold(&town, "a2", &["ada"]).await;
    mailed_after(&town, 3).await;

    let mails = town.mails();
    assert_eq!(mails.len(), 4);
    let roots: Vec<&str> = mails
        .iter()
        .map(|mail| header(mail, "References").unwrap())
        .collect();
    assert!(roots[0] == roots[1] && roots[1] == roots[2] && roots[2] != roots[3]);
    for (mail, root) in mails.iter().zip(roots) {
        assert_eq!(header(mail, "In-Reply-To"), Some(root));
        let id = root.strip_prefix("<thread-").unwrap();
        let (digits, domain) = id.split_once('@').unwrap();
        assert!(digits.len() == 40 && digits.bytes().all(|b| b.is_ascii_hexdigit()));
        assert_eq!(domain, "lists.art.example>");
    }
}

async fn a_mail_about_several_things_is_on_no_thread(fresh: Fresh) {
    let town = Town::found(&fresh, true, GATHERED).await;
    town.happens(&["a1", "a2"], to(&["ada"])).await;
    mailed_after(&town, 6).await;
    town.happens(&["a3"], to(&["cem"])).await;
    town.happens(&["a3"], to(&["cem"])).await;
    mailed_after(&town, 12).await;

    let mails = town.mails();
    assert_eq!(mails.len(), 2);
    assert_eq!(header(&mails[0], "References"), None);
    assert_eq!(header(&mails[0], "In-Reply-To"), None);
    assert!(header(&mails[1], "References").is_some());
}

async fn a_batch_is_of_its_category_or_its_type(fresh: Fresh) {
    let town = Town::found(&fresh, true, GATHERED).await;
    town.happens(&["a1"], to(&["ada"])).await;
    mailed_after(&town, 6).await;
    sold(&town, "a2", &["ada"]).await;
    mailed_after(&town, 7).await;

    let mails = town.mails();
    let lists: Vec<_> = mails.iter().map(|mail| header(mail, "List-Id")).collect();
    let ours = ["Works", "Sale"].map(|list| format!("<{list}.localhost.localdomain>"));
    assert_eq!(lists, [Some(ours[0].as_str()), Some(ours[1].as_str())]);
    are_automatic(&mails);
}

async fn digests_are_a_list_of_their_own_in_the_senders_domain(fresh: Fresh) {
    let town = Town::found(&fresh, true, "mail.from = \"news@Bücher.example\"").await;
    town.happens(&["a3"], followers_of("artist:1")).await;

    town.digests_at(monday(0)).await;

    let mails = town.mails();
    assert_eq!(mails.len(), 2);
    for mail in &mails {
        let list = header(mail, "List-Id");
        assert_eq!(list, Some("<digest.xn--bcher-kva.example>"));
        assert_eq!(header(mail, "References"), None);
    }
    are_automatic(&mails);
}

async fn who_is_told_the_same_has_the_same_headers_but_for_their_link(fresh: Fresh) {
    let town = Town::found(&fresh, true, SINGLE).await;
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    mailed_after(&town, 1).await;

    let mails = town.mails();
    assert_eq!(mails.len(), 3);
    for mail in &mails {
        assert_eq!(mail.further, mails[0].further);
        let said = format!("{:?}", mail.further);
        for hidden in ["@example.org", "ben", "cem", "Work"] {
            assert!(!said.contains(hidden), "{said}");
        }
    }
}
