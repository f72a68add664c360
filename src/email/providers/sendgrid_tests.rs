//! Tests the body of a SendGrid call, and each row of the outcome table.

use super::*;
use crate::email::api_calls::prepare;
use crate::email::http::tests::{account, answer, email, kind};

fn judged(status: u16, headers: &[(&'static str, &str)], body: &str) -> String {
    kind(&judge(&answer(status, headers, body), 1)[0])
}

fn fault(status: u16, message: &str) -> String {
    let body = json!({ "errors": [{ "message": message, "field": null, "help": null }] });
    judged(status, &[], &body.to_string())
}

#[test]
fn a_call_contains_the_content_once_and_substitutions_for_each_recipient() {
    let emails = [email("ada", "Fourteen works"), email("ben", "Fourteen works")];
    let sendgrid = SendGrid::new(account()).unwrap();
    let body = serde_json::to_string_pretty(&sendgrid.body("ref-1", &prepare(&emails).0)).unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn an_email_without_links_or_text_omits_both() {
    let mut bare = email("ada", "Fourteen works");
    bare.links = None;
    bare.to_name = None;
    bare.content = std::sync::Arc::new(crate::email::SharedContent {
        subject: "x".into(),
        html: "<p>x".into(),
        text: crate::email::BodyText::default(),
    });
    let sendgrid = SendGrid::new(account()).unwrap();

    let emails = [bare];
    let body = sendgrid.body("ref-1", &prepare(&emails).0);

    assert_eq!(body["content"], json!([{ "type": "text/html", "value": "<p>x" }]));
    let personalization = &body["personalizations"][0];
    assert_eq!(personalization["to"], json!([{ "email": "ada@example.org" }]));
    assert!(personalization.get("substitutions").is_none());
}

#[test]
fn all_emails_of_an_accepted_call_share_one_id() {
    let response = answer(202, &[("x-message-id", "s-1")], "");
    let kinds: Vec<_> = judge(&response, 2).iter().map(kind).collect();
    assert_eq!(kinds, ["accepted as s-1", "accepted as s-1"]);
}

#[test]
fn an_unreadable_success_response_is_unknown() {
    assert_eq!(judged(202, &[], ""), "unknown");
    assert_eq!(judged(202, &[("x-message-id", "")], ""), "unknown");
    // A proxy answers 200, and so does SendGrid's sandbox, which sends no email.
    assert_eq!(judged(200, &[("x-message-id", "s-1")], ""), "unknown");
}

#[test]
fn temporary_errors_are_retried_after_the_wait_that_sendgrid_states() {
    let reset = [("x-ratelimit-reset", "1398168002")];
    assert_eq!(judged(429, &reset, ""), "later, in 2 s");
    assert_eq!(fault(429, "too many requests"), "later");
    assert_eq!(fault(500, "internal server error"), "later");
    assert_eq!(fault(503, "service unavailable"), "later");
}

#[test]
fn a_gateway_error_is_unknown() {
    assert_eq!(judged(502, &[], "Bad Gateway"), "unknown");
    assert_eq!(judged(504, &[], "Gateway Timeout"), "unknown");
    let own = r#"{"errors":[{"message":"an error on our side","field":null}]}"#;
    assert_eq!(judged(502, &[], own), "later");
    assert_eq!(judged(504, &[], own), "later");
}

#[test]
fn a_block_after_too_many_bad_requests_causes_a_long_wait() {
    assert_eq!(fault(403, "you are temporarily blocked"), "later, in 3600 s");
    assert_eq!(fault(403, "Too many bad requests"), "later, in 3600 s");
    assert_eq!(fault(401, "Maximum credits exceeded"), "later, in 3600 s");
}

#[test]
fn permanent_errors_are_refused() {
    assert_eq!(fault(400, "Does not contain a valid address."), "refused");
    assert_eq!(fault(413, "payload too large"), "refused");
    let several = judge(&answer(400, &[], ""), 2);
    assert_eq!(kind(&several[0]), "refused together");
}

#[test]
fn an_invalid_key_sender_or_region_stops_the_sender() {
    assert_eq!(fault(401, "authorization required"), "stop");
    assert_eq!(fault(403, "The from address does not match a verified Sender Identity."), "stop");
    assert_eq!(fault(451, "residency"), "stop");
    assert_eq!(judged(302, &[], ""), "stop");
    assert_eq!(judged(404, &[], ""), "stop");
}

#[test]
fn names_omit_characters_that_sendgrid_rejects() {
    assert_eq!(plain_name("Lovelace, Ada; Countess\r\n"), "Lovelace Ada Countess");
}
