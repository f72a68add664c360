//! Mails are made of what mail programs know; of the rest it is said here who does not, and what
//! their readers see. The facts are those of caniemail.com (2026).

use std::collections::BTreeSet;

use super::batch_tests::{content, mail as batch_mail, said};
use super::tests::{at, mail, site, titled, works};
use super::*;
use crate::domain::content::Followed;
use crate::domain::{Content, UserId};

/// Elements that Gmail, Outlook, Apple Mail, Yahoo, Samsung and Thunderbird show, `body` and
/// `style` as far as it matters: who leaves them out shows the light mail at its full width.
const ELEMENTS: [&str; 18] = [
    "a", "body", "br", "div", "h1", "h2", "head", "html", "img", "meta", "p", "span", "style",
    "table", "tbody", "td", "title", "tr",
];

/// Properties that stand in elements.
const PROPERTIES: [&str; 25] = [
    "background-color",
    "border",
    "border-bottom",
    "border-collapse",
    "border-top",
    // Outlook for Windows: square corners.
    "border-radius",
    "color",
    // Gmail for foreign accounts on phones shows the line that introduces the mail.
    "display",
    "font",
    "font-size",
    "font-weight",
    // Yahoo: pictures keep the size that their attribute says.
    "height",
    "letter-spacing",
    "line-height",
    "margin",
    "margin-bottom",
    "max-height",
    // Outlook for Windows takes the width of its own table, and of pictures.
    "max-width",
    // Outlook for Windows hides the same by `mso-hide`.
    "overflow",
    "padding",
    "padding-bottom",
    "padding-top",
    "text-align",
    "text-decoration",
    "text-transform",
];

/// The same, of which nothing rests on.
const GRACE: [&str; 6] = [
    // Long words without a break make the mail wider.
    "overflow-wrap",
    "word-break",
    // The day may break into two lines.
    "white-space",
    // Of the whole page: who leaves `body` out shows their own ground.
    "-webkit-text-size-adjust",
    // Who does not know it chooses for themselves what a dark mail looks like.
    "color-scheme",
    "width",
];

fn whole() -> String {
    let renderer = Renderer::new(site(), None).unwrap();
    let mut all = String::new();
    for locale in ["en", "ar", "ja"] {
        let user = User {
            locale: Some(locale.to_owned()),
            ..User::new(UserId::stored("ada"))
        };
        let followed = Followed {
            key: crate::domain::FollowKey::stored("artist:7"),
            name: "Ines".into(),
            url: Some("https://a.example/7".into()),
        };
        let shows = vec![titled("Ruins"), titled("ضوء القمر")];
        for sections in [
            vec![
                ("ArtworkPublished", "New works", works(0..3), 9),
                ("NearbyShow", "Shows", shows, 0),
            ],
            vec![("ArtworkPublished", "New works", works(0..1), 0)],
        ] {
            let digest = Content {
                because: vec![followed.clone()],
                ..sample::digest(at(), sections)
            };
            all += &renderer.render(&mail(&user, &digest)).unwrap().html;
        }
        let comments = ["Are the travel costs in here?", "They are."];
        let comments = comments.map(|words| said("Ada", words, "Budget"));
        let batch = content(comments.to_vec(), 3);
        all += &renderer.render(&batch_mail(&user, &batch)).unwrap().html;
    }
    all
}

/// What stands behind this, up to one of these.
fn behind<'a>(html: &'a str, before: &str, ends: &[char]) -> BTreeSet<&'a str> {
    let found = html.split(before).skip(1);
    let found = found.map(|rest| rest.split(ends).next().unwrap_or_default());
    found.filter(|name| !name.is_empty()).collect()
}

#[test]
fn mails_are_made_of_what_mail_programs_know() {
    let html = whole();

    let elements = behind(&html, "<", &[' ', '>', '/']);
    let elements = elements.into_iter().filter(|name| !name.starts_with('!'));
    let elements: BTreeSet<&str> = elements.collect();
    let styles = behind(&html, " style=\"", &['"']);
    let properties = styles.iter().flat_map(|style| style.split(';'));
    let properties = properties.filter_map(|one| Some(one.split_once(':')?.0.trim()));
    let properties: BTreeSet<&str> = properties.collect();

    assert_eq!(elements, BTreeSet::from(ELEMENTS));
    let known: BTreeSet<&str> = PROPERTIES.into_iter().chain(GRACE).collect();
    let unknown: Vec<&&str> = properties.difference(&known).collect();
    assert!(unknown.is_empty(), "look these up: {unknown:?}");
    assert!(properties.len() + 3 > known.len(), "{properties:?}");
    assert!(!html.contains("position:") && !html.contains("flex") && !html.contains("url("));
}
