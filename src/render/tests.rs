//! Tests of rendered emails: snapshots, and properties of all emails.

use std::sync::{Arc, LazyLock};

use chrono::{DateTime, TimeDelta, Utc};
use chrono_tz::Tz;

use super::*;
use crate::domain::email_sections::{Authors, EmailGroup, EmailItem, GroupTopic};
use crate::domain::{
    Cadence, EmailContent, EventType, Object, ObjectId, ObjectKey, StopAction, UserId,
};

pub(super) fn site() -> Site {
    Site {
        name: "Tate".into(),
        url: Some("https://www.example.org".into()),
        logo: None,
        postal_address: Some("Gallery of Modern Things\n1 Millbank, London SW1P 4RG".into()),
        accent: "#1f4e79".into(),
        feedback_id: None,
    }
}

pub(super) fn renderer() -> Renderer {
    Renderer::new(site(), None).unwrap()
}

fn grouped(n: u64) -> String {
    Catalogs::load(None).unwrap().formatter(None).grouped(n)
}

/// 22 April 2014, 08:00 UTC.
pub(super) fn at() -> DateTime<Utc> {
    DateTime::from_timestamp(1_398_153_600, 0).unwrap()
}

fn of_cadence(cadence: Cadence) -> DeliverySource {
    DeliverySource::Digest(cadence, "2014-W17".into())
}

static WEEKLY: LazyLock<DeliverySource> = LazyLock::new(|| of_cadence(Cadence::Weekly));

pub(super) fn email<'a>(user: &'a User, content: &'a EmailContent) -> EmailInput<'a> {
    EmailInput {
        user,
        content,
        occasion: &WEEKLY,
        at: at(),
        tz: Tz::UTC,
        links: EmailLinks {
            preferences: Some("https://www.example.org/u/token".into()),
            unsubscribe: Some("https://www.example.org/u/token?stop".into()),
            mute: None,
        },
        stop: Some(&StopAction::Digest),
    }
}

/// Returns a digest. Each section is a type, a heading, objects (newest first), and the number of
/// further events.
pub(super) fn digest<'a>(
    at: DateTime<Utc>,
    sections: impl IntoIterator<Item = (&'a str, &'a str, Vec<Object>, usize)>,
) -> EmailContent {
    let no_one = Authors::Named(Vec::new());
    let group = |(index, object): (usize, Object)| {
        let id = object.key.split().map_or(object.key.as_str(), |(_, id)| id);
        let item = EmailItem {
            id: ObjectId::stored(id),
            at: at - TimeDelta::hours(9 * (index % 16) as i64 + 8),
            object: Arc::new(object),
            details: None,
        };
        EmailGroup {
            topic: GroupTopic::Object,
            authors: no_one.clone(),
            items: vec![item],
            total: 1,
        }
    };
    let section = |(kind, heading, objects, more): (&str, &str, Vec<Object>, usize)| EmailSection {
        kind: EventType::stored(kind),
        heading: heading.to_owned(),
        phrase: None,
        mandate: None,
        authors: no_one.clone(),
        topic_count: objects.len() + more,
        total: (objects.len() + more) as u64,
        omitted: 0,
        groups: objects.into_iter().enumerate().map(group).collect(),
    };
    let sections: Vec<EmailSection> = sections.into_iter().map(section).collect();
    let times = || sections.iter().flat_map(EmailSection::items).map(|item| item.at);
    EmailContent {
        total: sections.iter().map(|section| section.total).sum(),
        omitted: 0,
        oldest: times().min().unwrap_or(at),
        newest: times().max().unwrap_or(at),
        follow_reasons: Vec::new(),
        sections,
    }
}

fn render(digest: &EmailContent) -> EmailParts {
    let user = User::new(UserId::stored("ada"));
    renderer().render(&email(&user, digest)).unwrap()
}

/// Returns the `n`th work of an invented museum.
pub(super) fn work(n: usize) -> Object {
    const WORKS: [(&str, &str); 6] = [
        ("Moonlight over the Estuary, with Fishing Boats Coming Ashore", "Eleanor Whitcombe"),
        ("Standing Form (Walnut)", "Tomás Arquero"),
        ("Study for ‘The Orchard at Evening’", "Eleanor Whitcombe"),
        ("Untitled (Blue Interval)", "Ingrid Sæther"),
        (
            "Portrait of a Woman Reading, possibly the Artist’s Sister",
            "Circle of Johann van der Meulen",
        ),
        ("Seven Variations on a Grey Square", "Mariko Tanabe"),
    ];
    let (title, by) = WORKS[n % WORKS.len()];
    Object {
        title: Some(title.into()),
        by: Some(by.into()),
        url: Some(format!("https://www.example.org/art/works/a{n:05}")),
        image: Some(format!("https://www.example.org/art/images/a{n:05}_8.jpg")),
        ..Object::without_data(ObjectKey::stored(format!("Artwork:A{n:05}")))
    }
}

pub(super) fn titled(title: &str) -> Object {
    Object { title: Some(title.into()), ..Object::without_data(ObjectKey::stored("Show:S1")) }
}

