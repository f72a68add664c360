//! Amazon SES, whose reports come through a topic of Amazon SNS: RSA over the parts of an envelope,
//! by a key whose certificate SNS keeps.
//!
//! The rule: SNS signs for whoever has an account, so a signature proves nothing unless it is our
//! topic's: the topic is the key of this hook, and nothing is fetched for any other. The host of
//! the certificate, and of what confirms the subscription, follows from the topic's region; an
//! address that a body names is compared with it, never followed elsewhere. SNS tries for an hour
//! at most and signs once, so what is signed may be that old.

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
    Place, Posted, Refused, Report, Verified, address, detail, failed, wrong_signature, young,
};

/// An hour of retries, and a margin.
const OLDEST: TimeDelta = TimeDelta::hours(2);
/// How the path of a certificate begins and ends, with digits between.
const CERTIFICATE: (&str, &str) = ("/SimpleNotificationService-", ".pem");

/// What SNS posts.
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

/// A topic's name, `arn:aws:sns:REGION:ACCOUNT:NAME`, if it is one.
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

/// The host of SNS in the region of a topic.
fn host(topic: &[u8]) -> Result<String, Refused> {
    let topic = std::str::from_utf8(topic).map_err(Refused::unreadable)?;
    let region = topic.split(':').nth(3).unwrap_or_default();
    let domain = domain_in(region).ok_or_else(|| Refused::unverified("the topic has no region"))?;
    Ok(format!("sns.{region}.{domain}"))
}

/// Where the certificate is: at the host of our topic's region, whatever the body says.
pub(super) fn certificate(
    topic: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Place, Refused> {
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
        Some(path) => Ok(Place {
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
    /// What was posted, if it is of this topic and young enough to be worth verifying.
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

    /// What SNS signs: names and values a line each, in the order of the names.
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
                // Writing to text cannot fail.
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

    /// What tells SNS that reports are wanted here. It is made of the token alone.
    fn confirmation(&self, topic: &[u8]) -> Result<Place, Refused> {
        let token = self.token.as_deref().unwrap_or_default();
        if token.is_empty() || !token.bytes().all(|b| b.is_ascii_alphanumeric()) {
            return Err(Refused::unreadable("the token is none of SNS's"));
        }
        let arn = self.topic_arn.replace(':', "%3A");
        Ok(Place {
            host: host(topic)?,
            path: format!("/?Action=ConfirmSubscription&TopicArn={arn}&Token={token}"),
        })
    }

    /// What is reported, if it is a report: SES writes to a topic in plain words when it is chosen.
    fn report(&self, now: DateTime<Utc>) -> Result<Option<Report>, Refused> {
        let Ok(event) = serde_json::from_str::<Value>(&self.message) else {
            return Ok(None);
        };
        let event: Event =
            serde_json::from_value(event).map_err(|error| Refused::undocumented(&error))?;
        Ok(event.report(&self.message_id, now))
    }
}

/// What SES says: the same as an event of a configuration set and as a notification of an identity,
/// but for the name of its kind.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Event {
    #[serde(alias = "notificationType")]
    event_type: String,
    #[serde(default)]
    mail: Mail,
    #[serde(default)]
    bounce: Part,
    #[serde(default)]
    complaint: Part,
    #[serde(default)]
    delivery: Part,
    #[serde(default)]
    delivery_delay: Part,
    #[serde(default)]
    subscription: Part,
}

#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Mail {
    message_id: Option<String>,
    #[serde(default)]
    destination: Vec<String>,
    /// Each has a list of values; only where the mail had a configuration set.
    #[serde(default)]
    tags: Value,
}

/// What is told of one kind of event; each has its own of these.
#[derive(Deserialize, Default)]
#[serde(rename_all = "camelCase")]
struct Part {
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

/// What SES's types of bounces mean where no status is stated; Resend passes them on.
pub(super) fn by_type(kind: Option<&str>, sub_kind: Option<&str>) -> ReportKind {
    match (kind, sub_kind) {
        (_, Some("MessageTooLarge" | "ContentRejected" | "AttachmentRejected")) => {
            ReportKind::Refused
        }
        (Some("Permanent"), _) => ReportKind::Bounced,
        _ => ReportKind::Delayed,
    }
}

impl Part {
    /// What each recipient's server stated in this field. Recipients without it are skipped.
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
                    // SES did not try, as the address is on a list of its own.
                    Some("Suppressed" | "OnAccountSuppressionList") => ReportKind::Bounced,
                    _ => {
                        let stated = self.bounce.stated("status");
                        let stated = stated.chain(self.bounce.stated("diagnosticCode"));
                        failed(stated.map(Some), by_type(kind, sub_kind))
                    }
                };
                (news, self.bounce)
            }
            // Somebody says that it was no spam.
            "Complaint" if self.complaint.kind.as_deref() == Some("not-spam") => return None,
            "Complaint" => (ReportKind::Complained, self.complaint),
            // Because of the content: the mailbox may be fine.
            "Reject" => (ReportKind::Refused, Part::default()),
            "Subscription" if self.subscription.new_topic_preferences["unsubscribeAll"] == true => {
                (ReportKind::Unsubscribed, self.subscription)
            }
            _ => return None,
        };
        let tag = &self.mail.tags["delivery"];
        let tag = tag.get(0).unwrap_or(tag).as_str();
        let status = part.stated("status").next();
        Some(Report {
            id: id.to_owned(),
            news,
            tag: tag.and_then(|tag| tag.parse().ok()),
            provider_ids: self.mail.message_id.into_iter().collect(),
            recipient: match self.mail.destination.as_slice() {
                [only] => address(Some(only)),
                _ => None,
            },
            at: part.timestamp.unwrap_or(now).min(now),
            detail: detail([part.kind.as_deref(), part.sub_kind.as_deref(), status]),
        })
    }
}

#[cfg(test)]
#[path = "ses_hook_tests.rs"]
mod tests;
