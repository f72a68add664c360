//! Tests the fields of a Mailgun call, each row of the outcome table, and the query for events.

use super::*;
use crate::email::api_calls::prepare;
use crate::email::http::tests::{account, answer, email, kind};

fn mailgun() -> Mailgun {
    Mailgun::new(Account { options: [(DOMAIN, "mg.art.example".into())].into(), ..account() })
        .unwrap()
}

fn judged(status: u16, headers: &[(&'static str, &str)], body: &str) -> String {
    kind(&judge(&answer(status, headers, body), 1)[0])
}

fn fault(status: u16, message: &str) -> String {
    judged(status, &[], &json!({ "message": message }).to_string())
}

/// Returns the value of the first field with this name.
fn field(emails: &[Message], field: &str) -> String {
    let mut fields = mailgun().fields("ref-1", &prepare(emails).0).into_iter();
    fields.find(|(name, _)| name == field).map(|(_, value)| value).unwrap()
}

#[test]
fn a_call_contains_the_content_once_and_variables_for_each_recipient() {
    let emails = [email("ada", "Fourteen works"), email("ben", "Fourteen works")];
    let fields = mailgun().fields("ref-1", &prepare(&emails).0);
    let body = serde_json::to_string_pretty(&fields).unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn content_of_an_email_is_never_expanded_as_a_variable() {
    let mut odd = email("ada", "100 %recipient.unsubscribe% %Recipient%");
    odd.to_name = Some("%recipient.delivery%".into());
    let emails = [odd];
    for name in ["subject", "text", "html", "to"] {
        let value = field(&emails, name);
        let without_ours = value.replace(UNSUBSCRIBE, "").to_lowercase();
        assert!(!without_ours.contains("%recipient"), "{name}: {value}");
    }
    let text = field(&emails, "text");
    assert_eq!(text.matches(UNSUBSCRIBE).count(), 1, "{text}");
    assert_eq!(
        field(&emails, "subject"),
        "100 %\u{2060}recipient.unsubscribe% %\u{2060}Recipient%"
    );
}

#[test]
fn no_field_can_end_another_field() {
    let fields = [("text".to_owned(), "a\r\n--tidings-r--\r\nb".to_owned())];

    let body = form("r", &fields);

    let kind = "multipart/form-data; boundary=tidings-r---";
    assert_eq!(body.headers, [("content-type", kind.to_owned())]);
    assert_eq!(
        String::from_utf8(body.bytes).unwrap(),
        "--tidings-r---\r\nContent-Disposition: form-data; name=\"text\"\r\n\r\na\r\n--tidings-r--\r\nb\r\n--tidings-r-----\r\n"
    );
}

#[test]
fn all_emails_of_an_accepted_call_share_one_id() {
    let response = answer(200, &[], r#"{"id":"<ref-1@mg.art.example>","message":"Queued."}"#);
    let kinds: Vec<_> = judge(&response, 2).iter().map(kind).collect();
    assert_eq!(kinds, ["accepted as ref-1@mg.art.example"; 2]);
}

#[test]
fn an_unreadable_success_response_is_unknown() {
    for body in ["", r#"{"id": "tru"#, "{}", r#"{"id":""}"#, "<html>"] {
        assert_eq!(judged(200, &[], body), "unknown", "{body}");
    }
}

#[test]
fn temporary_errors_are_retried_after_the_wait_that_mailgun_states() {
    let message = "Domain x is not allowed to send: limit exceeded, try again after 30 seconds";
    assert_eq!(fault(429, message), "later, in 30 s");
    assert_eq!(fault(429, "try again after 2 minutes"), "later, in 120 s");
    assert_eq!(fault(429, "try again after a while"), "later");
    assert_eq!(fault(429, "try again after 720 hours"), "later, in 86400 s");
    let reset = [("x-ratelimit-reset", "1398168002000")];
    assert_eq!(judged(429, &reset, ""), "later, in 2 s");
    for status in [429, 500, 502, 503, 504] {
        assert_eq!(fault(status, "m"), "later", "{status}");
    }
}

#[test]
fn an_unpaid_account_causes_a_long_wait() {
    assert_eq!(fault(402, "payment required"), "later, in 3600 s");
}

#[test]
fn permanent_errors_are_refused() {
    assert_eq!(fault(400, "'to' parameter is not a valid address"), "refused");
    assert_eq!(fault(413, "too large"), "refused");
    let several = judge(&answer(400, &[], ""), 2);
    assert_eq!(kind(&several[0]), "refused together");
}

#[test]
fn an_invalid_key_or_domain_stops_the_sender() {
    assert_eq!(judged(401, &[], "\"Forbidden\""), "stop");
    assert_eq!(fault(403, "m"), "stop");
    assert_eq!(fault(404, "domain not found"), "stop");
    assert_eq!(judged(301, &[], ""), "stop");
}