pub(super) fn works(range: std::ops::Range<usize>) -> Vec<Object> {
    range.map(work).collect()
}

/// Returns subject, text and HTML in one snapshot.
pub(super) fn whole(rendered: &EmailParts) -> String {
    let EmailParts { subject, html, text, .. } = rendered;
    format!("Subject: {subject}\n\n{text}\n\n{html}")
}

#[test]
fn a_digest_of_one_event_shows_it_large() {
    let digest = digest(at(), [("ArtworkPublished", "New works", works(0..1), 0)]);

    insta::assert_snapshot!("one_event", whole(&render(&digest)));
}

#[test]
fn a_digest_of_many_events_has_sections_with_totals() {
    let mut without_picture = work(1);
    without_picture.image = None;
    let shows = vec![titled("Late Whitcombe: Paintings 1835–1850"), titled("Ruins and Rooms")];
    let digest = digest(
        at(),
        [
            ("ArtworkPublished", "New works", vec![work(0), without_picture, work(2)], 9),
            ("NearbyShow", "Shows near you", shows, 0),
        ],
    );

    insta::assert_snapshot!("many_events", whole(&render(&digest)));
}

#[test]
fn a_digest_of_odd_objects_keeps_its_layout() {
    let untitled = Object::without_data(ObjectKey::stored("Artwork:A00003"));
    let mut right_to_left = titled("لوحة بدون عنوان: ضوء القمر فوق النهر");
    right_to_left.by = Some("ليلى الحداد".into());
    let long = "A View of the Harbour, with the Arrival of the Fleet and the Populace Assembled \
                upon the Quay to Witness the Landing of the Ambassadors from the East";
    let objects = vec![titled(long), right_to_left, untitled, titled("無題(静寂の中の青い間隔)")];
    let digest = digest(at(), [("artwork_published", "artwork_published", objects, 0)]);

    insta::assert_snapshot!("odd_objects", whole(&render(&digest)));
}

#[test]
fn missing_site_details_and_links_are_omitted() {
    let site = Site { url: None, logo: None, postal_address: None, ..site() };
    let user = User::new(UserId::stored("ada"));
    let digest = digest(at(), [("ArtworkPublished", "New works", vec![titled("Ruins")], 30)]);
    let email = EmailInput {
        occasion: &of_cadence(Cadence::Never),
        links: EmailLinks::default(),
        ..email(&user, &digest)
    };

    let rendered = Renderer::new(site, None).unwrap().render(&email).unwrap();

    insta::assert_snapshot!("bare", whole(&rendered));
    assert!(!rendered.html.contains("href"));
}

#[test]
fn a_subject_summarizes_the_content() {
    let subject = |heading: &str, objects: Vec<Object>, more: usize| {
        render(&digest(at(), [("T", heading, objects, more)])).subject
    };
    let bare = || Object::without_data(ObjectKey::stored("Artwork:A1"));
    let one_artist = || vec![work(0), work(2)];

    for (subject, expected) in [
        (subject("New works", works(1..2), 0), "New: Standing Form (Walnut) by Tomás Arquero"),
        (subject("New works", vec![bare()], 0), "New works: A1"),
        (
            subject("New works", works(0..6), 39_383),
            "39,389 new works: Eleanor Whitcombe, Tomás Arquero and more",
        ),
        (subject("New works", one_artist(), 0), "2 new works by Eleanor Whitcombe"),
        (subject("New works", works(2..4), 0), "New works: Eleanor Whitcombe and Ingrid Sæther"),
        (
            subject("New works", works(3..6), 0),
            "New works: Ingrid Sæther, Circle of Johann van der Meulen and Mariko Tanabe",
        ),
        (subject("New works", works(0..3), 0), "3 new works: Eleanor Whitcombe and Tomás Arquero"),
        (
            subject(
                "Shows near you",
                vec![titled("Late Whitcombe"), titled("Ruins"), titled("Rooms")],
                3,
            ),
            "Shows near you: Late Whitcombe, Ruins and 4 more",
        ),
        (subject("New works", vec![bare(), bare()], 0), "2 new works from Tate"),
        (subject("T", vec![bare(), bare()], 0), "2 new things from Tate"),
    ] {
        assert_eq!(subject, expected);
    }
    let several = digest(
        at(),
        [
            ("A", "New works", works(0..6), 4),
            ("B", "Shows near you", vec![titled("Ruins and Rooms")], 2),
        ],
    );
    assert_eq!(render(&several).subject, "13 new: Eleanor Whitcombe, Ruins and Rooms and more");
}

