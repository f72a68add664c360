//! Tests of batch emails: snapshots, and properties of all batch emails.

use std::sync::{Arc, LazyLock};

use chrono::TimeDelta;
use chrono_tz::Tz;
use serde_json::json;

use super::tests::{at, site, titled, whole, work};
use super::*;
use crate::domain::batch::BatchItem;
use crate::domain::email_sections::{DisplayData, build_batch_content};
use crate::domain::{
    BatchKey, EmailContent, Event, EventType, Id, Json, Object, ObjectId, ObjectKey, Policies,
    Policy, StopAction, UserId,
};

pub(super) fn policies() -> Policies {
    let policy = |heading: &str, phrase: Option<&str>| Policy {
        heading: Some(heading.into()),
        phrase: phrase.map(|phrase| phrase.parse().unwrap()),
        ..Policy::default()
    };
    Policies::new([
        (EventType::stored("Comment"), policy("New comments", Some("commented on"))),
        (EventType::stored("Mention"), policy("Mentions", Some("mentioned you in"))),
        (EventType::stored("Work"), policy("New works", None)),
    ])
}

/// Returns the content of these events, which are seven minutes apart. The last is at 08:55 UTC.
pub(super) fn content_of(
    key: BatchKey,
    events: Vec<(&str, Object)>,
    omitted: u64,
) -> Option<EmailContent> {
    let last = at() + TimeDelta::minutes(55);
    let count = events.len();
    let kept: Vec<BatchItem> = (0..count)
        .map(|n| BatchItem {
            fanout_id: Id::at(last - TimeDelta::minutes(7 * (count - 1 - n) as i64), [0; 8]),
            kind: EventType::stored(events[n].0),
            object: ObjectId::stored(n.to_string()),
        })
        .collect();
    let applies = |event: &Event| {
        let (_, object) = &events[event.object.as_str().parse::<usize>().unwrap()];
        object.notifiable.then(|| DisplayData { object: Arc::new(object.clone()), details: None })
    };
    build_batch_content(&key, &kept, omitted, &policies(), applies)
}

pub(super) fn content(events: Vec<(&str, Object)>, omitted: u64) -> EmailContent {
    let key = BatchKey::Chosen("acme".parse().unwrap());
    content_of(key, events, omitted).unwrap()
}

static CLOSED: LazyLock<DeliverySource> =
    LazyLock::new(|| DeliverySource::Batch(Id::at(at(), [0; 8]), at()));

pub(super) fn email<'a>(user: &'a User, content: &'a EmailContent) -> EmailInput<'a> {
    let stop = StopAction::for_types(content.sections.iter().map(|section| &section.kind));
    EmailInput {
        user,
        content,
        occasion: &CLOSED,
        at: at() + TimeDelta::minutes(60),
        tz: Tz::Europe__London,
        links: EmailLinks {
            preferences: Some("https://www.example.org/u/token".into()),
            unsubscribe: Some("https://www.example.org/u/token?stop".into()),
            mute: content.common_topic().map(|_| "https://www.example.org/u/token?mute".into()),
        },
        stop: Some(Box::leak(Box::new(stop))),
    }
}

pub(super) fn render(content: &EmailContent) -> EmailParts {
    let user = User::new(UserId::stored("ada"));
    Renderer::new(site(), None).unwrap().render(&email(&user, content)).unwrap()
}

fn subject(events: Vec<(&str, Object)>, omitted: u64) -> String {
    render(&content(events, omitted)).subject
}

fn slug(text: &str) -> String {
    text.to_lowercase().replace(' ', "-")
}

/// Returns a comment on a document, with its own text.
pub(super) fn comment_with(by: &str, words: &str, about: &str) -> (&'static str, Object) {
    let object = Object {
        by: Some(by.into()),
        url: Some(format!(
            "https://www.example.org/{}#{}",
            slug(about),
            slug(by)
        )),
        data: json!({"about": {"title": about, "url": format!("https://www.example.org/{}", slug(about))}}).into(),
        ..titled(words)
    };
    ("Comment", object)
}

/// Returns a comment with only a document and an author.
pub(super) fn comment_on(by: &str, about: &str) -> (&'static str, Object) {
    let (kind, object) = comment_with(by, about, about);
    (kind, Object { data: serde_json::Value::Null.into(), ..object })
}

fn new_work(n: usize) -> (&'static str, Object) {
    ("Work", work(n))
}

