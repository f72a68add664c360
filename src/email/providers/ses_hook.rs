//! Amazon SES's reports, which arrive through an SNS topic: RSA over the parts of an envelope.
//!
//! Anyone with an AWS account can get messages signed by SNS, so only our topic's count. The topic
//! is the key of this hook. The hosts of the certificate, and of the page that confirms a
//! subscription, follow from its region. A URL in a body is compared with them, never followed
//! elsewhere. SNS signs once and retries for up to an hour.

use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use ring::signature::{
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde::Deserialize;
use serde_json::Value;
use x509_parser::pem::parse_x509_pem;

use super::ses::aws_domain;
use crate::domain::ReportKind;
use crate::email::hooks::{
    EmailReport, HookRejection, HookRequest, PinnedUrl, VerifiedReports, classify_failure,
    join_details, only_text, time_in, wrong_signature,
};

/// SNS retries for an hour. The rest is a margin.
const MAX_REPORT_AGE: TimeDelta = TimeDelta::hours(2);
/// Start and end of a certificate's path, with hexadecimal digits between.
const CERTIFICATE_PATH: (&str, &str) = ("/SimpleNotificationService-", ".pem");

/// A request from SNS.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    #[serde(rename = "Type")]
    message_type: String,
    message_id: String,
    topic_arn: String,
    subject: Option<String>,
    message: String,
    timestamp: String,
    signature_version: String,
    signature: String,
    #[serde(rename = "SigningCertURL")]
    certificate: String,
    token: Option<String>,
    #[serde(rename = "SubscribeURL")]
    subscribe_url: Option<String>,
}

/// Returns the name of a topic, `arn:aws:sns:REGION:ACCOUNT:NAME`, if it is valid.
pub(super) fn parse_topic(text: &str) -> Result<Vec<u8>, &'static str> {
    let parts: Vec<&str> = text.split(':').collect();
    let is_valid = match parts[..] {
        ["arn", partition, "sns", region, account, name] => {
            partition.starts_with("aws")
                && aws_domain(region).is_some()
                && account.len() == 12
                && account.bytes().all(|b| b.is_ascii_digit())
                && !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        }
        _ => false,
    };
    let problem = "is not the name of a topic: arn:aws:sns:REGION:ACCOUNT:NAME";
    is_valid.then(|| text.into()).ok_or(problem)
}

/// Returns the host of SNS in the topic's region.
fn sns_host(topic: &[u8]) -> Result<String, HookRejection> {
    let topic = std::str::from_utf8(topic).map_err(HookRejection::unreadable)?;
    let region = topic.split(':').nth(3).unwrap_or_default();
    let domain =
        aws_domain(region).ok_or_else(|| HookRejection::unverified("the topic has no region"))?;
    Ok(format!("sns.{region}.{domain}"))
}

/// Returns the URL of the certificate. The host always follows from our topic's region.
pub(super) fn certificate_url(posted: &HookRequest<'_>) -> Result<PinnedUrl, HookRejection> {
    let (envelope, host) = (Envelope::from_request(posted)?, sns_host(posted.key)?);
    let (start, end) = CERTIFICATE_PATH;
    let is_valid = |path: &&str| {
        let digits = path.strip_prefix(start).and_then(|rest| rest.strip_suffix(end));
        digits.is_some_and(|digits| {
            (1..=64).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
        })
    };
    match envelope.certificate.strip_prefix(&format!("https://{host}")).filter(is_valid) {
        Some(path) => Ok(PinnedUrl { path: path.to_owned(), host }),
        None => Err(HookRejection::unverified(
            "the certificate is not where SNS keeps those of the topic's region",
        )),
    }
}