#[test]
fn markup_and_line_breaks_in_digest_input_are_neutralized() {
    let mut object = work(0);
    object.title = Some("<script>alert(\"x\")</script> ' & {{ site.name }}".into());
    object.by = Some("Eve\r\nBcc: eve@example.org\u{202e}".into());
    object.url = Some("https://www.example.org/?a=1&b=\"><script>".into());
    object.image = Some("javascript:alert(1)".into());
    let digest = digest(at(), [("T", "<b>New\nworks", vec![object.clone(), object], 0)]);
    let user = User { name: Some("<i>Ada\r\n".into()), ..User::new(UserId::stored("<u>")) };

    let EmailParts { subject, html, text, .. } = renderer().render(&email(&user, &digest)).unwrap();

    for bad in ["<script", "<b>", "<i>", "<u>", "javascript:", "\r", "\u{202e}"] {
        assert!(!html.contains(bad), "{bad}\n{html}");
    }
    assert!(
        html.contains(
            "&lt;script&gt;alert(&quot;x&quot;)&lt;/script&gt; &#39; &amp; {{ site.name }}"
        )
    );
    assert!(html.contains("href=\"https://www.example.org/?a=1&amp;b=&quot;&gt;&lt;script&gt;\""));
    assert!(text.contains(
        "* <script>alert(\"x\")</script> ' & {{ site.name }}\n  Eve Bcc: eve@example.org · 22 April"
    ));
    assert!(!subject.contains(['\r', '\n']), "{subject}");
}

#[test]
fn an_email_of_5000_huge_items_stays_under_the_size_limit() {
    let huge = |n: usize| Object {
        title: Some(format!("{n}{}", "&\"é".repeat(4_000))),
        by: Some("<'ü>".repeat(4_000)),
        url: Some(format!("https://www.example.org/{}", "&".repeat(2_000))),
        ..work(n)
    };
    let digest = digest(
        at(),
        [
            ("A", "New works", (0..4_990).map(huge).collect(), 7),
            ("B", "Shows near you", (0..10).map(huge).collect(), 0),
        ],
    );

    let EmailParts { html, text, subject, .. } = render(&digest);

    assert!(html.len() < MAX_BYTES && text.len() < MAX_BYTES);
    assert!(subject.chars().count() <= MAX_SUBJECT, "{subject}");
    // Each section counts its own omitted items.
    let shown = |part: &str| part.matches("\n* ").count();
    let (new, shows) = text.split_once("Shows near you").unwrap();
    assert!(new.contains("New works · 4,997") && shows.starts_with(" · 10"));
    assert!(shown(new) > 0 && shown(shows) > 0);
    assert!(shown(new).abs_diff(shown(shows)) <= 1);
    assert!(new.contains(&format!("{} more works", grouped(4_997 - shown(new) as u64))));
    assert!(html.contains(&format!("{} more works", grouped(4_997 - shown(new) as u64))));
}

#[test]
fn an_email_of_1000_sections_stays_under_the_size_limit() {
    let names: Vec<String> = (0..1_000).map(|n| format!("{n} {}", "&".repeat(250))).collect();
    let sections = names.iter().map(|name| (name.as_str(), "&", works(0..2), 0));

    let EmailParts { html, text, .. } = render(&digest(at(), sections));

    assert!(html.len() < MAX_BYTES && text.len() < MAX_BYTES);
    let headings = text.matches("& · 2\n").count();
    assert!(headings > 10);
    assert!(text.contains(&format!("\n{} more\n", grouped(2_000 - 2 * headings as u64))));
}

#[test]
fn a_few_hundred_items_fill_an_email() {
    let EmailParts { html, .. } = render(&digest(at(), [("A", "New works", works(0..200), 0)]));

    assert!((MAX_BYTES * 3 / 4..MAX_BYTES).contains(&html.len()), "{}", html.len());
}

#[test]
fn lines_of_text_are_short_except_for_links() {
    let digest = digest(at(), [("A", "New works", works(0..6), 3)]);

    for line in render(&digest).text.lines() {
        assert!(line.chars().count() <= 78 || line.contains("https://"), "{line}");
    }
}

#[test]
fn dates_use_the_users_zone() {
    let user = User::new(UserId::stored("ada"));
    let digest = digest(at(), [("A", "New works", works(0..2), 0)]);
    let zoned = |tz| {
        let email = EmailInput { tz, ..email(&user, &digest) };
        renderer().render(&email).unwrap()
    };

    assert!(zoned(Tz::UTC).html.contains("22 April 2014"));
    let [west, east] = [Tz::America__Los_Angeles, Tz::Pacific__Kiritimati].map(zoned);
    assert!(west.text.contains("Eleanor Whitcombe · 21 April"));
    assert!(east.text.contains("Eleanor Whitcombe · 22 April"));
}

#[test]
fn the_largest_sections_shrink_first() {
    for (counts, most, expected) in [
        (vec![5, 3, 1], 9, vec![5, 3, 1]),
        (vec![5, 3, 1], 7, vec![3, 3, 1]),
        (vec![5, 3, 1], 6, vec![3, 2, 1]),
        (vec![4, 4, 4], 8, vec![3, 3, 2]),
        (vec![5, 3], 0, vec![0, 0]),
        (vec![], 5, vec![]),
    ] {
        let mut levelled = counts.clone();
        level(&mut levelled, most);
        assert_eq!(levelled, expected, "{counts:?} to {most}");
    }
}

#[test]
fn one_renderer_serves_all_threads() {
    fn shared<T: Send + Sync>() {}
    shared::<Renderer>();
}