fn unnamed((kind, object): (&'static str, Object)) -> (&'static str, Object) {
    (kind, Object { by: None, ..object })
}

pub(super) fn four_comments() -> Vec<(&'static str, Object)> {
    vec![
        comment_with("Ada Okafor", "Are the travel costs in here?", "Budget"),
        comment_with("Ben", "They are, in line 14.", "Budget"),
        comment_with(
            "Cyd",
            "Then line 15 is too low by about a third, as we have two more venues than last year",
            "Budget",
        ),
        comment_with("Dee", "+1", "Budget"),
    ]
}

#[test]
fn a_batch_of_one_event_names_its_author() {
    let events = four_comments().into_iter().take(1).collect();

    insta::assert_snapshot!("batch_one_event", whole(&render(&content(events, 0))));
}

#[test]
fn the_text_of_one_event_links_to_its_topic_like_the_html() {
    let (kind, object) = comment_with("Ada Okafor", "Are the travel costs in here?", "Budget");
    let unlinked = Object { url: None, ..object.clone() };
    let text = |kind, object| render(&content(vec![(kind, object)], 0)).text;

    let texts = [text(kind, unlinked.clone()), text(kind, object), text("Work", unlinked)];

    for text in texts {
        assert!(text.contains("\nhttps://www.example.org/budget"), "{text}");
    }
}

#[test]
fn a_batch_about_one_topic_counts_its_authors() {
    let content = content(four_comments(), 0);

    insta::assert_snapshot!("batch_one_thing", whole(&render(&content)));
}

#[test]
fn a_batch_of_several_types_has_sections() {
    let mut events = four_comments();
    events.push(comment_on("Ada Okafor", "Roadmap"));
    events.push(comment_on("Ada Okafor", "Roadmap"));
    events.push(unnamed(comment_on("", "Minutes")));
    events.push(unnamed(comment_on("", "Minutes")));
    events.push(new_work(0));
    events.push(new_work(1));
    let (_, mention) = comment_on("Cyd", "Hiring plan");
    events.push(("Mention", mention));

    let rendered = render(&content(events, 12));

    insta::assert_snapshot!("batch_several_types", whole(&rendered));
}

#[test]
fn a_batch_of_types_without_a_phrase_reads_like_a_digest() {
    let events = vec![new_work(0), new_work(2), new_work(1)];

    insta::assert_snapshot!("batch_without_phrase", whole(&render(&content(events, 0))));
}

#[test]
fn a_batch_of_odd_objects_keeps_its_layout() {
    let bare = Object::without_data(ObjectKey::stored("7"));
    let long = "A View of the Harbour, with the Arrival of the Fleet and the Populace Assembled \
                upon the Quay to Witness the Landing of the Ambassadors from the East";
    let events = vec![
        comment_with("ليلى الحداد", "هل تكاليف السفر مدرجة هنا؟", "ميزانية ٢٠١٤"),
        ("Comment", bare.clone()),
        comment_on(long, long),
        comment_on("Ben", "無題(静寂の中の青い間隔)"),
        ("artwork_published", bare),
    ];

    insta::assert_snapshot!("batch_odd_objects", whole(&render(&content(events, 0))));
}

#[test]
fn a_subject_names_the_authors_and_their_action() {
    let two = |by: [&str; 2]| by.map(|by| comment_on(by, "Budget")).to_vec();
    let many = |people: usize| -> Vec<_> {
        (0..people)
            .map(|n| comment_on(["Dee", "Cyd", "Ben", "Ada", "Eve"][n % 5], "Budget"))
            .collect()
    };
    let mut with_work = two(["Ben", "Ada"]);
    with_work.push(new_work(0));
    let of_each = |count: usize| -> Vec<_> {
        (0..count)
            .map(|n| {
                comment_on("Ada", ["Minutes", "Hiring", "Roadmap", "Budget"][(n + 4 - count) % 4])
            })
            .collect()
    };

    for (subject, expected) in [
        (subject(many(1), 0), "Dee commented on Budget"),
        (subject(two(["Ben", "Ada"]), 0), "Ada and Ben commented on Budget"),
        (subject(two(["Ada", "Ada"]), 0), "Ada commented on Budget twice"),
        (subject(vec![comment_on("Ada", "Budget"); 3], 0), "Ada commented on Budget 3 times"),
        (subject(many(3), 0), "Ben, Cyd and Dee commented on Budget"),
        (subject(many(4), 0), "Ada, Ben and 2 others commented on Budget"),
        (subject(many(4), 1_200), "Ada, Ben and 2 others commented on Budget, and 1,200 more"),
        (subject(with_work, 0), "Ada and Ben commented on Budget, and 1 more"),
        (subject(of_each(2), 0), "Ada commented on Budget and Roadmap"),
        (subject(of_each(4), 3), "Ada commented on Budget, Roadmap and 2 more, and 3 more"),
        (subject(vec![unnamed(comment_on("", "Budget"))], 0), "New: Budget"),
        (subject(vec![unnamed(comment_with("", "Hm", "Budget"))], 0), "New comments: Budget"),
        (
            subject(vec![unnamed(comment_on("", "Budget")), comment_on("Ada", "Budget")], 0),
            "2 new comments: Budget",
        ),
        (
            subject(vec![new_work(0)], 0),
            "New: Moonlight over the Estuary, with Fishing Boats Coming Ashore by Eleanor Whitcombe",
        ),
        (subject(vec![new_work(0), new_work(2)], 0), "2 new works by Eleanor Whitcombe"),
        (subject(vec![new_work(0), new_work(2)], 12), "14 new: Eleanor Whitcombe and more"),
    ] {
        assert_eq!(subject, expected);
    }
}

#[test]
fn a_long_batch_shows_the_newest_and_counts_the_rest() {
    let events: Vec<_> = (0..100)
        .map(|n| {
            comment_with(
                ["Ada", "Ben", "Cyd"][n % 3],
                &format!("Remark {n}"),
                ["Budget", "Roadmap"][n % 2],
            )
        })
        .collect();
    let key = BatchKey::Type(EventType::stored("Comment"));

    let rendered = render(&content_of(key, events, 1_400).unwrap());

    assert_eq!(
        rendered.subject,
        "Ada, Cyd and Ben commented on Roadmap and Budget, and 1,400 more"
    );
    insta::assert_snapshot!("batch_long", rendered.text);
    assert!(rendered.html.contains(", and 1,400 more</h1>"));
}

#[test]
fn withdrawn_events_are_omitted() {
    let mut events = four_comments();
    events[3].1.notifiable = false;

    let rendered = render(&content(events, 0));

    assert_eq!(rendered.subject, "Cyd, Ben and Ada Okafor commented on Budget");
    assert!(!rendered.text.contains("Dee") && !rendered.html.contains("Dee"));
    assert_eq!(rendered.shown_items, 3);
}

#[test]
fn users_with_the_same_content_get_identical_emails() {
    let content = content(four_comments(), 0);
    let ada = User {
        name: Some("Ada".into()),
        locale: Some("en-GB".into()),
        ..User::new(UserId::stored("ada"))
    };
    let ben = User::new(UserId::stored("ben"));
    let renderer = Renderer::new(site(), None).unwrap();

    let [one, other] = [&ada, &ben].map(|user| renderer.render(&email(user, &content)).unwrap());

    assert_eq!(one, other);
}

#[test]
fn times_use_the_users_zone() {
    let user = User::new(UserId::stored("ada"));
    let content = content(four_comments(), 0);
    let zoned = |tz| {
        let email = EmailInput { tz, ..email(&user, &content) };
        Renderer::new(site(), None).unwrap().render(&email).unwrap().text
    };

    assert!(zoned(Tz::UTC).contains("From 08:34 to 08:55."));
    let west = zoned(Tz::America__Los_Angeles);
    assert!(west.contains("From 01:34 to 01:55."), "{west}");
    assert!(west.contains("America/Los_Angeles"));
    let late_email = EmailInput { at: at() + TimeDelta::hours(20), ..email(&user, &content) };
    let late = Renderer::new(site(), None).unwrap().render(&late_email).unwrap().text;
    assert!(late.contains("Dee · 22 April, 09:55"), "{late}");
}

#[test]
fn markup_and_line_breaks_in_batch_input_are_neutralized() {
    let hostile = Object {
        title: Some("<script>alert(\"x\")</script> ' & {{ site.name }}".into()),
        by: Some("Eve\r\nBcc: eve@example.org\u{202e}<u>".into()),
        url: Some("https://www.example.org/?a=1&b=\"><script>".into()),
        image: Some("javascript:alert(1)".into()),
        data: json!({"about": {"title": "<b>Bud\nget", "url": "javascript:alert(1)"}}).into(),
        ..titled("")
    };
    let on_page = Object { data: Json::default(), ..hostile.clone() };
    for events in [
        vec![("Comment", hostile.clone())],
        vec![("Comment", on_page.clone())],
        vec![("Comment", hostile.clone()), ("Comment", on_page.clone())],
        vec![("Comment", hostile.clone()), ("Work", on_page), ("Work", hostile)],
    ] {
        let EmailParts { subject, html, text, .. } = render(&content(events, 0));

        for bad in ["<script", "<b>", "<u>", "javascript:", "\r", "\u{202e}"] {
            assert!(!html.contains(bad), "{bad}\n{html}");
        }
        assert!(!subject.contains(['\r', '\n']), "{subject}");
        assert!(!text.contains("javascript:") && !text.contains("\nBcc"), "{text}");
    }
}
