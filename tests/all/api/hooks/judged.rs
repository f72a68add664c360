//! The classification of failed emails: by enhanced status (RFC 3463), or by the provider's own
//! classification if no status names a cause.
//!
//! Each row of the table becomes a signed report in the provider's documented form.

use serde_json::{Value, json};
use tidings::config::Config;
use tidings::domain::ReportKind;
use tidings::domain::ReportKind::{
    Bounced as Hard, Complained as Spam, Delayed as Soft, Refused, Unsubscribed as Stop,
};
use tidings::email::Provider;
use tidings::email::hooks::HookRequest;

use super::signing::{config, sign};
use crate::support::town::monday;

/// Provider, kind (with a subtype after the colon), stated status, outcome.
const TABLE: &[(&str, &str, &str, ReportKind)] = &[
    ("mailgun", "permanent:bounce", "5.1.1", Hard),
    ("mailgun", "permanent:bounce", "5.1.10", Hard),
    ("mailgun", "permanent:bounce", "5.2.1", Hard),
    ("mailgun", "permanent:bounce", "5.2.2", Soft),
    ("mailgun", "permanent:bounce", "4.4.7", Soft),
    ("mailgun", "permanent:bounce", "5.7.1", Refused),
    ("mailgun", "permanent:bounce", "5.7.26", Refused),
    ("mailgun", "permanent:bounce", "5.1.8", Refused),
    ("mailgun", "permanent:bounce", "5.0.0", Hard),
    ("mailgun", "permanent:bounce", "5.4.1", Hard),
    ("mailgun", "permanent:bounce", "5.5.0", Hard),
    ("mailgun", "permanent:bounce", "", Hard),
    ("mailgun", "permanent:generic", "5.4.4", Hard),
    ("mailgun", "permanent:generic", "", Hard),
    ("mailgun", "permanent:old", "4.2.2", Soft),
    ("mailgun", "permanent:old", "5.4.4", Soft),
    ("mailgun", "permanent:old", "", Soft),
    ("mailgun", "permanent:espblock", "5.7.1", Refused),
    ("mailgun", "permanent:espblock", "5.5.0", Refused),
    ("mailgun", "permanent:espblock", "", Refused),
    ("mailgun", "permanent:suppress-bounce", "", Hard),
    ("mailgun", "permanent:suppress-complaint", "", Spam),
    ("mailgun", "permanent:suppress-unsubscribe", "", Stop),
    ("mailgun", "temporary:generic", "4.2.2", Soft),
    ("mailgun", "temporary:greylisted", "4.7.1", Soft),
    ("sendgrid", "bounce:bounce", "5.1.1", Hard),
    ("sendgrid", "bounce:bounce", "5.1.2", Hard),
    ("sendgrid", "bounce:bounce", "5.2.1", Hard),
    ("sendgrid", "bounce:bounce", "5.2.2", Soft),
    ("sendgrid", "bounce:bounce", "5.7.26", Refused),
    ("sendgrid", "bounce:bounce", "5.0.0", Hard),
    ("sendgrid", "bounce:bounce", "5.4.1", Hard),
    ("sendgrid", "bounce:bounce", "5.5.0", Hard),
    ("sendgrid", "bounce:bounce", "", Hard),
    ("sendgrid", "bounce:blocked", "5.1.1", Hard),
    ("sendgrid", "bounce:blocked", "5.2.2", Soft),
    ("sendgrid", "bounce:blocked", "4.7.0", Soft),
    ("sendgrid", "bounce:blocked", "5.7.1", Refused),
    ("sendgrid", "bounce:blocked", "5.5.0", Refused),
    ("sendgrid", "bounce:blocked", "", Refused),
    ("sendgrid", "deferred:", "4.7.1", Soft),
    ("sendgrid", "dropped:Bounced Address", "", Hard),
    ("sendgrid", "dropped:Invalid", "", Hard),
    ("sendgrid", "dropped:Invalid SMTPAPI header", "", Refused),
    ("sendgrid", "dropped:Spam Reporting Address", "", Spam),
    ("sendgrid", "dropped:Unsubscribed Address", "", Stop),
    ("sendgrid", "dropped:Spam Content", "", Refused),
    ("postmark", "HardBounce", "5.1.1", Hard),
    ("postmark", "HardBounce", "5.2.1", Hard),
    ("postmark", "HardBounce", "5.2.2", Soft),
    ("postmark", "HardBounce", "5.7.1", Refused),
    ("postmark", "HardBounce", "5.4.1", Hard),
    ("postmark", "HardBounce", "5.5.0", Hard),
    ("postmark", "HardBounce", "", Hard),
    ("postmark", "SoftBounce", "5.1.1", Hard),
    ("postmark", "SoftBounce", "5.2.2", Soft),
    ("postmark", "SoftBounce", "4.2.2", Soft),
    ("postmark", "SoftBounce", "5.7.1", Refused),
    ("postmark", "SoftBounce", "5.4.1", Soft),
    ("postmark", "SoftBounce", "", Soft),
    ("postmark", "Transient", "4.4.1", Soft),
    ("postmark", "Blocked", "5.7.1", Refused),
    ("postmark", "Blocked", "", Refused),
    ("postmark", "SpamNotification", "", Refused),
    ("postmark", "DMARCPolicy", "5.7.26", Refused),
    ("postmark", "BadEmailAddress", "", Hard),
    ("postmark", "DnsError", "5.4.4", Soft),
    ("postmark", "DnsError", "", Soft),
    ("resend", "Permanent:General", "5.1.1", Hard),
    ("resend", "Permanent:General", "5.2.1", Hard),
    ("resend", "Permanent:General", "5.2.2", Soft),
    ("resend", "Permanent:General", "5.7.26", Refused),
    ("resend", "Permanent:General", "5.4.1", Hard),
    ("resend", "Permanent:General", "5.5.0", Hard),
    ("resend", "Permanent:General", "", Hard),
    ("resend", "Permanent:NoEmail", "5.1.1", Hard),
    ("resend", "Transient:General", "4.4.7", Soft),
    ("resend", "Transient:MailboxFull", "5.2.2", Soft),
    ("resend", "Transient:General", "5.7.1", Refused),
    ("resend", "Transient:ContentRejected", "", Refused),
    ("resend", "Undetermined:Undetermined", "", Soft),
    ("ses", "Permanent:General", "5.1.1", Hard),
    ("ses", "Permanent:General", "5.2.1", Hard),
    ("ses", "Permanent:General", "5.2.2", Soft),
    ("ses", "Permanent:General", "5.7.26", Refused),
    ("ses", "Permanent:General", "5.3.0", Hard),
    ("ses", "Permanent:General", "5.4.1", Hard),
    ("ses", "Permanent:General", "5.5.0", Hard),
    ("ses", "Permanent:General", "", Hard),
    ("ses", "Permanent:Suppressed", "5.1.1", Hard),
    ("ses", "Permanent:OnAccountSuppressionList", "", Hard),
    ("ses", "Permanent:UnsubscribedRecipient", "", Stop),
    ("ses", "Transient:General", "4.4.7", Soft),
    ("ses", "Transient:General", "5.5.0", Soft),
    ("ses", "Transient:General", "5.7.1", Refused),
    ("ses", "Transient:MailboxFull", "5.2.2", Soft),
    ("ses", "Transient:MessageTooLarge", "", Refused),
    ("ses", "Undetermined:Undetermined", "", Soft),
    ("ses", "Undetermined:Undetermined", "5.1.1", Hard),
];

