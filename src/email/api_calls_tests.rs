//! Tests that messages are split into calls within the limits and in order, by equal content.

use std::sync::Arc;

use super::super::BodyText;
use super::super::SharedContent;
use super::*;
use crate::domain::Address;
use crate::email::http::tests::{email, kind};

fn emails(users: &[(&str, &str)]) -> Vec<Message> {
    users.iter().map(|(user, subject)| email(user, subject)).collect()
}

#[test]
fn calls_are_split_by_count_and_by_size() {
    let five = emails(&[("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"), ("e", "x")]);
    let one = five[0].content.bytes();

    assert_eq!(split_by_size(&five, 2, usize::MAX), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(split_by_size(&five, 100, 3 * one), [vec![0, 1, 2], vec![3, 4]]);
    // A message larger than the limit is sent alone, and the provider decides.
    assert_eq!(split_by_size(&five[..2], 100, 1), [vec![0], vec![1]]);
    assert!(split_by_size(&[], 2, 2).is_empty());
}

#[test]
fn messages_with_equal_content_share_a_call_in_order() {
    let emails = emails(&[("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"), ("e", "x")]);

    assert_eq!(group_by_content(&emails, 1000), [vec![0, 2, 4], vec![1, 3]]);
    assert_eq!(group_by_content(&emails, 2), [vec![0, 2], vec![1, 3], vec![4]]);
}

#[test]
fn a_call_contains_an_address_once_in_any_spelling() {
    let mut emails = emails(&[("ada", "x"), ("ben", "x"), ("eve", "x")]);
    emails[2].to = Address::new("ADA@example.org").unwrap();

    assert_eq!(group_by_content(&emails, 1000), [vec![0, 1], vec![2]]);
}

#[test]
fn messages_with_different_headers_do_not_share_a_call() {
    let mut emails = emails(&[("a", "x"), ("b", "x"), ("c", "x"), ("d", "x")]);
    emails[1].extra_headers.clear();
    emails[2].links = None;
    if let Some(links) = &mut emails[3].links {
        links.unsubscribe = Some("http://127.0.0.1/u/d".into());
    }

    assert_eq!(group_by_content(&emails, 1000), [vec![0], vec![1], vec![2], vec![3]]);
}

#[test]
fn an_invalid_message_is_rejected_alone() {
    let mut emails = emails(&[("a", "x"), ("b", "x"), ("c", "x")]);
    emails[1].extra_headers.push(("X-A".into(), "a\nb".into()));
    emails[2].content = Arc::new(SharedContent {
        subject: "x".into(),
        html: BodyText::default(),
        text: BodyText::default(),
    });
    let (valid, invalid) = prepare(&emails);
    assert_eq!(valid.len(), 1);
    let accepted = Outcome::Accepted("1".into());

    let outcomes = merge_outcomes(invalid, vec![accepted]);

    let kinds: Vec<_> = outcomes.iter().map(kind).collect();
    assert_eq!(kinds, ["accepted as 1", "unsendable", "unsendable"]);
}

#[test]
fn a_message_without_a_result_is_unknown() {
    let emails = emails(&[("a", "x")]);
    let outcomes = merge_outcomes(prepare(&emails).1, Vec::new());
    assert_eq!(kind(&outcomes[0]), "unknown");
}
