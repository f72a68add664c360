//! Tests of wording: people and quotes first, each link once, and one language per email.

use std::collections::BTreeMap;

use chrono::TimeDelta;

use super::batch_tests::{
    comment_on, comment_with, content, email as batch_email, four_comments, render,
};
use super::tests::{at, digest, email, site, titled, work, works};
use super::*;
use crate::domain::email_sections::FollowReason;
use crate::domain::{EmailContent, FollowKey, Mandate, Object, UserId};

fn reader(locale: &str) -> User {
    User { locale: Some(locale.into()), ..User::new(UserId::stored("ada")) }
}

fn in_locale(locale: &str, content: &EmailContent) -> EmailParts {
    let renderer = Renderer::new(site(), None).unwrap();
    renderer.render(&batch_email(&reader(locale), content)).unwrap()
}

fn batches() -> Vec<EmailContent> {
    let several =
        vec![comment_on("Ada", "Budget"), comment_on("Ben", "Roadmap"), ("Work", work(0))];
    vec![
        content(four_comments(), 0),
        content(four_comments(), 7),
        content(vec![comment_with("Ada", "Why?", "Budget")], 0),
        content(vec![comment_on("Ada", "Budget"); 5], 0),
        content(vec![("Work", work(0))], 0),
        content(several, 0),
    ]
}

#[test]
fn the_text_of_an_email_begins_with_words() {
    let user = User::new(UserId::stored("ada"));
    let renderer = Renderer::new(site(), None).unwrap();
    let digest = |works: Vec<Object>| {
        let digest = digest(at(), [("Work", "New works", works, 0)]);
        renderer.render(&email(&user, &digest)).unwrap().text
    };
    let mut texts = vec![digest(works(0..1)), digest(works(0..3))];
    texts.extend(batches().iter().map(|content| render(content).text));

    for text in texts {
        let first = text.lines().next().unwrap();
        assert!(first.starts_with(char::is_alphanumeric), "{text}");
        assert!(!first.contains("://") && !first.contains('·'), "{text}");
    }
}

#[test]
fn a_batch_shows_each_link_once() {
    for content in batches() {
        let rendered = render(&content);
        let mut links: BTreeMap<&str, usize> = BTreeMap::new();
        for after in rendered.html.split("<a ").skip(1) {
            // An image and the button below it may share a link.
            let (tag, inside) = after.split_once('>').unwrap();
            let (_, url) = tag.split_once("href=\"").unwrap();
            let (url, _) = url.split_once('"').unwrap();
            *links.entry(url).or_default() += usize::from(!inside.starts_with("<img"));
        }
        // The name of the site links there as well.
        links.remove("https://www.example.org");
        assert!(links.values().all(|times| *times <= 1), "{links:?}");

        let lines = rendered.text.lines().map(str::trim);
        let urls: Vec<&str> = lines.filter(|line| line.starts_with("https://")).collect();
        let mut distinct = urls.clone();
        distinct.sort_unstable();
        distinct.dedup();
        assert_eq!(urls.len(), distinct.len(), "{urls:#?}");
    }
}

#[test]
fn a_batch_starts_with_authors_and_quotes() {
    let one = render(&content(vec![comment_with("Ada", "Are they?", "Budget")], 0));
    let many = render(&content(four_comments(), 0));

    let begins = "Ada commented on Budget\n\n  Are they?\n  New comments · 09:55\n";
    assert!(one.text.starts_with(begins), "{}", one.text);
    let begins =
        "Dee, Cyd and 2 others commented on Budget\nFrom 09:34 to 09:55.\n\nDee · 09:55\n  +1\n";
    assert!(many.text.starts_with(begins), "{}", many.text);
    assert!(many.html.contains(">Dee: +1 · Cyd: "), "{}", many.html);
}

#[test]
fn a_single_moment_is_not_shown_as_a_time_span() {
    let mut same = content(vec![comment_on("Ada", "Budget"), comment_on("Ben", "Roadmap")], 0);
    same.oldest = same.newest;

    let rendered = render(&same);

    assert!(!rendered.text.contains("At 09:55"), "{}", rendered.text);
    assert!(!rendered.html.contains("At 09:55"), "{}", rendered.html);
}

#[test]
fn further_events_are_counted_with_their_type_and_topic() {
    let says = |count: usize, locale: &str, words: &str| {
        let events = vec![comment_with("Ada", "Why?", "Budget"); count];
        let EmailParts { html, text, .. } = in_locale(locale, &content(events, 0));
        assert!(text.contains(words), "{text}");
        assert!(html.contains(words), "{html}");
    };

    says(6, "en", "1 more on Budget");
    says(8, "en", "3 more comments on Budget");
    says(6, "de", "1 weiterer Eintrag zu Budget");
    says(8, "fr", "3 autres à propos de Budget");
}

