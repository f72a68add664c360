//! Tests the text that SNS signs, the checks of its certificate, and the reports in SES events.
//!
//! The signatures were made by Python's `cryptography`, over the text as Amazon documents it:
//! `key.sign(text, PKCS1v15(), SHA1())`, and with `SHA256()`. The key is the one of the certificate
//! in `tests/all/api/hooks`.

use std::sync::Arc;

use serde_json::json;

use super::*;

const TOPIC: &str = "arn:aws:sns:eu-west-1:123456789012:tidings";
const CERTIFICATE: &str = include_str!("../../../tests/all/api/hooks/sns.pem");
const URL: &str = "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-7ff5318490ec183fbaddaa2a969abfda.pem";
const MESSAGE: &str = r#"{"eventType":"Delivery","mail":{"messageId":"m1"},"delivery":{"timestamp":"2014-04-21T10:00:00.000Z"}}"#;
const SHA1: &str = "XnmVdt9DmSJIctZ+JyR7F4oQbgohn6v+Rq5XxyM3cZ5XCC1nE97CGn3th8Qq25xGiDQQ+R4JzM8twhvQFNHEgqrQR0oo3XLpciNp92VgvSZXUTfJ5S7U4FGaMbaDQ1p34av3umYuhtRC0GoNQWedZk9qa9RnRn2obxVITz+WM9bSKpQtkOPedZEXB9ash6FzfCn6ZCITqhv73LvJCqHTaQMKMpEAEvek0plmMnG5u1/u53IgXOwOwg5wNZD4V59FANmRCqxeYMRUkgFBjasQw7SZtsAfD9fwtpmNcd/CyyYQTe8x7bRz6qRrmxS6+jtGo7pdsn105saJ8+L6K8O8cA==";
const SHA256: &str = "RsfUz3ashkJ4W7FAjpMMcQ89GuPcopiC3vFSsJ7CHr2FtVTU1Y+oBCUQXx9x1xJ/2WhSagpQ3w2E+SOKAvtE8zpjMz/N+qoq8U5J+P9vQxzdN32KkRxZJzhfQeBgJR3soEKmVWe4Nrd7LOki8fDIQAiATyYiZMTfLgOL2VWAHUqCVNoPawnIAAk1Tiut6L0B3ti8jDaZ8wy1Pe7zNJlpI9fD9e5sDpspgjpREMn/m0vfwZnEkCHebkParbt5G0uOGwqUNANal9BcF29SwKqo696gH8wDiuo2dWZsMoj8yy853IwJ7QEu33c0irm1CtDWKP2X8JRB1Fn+4925rVnExg==";
const SUBSCRIBING: &str = "BA8tQ2w31jVhchSQfAmCK7cno9+KzB2nLMPogt1xw6s1bmHxVZATKT3eRz5ykegTyO4Ew44VyIVxcE26vdxOM3U4tC3ILtPN1rr/3pHUb0sqYd4DzLsk4up8tWtFF3JdHUhtxU7xYnY5K77vs2etQ3IDQLOk+ihfpgQ8E7HTVVkZAkhlnQzBwpGjFcQ57MOY8ktywos+uF/giYg4F18uj3viqV9cCT6ZaeHl6KaanJO9okobhDN8/T22B+p1Aru0/0jOS1TMDjBdYojwmYQ5amMgsYgqM+LNs2NnDQL6EICduwbSZTYODke3K9LQD9gMq256s6jfbs3J/mgKSo2W8g==";

fn noon() -> DateTime<Utc> {
    "2014-04-21T10:00:00Z".parse().unwrap()
}

fn envelope(version: &str, signature: &str) -> Value {
    json!({
        "Type": "Notification",
        "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324",
        "TopicArn": TOPIC,
        "Subject": "My First Message",
        "Message": MESSAGE,
        "Timestamp": "2014-04-21T10:00:00.000Z",
        "SignatureVersion": version,
        "Signature": signature,
        "SigningCertURL": URL,
        "UnsubscribeURL": "https://sns.eu-west-1.amazonaws.com/?Action=Unsubscribe",
    })
}

/// Verifies and reads a body at this time, with the right certificate.
fn at(now: DateTime<Utc>, body: &Value) -> Result<VerifiedReports, HookRejection> {
    let body = body.to_string();
    let header = |_: &str| None;
    let posted = |certificate| HookRequest {
        key: TOPIC.as_bytes(),
        now,
        header: &header,
        body: body.as_bytes(),
        certificate,
    };
    let url = certificate_url(&posted(None))?;
    assert_eq!(url.host, "sns.eu-west-1.amazonaws.com");
    let pem: Arc<[u8]> = Arc::from(CERTIFICATE.as_bytes());
    read_reports(&posted(Some(pem)))
}

/// Returns the reason why the body is rejected.
fn refused(body: &Value) -> String {
    match at(noon(), body) {
        Err(HookRejection::Unverified(why)) => why,
        other => panic!("{body}: {other:?}"),
    }
}

