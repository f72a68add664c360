//! Tests that each user gets emails in their own language, and shares content only with readers of
//! the same language.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use crate::support::Fresh;
use crate::support::town::{Town, monday, mostly_on_sqlite, to};

mostly_on_sqlite! {
    users_get_their_language_and_share_content_with_its_readers
    an_unavailable_locale_is_replaced_by_english
    a_catalog_overrides_the_configured_texts_of_a_type
    a_catalog_cannot_use_placeholders_of_a_provider
}

const CROWD: [(&str, Option<&str>); 3] =
    [("ada", Some("de-AT")), ("ben", Some("ar")), ("cem", None)];

async fn set_locales(town: &Town) {
    for (person, locale) in CROWD {
        town.change(person, |user| user.locale = locale.map(str::to_owned)).await;
    }
}

async fn users_get_their_language_and_share_content_with_its_readers(fresh: Fresh) {
    let town = Town::found(&fresh, true, "delivery.chunk = 100\n").await;
    set_locales(&town).await;
    let crowd = town.crowd(6).await;
    for (n, person) in crowd.iter().enumerate() {
        let locale = ["de", "de-CH"][n % 2];
        town.change(person, |user| user.locale = Some(locale.into())).await;
    }
    let all = crowd.iter().map(String::as_str).chain(["ada", "ben", "cem"]);
    town.happens(&["a1", "a2"], to(&all.collect::<Vec<_>>())).await;

    town.digests_at(monday(0)).await;

    let emails = town.emails();
    let of = |person: &str| {
        let address = format!("{person}@example.org");
        emails.iter().find(|email| email.to.reveal() == address).unwrap()
    };
    for (person, html, text) in [
        ("ada", r#"<html lang="de" dir="ltr""#, "2 Neuigkeiten für Sie"),
        ("ben", r#"<html lang="ar" dir="rtl""#, "خبران جديدان لك"),
        ("cem", r#"<html lang="en" dir="ltr""#, "2 new things for you"),
    ] {
        let email = of(person).fill_links();
        assert!(email.html.contains(html), "{}", email.html);
        assert!(email.text.contains(text), "{}", email.text);
    }
    assert_eq!(emails.len(), 9);
    let mut readers: BTreeMap<_, BTreeSet<String>> = BTreeMap::new();
    for email in &emails {
        let content = Arc::as_ptr(&email.content);
        readers.entry(content).or_default().insert(email.to.reveal().to_owned());
    }
    let mut shared: Vec<usize> = readers.values().map(BTreeSet::len).collect();
    shared.sort_unstable();
    assert_eq!(shared, [1, 1, 7], "everybody who reads German shares one content");
}

async fn an_unavailable_locale_is_replaced_by_english(fresh: Fresh) {
    let town = Town::found(&fresh, true, "").await;
    for (person, locale) in [("ada", "xx"), ("ben", "xx"), ("cem", "pt-BR")] {
        town.change(person, |user| user.locale = Some(locale.into())).await;
    }
    town.happens(&["a1"], to(&["ada", "ben", "cem"])).await;
    town.clock.set(monday(0));

    town.digests_at(monday(0)).await;

    let english = town.emails();
    let english = english.iter().filter(|email| email.fill_links().html.contains(r#"lang="en""#));
    assert_eq!(english.count(), 2);
}

async fn a_catalog_overrides_the_configured_texts_of_a_type(fresh: Fresh) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("locales")).unwrap();
    let german = "type-ArtworkPublished = Neue Werke\n    .new = { $count ->\n        \
                  [one] neues Werk\n       *[other] neue Werke\n    }\n";
    std::fs::write(folder.path().join("locales/de.ftl"), german).unwrap();
    let config = format!(
        "mail.templates = {:?}\n[types.ArtworkPublished]\nheading = \"New works\"\n",
        folder.path()
    );
    let town = Town::found(&fresh, true, &config).await;
    set_locales(&town).await;
    town.happens(&["a1", "a2"], to(&["ada", "cem"])).await;

    town.digests_at(monday(0)).await;

    for email in town.emails() {
        let (subject, text) = (email.fill_links().subject, email.fill_links().text);
        let german = email.to.reveal() == "ada@example.org";
        let headline = if german { "2 neue Werke für Sie" } else { "2 new works for you" };
        assert!(text.contains(headline), "{text}");
        let heading = if german { "Neue Werke · 2" } else { "New works · 2" };
        assert!(text.contains(heading), "{text}");
        let subject_start = if german { "Neue Werke: " } else { "New works: " };
        assert!(subject.starts_with(subject_start), "{subject}");
    }
}

async fn a_catalog_cannot_use_placeholders_of_a_provider(fresh: Fresh) {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("locales")).unwrap();
    let evil = r#"digest-head = %recipient.email% { "{{{ pm:unsubscribe_url }}}" } { $news }"#;
    std::fs::write(folder.path().join("locales/en.ftl"), format!("{evil}\n")).unwrap();
    let config = format!("mail.templates = {:?}\n", folder.path());
    let town = Town::found(&fresh, true, &config).await;
    town.happens(&["a1", "a2"], to(&["cem"])).await;

    town.digests_at(monday(0)).await;

    let email = town.emails().remove(0).fill_links();
    for part in [&email.html, &email.text] {
        assert!(part.contains("recipient.email"), "{part}");
        assert!(!part.contains("%recipient") && !part.contains("{{{ pm:"), "{part}");
    }
}
