//! Amazon SES's reports, which arrive through an SNS topic: RSA over the parts of an envelope.
//!
//! Anyone with an AWS account can get messages signed by SNS, so only our topic's count. The topic
//! is the key of this hook. The hosts of the certificate, and of the page that confirms a
//! subscription, follow from its region. A URL in a body is compared with them, never followed
//! elsewhere. SNS signs once and retries for up to an hour.

use std::fmt::Write as _;

use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use ring::signature::{
    RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY, RSA_PKCS1_2048_8192_SHA256, UnparsedPublicKey,
    VerificationAlgorithm,
};
use serde::Deserialize;
use serde_json::Value;
use x509_parser::pem::parse_x509_pem;

use super::ses::domain_in;
use crate::domain::ReportKind;
use crate::email::hooks::{
    EmailReport, HookRejection, PinnedUrl, Posted, VerifiedReports, detail, failed, only_text,
    time_in, wrong_signature,
};

/// SNS retries for an hour. The rest is a margin.
const OLDEST: TimeDelta = TimeDelta::hours(2);
/// Start and end of a certificate's path, with hexadecimal digits between.
const CERTIFICATE: (&str, &str) = ("/SimpleNotificationService-", ".pem");

/// A request from SNS.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Envelope {
    #[serde(rename = "Type")]
    kind: String,
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
    subscribe: Option<String>,
}

/// Returns the name of a topic, `arn:aws:sns:REGION:ACCOUNT:NAME`, if it is valid.
pub(super) fn topic(text: &str) -> Result<Vec<u8>, &'static str> {
    let parts: Vec<&str> = text.split(':').collect();
    let fits = match parts[..] {
        ["arn", partition, "sns", region, account, name] => {
            partition.starts_with("aws")
                && domain_in(region).is_some()
                && account.len() == 12
                && account.bytes().all(|b| b.is_ascii_digit())
                && !name.is_empty()
                && name.bytes().all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        }
        _ => false,
    };
    fits.then(|| text.into()).ok_or("is not the name of a topic: arn:aws:sns:REGION:ACCOUNT:NAME")
}

/// Returns the host of SNS in the topic's region.
fn host(topic: &[u8]) -> Result<String, HookRejection> {
    let topic = std::str::from_utf8(topic).map_err(HookRejection::unreadable)?;
    let region = topic.split(':').nth(3).unwrap_or_default();
    let domain =
        domain_in(region).ok_or_else(|| HookRejection::unverified("the topic has no region"))?;
    Ok(format!("sns.{region}.{domain}"))
}

/// Returns the URL of the certificate. The host always follows from our topic's region.
pub(super) fn certificate(posted: &Posted<'_>) -> Result<PinnedUrl, HookRejection> {
    let (envelope, host) = (Envelope::of(posted)?, host(posted.key)?);
    let path = envelope.certificate.strip_prefix(&format!("https://{host}"));
    let (start, end) = CERTIFICATE;
    let digits = path.and_then(|path| path.strip_prefix(start)?.strip_suffix(end));
    let is_theirs = digits.is_some_and(|digits| {
        (1..=64).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    });
    match path.filter(|_| is_theirs) {
        Some(path) => Ok(PinnedUrl { path: path.to_owned(), host }),
        None => Err(HookRejection::unverified(
            "the certificate is not where SNS keeps those of the topic's region",
        )),
    }
}

pub(super) fn read(posted: &Posted<'_>) -> Result<VerifiedReports, HookRejection> {
    let envelope = Envelope::of(posted)?;
    let certificate = posted.certificate.as_deref();
    let certificate = certificate.ok_or_else(|| HookRejection::unverified("no certificate"))?;
    envelope.verify(certificate, posted.now)?;
    match envelope.kind.as_str() {
        "Notification" => Ok(VerifiedReports::of(envelope.report(posted.now)?)),
        "SubscriptionConfirmation" => Ok(VerifiedReports {
            confirm: Some(envelope.confirmation(posted.key)?),
            ..VerifiedReports::of(None)
        }),
        _ => Ok(VerifiedReports::of(None)),
    }
}

