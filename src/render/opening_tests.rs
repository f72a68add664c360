//! Tests of links: the button for a single topic, linked titles, and the time and place of objects.

use chrono::TimeDelta;
use serde_json::json;

use super::batch_tests::{comment_on, comment_with, content, four_comments, render};
use super::tests::{at, titled};
use super::*;
use crate::domain::Object;

/// Returns the URL and the name of the button, without direction marks.
fn button(rendered: &EmailParts) -> Option<(String, String)> {
    let (before, rest) = rendered.html.split_once(">Open <span dir=\"auto\">")?;
    let (_, url) = before.rsplit_once("href=\"")?;
    let (url, _) = url.split_once('"')?;
    let (name, _) = rest.split_once('<')?;
    Some((url.to_owned(), name.to_owned()))
}

fn opens(events: Vec<(&str, Object)>, omitted: u64) -> Option<(String, String)> {
    button(&render(&content(events, omitted)))
}

#[test]
fn an_email_about_one_topic_has_a_button_that_opens_it() {
    let budget = |url: &str| Some((url.to_owned(), "Budget".to_owned()));

    for (events, omitted, expected) in [
        (four_comments(), 0, budget("https://www.example.org/budget")),
        // A single event links to its own URL.
        (
            vec![comment_with("Ada", "+1", "Budget")],
            0,
            budget("https://www.example.org/budget#ada"),
        ),
        (
            vec![comment_on("Ada", "Budget"), comment_on("Ben", "Budget")],
            0,
            budget("https://www.example.org/budget"),
        ),
        // There are several topics, or omitted events: no single thing to open.
        (vec![comment_on("Ada", "Budget"), comment_on("Ada", "Roadmap")], 0, None),
        (four_comments(), 3, None),
        // The object has no URL.
        (vec![("Work", titled("Ruins"))], 0, None),
    ] {
        assert_eq!(opens(events, omitted), expected);
    }
}

#[test]
fn a_long_name_is_truncated_in_the_button() {
    let long = "Portrait of a Woman Reading, possibly the Artist’s Sister, by a Window";

    let (_, name) = opens(vec![comment_on("Ada", long)], 0).unwrap();

    assert!(name.chars().count() <= 40 && name.ends_with('…'), "{name}");
}

#[test]
fn only_linked_titles_look_like_links() {
    let html =
        render(&content(vec![comment_on("Ada", "Budget"), comment_on("Ben", "Roadmap")], 0)).html;
    let bare = render(&content(vec![("Work", titled("Ruins")); 2], 0)).html;

    let (_, style) = html.split_once("class=\"ink\"").unwrap();
    let (style, _) = style.split_once('>').unwrap();
    assert!(style.contains("text-decoration:underline"), "{style}");
    assert!(!bare.contains("class=\"ink\""), "{bare}");
}

#[test]
fn an_event_with_a_date_shows_its_time_and_place() {
    let show = |hours: i64, place: serde_json::Value| {
        let object = Object {
            at: Some(at() + TimeDelta::hours(hours)),
            data: json!({ "place": place }).into(),
            ..titled("Ruins")
        };
        let rendered = render(&content(vec![("Work", object)], 0));
        (rendered.html, rendered.text)
    };
    let says = |(html, text): &(String, String), words: &str| {
        [html, text].map(|body| body.contains(words))
    };

    // 22 April, 08:00 UTC, plus 30 hours, in London time.
    let later = show(30, json!("Werkhalle <Nord>"));
    assert_eq!(says(&later, "23 April, 15:00 · "), [true; 2], "{later:?}");
    assert!(later.1.contains("23 April, 15:00 · Werkhalle <Nord>"));
    assert!(later.0.contains("Werkhalle &lt;Nord&gt;"), "{}", later.0);
    // Midnight UTC is a date without a time.
    let day = show(16, json!("Werkhalle"));
    assert_eq!(says(&day, "23 April · "), [true; 2], "{day:?}");
    // A time before the event is a creation time, which is not shown. A place needs a name.
    let made = show(-9_000, json!([13.4, 52.53]));
    assert_eq!(says(&made, " · Werkhalle"), [false; 2]);
    assert_eq!(says(&made, "2013"), [false; 2], "{made:?}");
}
