//! Tests the body of a Resend call, and each row of the outcome table.

use super::*;
use crate::email::api_calls::prepare;
use crate::email::http::tests::{account, answer, email, kind};

fn judged(status: u16, headers: &[(&'static str, &str)], body: &str) -> String {
    kind(&judge(&answer(status, headers, body), "ref-1", 1)[0])
}

fn fault(status: u16, name: &str) -> String {
    judged(status, &[], &format!(r#"{{"statusCode":{status},"name":"{name}","message":"m"}}"#))
}

#[test]
fn each_email_of_a_call_is_complete_and_separate() {
    let emails = [email("ada", "Fourteen works"), email("ben", "One work")];
    let resend = Resend::new(account()).unwrap();
    let body = serde_json::to_string_pretty(&resend.body(&prepare(&emails).0)).unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn the_body_does_not_depend_on_the_time_of_sending() {
    let resend = Resend::new(account()).unwrap();
    let first = email("ada", "Fourteen works");
    let later = Message { at: first.at + chrono::TimeDelta::hours(3), ..first.clone() };
    let body = |email: Message| resend.body(&prepare(&[email]).0).to_string();
    assert_eq!(body(first), body(later));
}

#[test]
fn an_accepted_call_returns_an_id_for_each_email() {
    let response = answer(200, &[], r#"{"data":[{"id":"a"},{"id":"b"}]}"#);
    let kinds: Vec<_> = judge(&response, "ref-1", 2).iter().map(kind).collect();
    assert_eq!(kinds, ["accepted as a", "accepted as b"]);
}

#[test]
fn an_unreadable_success_response_is_unknown() {
    for body in ["", r#"{"id": "tru"#, r#"{"data":[]}"#, r#"{"data":[{"id":"a"},{"id":"b"}]}"#] {
        assert_eq!(judged(200, &[], body), "unknown", "{body}");
    }
}

#[test]
fn temporary_errors_are_retried_after_the_wait_that_resend_states() {
    assert_eq!(
        judged(429, &[("retry-after", "2")], r#"{"name":"rate_limit_exceeded"}"#),
        "later, in 2 s"
    );
    assert_eq!(judged(429, &[("ratelimit-reset", "1")], ""), "later, in 1 s");
    assert_eq!(fault(429, "rate_limit_exceeded"), "later");
    assert_eq!(fault(500, "application_error"), "later");
    assert_eq!(fault(503, "service_unavailable"), "later");
    assert_eq!(fault(409, "concurrent_idempotent_requests"), "later");
    assert_eq!(fault(409, "resource_locked"), "later");
}

#[test]
fn an_exhausted_quota_causes_a_long_wait() {
    assert_eq!(fault(429, "daily_quota_exceeded"), "later, in 3600 s");
    assert_eq!(fault(429, "monthly_quota_exceeded"), "later, in 3600 s");
    // The end of the rate window does not shorten the wait after a used-up quota.
    let window = [("ratelimit-reset", "1")];
    let body = r#"{"name":"daily_quota_exceeded"}"#;
    assert_eq!(judged(429, &window, body), "later, in 3600 s");
}

#[test]
fn a_gateway_error_is_unknown() {
    for status in [501, 502, 504, 524] {
        assert_eq!(judged(status, &[], "Bad Gateway"), "unknown", "{status}");
    }
}

#[test]
fn permanent_errors_are_refused() {
    for (status, name) in [
        (400, "validation_error"),
        (422, "validation_error"),
        (422, "missing_required_field"),
        (422, "invalid_from_address"),
        (413, "payload_too_large"),
    ] {
        assert_eq!(fault(status, name), "refused", "{status} {name}");
    }
}

#[test]
fn a_refused_call_of_several_emails_is_attributed_to_none() {
    let refused = answer(422, &[], r#"{"name":"validation_error","message":"Invalid `to`"}"#);
    let kinds: Vec<_> = judge(&refused, "ref-1", 2).iter().map(kind).collect();
    assert_eq!(kinds, ["refused together", "refused together"]);
}

#[test]
fn an_invalid_key_or_account_stops_the_sender() {
    assert_eq!(fault(401, "missing_api_key"), "stop");
    assert_eq!(fault(401, "restricted_api_key"), "stop");
    assert_eq!(fault(403, "invalid_api_key"), "stop");
    assert_eq!(fault(403, "suspended_api_key"), "stop");
    assert_eq!(fault(403, "validation_error"), "stop");
    assert_eq!(judged(403, &[], "error code: 1010"), "stop");
    assert_eq!(judged(301, &[], ""), "stop");
    assert_eq!(judged(404, &[], "not found"), "stop");
}

#[test]
fn an_idempotency_conflict_means_that_an_earlier_call_was_accepted() {
    assert_eq!(fault(409, "invalid_idempotent_request"), "accepted as ref-1");
}

#[test]
fn reasons_contain_no_address() {
    let body = r#"{"name":"validation_error","message":"Invalid `to`: ada@example.org"}"#;
    let outcome = &judge(&answer(422, &[], body), "ref-1", 1)[0];
    let Outcome::Refused(reason) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason, "Resend: 422 validation_error: Invalid `to`: (address)");
}

#[test]
fn a_report_with_a_field_of_another_type_is_incomplete() {
    let now = DateTime::from_timestamp(1_398_124_800, 0).unwrap();
    let read = |to: Value, at: Value| {
        let event = serde_json::json!({
            "type": "email.bounced", "created_at": at, "data": {"email_id": "a", "to": to},
        });
        report("1", &event, now).map(|report| report.unwrap().recipient.is_some())
    };
    let (list, at) = (|| vec!["ada@example.org"], "2014-04-21T09:00:00Z");

    assert_eq!(read(list().into(), at.into()), Ok(true));
    assert_eq!(read(Value::Null, Value::Null), Ok(false));
    assert_eq!(read(vec!["ada@example.org", "ben@example.org"].into(), at.into()), Ok(false));
    for (to, at) in [
        ("ada@example.org".into(), at.into()),
        (vec![1].into(), at.into()),
        (list().into(), "yesterday".into()),
        (list().into(), 1_398_124_800.into()),
    ] {
        assert_eq!(read(to, at), Err(HookRejection::incomplete()));
    }
}