#[test]
fn both_signature_versions_are_verified() {
    for (version, signature) in [("1", SHA1), ("2", SHA256)] {
        let verified = at(noon(), &envelope(version, signature)).unwrap();
        let report = &verified.reports[0];
        assert_eq!(report.kind, ReportKind::Delivered, "{version}");
        assert_eq!(report.id, "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324");
        assert_eq!((report.provider_ids[0].as_str(), verified.confirmation_url), ("m1", None));
    }
    for (version, signature) in [("1", SHA256), ("2", SHA1), ("2", ""), ("2", "%")] {
        let why = refused(&envelope(version, signature));
        assert!(why.contains("does not fit"), "{version}: {why}");
    }
    assert!(refused(&envelope("3", SHA256)).contains("version"));
}

#[test]
fn every_signed_field_is_verified() {
    for part in ["MessageId", "Subject", "Message"] {
        let mut body = envelope("2", SHA256);
        body[part] = format!("{} ", body[part].as_str().unwrap()).into();
        assert!(refused(&body).contains("does not fit"), "{part}");
        body[part] = Value::Null;
        refused(&body);
    }
    let mut body = envelope("2", SHA256);
    body["Timestamp"] = "2014-04-21T10:00:00.001Z".into();
    assert!(refused(&body).contains("does not fit"));
    let mut body = envelope("2", SHA256);
    body["Type"] = "UnsubscribeConfirmation".into();
    assert!(refused(&body).contains("does not fit"));
}

#[test]
fn a_certificate_must_come_from_the_host_of_the_topics_region() {
    for url in [
        "http://sns.eu-west-1.amazonaws.com/SimpleNotificationService-7f.pem",
        "https://sns.us-east-1.amazonaws.com/SimpleNotificationService-7f.pem",
        "https://sns.eu-west-1.amazonaws.com.evil.example/SimpleNotificationService-7f.pem",
        "https://sns.eu-west-1.amazonaws.com@evil.example/SimpleNotificationService-7f.pem",
        "https://sns.eu-west-1.amazonaws.com:444/SimpleNotificationService-7f.pem",
        "https://evil.example/SimpleNotificationService-7f.pem",
        "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-.pem",
        "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-7f.pem?x",
        "https://sns.eu-west-1.amazonaws.com/SimpleNotificationService-7f/../x.pem",
        "https://sns.eu-west-1.amazonaws.com/?Action=Publish",
        "",
    ] {
        let mut body = envelope("2", SHA256);
        body["SigningCertURL"] = url.into();
        assert!(refused(&body).contains("certificate"), "{url}");
    }
}

#[test]
fn a_message_of_another_topic_is_rejected() {
    for topic in [
        "arn:aws:sns:eu-west-1:123456789012:tidings2",
        "arn:aws:sns:eu-west-1:999999999999:tidings",
        "",
    ] {
        let mut body = envelope("2", SHA256);
        body["TopicArn"] = topic.into();
        assert!(refused(&body).contains("another topic"), "{topic}");
    }
}

#[test]
fn a_message_older_than_the_retry_period_is_rejected() {
    let body = envelope("2", SHA256);
    let shifted = |seconds: i64| at(noon() + TimeDelta::seconds(seconds), &body);
    assert!(shifted(7_200).is_ok() && shifted(-300).is_ok());
    for seconds in [7_201, -301] {
        assert!(matches!(shifted(seconds), Err(HookRejection::Unverified(_))));
    }
}

#[test]
fn an_expired_or_malformed_certificate_verifies_nothing() {
    let envelope: Envelope = serde_json::from_value(envelope("2", SHA256)).unwrap();
    let pem = CERTIFICATE.as_bytes();
    assert!(envelope.verify(pem, noon()).is_ok());
    for years in [-2, 11] {
        let then = noon() + TimeDelta::days(365 * years);
        assert!(envelope.verify(pem, then).is_err(), "{years}");
    }
    let cut = &pem[..pem.len() / 2];
    let empty = b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n";
    for odd in [&b""[..], b"<html>", cut, empty] {
        assert!(envelope.verify(odd, noon()).is_err());
    }
}

#[test]
fn a_subscription_is_confirmed_at_the_topics_host_only() {
    let mut body = envelope("2", SUBSCRIBING);
    body["Type"] = "SubscriptionConfirmation".into();
    body["MessageId"] = "165545c9-2a5c-472c-8df2-7ff2be2b3b1b".into();
    body["Message"] = "You have chosen to subscribe".into();
    body["Token"] = "2336412f37fb687f5d51e6e241d09c805a5a57b30d712f794cc5f6a988666d92".into();
    body["SubscribeURL"] = "https://evil.example/?x".into();

    let verified = at(noon(), &body).unwrap();

    assert_eq!((verified.reports.len(), verified.ignored_count), (0, 1));
    let url = verified.confirmation_url.unwrap();
    assert_eq!(url.host, "sns.eu-west-1.amazonaws.com");
    assert_eq!(
        url.path,
        "/?Action=ConfirmSubscription&TopicArn=arn%3Aaws%3Asns%3Aeu-west-1%3A123456789012%3Atidings&Token=2336412f37fb687f5d51e6e241d09c805a5a57b30d712f794cc5f6a988666d92"
    );
    body["Token"] = "0".into();
    assert!(refused(&body).contains("does not fit"));
}

