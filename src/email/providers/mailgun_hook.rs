//! Mailgun's reports: HMAC-SHA256 over timestamp and token, inside the body.
//!
//! The signature is verified while the body is scanned, before anything is built from it. It does
//! **not** cover the event, so a token is bound to the first event that it arrives with ([`Once`]).
//! Mailgun retries for eight hours. It does not document whether it signs each attempt anew, so a
//! timestamp may be that old.

use std::cell::Cell;
use std::fmt;

use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use serde::de::{Error as _, IgnoredAny, MapAccess, Visitor};
use serde::{Deserialize, Deserializer as _, Serialize};
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::domain::ReportKind;
use crate::email::hooks::{
    Once, Posted, Refused, Report, Verified, address, detail, failed, fresh, json, wrong_signature,
};

/// Mailgun retries for eight hours. The rest is a margin.
const OLDEST: TimeDelta = TimeDelta::hours(12);

#[derive(Deserialize)]
struct Body {
    #[serde(rename = "event-data")]
    event: Event,
}

#[derive(Deserialize)]
#[serde(field_identifier, rename_all = "kebab-case")]
enum Field {
    Signature,
    #[serde(other)]
    Other,
}

#[derive(Deserialize)]
struct Signature {
    timestamp: String,
    token: String,
    signature: String,
}

impl Signature {
    fn fits(&self, key: &[u8]) -> bool {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
            return false;
        };
        mac.update(self.timestamp.as_bytes());
        mac.update(self.token.as_bytes());
        hex::decode(&self.signature).is_ok_and(|given| mac.verify_slice(&given).is_ok())
    }
}

/// Finds and verifies the signature in a body. A wrong one ends the scan, so the rest of the body
/// is not read.
struct Verify<'a> {
    key: &'a [u8],
    is_wrong: &'a Cell<bool>,
}

impl<'de> Visitor<'de> for Verify<'_> {
    type Value = Signature;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object with a signature")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut body: A) -> Result<Signature, A::Error> {
        let mut verified = None;
        while let Some(field) = body.next_key::<Field>()? {
            match field {
                Field::Signature if verified.is_some() => {
                    return Err(A::Error::duplicate_field("signature"));
                }
                Field::Signature => {
                    let given: Signature = body.next_value()?;
                    self.is_wrong.set(!given.fits(self.key));
                    if self.is_wrong.get() {
                        return Err(A::Error::custom("the signature is wrong"));
                    }
                    verified = Some(given);
                }
                Field::Other => {
                    body.next_value::<IgnoredAny>()?;
                }
            }
        }
        verified.ok_or_else(|| A::Error::missing_field("signature"))
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Event {
    event: String,
    id: String,
    timestamp: f64,
    recipient: Option<String>,
    severity: Option<String>,
    reason: Option<String>,
    delivery_status: Option<Status>,
    message: Option<Message>,
    #[serde(default)]
    user_variables: Value,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Status {
    code: Option<i64>,
    enhanced_code: Option<String>,
    /// The reply of the recipient's server.
    message: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct Message {
    headers: Option<Headers>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Headers {
    message_id: Option<String>,
}

pub(super) fn read(
    key: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    let is_wrong = Cell::new(false);
    let verify = Verify {
        key,
        is_wrong: &is_wrong,
    };
    let mut scan = serde_json::Deserializer::from_slice(posted.body);
    let signature = scan.deserialize_map(verify);
    let signature = signature.map_err(|_| match is_wrong.get() {
        true => wrong_signature(),
        false => Refused::unverified("the body is not JSON with a signature"),
    })?;
    let signed = fresh(&signature.timestamp, now, OLDEST)?;

    let Body { event } = json(posted.body)?;
    // A retry may order the fields differently, so the digest covers the fields that are read here.
    let with = Sha256::digest(serde_json::to_vec(&event).map_err(Refused::unreadable)?);
    let once = Once {
        token: signature.token,
        with: hex::encode(with),
        until: signed + OLDEST,
    };
    Ok(Verified {
        once: Some(once),
        ..Verified::of(report(&event, now))
    })
}

fn report(event: &Event, now: DateTime<Utc>) -> Option<Report> {
    let reason = event.reason.as_deref();
    let status = event.delivery_status.as_ref();
    let enhanced = status.and_then(|status| status.enhanced_code.as_deref());
    let reply = status.and_then(|status| status.message.as_deref());
    let news = match (event.event.as_str(), event.severity.as_deref()) {
        ("delivered", _) => ReportKind::Delivered,
        ("failed", Some("permanent")) => match reason {
            // Mailgun did not try, because the address is on its suppression list.
            Some("suppress-bounce") => ReportKind::Bounced,
            Some("suppress-unsubscribe") => ReportKind::Unsubscribed,
            Some("suppress-complaint") => ReportKind::Complained,
            // Mailgun gave up after many attempts.
            Some("old") => failed([enhanced, reply], ReportKind::Delayed),
            Some("espblock") => failed([enhanced, reply], ReportKind::Refused),
            _ => failed([enhanced, reply], ReportKind::Bounced),
        },
        ("failed", _) => ReportKind::Delayed,
        ("complained", _) => ReportKind::Complained,
        ("unsubscribed", _) => ReportKind::Unsubscribed,
        _ => return None,
    };
    let seconds = event.timestamp;
    let at = DateTime::from_timestamp_millis((seconds * 1000.0) as i64);
    let headers = event.message.as_ref().and_then(|one| one.headers.as_ref());
    let known_as = headers.and_then(|headers| headers.message_id.as_deref());
    let known_as = known_as.map(|id| id.trim_matches(['<', '>']));
    let code = status.and_then(|status| Some(status.code?.to_string()));
    Some(Report {
        id: event.id.clone(),
        news,
        tag: event.user_variables["delivery"]
            .as_str()
            .and_then(|tag| tag.parse().ok()),
        // With the brackets that the header has, and without.
        provider_ids: known_as.map_or_else(Vec::new, |id| vec![format!("<{id}>"), id.to_owned()]),
        recipient: address(event.recipient.as_deref()),
        at: at.unwrap_or(now).min(now),
        detail: match news {
            ReportKind::Delivered => None,
            _ => detail([code.as_deref(), enhanced, reason]),
        },
    })
}