pub(super) fn read_reports(posted: &HookRequest<'_>) -> Result<VerifiedReports, HookRejection> {
    let envelope = Envelope::from_request(posted)?;
    let certificate =
        posted.certificate.as_deref().ok_or_else(|| HookRejection::unverified("no certificate"))?;
    envelope.verify(certificate, posted.now)?;
    match envelope.message_type.as_str() {
        "Notification" => Ok(VerifiedReports::from_report(envelope.report(posted.now)?)),
        "SubscriptionConfirmation" => Ok(VerifiedReports {
            confirmation_url: Some(envelope.confirmation(posted.key)?),
            ..VerifiedReports::from_report(None)
        }),
        _ => Ok(VerifiedReports::from_report(None)),
    }
}

impl Envelope {
    /// Parses a request. Fails if it names another topic or is too old, before any signature is
    /// verified.
    fn from_request(posted: &HookRequest<'_>) -> Result<Self, HookRejection> {
        let envelope: Self = serde_json::from_slice(posted.body).map_err(|error| {
            HookRejection::unverified(format!("this is not a message of SNS: {error}"))
        })?;
        if envelope.topic_arn.as_bytes() != posted.key {
            return Err(HookRejection::unverified("it is of another topic than hooks.ses_topic"));
        }
        let signed_at = DateTime::parse_from_rfc3339(&envelope.timestamp)
            .map_err(|_| HookRejection::unverified("the timestamp is no time"))?;
        posted.check_age(signed_at.to_utc(), MAX_REPORT_AGE)?;
        Ok(envelope)
    }

    /// Returns the text that SNS signs: a line with each name and one with its value, sorted by
    /// name.
    fn text_to_sign(&self) -> String {
        let is_notification = self.message_type == "Notification";
        let fields = [
            ("Message", Some(&self.message)),
            ("MessageId", Some(&self.message_id)),
            ("Subject", self.subject.as_ref().filter(|_| is_notification)),
            ("SubscribeURL", self.subscribe_url.as_ref().filter(|_| !is_notification)),
            ("Timestamp", Some(&self.timestamp)),
            ("Token", self.token.as_ref().filter(|_| !is_notification)),
            ("TopicArn", Some(&self.topic_arn)),
            ("Type", Some(&self.message_type)),
        ];
        let to_lines = |(name, value): (&str, Option<&String>)| {
            value.map(|value| format!("{name}\n{value}\n"))
        };
        fields.into_iter().filter_map(to_lines).collect()
    }

    fn verify(&self, certificate: &[u8], now: DateTime<Utc>) -> Result<(), HookRejection> {
        let unreadable = |_| HookRejection::unverified("the certificate cannot be read");
        let (_, pem) = parse_x509_pem(certificate)
            .map_err(|_| HookRejection::unverified("the certificate is no PEM"))?;
        let x509 = pem.parse_x509().map_err(unreadable)?;
        let (validity, now) = (x509.validity(), now.timestamp());
        if !(validity.not_before.timestamp()..=validity.not_after.timestamp()).contains(&now) {
            return Err(HookRejection::unverified(
                "the certificate is not valid now; is this machine's clock right?",
            ));
        }
        let hash: &'static dyn VerificationAlgorithm = match self.signature_version.as_str() {
            "1" => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            "2" => &RSA_PKCS1_2048_8192_SHA256,
            _ => return Err(HookRejection::unverified("the signature has an unknown version")),
        };
        let key = &x509.public_key().subject_public_key.data;
        let signature = BASE64_STANDARD.decode(&self.signature).map_err(|_| wrong_signature())?;
        UnparsedPublicKey::new(hash, key)
            .verify(self.text_to_sign().as_bytes(), &signature)
            .map_err(|_| wrong_signature())
    }

    /// Returns the address that confirms the subscription. Only the token comes from the body.
    fn confirmation(&self, topic: &[u8]) -> Result<PinnedUrl, HookRejection> {
        let token = self.token.as_deref().unwrap_or_default();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(HookRejection::unreadable("the token is not one of SNS"));
        }
        let arn = self.topic_arn.replace(':', "%3A");
        Ok(PinnedUrl {
            host: sns_host(topic)?,
            path: format!("/?Action=ConfirmSubscription&TopicArn={arn}&Token={token}"),
        })
    }

    /// Reads the report in the message; `None` if it is not SES's.
    fn report(&self, now: DateTime<Utc>) -> Result<Option<EmailReport>, HookRejection> {
        match serde_json::from_str(&self.message) {
            Ok(event) => report(&event, &self.message_id, now),
            Err(_) => Ok(None),
        }
    }
}

