//! SendGrid's reports: ECDSA (P-256, SHA-256) over the timestamp and the original body.
//!
//! The signature covers the bytes, including the final line break, so the body must not be parsed
//! and rewritten first. SendGrid retries for 24 hours, so a signature may be that old. Repeated
//! events are recognized by their ids.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::Value;

use crate::domain::ReportKind;
use crate::email::hooks::{
    Posted, Refused, Report, Verified, address, detail, failed, fresh, json, wrong_signature,
};

/// SendGrid retries for a day. The rest is a margin.
const OLDEST: TimeDelta = TimeDelta::hours(26);

/// The start of a P-256 public key in DER (RFC 5480): the algorithm, the curve, and the tag of an
/// uncompressed point of 65 bytes.
const P256: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

#[derive(Deserialize)]
struct Event {
    event: String,
    email: Option<String>,
    timestamp: i64,
    sg_event_id: String,
    sg_message_id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    bounce_classification: Option<String>,
    /// Our custom argument, which SendGrid repeats among its own fields.
    delivery: Option<String>,
}

/// Returns the key as an uncompressed point. The text is the DER key in Base64.
pub(super) fn key(text: &str) -> Result<Vec<u8>, &'static str> {
    match STANDARD.decode(text) {
        Ok(der) if der.len() == P256.len() + 64 && der.starts_with(&P256) => {
            Ok(der[P256.len() - 1..].to_vec())
        }
        _ => Err(
            "is not the verification key that SendGrid shows: Base64 that begins with MFkw, on one line",
        ),
    }
}

pub(super) fn read(
    key: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    let timestamp = posted.needs("x-twilio-email-event-webhook-timestamp")?;
    let signature = posted.needs("x-twilio-email-event-webhook-signature")?;
    let signature = STANDARD.decode(signature).map_err(|_| wrong_signature())?;
    let signed = [timestamp.as_bytes(), posted.body].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
        .verify(&signed, &signature)
        .map_err(|_| wrong_signature())?;
    fresh(timestamp, now, OLDEST)?;

    let items: Vec<Value> = json(posted.body)?;
    let all = items.len();
    let events: Vec<Event> = items
        .iter()
        .filter_map(|item| Event::deserialize(item).ok())
        .collect();
    let readable = events.len();
    if readable == 0 && all > 0 {
        return Err(Refused::unreadable(
            "none of the events has the documented form",
        ));
    }
    let reports: Vec<Report> = events
        .into_iter()
        .filter_map(|event| report(event, now))
        .collect();
    Ok(Verified {
        ignored: (readable - reports.len()) as u64,
        unreadable: (all - readable) as u64,
        reports,
        once: None,
        confirm: None,
    })
}

fn report(event: Event, now: DateTime<Utc>) -> Option<Report> {
    let (kind, reason) = (event.kind.as_deref(), event.reason.as_deref());
    let news = match event.event.as_str() {
        "delivered" => ReportKind::Delivered,
        "deferred" => ReportKind::Delayed,
        "bounce" => {
            let otherwise = match kind {
                Some("blocked") => ReportKind::Refused,
                _ => ReportKind::Bounced,
            };
            failed([event.status.as_deref(), reason], otherwise)
        }
        // SendGrid did not try, usually because the address is on its suppression list.
        "dropped" => dropped(reason.unwrap_or_default()),
        "spamreport" => ReportKind::Complained,
        "unsubscribe" | "group_unsubscribe" => ReportKind::Unsubscribed,
        _ => return None,
    };
    let known_as = event.sg_message_id.as_deref();
    // The part before the first dot is the id in the answer to the call.
    let known_as = known_as.and_then(|id| id.split('.').next());
    let at = DateTime::from_timestamp(event.timestamp, 0);
    Some(Report {
        id: event.sg_event_id,
        news,
        tag: event.delivery.and_then(|tag| tag.parse().ok()),
        provider_ids: known_as.map(str::to_owned).into_iter().collect(),
        recipient: address(event.email.as_deref()),
        at: at.unwrap_or(now).min(now),
        detail: detail([
            event.status.as_deref(),
            event.bounce_classification.as_deref(),
        ]),
    })
}

fn dropped(reason: &str) -> ReportKind {
    let reason = reason.to_lowercase();
    if reason.contains("unsubscribed") {
        ReportKind::Unsubscribed
    } else if reason.contains("spam report") {
        ReportKind::Complained
    } else if reason.contains("bounced")
        || (reason.contains("invalid") && !reason.contains("header"))
    {
        ReportKind::Bounced
    } else {
        // The content, the headers or the account are at fault. The mailbox may be fine.
        ReportKind::Refused
    }
}
