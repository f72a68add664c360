//! Tests the body of a Postmark call, each row of the outcome table, and the list of sent emails.

use super::*;
use crate::email::api_calls::prepare;
use crate::email::http::tests::{account, answer, email, kind};

fn judged(status: u16, body: &str) -> String {
    kind(&judge(&answer(status, &[], body), 1)[0])
}

/// Returns the outcome of a code in the item of one email.
fn item(code: i64) -> String {
    judged(200, &format!(r#"[{{"ErrorCode":{code},"Message":"m"}}]"#))
}

/// Returns the outcome of a code for a whole call.
fn call(status: u16, code: i64) -> String {
    judged(status, &format!(r#"{{"ErrorCode":{code},"Message":"m"}}"#))
}

#[test]
fn each_email_of_a_call_is_complete_and_separate() {
    let emails = [email("ada", "Fourteen works"), email("ben", "One work")];
    let postmark =
        Postmark::new(Account { options: [(STREAM, "broadcast".into())].into(), ..account() })
            .unwrap();
    let body = serde_json::to_string_pretty(&postmark.body("ref-1", &prepare(&emails).0)).unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn each_email_of_a_call_has_its_own_outcome() {
    let body = r#"[{"ErrorCode":0,"MessageID":"m-1","Message":"OK"},
        {"ErrorCode":406,"Message":"Found inactive addresses: ben@example.org."},
        {"ErrorCode":300,"Message":"Invalid 'To'"},{"Message":"?"}]"#;
    let outcomes = judge(&answer(200, &[], body), 4);
    let kinds: Vec<_> = outcomes.iter().map(kind).collect();
    assert_eq!(kinds, ["accepted as m-1", "undeliverable", "refused", "unknown"]);
    assert!(!format!("{outcomes:?}").contains("ben@"));
}

#[test]
fn an_unreadable_success_response_is_unknown() {
    for body in ["", "[{", "{}", "[]", r#"[{"ErrorCode":0}]"#] {
        assert_eq!(judged(200, body), "unknown", "{body}");
    }
}

#[test]
fn temporary_errors_are_retried() {
    assert_eq!(call(429, 429), "later");
    assert_eq!(call(500, 0), "later");
    assert_eq!(call(503, 100), "later");
    assert_eq!(call(422, 100), "later");
    assert_eq!(item(100), "later");
    let limited = answer(429, &[("retry-after", "2")], "");
    assert_eq!(kind(&judge(&limited, 1)[0]), "later, in 2 s");
}

#[test]
fn a_gateway_error_is_unknown() {
    assert_eq!(judged(502, "Bad Gateway"), "unknown");
    assert_eq!(judged(504, "Gateway Timeout"), "unknown");
}

#[test]
fn permanent_errors_are_refused() {
    for code in [300, 402, 403, 410] {
        assert_eq!(item(code), "refused", "{code}");
        assert_eq!(call(422, code), "refused", "{code}");
    }
    assert_eq!(judged(413, ""), "refused");
    let several = judge(&answer(422, &[], r#"{"ErrorCode":402,"Message":"m"}"#), 2);
    assert_eq!(kind(&several[1]), "refused together");
}

#[test]
fn an_inactive_recipient_is_undeliverable_and_affects_no_other() {
    assert_eq!(item(406), "undeliverable");
    assert_eq!(call(422, 406), "undeliverable");
    let several = judge(&answer(422, &[], r#"{"ErrorCode":406,"Message":"m"}"#), 2);
    assert_eq!(kind(&several[0]), "refused together");
}

#[test]
fn an_invalid_token_signature_or_account_stops_the_sender() {
    assert_eq!(call(401, 10), "stop");
    for code in [400, 401, 405, 412, 413] {
        assert_eq!(call(422, code), "stop", "{code}");
        assert_eq!(item(code), "stop", "{code}");
    }
    assert_eq!(judged(302, ""), "stop");
    assert_eq!(judged(404, ""), "stop");
}

/// Returns the results for the emails of ada and ben in this list.
fn lookup(body: &str) -> Vec<QueryAnswer> {
    let deliveries = [email("ada", "x").delivery, email("ben", "x").delivery];
    query_answers(&answer(200, &[], body), "ref-1", &deliveries)
}

fn listed(user: &str, call: &str) -> String {
    let tag = delivery_tag(&email(user, "x").delivery);
    format!(r#"{{"MessageID":"id-{user}","Metadata":{{"delivery":"{tag}","call":"{call}"}}}}"#)
}

#[test]
fn the_list_shows_for_each_email_whether_it_was_accepted() {
    let body = format!(r#"{{"TotalCount":1,"Messages":[{}]}}"#, listed("ben", "ref-1"));
    let provider_id = "id-ben".to_owned();
    assert_eq!(lookup(&body), [QueryAnswer::NotAccepted, QueryAnswer::Accepted(provider_id)]);
}

#[test]
fn an_empty_list_means_that_no_email_was_accepted() {
    let empty = r#"{"TotalCount":0,"Messages":[]}"#;
    assert_eq!(lookup(empty), [QueryAnswer::NotAccepted, QueryAnswer::NotAccepted]);
}

#[test]
fn a_response_to_another_query_is_ignored() {
    let silent = |answers: Vec<QueryAnswer>| {
        answers.iter().all(|answer| matches!(answer, QueryAnswer::Failed(_)))
    };
    let others = format!(r#"{{"TotalCount":1,"Messages":[{}]}}"#, listed("ben", "ref-2"));
    assert!(silent(lookup(&others)));
    assert!(silent(lookup(r#"{"TotalCount":1,"Messages":[{"MessageID":"x"}]}"#)));
    assert!(silent(lookup("{}")));
    assert!(silent(lookup("<html>")));
    let deliveries = [email("ada", "x").delivery];
    assert!(silent(query_answers(&answer(401, &[], "{}"), "ref-1", &deliveries)));
    // A list with more pages says nothing about the emails that it does not show.
    let part = format!(r#"{{"TotalCount":2,"Messages":[{}]}}"#, listed("ben", "ref-1"));
    assert!(silent(lookup(&part)[..1].to_vec()));
}