impl Envelope {
    /// Parses a request. Fails if it names another topic or is too old, before any signature is
    /// verified.
    fn of(posted: &Posted<'_>) -> Result<Self, HookRejection> {
        let envelope: Self = serde_json::from_slice(posted.body).map_err(|error| {
            HookRejection::unverified(format!("this is not a message of SNS: {error}"))
        })?;
        if envelope.topic_arn.as_bytes() != posted.key {
            return Err(HookRejection::unverified("it is of another topic than hooks.ses_topic"));
        }
        let signed = DateTime::parse_from_rfc3339(&envelope.timestamp);
        let signed = signed.map_err(|_| HookRejection::unverified("the timestamp is no time"))?;
        posted.check_age(signed.to_utc(), OLDEST)?;
        Ok(envelope)
    }

    /// Returns the text that SNS signs: a line with each name and one with its value, sorted by
    /// name.
    fn signed(&self) -> String {
        let is_news = self.kind == "Notification";
        let parts = [
            ("Message", Some(&self.message)),
            ("MessageId", Some(&self.message_id)),
            ("Subject", self.subject.as_ref().filter(|_| is_news)),
            ("SubscribeURL", self.subscribe.as_ref().filter(|_| !is_news)),
            ("Timestamp", Some(&self.timestamp)),
            ("Token", self.token.as_ref().filter(|_| !is_news)),
            ("TopicArn", Some(&self.topic_arn)),
            ("Type", Some(&self.kind)),
        ];
        let mut signed = String::new();
        for (name, value) in parts {
            if let Some(value) = value {
                let _ = writeln!(signed, "{name}\n{value}");
            }
        }
        signed
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
        let signature = BASE64_STANDARD.decode(&self.signature);
        let signature = signature.map_err(|_| wrong_signature())?;
        UnparsedPublicKey::new(hash, key)
            .verify(self.signed().as_bytes(), &signature)
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
            host: host(topic)?,
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

/// Returns what a bounce type of SES means if no status is stated. Resend uses the same types.
pub(super) fn by_type(kind: Option<&str>, sub_kind: Option<&str>) -> ReportKind {
    match (kind, sub_kind) {
        (_, Some("MessageTooLarge" | "ContentRejected" | "AttachmentRejected")) => {
            ReportKind::Refused
        }
        (Some("Permanent"), _) => ReportKind::Bounced,
        _ => ReportKind::Delayed,
    }
}

/// Returns this field of each recipient that has it, as stated by the recipient's server.
fn stated<'a>(details: &'a Value, field: &'a str) -> impl Iterator<Item = &'a str> {
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
    let event_type = event["eventType"].as_str();
    let event_type = event_type.or(event["notificationType"].as_str());
    let event_type = event_type.ok_or_else(HookRejection::incomplete)?;
    let (bounce, complaint) = (&event["bounce"], &event["complaint"]);
    let (news, details) = match event_type {
        "Delivery" => (ReportKind::Delivered, &event["delivery"]),
        "DeliveryDelay" => (ReportKind::Delayed, &event["deliveryDelay"]),
        "Bounce" => {
            let sub_kind = bounce["bounceSubType"].as_str();
            let news = match sub_kind {
                Some("UnsubscribedRecipient") => ReportKind::Unsubscribed,
                // SES did not try, because the address is on its suppression list.
                Some("Suppressed" | "OnAccountSuppressionList") => ReportKind::Bounced,
                _ => {
                    let stated = stated(bounce, "status").chain(stated(bounce, "diagnosticCode"));
                    let kind = bounce["bounceType"].as_str();
                    failed(stated.map(Some), by_type(kind, sub_kind))
                }
            };
            (news, bounce)
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
    // A list with a configuration set.
    let tag = &mail["tags"]["delivery"];
    let tag = tag.get(0).unwrap_or(tag).as_str();
    let recipient = only_text(&mail["destination"])?;
    let at = time_in(&details["timestamp"])?;
    let first = |names: &[&str]| names.iter().find_map(|name| details[*name].as_str());
    let kind = first(&["bounceType", "complaintFeedbackType", "delayType"]);
    let sub_kind = first(&["bounceSubType", "complaintSubType"]);
    let known_as = mail["messageId"].as_str();
    Ok(Some(EmailReport {
        provider_ids: Vec::from_iter(known_as.map(str::to_owned)),
        detail: detail([kind, sub_kind, stated(details, "status").next()]),
        ..EmailReport::of(id, news, tag, recipient, at, now)
    }))
}

#[cfg(test)]
#[path = "ses_hook_tests.rs"]
mod tests;
