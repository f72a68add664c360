//! Tests of batch templates: broken, and with shared parts. Emails omit no event.

use proptest::prelude::*;

use super::batch_tests::{
    comment_on, comment_with, content, content_of, email, four_comments, render,
};
use super::template_tests::with;
use super::tests::{at, digest, works};
use super::*;
use crate::domain::{BatchKey, EmailContent, EventType, Object, UserId};

fn by(renderer: &Renderer, content: &EmailContent) -> EmailParts {
    let user = User::new(UserId::stored("ada"));
    renderer.render(&email(&user, content)).unwrap()
}

#[test]
fn a_broken_batch_template_is_rejected_at_startup_with_its_line() {
    for (name, template, expected) in [
        (
            "batch/body.html",
            "<p>\n{% if one %}\n</p>",
            "templates/batch/body.html, line 3: syntax error",
        ),
        (
            "batch/subject.txt",
            "a\n{{ totl }}",
            "templates/batch/subject.txt, line 2: undefined value",
        ),
        (
            "batch/body.txt",
            "\n{{ total|gruped }}",
            "templates/batch/body.txt, line 2: unknown filter",
        ),
        (
            "batch/body.txt",
            "{% for s in sections %}{% for g in s.groups %}\n{{ g.sentence.names }}{% endfor %}{% endfor %}",
            "templates/batch/body.txt, line 2: undefined value",
        ),
        (
            "batch/body.txt",
            "{% include \"mail/items.txt\" %}\n\n{{ totl }}",
            "templates/batch/body.txt, line 3: undefined value",
        ),
        (
            "batch/body.txt",
            "\n{% include \"mail/nothing.txt\" %}",
            "templates/batch/body.txt, line 2: template not found",
        ),
        ("mail/foot.txt", "\n\n{{ nobody }}", "templates/mail/foot.txt, line 3: undefined value"),
        ("mail/said.txt", "{% macro listed() %}{% endmacro %}", "the built-in template "),
    ] {
        let error = with(&[(name, template)]).err().expect(template);

        assert!(error.starts_with(expected), "{error}");
    }
    let long = with(&[("batch/body.html", &"x".repeat(100_000))]).err().unwrap();
    assert!(long.starts_with("templates/batch/body.html makes 1000"), "{long}");
}

#[test]
fn a_replaced_shared_part_applies_to_digests_and_batches() {
    let renderer = with(&[("mail/foot.txt", "Bye.\n")]).unwrap();
    let works = digest(at(), [("Work", "New works", works(0..1), 0)]);
    let user = User::new(UserId::stored("ada"));

    let digest = renderer.render(&super::tests::email(&user, &works)).unwrap();
    let batch = by(&renderer, &content(four_comments(), 0));

    assert!(digest.text.ends_with("\nBye."), "{}", digest.text);
    assert!(batch.text.ends_with("\nBye."), "{}", batch.text);
}

#[test]
fn a_shared_part_can_test_which_email_it_is_in() {
    let names =
        ["cadence", "period", "zone", "sentence", "sections[0].items", "sections[0].groups"];
    let tests = names.map(|name| format!("{{% if {name} is defined %}}{name} {{% endif %}}"));
    let renderer = with(&[("mail/foot.txt", &tests.concat())]).unwrap();
    let user = User::new(UserId::stored("ada"));

    let works = digest(at(), [("Work", "New works", works(0..2), 0)]);
    let digest = renderer.render(&super::tests::email(&user, &works)).unwrap().text;
    let batch = by(&renderer, &content(four_comments(), 0));

    assert!(digest.ends_with("\ncadence period sections[0].items "), "{digest}");
    assert!(batch.text.ends_with("\nzone sentence sections[0].groups "), "{}", batch.text);
}

#[test]
fn a_template_can_read_all_application_data_of_an_object() {
    let file = (
        "batch/subject.txt",
        "{% if one and one.data.about %}{{ one.data.about.title }}{% endif %}",
    );
    let renderer = with(&[file]).unwrap();

    let events = vec![comment_with("Ada", "Hm", "Budget")];

    assert_eq!(by(&renderer, &content(events, 0)).subject, "Budget");
}

/// Returns the sum of the numbers in "12 more". Each starts a line or an element.
fn counted(text: &str) -> u64 {
    let lines = text.split(['\n', '>']).map(str::trim_start);
    let numbers = lines.filter_map(|line| {
        let (number, _) = line.split_once(" more")?;
        number.replace(',', "").parse::<u64>().ok()
    });
    numbers.sum()
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn an_email_shows_or_counts_every_event(
        events in prop::collection::vec((0_usize..6, 0_usize..9, 0_usize..4, any::<bool>()), 1..100),
        omitted in 0_u64..2_000,
        long in prop::sample::select(vec![1_usize, 1, 400]),
        typed in any::<bool>(),
    ) {
        let kinds = ["Comment", "Mention", "Work", "Other", "Comment", "Comment"];
        let events: Vec<_> = events
            .into_iter()
            .enumerate()
            .map(|(n, (kind, about, by, own_words))| {
                let about = format!("Page {about} {}", "&".repeat(long));
                let by = ["Ada", "Ben", "Cyd", ""][by];
                let (_, object) = if own_words { comment_with(by, &format!("Remark {n}"), &about) } else { comment_on(by, &about) };
                let url = Some(format!("https://www.example.org/?n={n}{}", "&".repeat(5 * long)));
                (kinds[kind], Object { url, ..object })
            })
            .collect();
        let key = if typed {
            BatchKey::Type(EventType::stored("Comment"))
        } else {
            BatchKey::Chosen("all".parse().unwrap())
        };
        let total = events.len() as u64 + omitted;
        let content = content_of(key, events, omitted).unwrap();

        let EmailParts { subject, html, text, shown_items, .. } = render(&content);

        prop_assert!(html.len() < MAX_BYTES && text.len() < MAX_BYTES);
        prop_assert!(subject.chars().count() <= MAX_SUBJECT);
        prop_assert_eq!(content.total, total);
        prop_assert_eq!(counted(&text) + shown_items as u64, total, "{}", text);
        prop_assert_eq!(counted(&html) + shown_items as u64, total);
        // Each shown item has its own link in the text, unless it is the link of its group.
        prop_assert!(text.matches("?n=").count() >= shown_items);
    }
}