const TO: &str = "ada@example.org";

/// The receiving server's reply. Its free text names other statuses, which must be ignored.
fn reply(status: &str) -> String {
    format!("550 {status} <{TO}> rejected (see 5.1.1 and 5.7.1)")
}

fn body(provider: &str, kind: &str, status: &str, at: i64) -> Value {
    let time = chrono::DateTime::from_timestamp(at, 0).unwrap();
    let time = time.to_rfc3339();
    let (kind, sub) = kind.split_once(':').unwrap_or((kind, ""));
    match provider {
        "mailgun" => json!({"event-data": {
            "event": "failed", "severity": kind, "reason": sub, "id": "Ase7i2zsRYeDXztHGENqRA",
            "timestamp": at as f64 + 0.521, "log-level": "error", "recipient": TO,
            "recipient-domain": "example.org",
            "delivery-status": {"attempt-no": 1, "code": 550, "enhanced-code": status,
                "message": format!("{TO} rejected (see 5.1.1 and 5.7.1)"), "session-seconds": 0.2},
            "flags": {"is-delayed-bounce": false},
            "message": {"headers": {"to": TO, "message-id": "p1@example.org"}, "size": 831},
            "user-variables": {}, "tags": [],
        }}),
        "sendgrid" => {
            let mut event = json!({
                "email": TO, "timestamp": at, "smtp-id": "<14c5d75ce93@ismtpd-555>", "event": kind,
                "category": ["digest"], "sg_event_id": "6g4ZI7SA-xmRDv57GoPIPw==",
                "sg_message_id": "14c5d75ce93.dfd.64b469.filter0001.16648.5515E0B88.0",
            });
            if kind == "dropped" {
                event["reason"] = sub.into();
            } else {
                event["type"] = sub.into();
                event["reason"] = reply(status).into();
            }
            if !status.is_empty() {
                event["status"] = status.into();
            }
            json!([event])
        }
        "postmark" => json!({
            "RecordType": "Bounce", "ID": 42, "Type": kind, "TypeCode": 1, "Name": kind, "Tag": "",
            "MessageID": "b7bc2f4a-e38e-4336-af7d-e6c392c2f817", "Metadata": {}, "ServerID": 23,
            "Description": "The server was unable to deliver your message (ex: unknown user).",
            "Details": format!("smtp;{}", reply(status)), "Email": TO, "From": "a@example.net",
            "BouncedAt": time, "DumpAvailable": false, "Inactive": false, "CanActivate": true,
        }),
        "resend" => json!({"type": "email.bounced", "created_at": time, "data": {
            "email_id": "56761188-7520-42d8-8898-ff6fc54ce618", "from": "a@example.net",
            "to": [TO], "subject": "News", "created_at": time, "tags": {},
            "bounce": {"type": kind, "subType": sub, "message": "The email bounced.",
                "diagnosticCode": [format!("smtp; {}", reply(status))]},
        }}),
        _ => {
            let mut recipient = json!({"emailAddress": TO, "action": "failed",
                "diagnosticCode": format!("smtp; {}", reply(status))});
            if !status.is_empty() {
                recipient["status"] = status.into();
            }
            json!({"eventType": "Bounce", "bounce": {
                "feedbackId": "0100017", "bounceType": kind, "bounceSubType": sub,
                "bouncedRecipients": [recipient], "timestamp": time, "reportingMTA": "dsn; a.example",
            }, "mail": {"timestamp": time, "source": "a@example.net", "messageId": "p1",
                "destination": [TO], "tags": {"ses:operation": ["SendEmail"]}}})
        }
    }
}

#[test]
fn reports_of_failed_emails_are_classified_by_their_status() {
    let config = Config::parse(&config()).unwrap();
    let now = monday(0);
    for (n, (provider, kind, status, expected)) in TABLE.iter().enumerate() {
        let body = body(provider, kind, status, now.timestamp());
        let signed = sign(provider, &body, now.timestamp(), n as u32);
        let header = |name: &str| {
            let mut headers = signed.headers.iter();
            headers.find(|(known, _)| *known == name).map(|(_, value)| value.as_str())
        };
        let posted = HookRequest {
            key: config.hooks.keys.get(provider).unwrap(),
            now,
            header: &header,
            body: &signed.body,
            certificate: Some(include_bytes!("sns.pem").as_slice().into()),
        };

        let verified = (Provider::find(provider).unwrap().read_reports)(&posted);

        let row = format!("{provider} {kind} {status}");
        let verified = verified.unwrap_or_else(|refused| panic!("{row}: {refused:?}"));
        let kinds: Vec<ReportKind> = verified.reports.iter().map(|one| one.kind).collect();
        assert_eq!(kinds, [*expected], "{row}");
    }
}
