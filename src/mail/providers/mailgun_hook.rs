//! Mailgun: HMAC-SHA256 over timestamp and token, inside the body.
//!
//! The rule: the signature does **not** cover what is reported, so a token that was seen fits
//! anything. It is bound to the first report it comes with ([`Once`]). Mailgun tries again for
//! eight hours, and does not say whether it signs anew: a timestamp may be that old.

use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde_json::Value;
use sha2::{Digest, Sha256};

use crate::domain::ReportKind;
use crate::mail::hooks::{
    Once, Posted, Refused, Report, Verified, address, detail, fresh, json, wrong_signature,
};

/// Eight hours of retries, and a margin.
const OLDEST: TimeDelta = TimeDelta::hours(12);

#[derive(Deserialize)]
struct Body {
    signature: Signature,
    #[serde(rename = "event-data")]
    event: Value,
}

#[derive(Deserialize)]
struct Signature {
    timestamp: String,
    token: String,
    signature: String,
}

#[derive(Deserialize)]
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

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Status {
    code: Option<i64>,
    enhanced_code: Option<String>,
}

#[derive(Deserialize)]
struct Message {
    headers: Option<Headers>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Headers {
    message_id: Option<String>,
}

pub(super) fn read(
    key: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    // The signature is inside: what has none is not Mailgun's, whatever else it is.
    let body: Body = json(posted.body)
        .map_err(|_| Refused::unverified("the body is not JSON with a signature and event-data"))?;
    let signature = &body.signature;
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(Refused::unreadable)?;
    mac.update(signature.timestamp.as_bytes());
    mac.update(signature.token.as_bytes());
    let given = hex::decode(&signature.signature).map_err(|_| wrong_signature())?;
    mac.verify_slice(&given).map_err(|_| wrong_signature())?;
    let signed = fresh(&signature.timestamp, now, OLDEST)?;

    let with = Sha256::digest(serde_json::to_vec(&body.event).map_err(Refused::unreadable)?);
    let once = Once {
        token: signature.token.clone(),
        with: hex::encode(with),
        until: signed + OLDEST,
    };
    let event: Event = serde_json::from_value(body.event).map_err(Refused::unreadable)?;
    let report = report(&event, now);
    Ok(Verified {
        once: Some(once),
        ..Verified::of(report)
    })
}

fn report(event: &Event, now: DateTime<Utc>) -> Option<Report> {
    let reason = event.reason.as_deref();
    let news = match (event.event.as_str(), event.severity.as_deref()) {
        ("delivered", _) => ReportKind::Delivered,
        ("failed", Some("permanent")) => match reason {
            Some("suppress-unsubscribe") => ReportKind::Unsubscribed,
            Some("suppress-complaint") => ReportKind::Complained,
            // Given up after many attempts, or refused for the sender's sake: the mailbox may be
            // fine.
            Some("old" | "espblock") => ReportKind::Delayed,
            _ => ReportKind::Bounced,
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
    let status = event.delivery_status.as_ref();
    let code = status.and_then(|status| Some(status.code?.to_string()));
    let enhanced = status.and_then(|status| status.enhanced_code.as_deref());
    Some(Report {
        id: event.id.clone(),
        news,
        tag: event.user_variables["delivery"]
            .as_str()
            .and_then(|tag| tag.parse().ok()),
        // As it stands in the header and in the answer to the call, and bare.
        provider_ids: known_as.map_or_else(Vec::new, |id| vec![format!("<{id}>"), id.to_owned()]),
        recipient: address(event.recipient.as_deref()),
        at: at.unwrap_or(now).min(now),
        detail: match news {
            ReportKind::Delivered => None,
            _ => detail([code.as_deref(), enhanced, reason]),
        },
    })
}
