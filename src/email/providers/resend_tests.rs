//! Resend: the body of a call, and one test for each row of the outcome table.

use super::*;
use crate::email::http::tests::{account, answer, kind, mail};

fn judged(status: u16, headers: &[(&'static str, &str)], body: &str) -> String {
    kind(&judge(&answer(status, headers, body), "ref-1", 1)[0])
}

fn fault(status: u16, name: &str) -> String {
    judged(
        status,
        &[],
        &format!(r#"{{"statusCode":{status},"name":"{name}","message":"m"}}"#),
    )
}

#[test]
fn each_mail_of_a_call_is_whole_and_says_nothing_of_the_others() {
    let mails = [mail("ada", "Fourteen works"), mail("ben", "One work")];
    let resend = Resend::new(account()).unwrap();
    let body = serde_json::to_string_pretty(&resend.body(&Letters::of(&mails).ready)).unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn the_body_is_the_same_whenever_it_is_sent() {
    let resend = Resend::new(account()).unwrap();
    let first = mail("ada", "Fourteen works");
    let later = Message {
        at: first.at + chrono::TimeDelta::hours(3),
        ..first.clone()
    };
    let body = |mail: Message| resend.body(&Letters::of(&[mail]).ready).to_string();
    assert_eq!(body(first), body(later));
}

#[test]
fn a_call_that_was_taken_names_each_mail() {
    let taken = answer(200, &[], r#"{"data":[{"id":"a"},{"id":"b"}]}"#);
    let kinds: Vec<_> = judge(&taken, "ref-1", 2).iter().map(kind).collect();
    assert_eq!(kinds, ["accepted as a", "accepted as b"]);
}

#[test]
fn a_yes_that_cannot_be_read_is_unknown() {
    for body in [
        "",
        r#"{"id": "tru"#,
        r#"{"data":[]}"#,
        r#"{"data":[{"id":"a"},{"id":"b"}]}"#,
    ] {
        assert_eq!(judged(200, &[], body), "unknown", "{body}");
    }
}

#[test]
fn what_may_pass_is_tried_later_when_resend_says() {
    assert_eq!(
        judged(
            429,
            &[("retry-after", "2")],
            r#"{"name":"rate_limit_exceeded"}"#
        ),
        "later, in 2 s"
    );
    assert_eq!(
        judged(429, &[("ratelimit-reset", "1")], ""),
        "later, in 1 s"
    );
    assert_eq!(fault(429, "rate_limit_exceeded"), "later");
    assert_eq!(fault(500, "application_error"), "later");
    assert_eq!(fault(503, "service_unavailable"), "later");
    assert_eq!(fault(409, "concurrent_idempotent_requests"), "later");
    assert_eq!(fault(409, "resource_locked"), "later");
}

#[test]
fn a_quota_that_is_used_up_is_waited_for_long() {
    assert_eq!(fault(429, "daily_quota_exceeded"), "later, in 3600 s");
    assert_eq!(fault(429, "monthly_quota_exceeded"), "later, in 3600 s");
    // The end of the rate window does not shorten the wait after a used-up quota.
    let window = [("ratelimit-reset", "1")];
    let body = r#"{"name":"daily_quota_exceeded"}"#;
    assert_eq!(judged(429, &window, body), "later, in 3600 s");
}

#[test]
fn a_gateways_answer_tells_nothing_of_what_is_behind_it() {
    for status in [501, 502, 504, 524] {
        assert_eq!(judged(status, &[], "Bad Gateway"), "unknown", "{status}");
    }
}

#[test]
fn what_resend_will_never_take_is_refused() {
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
fn a_refused_call_of_several_is_nobodys_verdict() {
    let refused = answer(
        422,
        &[],
        r#"{"name":"validation_error","message":"Invalid `to`"}"#,
    );
    let kinds: Vec<_> = judge(&refused, "ref-1", 2).iter().map(kind).collect();
    assert_eq!(kinds, ["refused together", "refused together"]);
}

#[test]
fn a_key_or_an_account_that_does_not_work_stops_the_sender() {
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
fn a_key_that_was_used_for_another_body_was_used_for_these_people() {
    assert_eq!(
        fault(409, "invalid_idempotent_request"),
        "accepted as ref-1"
    );
}

#[test]
fn reasons_hold_no_address() {
    let body = r#"{"name":"validation_error","message":"Invalid `to`: ada@example.org"}"#;
    let outcome = &judge(&answer(422, &[], body), "ref-1", 1)[0];
    let Outcome::Refused { reason } = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        reason,
        "Resend: 422 validation_error: Invalid `to`: (address)"
    );
}
