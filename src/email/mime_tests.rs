//! Tests composed emails with an independent parser.

use std::sync::Arc;

use chrono::{TimeZone, Utc};
use mail_parser::{MessageParser, MimeHeaders};

use super::super::{RecipientLinks, SharedContent};
use super::*;

fn sender() -> SenderAddress {
    SenderAddress {
        from: Address::new("news@tate.example").unwrap(),
        from_name: "Tate, Süd & Nord".into(),
        reply_to: Some(Address::new("help@tate.example").unwrap()),
    }
}

fn message() -> Message {
    Message {
        delivery: DeliveryId::stored("digest:ada:weekly:2014-W17"),
        to: Address::new("ada@example.org").unwrap(),
        to_name: Some("Ádá Lovelace".into()),
        content: Arc::new(SharedContent {
            subject: "Barbara Hepworth, Joan Miró and 12 more new works — for you".into(),
            html: "<p>Sculpture with Colour (Deep Blue and Red) é</p>\n".repeat(40).into(),
            text: "Sculpture with Colour é\n.\nFrom here on\n".into(),
        }),
        links: Some(RecipientLinks {
            unsubscribe: Some("https://tate.example/u/token".into()),
            preferences: "https://tate.example/u/token/preferences".into(),
            mute: None,
        }),
        extra_headers: vec![("Feedback-ID".into(), "digest:weekly:tate:tidings".into())],
        at: Utc.with_ymd_and_hms(2014, 4, 22, 6, 0, 0).unwrap(),
    }
}

fn header<'a>(email: &'a str, name: &str) -> Option<&'a str> {
    let (head, _) = email.split_once("\r\n\r\n").unwrap();
    head.split("\r\n").find_map(|line| line.strip_prefix(&format!("{name}: ")))
}

#[test]
fn both_parts_and_all_headers_survive_parsing() {
    let message = message();

    let bytes = compose(&message, &sender()).unwrap();

    let email = MessageParser::new().parse(&bytes).unwrap();
    assert_eq!(email.subject(), Some(message.content.subject.as_str()));
    let from = email.from().unwrap().first().unwrap();
    assert_eq!(from.name(), Some("Tate, Süd & Nord"));
    assert_eq!(from.address(), Some("news@tate.example"));
    let to = email.to().unwrap().first().unwrap();
    assert_eq!((to.name(), to.address()), (Some("Ádá Lovelace"), Some("ada@example.org")));
    assert_eq!(email.reply_to().unwrap().first().unwrap().address(), Some("help@tate.example"));
    assert_eq!(email.date().unwrap().to_timestamp(), message.at.timestamp());
    assert!(email.content_type().unwrap().ctype() == "multipart");
    assert_eq!(email.content_type().unwrap().subtype(), Some("alternative"));
    let parts: Vec<_> = email
        .parts
        .iter()
        .skip(1)
        .map(|part| part.content_type().unwrap().subtype().unwrap().to_owned())
        .collect();
    assert_eq!(parts, ["plain", "html"]);
    assert_eq!(
        email.body_text(0).unwrap().replace("\r\n", "\n").trim_end(),
        message.fill_links().text.trim_end()
    );
    assert_eq!(
        email.body_html(0).unwrap().replace("\r\n", "\n").trim_end(),
        message.fill_links().html.trim_end()
    );
}

#[test]
fn a_delivery_has_one_message_id_and_deterministic_bytes() {
    let message = message();
    let other =
        Message { delivery: DeliveryId::stored("digest:ada:weekly:2014-W18"), ..message.clone() };

    let composed =
        |message: &Message| String::from_utf8(compose(message, &sender()).unwrap()).unwrap();
    let (first, repeated, different) = (composed(&message), composed(&message), composed(&other));

    assert_eq!(first, repeated);
    let id = header(&first, "Message-ID").unwrap();
    assert!(id.starts_with('<') && id.ends_with("@tate.example>"), "{id}");
    assert!(!id.contains("ada"), "{id}");
    assert_ne!(Some(id), header(&different, "Message-ID"));
}

