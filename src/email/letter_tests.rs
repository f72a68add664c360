//! Splitting keeps every message, the order and the limits. Only messages with equal content share
//! a call.

use std::sync::Arc;

use super::super::Text;
use super::*;
use crate::domain::Address;
use crate::email::http::tests::{kind, mail};

fn mails(people: &[(&str, &str)]) -> Vec<Message> {
    people
        .iter()
        .map(|(person, subject)| mail(person, subject))
        .collect()
}

#[test]
fn calls_are_cut_by_number_and_by_length() {
    let five = mails(&[("a", "x"), ("b", "x"), ("c", "x"), ("d", "x"), ("e", "x")]);
    let one = five[0].content.bytes();

    assert_eq!(cut(&five, 2, usize::MAX), [vec![0, 1], vec![2, 3], vec![4]]);
    assert_eq!(cut(&five, 100, 3 * one), [vec![0, 1, 2], vec![3, 4]]);
    // The provider decides about a message that is longer than the limit by itself.
    assert_eq!(cut(&five[..2], 100, 1), [vec![0], vec![1]]);
    assert!(cut(&[], 2, 2).is_empty());
}

#[test]
fn who_gets_the_same_content_shares_a_call_in_order() {
    let mails = mails(&[("a", "x"), ("b", "y"), ("c", "x"), ("d", "y"), ("e", "x")]);

    assert_eq!(share(&mails, 1000), [vec![0, 2, 4], vec![1, 3]]);
    assert_eq!(share(&mails, 2), [vec![0, 2], vec![1, 3], vec![4]]);
}

#[test]
fn an_address_stands_in_a_call_once_however_it_is_written() {
    let mut mails = mails(&[("ada", "x"), ("ben", "x"), ("eve", "x")]);
    mails[2].to = Address::new("ADA@example.org").unwrap();

    assert_eq!(share(&mails, 1000), [vec![0, 1], vec![2]]);
}

#[test]
fn other_headers_are_another_call() {
    let mut mails = mails(&[("a", "x"), ("b", "x"), ("c", "x"), ("d", "x")]);
    mails[1].further.clear();
    mails[2].personal = None;
    if let Some(links) = &mut mails[3].personal {
        links.unsubscribe = Some("http://127.0.0.1/u/d".into());
    }

    assert_eq!(share(&mails, 1000), [vec![0], vec![1], vec![2], vec![3]]);
}

#[test]
fn a_message_that_cannot_be_a_mail_is_refused_alone() {
    let mut mails = mails(&[("a", "x"), ("b", "x"), ("c", "x")]);
    mails[1].further.push(("Subject".into(), "another".into()));
    mails[2].content = Arc::new(Content {
        subject: "x".into(),
        html: Text::default(),
        text: Text::default(),
    });
    let letters = Letters::of(&mails);
    assert_eq!(letters.ready.len(), 1);
    let accepted = Outcome::Accepted {
        provider_id: "1".into(),
    };

    let outcomes = letters.outcomes(vec![accepted]);

    let kinds: Vec<_> = outcomes.iter().map(kind).collect();
    assert_eq!(kinds, ["accepted as 1", "unsendable", "unsendable"]);
}

#[test]
fn whom_the_provider_forgot_is_unknown() {
    let mails = mails(&[("a", "x")]);
    let outcomes = Letters::of(&mails).outcomes(Vec::new());
    assert_eq!(kind(&outcomes[0]), "unknown");
}
