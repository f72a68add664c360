//! Tests the body of an Amazon SES call, and each row of the outcome table.

use std::collections::BTreeMap;

use super::*;
use crate::email::Provider;
use crate::email::api_calls::prepare;
use crate::email::http::tests::{account, answer, email, kind};

fn ses() -> Ses {
    Ses::new(Account {
        options: BTreeMap::from([
            (KEY_ID, "AKIAIOSFODNN7EXAMPLE".into()),
            (CONFIGURATION_SET, "digests".into()),
            ("mail.region", "eu-west-1".into()),
        ]),
        ..account()
    })
    .unwrap()
}

fn body(message: &Message) -> Value {
    let to = Ses::recipient(message).unwrap();
    let (emails, _) = prepare(std::slice::from_ref(message));
    ses().body(&emails[0], &to)
}

fn judged(status: u16, headers: &[(&'static str, &str)], body: &str) -> String {
    let from = Address::new("Digest@art.example").unwrap();
    kind(&judge(&answer(status, headers, body), &from))
}

fn fault(status: u16, name: &str, message: &str) -> String {
    let body = json!({ "message": message }).to_string();
    judged(status, &[("x-amzn-errortype", name)], &body)
}

#[test]
fn an_email_is_complete_with_its_tag_and_unsubscribe_link() {
    let email = email("ada", "Vierzehn Werke für dich");
    let body = serde_json::to_string_pretty(&body(&email)).unwrap();
    insta::assert_snapshot!(body);
}

#[test]
fn the_body_does_not_depend_on_the_time_of_sending() {
    let first = email("ada", "Fourteen works");
    let later = Message { at: first.at + chrono::TimeDelta::hours(3), ..first.clone() };
    assert_eq!(body(&first), body(&later));
}

#[test]
fn names_and_domains_are_written_in_ascii() {
    let to = |address: &str, name: &str| {
        let message = Message {
            to: Address::new(address).unwrap(),
            to_name: Some(name.into()),
            ..email("ada", "Fourteen works")
        };
        Ses::recipient(&message)
    };

    assert_eq!(to("a@b.org", "Ada").unwrap(), "Ada <a@b.org>");
    assert_eq!(
        to("a@b.org", "\"Ada\" <eve@x.org>, Eve").unwrap(),
        "=?utf-8?b?IkFkYSIgPGV2ZUB4Lm9yZz4sIEV2ZQ==?= <a@b.org>"
    );
    assert_eq!(to("a@bücher.example", "").unwrap(), "a@xn--bcher-kva.example");
    let long = to("a@b.org", &"Zoë ".repeat(40)).unwrap();
    assert!(long.is_ascii() && long.starts_with("=?utf-8?b?"), "{long}");
    assert!(long.ends_with("<a@b.org>") && !long.contains(['\r', '\n']), "{long}");
    assert!(to("zoë@b.org", "Zoë").is_err());
}

#[test]
fn each_email_is_a_separate_call() {
    let emails = [email("ada", "Fourteen works"), email("ben", "Fourteen works")];
    assert_eq!(ses().split_into_calls(&emails), [vec![0], vec![1]]);
}

#[test]
fn an_accepted_email_has_an_id_and_an_unreadable_response_is_unknown() {
    let response = r#"{"MessageId":"0102-aa-000000"}"#;
    assert_eq!(judged(200, &[], response), "accepted as 0102-aa-000000");
    for body in ["", r#"{"MessageId": "tru"#, r#"{"MessageId":""}"#, "[]", "<p>"] {
        assert_eq!(judged(200, &[], body), "unknown", "{body}");
    }
}

#[test]
fn throttled_calls_are_retried_soon_and_an_exhausted_quota_in_an_hour() {
    let rate = "Maximum sending rate exceeded.";
    assert_eq!(fault(429, "TooManyRequestsException", rate), "later");
    assert_eq!(fault(400, "ThrottlingException", rate), "later");
    assert_eq!(judged(429, &[("retry-after", "2")], ""), "later, in 2 s");
    let quota = "Daily message quota exceeded.";
    assert_eq!(fault(429, "TooManyRequestsException", quota), "later, in 3600 s");
    assert_eq!(fault(400, "LimitExceededException", "m"), "later, in 3600 s");
}

#[test]
fn a_server_error_is_retried_and_a_gateway_error_is_unknown() {
    assert_eq!(fault(500, "InternalServiceErrorException", "m"), "later");
    assert_eq!(judged(503, &[], ""), "later");
    for status in [502, 504, 520] {
        assert_eq!(judged(status, &[], "<html>"), "unknown", "{status}");
    }
    assert_eq!(judged(408, &[], ""), "unknown");
    assert_eq!(fault(400, "RequestAbortedException", "m"), "unknown");
}

#[test]
fn errors_that_need_an_operator_stop_the_sender() {
    for name in STOPPING_EXCEPTIONS {
        assert_eq!(fault(400, name, "m"), "stop", "{name}");
    }
    for status in [301, 307, 401, 403, 404, 405] {
        assert_eq!(judged(status, &[], ""), "stop", "{status}");
    }
    // The name with a URL after it, and the name in the body.
    let named = "AccountSuspendedException:http://internal.amazon.com/coral/";
    assert_eq!(fault(400, named, "m"), "stop");
    let typed = r#"{"__type":"com.amazonaws.sesv2#SendingPausedException","message":"m"}"#;
    assert_eq!(judged(400, &[], typed), "stop");
}

#[test]
fn an_unverified_sender_stops_everything_but_an_unverified_user_does_not() {
    let check = |identities: &str| {
        let message = format!(
            "Email address is not verified. The following identities failed the check in region EU-WEST-1: {identities}"
        );
        fault(400, "MessageRejected", &message)
    };
    assert_eq!(check("digest@art.example"), "stop");
    assert_eq!(check("ada@example.org, Art <digest@art.example>"), "stop");
    assert_eq!(check("art.example"), "stop");
    assert_eq!(check("ada@art.example"), "refused");
    assert_eq!(check("ada@example.org"), "refused");
}

#[test]
fn an_invalid_email_is_refused_alone() {
    assert_eq!(fault(400, "MessageRejected", "it holds a virus"), "refused");
    assert_eq!(fault(400, "BadRequestException", "Illegal address"), "refused");
    assert_eq!(judged(413, &[], ""), "refused");
    assert_eq!(judged(422, &[], "{}"), "refused");
}

#[test]
fn reasons_contain_no_address() {
    let from = Address::new("digest@art.example").unwrap();
    let body = r#"{"message":"Illegal address <ada@example.org>"}"#;
    let outcome = judge(&answer(400, &[("x-amzn-errortype", "BadRequestException")], body), &from);
    let Outcome::Refused(reason) = outcome else { panic!("{outcome:?}") };
    assert_eq!(reason, "Amazon SES: 400 BadRequestException: Illegal address (address)");
}

#[test]
fn a_region_has_a_url_if_its_name_is_well_formed() {
    assert_eq!(base_url("eu-west-1").unwrap(), "https://email.eu-west-1.amazonaws.com");
    assert_eq!(base_url("us-gov-east-1").unwrap(), "https://email.us-gov-east-1.amazonaws.com");
    assert_eq!(base_url("cn-north-1").unwrap(), "https://email.cn-north-1.amazonaws.com.cn");
    for odd in ["", "us", "eu", "eu-west", "1-1-1", "eu-west-1.evil.example/", "eu--1", "EU-WEST-1"]
    {
        assert_eq!(base_url(odd), None, "{odd}");
    }
}

#[test]
fn access_key_ids_and_configuration_set_names_are_checked() {
    let parse = |path: &str, text: &str| {
        let mut options = Provider::find("ses").unwrap().options.iter();
        (options.find(|option| option.path == path).unwrap().parse)(text)
    };
    assert!(parse(KEY_ID, "AKIAIOSFODNN7EXAMPLE").is_some());
    for odd in ["", "AKIA", "AKIA IOSFODNN7EXAMPLE", "AKIAIOSFODNN7EXAMPLE/x"] {
        assert!(parse(KEY_ID, odd).is_none(), "{odd}");
    }
    assert!(
        parse(CONFIGURATION_SET, "digests-2_a").is_some()
            && parse(CONFIGURATION_SET, "a b").is_none()
    );
}

#[test]
fn an_unverified_internationalized_sender_stops_everything() {
    let from = Address::new("news@Bücher.example").unwrap();
    for identity in [
        "news@xn--bcher-kva.example",
        "=?utf-8?b?QsO8Y2hlcg==?= <news@xn--bcher-kva.example>",
        "news@bücher.example",
        "xn--bcher-kva.example",
    ] {
        let message = format!(
            "Email address is not verified. The following identities failed the check in region EU-WEST-1: {identity}"
        );
        let body = json!({ "message": message }).to_string();
        let headers = [("x-amzn-errortype", "MessageRejected")];

        let outcome = judge(&answer(400, &headers, &body), &from);

        assert_eq!(kind(&outcome), "stop", "{identity}");
    }
}
