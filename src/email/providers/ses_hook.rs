//! Amazon SES's reports, which arrive through an SNS topic: RSA over the parts of an envelope.
//!
//! Anyone with an AWS account can get messages signed by SNS, so only our topic's count. The topic
//! is the key of this hook. The hosts of the certificate, and of the page that confirms a
//! subscription, follow from its region. A URL in a body is compared with them, never followed
//! elsewhere. SNS signs once and retries for up to an hour.

use std::fmt::Write as _;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
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
    PinnedUrl, Posted, Refused, Report, Verified, detail, failed, wrong_signature, young,
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
                && name
                    .bytes()
                    .all(|b| b.is_ascii_alphanumeric() || b"-_".contains(&b))
        }
        _ => false,
    };
    fits.then(|| text.into())
        .ok_or("is not the name of a topic: arn:aws:sns:REGION:ACCOUNT:NAME")
}

/// Returns the host of SNS in the topic's region.
fn host(topic: &[u8]) -> Result<String, Refused> {
    let topic = std::str::from_utf8(topic).map_err(Refused::unreadable)?;
    let region = topic.split(':').nth(3).unwrap_or_default();
    let domain = domain_in(region).ok_or_else(|| Refused::unverified("the topic has no region"))?;
    Ok(format!("sns.{region}.{domain}"))
}

/// Returns the URL of the certificate. The host always follows from our topic's region.
pub(super) fn certificate(
    topic: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<PinnedUrl, Refused> {
    let (envelope, host) = (Envelope::of(topic, posted.body, now)?, host(topic)?);
    let path = envelope
        .certificate
        .strip_prefix(&format!("https://{host}"));
    let (start, end) = CERTIFICATE;
    let digits = path.and_then(|path| path.strip_prefix(start)?.strip_suffix(end));
    let is_theirs = digits.is_some_and(|digits| {
        (1..=64).contains(&digits.len()) && digits.bytes().all(|b| b.is_ascii_hexdigit())
    });
    match path.filter(|_| is_theirs) {
        Some(path) => Ok(PinnedUrl {
            path: path.to_owned(),
            host,
        }),
        None => Err(Refused::unverified(
            "the certificate is not where SNS keeps those of the topic's region",
        )),
    }
}

pub(super) fn read(
    topic: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    let envelope = Envelope::of(topic, posted.body, now)?;
    let certificate = posted.certificate.as_deref();
    let certificate = certificate.ok_or_else(|| Refused::unverified("no certificate"))?;
    envelope.verify(certificate, now)?;
    match envelope.kind.as_str() {
        "Notification" => Ok(Verified::of(envelope.report(now)?)),
        "SubscriptionConfirmation" => Ok(Verified {
            confirm: Some(envelope.confirmation(topic)?),
            ..Verified::of(None)
        }),
        _ => Ok(Verified::of(None)),
    }
}

impl Envelope {
    /// Parses a request. Fails if it names another topic or is too old, before any signature is
    /// verified.
    fn of(topic: &[u8], body: &[u8], now: DateTime<Utc>) -> Result<Self, Refused> {
        let envelope: Self = serde_json::from_slice(body)
            .map_err(|error| Refused::unverified(format!("this is nothing of SNS's: {error}")))?;
        if envelope.topic_arn.as_bytes() != topic {
            return Err(Refused::unverified(
                "it is of another topic than hooks.ses_topic",
            ));
        }
        let signed = DateTime::parse_from_rfc3339(&envelope.timestamp);
        let signed = signed.map_err(|_| Refused::unverified("the timestamp is no time"))?;
        young(signed.to_utc(), now, OLDEST)?;
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

    fn verify(&self, certificate: &[u8], now: DateTime<Utc>) -> Result<(), Refused> {
        let unreadable = |_| Refused::unverified("the certificate cannot be read");
        let (_, pem) = parse_x509_pem(certificate)
            .map_err(|_| Refused::unverified("the certificate is no PEM"))?;
        let x509 = pem.parse_x509().map_err(unreadable)?;
        let validity = x509.validity();
        let (since, until) = (
            validity.not_before.timestamp(),
            validity.not_after.timestamp(),
        );
        if !(since..=until).contains(&now.timestamp()) {
            return Err(Refused::unverified(
                "the certificate is not valid now; is this machine's clock right?",
            ));
        }
        let hash: &'static dyn VerificationAlgorithm = match self.signature_version.as_str() {
            "1" => &RSA_PKCS1_2048_8192_SHA1_FOR_LEGACY_USE_ONLY,
            "2" => &RSA_PKCS1_2048_8192_SHA256,
            _ => {
                return Err(Refused::unverified(
                    "the version of the signature is unknown",
                ));
            }
        };
        let key = &x509.public_key().subject_public_key.data;
        let signature = STANDARD.decode(&self.signature);
        let signature = signature.map_err(|_| wrong_signature())?;
        UnparsedPublicKey::new(hash, key)
            .verify(self.signed().as_bytes(), &signature)
            .map_err(|_| wrong_signature())
    }

    /// Returns the address that confirms the subscription. Only the token comes from the body.
    fn confirmation(&self, topic: &[u8]) -> Result<PinnedUrl, Refused> {
        let token = self.token.as_deref().unwrap_or_default();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Refused::unreadable("the token is none of SNS's"));
        }
        let arn = self.topic_arn.replace(':', "%3A");
        Ok(PinnedUrl {
            host: host(topic)?,
            path: format!("/?Action=ConfirmSubscription&TopicArn={arn}&Token={token}"),
        })
    }

    /// Reads the report in the message; `None` if it is not SES's.
    fn report(&self, now: DateTime<Utc>) -> Result<Option<Report>, Refused> {
        let Ok(event) = serde_json::from_str::<Value>(&self.message) else {
            return Ok(None);
        };
        let event: Event =
            serde_json::from_value(event).map_err(|error| Refused::undocumented(&error))?;
        Ok(event.report(&self.message_id, now))
    }
}

