//! Tests that emails use only HTML and CSS that email clients support, according to caniemail.com
//! (2026).
//!
//! Comments on the exceptions name the clients without support, and the effect.

use std::collections::BTreeSet;

use super::batch_tests::{comment_with, content, email as batch_email};
use super::tests::{at, digest, email, site, titled, works};
use super::*;
use crate::domain::email_sections::FollowReason;
use crate::domain::{EmailContent, UserId};

/// Elements that Gmail, Outlook, Apple Mail, Yahoo, Samsung and Thunderbird support. Clients that
/// drop `body` or `style` show the light version at full width.
const ELEMENTS: [&str; 18] = [
    "a", "body", "br", "div", "h1", "h2", "head", "html", "img", "meta", "p", "span", "style",
    "table", "tbody", "td", "title", "tr",
];

/// Properties in `style` attributes.
const PROPERTIES: [&str; 25] = [
    "background-color",
    "border",
    "border-bottom",
    "border-collapse",
    "border-top",
    // Outlook for Windows shows square corners.
    "border-radius",
    "color",
    // Gmail for foreign accounts on phones shows the preview line.
    "display",
    "font",
    "font-size",
    "font-weight",
    // In Yahoo, images keep the size of their attribute.
    "height",
    "letter-spacing",
    "line-height",
    "margin",
    "margin-bottom",
    "max-height",
    // Outlook for Windows uses the width of its own table and of images.
    "max-width",
    // Outlook for Windows uses `mso-hide` instead.
    "overflow",
    "padding",
    "padding-bottom",
    "padding-top",
    "text-align",
    "text-decoration",
    "text-transform",
];

/// Properties whose absence does little harm.
const OPTIONAL_PROPERTIES: [&str; 6] = [
    // Long words without a break make the email wider.
    "overflow-wrap",
    "word-break",
    // The date may break into two lines.
    "white-space",
    // Applies to the whole page. Clients that drop `body` use their own background.
    "-webkit-text-size-adjust",
    // Clients without support choose their own dark colors.
    "color-scheme",
    "width",
];

fn whole() -> String {
    let renderer = Renderer::new(site(), None).unwrap();
    let mut html = String::new();
    for locale in ["en", "ar", "ja"] {
        let user = User { locale: Some(locale.to_owned()), ..User::new(UserId::stored("ada")) };
        let followed = FollowReason {
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
            let digest =
                EmailContent { follow_reasons: vec![followed.clone()], ..digest(at(), sections) };
            html += &renderer.render(&email(&user, &digest)).unwrap().html;
        }
        let comments = ["Are the travel costs in here?", "They are."]
            .map(|text| comment_with("Ada", text, "Budget"));
        let batch = content(comments.to_vec(), 3);
        html += &renderer.render(&batch_email(&user, &batch)).unwrap().html;
    }
    html
}

/// Returns the texts that follow `before`, up to one of the characters in `ends`.
fn texts_after<'a>(html: &'a str, before: &str, ends: &[char]) -> BTreeSet<&'a str> {
    let parts = html.split(before).skip(1);
    let texts = parts.map(|rest| rest.split(ends).next().unwrap_or_default());
    texts.filter(|text| !text.is_empty()).collect()
}

#[test]
fn emails_use_only_features_that_email_clients_support() {
    let html = whole();

    let mut elements = texts_after(&html, "<", &[' ', '>', '/']);
    elements.retain(|name| !name.starts_with('!'));
    let styles = texts_after(&html, " style=\"", &['"']);
    let declarations = styles.iter().flat_map(|style| style.split(';'));
    let names = declarations.filter_map(|declaration| declaration.split_once(':'));
    let properties: BTreeSet<&str> = names.map(|(name, _)| name.trim()).collect();

    assert_eq!(elements, BTreeSet::from(ELEMENTS));
    let known: BTreeSet<&str> = PROPERTIES.into_iter().chain(OPTIONAL_PROPERTIES).collect();
    let unknown: Vec<&&str> = properties.difference(&known).collect();
    assert!(unknown.is_empty(), "look these up: {unknown:?}");
    assert!(properties.len() + 3 > known.len(), "{properties:?}");
    assert!(!html.contains("position:") && !html.contains("flex") && !html.contains("url("));
}