/// Returns the kind of report that a bounce type means if no status is known. Resend uses the same
/// types.
pub(super) fn kind_of_bounce(bounce_type: Option<&str>, subtype: Option<&str>) -> ReportKind {
    match (bounce_type, subtype) {
        (_, Some("MessageTooLarge" | "ContentRejected" | "AttachmentRejected")) => {
            ReportKind::Refused
        }
        (Some("Permanent"), _) => ReportKind::Bounced,
        _ => ReportKind::Delayed,
    }
}

/// Returns this field of each recipient that has it.
fn recipient_fields<'a>(details: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
    let lists = ["bouncedRecipients", "delayedRecipients"].into_iter();
    let recipients = lists.filter_map(|list| details[list].as_array()).flatten();
    recipients.filter_map(move |recipient| recipient[field].as_str())
}

/// Reads an event of a configuration set or a notification of an identity. They differ only in the
/// name of the event's type. Each type has details in a field of its own.
fn report(
    event: &Value,
    id: &str,
    now: DateTime<Utc>,
) -> Result<Option<EmailReport>, HookRejection> {
    let event_type = event["eventType"]
        .as_str()
        .or(event["notificationType"].as_str())
        .ok_or_else(HookRejection::incomplete)?;
    let (bounce, complaint) = (&event["bounce"], &event["complaint"]);
    let (kind, details) = match event_type {
        "Delivery" => (ReportKind::Delivered, &event["delivery"]),
        "DeliveryDelay" => (ReportKind::Delayed, &event["deliveryDelay"]),
        "Bounce" => {
            let subtype = bounce["bounceSubType"].as_str();
            let kind = match subtype {
                Some("UnsubscribedRecipient") => ReportKind::Unsubscribed,
                // SES did not try, because the address is on its suppression list.
                Some("Suppressed" | "OnAccountSuppressionList") => ReportKind::Bounced,
                _ => {
                    let statuses = recipient_fields(bounce, "status");
                    let replies = statuses.chain(recipient_fields(bounce, "diagnosticCode"));
                    let bounce_type = bounce["bounceType"].as_str();
                    classify_failure(replies.map(Some), kind_of_bounce(bounce_type, subtype))
                }
            };
            (kind, bounce)
        }
        // A recipient reported that the email was not spam.
        "Complaint" if complaint["complaintFeedbackType"] == "not-spam" => return Ok(None),
        "Complaint" => (ReportKind::Complained, complaint),
        // SES rejected the content. The mailbox may be fine.
        "Reject" => (ReportKind::Refused, &event["reject"]),
        "Subscription" => {
            let subscription = &event["subscription"];
            if subscription["newTopicPreferences"]["unsubscribeAll"] != true {
                return Ok(None);
            }
            (ReportKind::Unsubscribed, subscription)
        }
        _ => return Ok(None),
    };
    let mail = &event["mail"];
    // With a configuration set, the tag is a list.
    let tags = &mail["tags"]["delivery"];
    let tag = tags.get(0).unwrap_or(tags).as_str();
    let recipient = only_text(&mail["destination"])?;
    let at = time_in(&details["timestamp"])?;
    let first = |names: &[&str]| names.iter().find_map(|name| details[*name].as_str());
    let detail_type = first(&["bounceType", "complaintFeedbackType", "delayType"]);
    let subtype = first(&["bounceSubType", "complaintSubType"]);
    let message_id = mail["messageId"].as_str();
    Ok(Some(EmailReport {
        provider_ids: Vec::from_iter(message_id.map(str::to_owned)),
        detail: join_details([detail_type, subtype, recipient_fields(details, "status").next()]),
        ..EmailReport::new(id, kind, tag, recipient, at, now)
    }))
}

#[cfg(test)]
#[path = "ses_hook_tests.rs"]
mod tests;