/// A report of SES. Events of a configuration set and notifications of an identity differ only in
/// the name of `event_type`.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(alias = "notificationType")]
    event_type: String,
    #[serde(default)]
    mail: EventMail,
    #[serde(default)]
    bounce: Details,
    #[serde(default)]
    complaint: Details,
    #[serde(default)]
    delivery: Details,
    #[serde(default)]
    delivery_delay: Details,
    #[serde(default)]
    subscription: Details,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct EventMail {
    message_id: Option<String>,
    #[serde(default)]
    destination: Vec<String>,
    /// The email's tags, each with a list of values. Present only with a configuration set.
    #[serde(default)]
    tags: Value,
}

/// The details of an event. Each kind of event has its own field of this type.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Details {
    timestamp: Option<DateTime<Utc>>,
    #[serde(
        alias = "bounceType",
        alias = "complaintFeedbackType",
        alias = "delayType"
    )]
    kind: Option<String>,
    #[serde(alias = "bounceSubType", alias = "complaintSubType")]
    sub_kind: Option<String>,
    #[serde(default, alias = "bouncedRecipients", alias = "delayedRecipients")]
    recipients: Vec<Value>,
    #[serde(default)]
    new_topic_preferences: Value,
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

impl Details {
    /// Returns this field for each recipient that has it, as stated by the recipient's server.
    fn stated<'a>(&'a self, field: &'a str) -> impl Iterator<Item = &'a str> {
        let recipients = self.recipients.iter();
        recipients.filter_map(move |recipient| recipient[field].as_str())
    }
}

impl Event {
    fn report(self, id: &str, now: DateTime<Utc>) -> Option<Report> {
        let (news, part) = match self.event_type.as_str() {
            "Delivery" => (ReportKind::Delivered, self.delivery),
            "DeliveryDelay" => (ReportKind::Delayed, self.delivery_delay),
            "Bounce" => {
                let (kind, sub_kind) =
                    (self.bounce.kind.as_deref(), self.bounce.sub_kind.as_deref());
                let news = match sub_kind {
                    Some("UnsubscribedRecipient") => ReportKind::Unsubscribed,
                    // SES did not try, because the address is on its suppression list.
                    Some("Suppressed" | "OnAccountSuppressionList") => ReportKind::Bounced,
                    _ => {
                        let stated = self.bounce.stated("status");
                        let stated = stated.chain(self.bounce.stated("diagnosticCode"));
                        failed(stated.map(Some), by_type(kind, sub_kind))
                    }
                };
                (news, self.bounce)
            }
            // A recipient reported that the email was not spam.
            "Complaint" if self.complaint.kind.as_deref() == Some("not-spam") => return None,
            "Complaint" => (ReportKind::Complained, self.complaint),
            // SES rejected the content. The mailbox may be fine.
            "Reject" => (ReportKind::Refused, Details::default()),
            "Subscription" if self.subscription.new_topic_preferences["unsubscribeAll"] == true => {
                (ReportKind::Unsubscribed, self.subscription)
            }
            _ => return None,
        };
        let tag = &self.mail.tags["delivery"];
        let tag = tag.get(0).unwrap_or(tag).as_str();
        let recipient = match self.mail.destination.as_slice() {
            [only] => Some(only.as_str()),
            _ => None,
        };
        let status = part.stated("status").next();
        Some(Report {
            provider_ids: self.mail.message_id.iter().cloned().collect(),
            detail: detail([part.kind.as_deref(), part.sub_kind.as_deref(), status]),
            ..Report::of(id.to_owned(), news, tag, recipient, part.timestamp, now)
        })
    }
}

#[cfg(test)]
#[path = "ses_hook_tests.rs"]
mod tests;