/// Returns the kind and the details of the report in an event.
fn report_in(event: Value) -> Option<(ReportKind, Option<String>)> {
    let report = report(&event, "1", noon()).unwrap()?;
    Some((report.kind, report.detail))
}

#[test]
fn events_and_notifications_give_the_same_report() {
    let bounce = json!({
        "bounceType": "Permanent", "bounceSubType": "General", "timestamp": "2014-04-21T09:00:00.000Z",
        "bouncedRecipients": [{"emailAddress": "ada@example.org", "status": "5.1.1"}],
    });
    for name in ["eventType", "notificationType"] {
        let mut event = json!({"bounce": bounce, "mail": {"destination": ["ada@example.org"]}});
        event[name] = "Bounce".into();

        let report = report(&event, "1", noon()).unwrap().unwrap();

        assert_eq!(report.kind, ReportKind::Bounced);
        assert_eq!(report.detail.as_deref(), Some("Permanent General 5.1.1"));
        assert_eq!(report.at, noon() - TimeDelta::hours(1));
        assert_eq!(report.recipient.unwrap().to_string(), "a…@example.org");
    }
}

#[test]
fn a_tag_is_returned_as_a_list() {
    let tag = "0123456789012345678901234567890123456789";
    let event = json!({"eventType": "Delivery", "mail": {"tags": {"delivery": [tag], "ses:operation": ["SendEmail"]}}});
    let report = report(&event, "1", noon()).unwrap().unwrap();
    assert_eq!(report.tag.unwrap().to_string(), tag);
}

#[test]
fn each_kind_of_event_maps_to_a_report() {
    let bounce = |kind: &str, sub: &str| {
        report_in(
            json!({"eventType": "Bounce", "bounce": {"bounceType": kind, "bounceSubType": sub}}),
        )
        .map(|(news, _)| news)
    };
    assert_eq!(bounce("Permanent", "Suppressed"), Some(ReportKind::Bounced));
    assert_eq!(bounce("Permanent", "UnsubscribedRecipient"), Some(ReportKind::Unsubscribed));
    assert_eq!(bounce("Transient", "MailboxFull"), Some(ReportKind::Delayed));
    assert_eq!(bounce("Undetermined", "Undetermined"), Some(ReportKind::Delayed));
    let kind = |event: Value| report_in(event).map(|(news, _)| news);
    let complaint = |details: Value| kind(json!({"eventType": "Complaint", "complaint": details}));
    assert_eq!(complaint(json!({"complaintFeedbackType": "abuse"})), Some(ReportKind::Complained));
    assert_eq!(complaint(json!({})), Some(ReportKind::Complained));
    assert_eq!(complaint(json!({"complaintFeedbackType": "not-spam"})), None);
    let subscription = |all: bool| {
        kind(
            json!({"eventType": "Subscription", "subscription": {"newTopicPreferences": {"unsubscribeAll": all}}}),
        )
    };
    assert_eq!(subscription(true), Some(ReportKind::Unsubscribed));
    assert_eq!(subscription(false), None);
    assert_eq!(
        kind(json!({"eventType": "Reject", "reject": {"reason": "Bad content"}})),
        Some(ReportKind::Refused)
    );
    assert_eq!(
        kind(json!({"eventType": "DeliveryDelay", "deliveryDelay": {"delayType": "MailboxFull"}})),
        Some(ReportKind::Delayed)
    );
    for nothing in ["Send", "Open", "Click", "Rendering Failure"] {
        assert_eq!(kind(json!({"eventType": nothing})), None, "{nothing}");
    }
}

#[test]
fn a_topic_is_a_full_arn() {
    assert_eq!(parse_topic(TOPIC).unwrap(), TOPIC.as_bytes());
    assert!(parse_topic("arn:aws-cn:sns:cn-north-1:123456789012:a_b-1").is_ok());
    for odd in [
        "",
        "tidings",
        "arn:aws:sqs:eu-west-1:123456789012:tidings",
        "arn:aws:sns:evil.example/:123456789012:tidings",
        "arn:aws:sns:eu-west-1:1:tidings",
        "arn:aws:sns:eu-west-1:123456789012:",
        "arn:aws:sns:eu-west-1:123456789012:tidings:0f",
    ] {
        assert!(parse_topic(odd).is_err(), "{odd}");
    }
}