#[test]
fn every_line_is_ascii_and_short_enough_for_any_server() {
    let mut message = message();
    Arc::make_mut(&mut message.content).html = "é".repeat(50_000).into();
    Arc::make_mut(&mut message.content).text = "x".repeat(50_000).into();
    Arc::make_mut(&mut message.content).subject = "ü".repeat(2_000);
    message.to_name = Some("n".repeat(2_000));

    let email = String::from_utf8(compose(&message, &sender()).unwrap()).unwrap();

    assert!(email.is_ascii());
    let longest = email.split("\r\n").map(str::len).max().unwrap();
    assert!(longest <= 998, "{longest}");
    assert!(!email.replace("\r\n", "").contains(['\r', '\n']));
}

#[test]
fn a_line_break_in_a_name_or_subject_adds_no_header() {
    let mut message = message();
    Arc::make_mut(&mut message.content).subject =
        "Hello\r\nBcc: eve@example.org\r\n\r\n<p>owned".into();
    message.to_name = Some("Ada\r\nBcc: eve@example.org\n\u{0}x".into());
    let mut sender = sender();
    sender.from_name = "Tate\nBcc: eve@example.org".into();

    let bytes = compose(&message, &sender).unwrap();

    let text = String::from_utf8(bytes.clone()).unwrap();
    assert!(!text.contains("\nBcc:"), "{text}");
    let email = MessageParser::new().parse(&bytes).unwrap();
    assert!(email.bcc().is_none());
    assert_eq!(email.subject(), Some("Hello Bcc: eve@example.org <p>owned"));
    assert_eq!(email.to().unwrap().first().unwrap().name(), Some("Ada Bcc: eve@example.org x"));
}

#[test]
fn a_subject_that_resembles_an_encoded_word_is_shown_literally() {
    let mut message = message();
    Arc::make_mut(&mut message.content).subject = "=?utf-8?q?Bcc=3A_eve?= sends this".into();

    let bytes = compose(&message, &sender()).unwrap();

    let email = MessageParser::new().parse(&bytes).unwrap();
    assert_eq!(email.subject(), Some("= ?utf-8?q?Bcc=3A_eve?= sends this"));
}

#[test]
fn extra_headers_are_written_unchanged() {
    let email = String::from_utf8(compose(&message(), &sender()).unwrap()).unwrap();

    let unfolded = email.replace("\r\n ", " ");
    assert_eq!(header(&unfolded, "Feedback-ID"), Some("digest:weekly:tate:tidings"));
    assert_eq!(header(&unfolded, "List-Unsubscribe-Post"), Some("List-Unsubscribe=One-Click"));
    assert_eq!(header(&unfolded, "List-Unsubscribe"), Some("<https://tate.example/u/token>"));
}

#[test]
fn malformed_headers_are_rejected() {
    for (name, value) in [
        ("X-A\r\nBcc", "eve@example.org"),
        ("X A", "b"),
        ("X:A", "b"),
        ("Ünicode", "b"),
        ("X-A", "b\r\nBcc: eve@example.org"),
        ("X-A", "b\nc"),
    ] {
        let mut message = message();
        message.extra_headers = vec![(name.into(), value.into())];

        let refused = compose(&message, &sender()).unwrap_err();

        assert!(refused.contains("header"), "{name:?} {value:?}: {refused}");
    }
}

#[test]
fn an_invalid_address_is_rejected_without_revealing_it() {
    let mut message = message();
    message.to = Address::stored("ada.lovelace@exa_mple!.org").unwrap();

    let refused = compose(&message, &sender()).unwrap_err();

    assert!(refused.contains("a…@exa_mple!.org"), "{refused}");
    assert!(!refused.contains("lovelace"), "{refused}");
}

#[test]
fn an_out_of_range_date_is_clamped() {
    for at in [DateTime::<Utc>::MIN_UTC, DateTime::<Utc>::MAX_UTC] {
        let bytes = compose(&Message { at, ..message() }, &sender()).unwrap();
        let email = String::from_utf8(bytes).unwrap();
        let date = header(&email, "Date").unwrap();
        assert!(date.ends_with("+0000"), "{date}");
        assert!(date.contains("1970") || date.contains("9999"), "{date}");
    }
}