#[test]
fn the_reason_for_a_digest_is_one_sentence() {
    let user = User::new(UserId::stored("ada"));
    let renderer = Renderer::new(site(), None).unwrap();
    let because = |names: &[&str]| {
        let followed = names.iter().map(|name| FollowReason {
            key: FollowKey::stored(format!("artist:{name}")),
            name: (*name).to_owned(),
            url: None,
        });
        let digest = EmailContent {
            follow_reasons: followed.collect(),
            ..digest(at(), [("Work", "New works", works(0..3), 0)])
        };
        renderer.render(&email(&user, &digest)).unwrap().text
    };

    for (names, sentence) in [
        (&["Ada"][..], "Because you follow Ada.\n"),
        (&["Ada", "Ben"], "Because you follow Ada and Ben.\n"),
        (&["Ada", "Ben", "Cyd"], "Because you follow Ada, Ben and Cyd.\n"),
    ] {
        let text = because(names);
        assert!(text.contains(sentence), "{text}");
        assert_eq!(text.matches("Because").count(), 1);
        assert_eq!(text.matches("\nUnfollow ").count(), names.len(), "{text}");
    }
}

#[test]
fn american_english_has_its_own_dates_and_times() {
    let comments = content(four_comments(), 0);
    let user = reader("en-US");
    let late_email =
        EmailInput { at: at() + TimeDelta::hours(20), ..batch_email(&user, &comments) };
    let renderer = Renderer::new(site(), None).unwrap();

    let today = in_locale("en-US", &comments);
    let late = renderer.render(&late_email).unwrap();
    let content = digest(at(), [("Work", "New works", works(0..3), 0)]);
    let digest = renderer.render(&email(&user, &content)).unwrap();

    assert!(today.text.contains("From 9:34 AM to 9:55 AM."), "{}", today.text);
    assert!(today.html.contains("April 22, 2014"), "{}", today.html);
    assert!(late.text.contains("Dee · April 22, 9:55 AM"), "{}", late.text);
    assert!(digest.text.contains(" · April 22\n"), "{}", digest.text);
    let british = in_locale("en-GB", &comments);
    assert!(british.text.contains("From 09:34 to 09:55."));
}

#[test]
fn a_mandatory_email_explains_why_it_is_sent() {
    let email_with = |reason: Option<&str>, locale: &str| {
        let mut content = content(four_comments(), 0);
        let mandate = reason.map(|reason| reason.parse::<Mandate>().unwrap());
        content.sections[0].mandate = Some(mandate.unwrap_or_default());
        in_locale(locale, &content)
    };
    let why = "That is why we send this email even if you turned it off";

    let usual = email_with(None, "en");
    let own = email_with(Some("Security notices cannot be turned off."), "en");
    let german = email_with(Some("Security notices cannot be turned off."), "de");
    let chosen = render(&content(four_comments(), 0));

    for (rendered, reason) in
        [(&usual, "This cannot be turned off."), (&own, "Security notices cannot be turned off.")]
    {
        let sentence = format!("{reason} {why}");
        let text = rendered.text.replace('\n', " ");
        assert!(text.contains(&sentence), "{text}");
        assert!(rendered.html.contains(&sentence), "{}", rendered.html);
    }
    assert!(german.text.contains("Das lässt sich nicht abschalten. Deshalb"));
    assert!(!german.text.contains("Security"), "{}", german.text);
    assert!(!chosen.text.contains(why) && !chosen.html.contains(why));
}

#[test]
fn a_phrase_without_a_translation_is_not_used_in_a_sentence() {
    let one = content(vec![comment_with("Ada", "Warum?", "Budget")], 0);
    let many = content(
        vec![comment_with("Ada", "Warum?", "Budget"), comment_with("Ben", "Nur so.", "Budget")],
        0,
    );

    for content in [one, many] {
        let EmailParts { subject, html, text, .. } = in_locale("de", &content);

        for part in [&subject, &html, &text] {
            assert!(!part.contains("commented on"), "{part}");
            assert!(part.contains("Budget"), "{part}");
        }
        assert!(text.contains("Ada · 09:") && text.contains("Warum?"), "{text}");
    }
}

#[test]
fn type_names_do_not_fall_back_to_english() {
    let folder = tempfile::tempdir().unwrap();
    std::fs::create_dir(folder.path().join("locales")).unwrap();
    let english = "type-Comment = Remarks\n    .phrase = remarked on\n    .new = new remarks\n";
    std::fs::write(folder.path().join("locales/en.ftl"), english).unwrap();
    let renderer = Renderer::new(site(), Some(folder.path().to_owned())).unwrap();
    let content = content(four_comments(), 0);
    let text_in = |locale: &str| {
        let rendered = renderer.render(&batch_email(&reader(locale), &content));
        rendered.unwrap().text
    };

    assert!(text_in("en").contains("remarked on"));
    assert!(!text_in("de").contains("remark"), "{}", text_in("de"));
}

#[test]
fn the_picture_of_one_event_fills_the_width() {
    let pictured = |(kind, object): (&'static str, Object)| {
        let image = Some("https://www.example.org/1.jpg".to_owned());
        render(&content(vec![(kind, Object { image, ..object })], 0)).html
    };

    for html in
        [pictured(comment_with("Ada", "Why?", "Budget")), pictured(("Work", titled("Ruins")))]
    {
        let (_, style) = html.split_once("class=\"lead\"").unwrap();
        let (style, _) = style.split_once('>').unwrap();
        assert!(style.contains("width:100%;max-width:520px;height:auto"), "{style}");
    }
}
