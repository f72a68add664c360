//! Resend's reports, which Svix posts: HMAC-SHA256 over id, timestamp and body.
//!
//! Svix signs each attempt anew, so a timestamp may be only five minutes old. All attempts have the
//! same id, which identifies repeated reports.

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use serde::Deserialize;
use serde_json::Value;
use sha2::Sha256;

use super::ses_hook::by_type;
use crate::domain::{EnhancedStatus, ReportKind};
use crate::email::hooks::{
    Posted, Refused, Report, Verified, address, detail, failed, fresh, json, wrong_signature,
};

/// The tolerance of Svix's own libraries.
const OLDEST: TimeDelta = TimeDelta::minutes(5);
/// The maximum number of signatures to try. There are several while the key is rotated.
const MOST_SIGNATURES: usize = 8;

#[derive(Deserialize)]
struct Event {
    #[serde(rename = "type")]
    kind: String,
    created_at: Option<DateTime<Utc>>,
    #[serde(default)]
    data: Data,
}

#[derive(Deserialize, Default)]
struct Data {
    email_id: Option<String>,
    #[serde(default)]
    to: Vec<String>,
    #[serde(default)]
    tags: Value,
    bounce: Option<Bounce>,
    suppressed: Option<Suppressed>,
}

#[derive(Deserialize)]
struct Bounce {
    #[serde(rename = "type")]
    kind: Option<String>,
    #[serde(rename = "subType")]
    sub_kind: Option<String>,
    /// The replies of the recipients' servers.
    #[serde(default, rename = "diagnosticCode")]
    replies: Value,
}

impl Bounce {
    fn replies(&self) -> impl Iterator<Item = &str> {
        let list = self.replies.as_array();
        let list = list.map_or(std::slice::from_ref(&self.replies), Vec::as_slice);
        list.iter().filter_map(Value::as_str)
    }
}

#[derive(Deserialize)]
struct Suppressed {
    reason: Option<String>,
}

/// Decodes the part after `whsec_`.
pub(super) fn key(text: &str) -> Result<Vec<u8>, &'static str> {
    let key = STANDARD.decode(text.trim_start_matches("whsec_")).ok();
    key.filter(|key| !key.is_empty())
        .ok_or("is not a signing secret: whsec_ and Base64")
}

pub(super) fn read(
    key: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    let id = posted.needs("svix-id")?;
    let timestamp = posted.needs("svix-timestamp")?;
    let signatures = posted.needs("svix-signature")?;
    let mut mac = Hmac::<Sha256>::new_from_slice(key).map_err(Refused::unreadable)?;
    for part in [id.as_bytes(), b".", timestamp.as_bytes(), b"."] {
        mac.update(part);
    }
    mac.update(posted.body);
    let signatures = signatures.split_ascii_whitespace().take(MOST_SIGNATURES);
    let ours = signatures
        .filter_map(|signature| STANDARD.decode(signature.strip_prefix("v1,")?).ok())
        .any(|signature| mac.clone().verify_slice(&signature).is_ok());
    if !ours {
        return Err(wrong_signature());
    }
    fresh(timestamp, now, OLDEST)?;

    let report = report(id, json(posted.body)?, now);
    Ok(Verified::of(report))
}

fn report(id: &str, event: Event, now: DateTime<Utc>) -> Option<Report> {
    let bounce = event.data.bounce.as_ref();
    let kind = bounce.and_then(|bounce| bounce.kind.as_deref());
    let sub_kind = bounce.and_then(|bounce| bounce.sub_kind.as_deref());
    let news = match event.kind.as_str() {
        "email.delivered" => ReportKind::Delivered,
        "email.delivery_delayed" => ReportKind::Delayed,
        "email.bounced" => {
            let replies = bounce.into_iter().flat_map(Bounce::replies).map(Some);
            failed(replies, by_type(kind.or(Some("Permanent")), sub_kind))
        }
        // Resend did not try, because the address is on its suppression list.
        "email.suppressed" => match event.data.suppressed.as_ref() {
            Some(Suppressed {
                reason: Some(reason),
            }) if reason == "previous_complaint" => ReportKind::Complained,
            _ => ReportKind::Bounced,
        },
        // Resend did not try, because of a quota or the account.
        "email.failed" => ReportKind::Refused,
        "email.complained" => ReportKind::Complained,
        _ => return None,
    };
    let reply = bounce.and_then(|bounce| bounce.replies().next());
    let status = reply.and_then(EnhancedStatus::in_reply);
    let status = status.map(|status| status.to_string());
    let tags = &event.data.tags;
    let named = |tag: &&Value| tag["name"] == "delivery";
    let tag = match tags.as_array() {
        Some(list) => list.iter().find(named).map(|tag| &tag["value"]),
        None => Some(&tags["delivery"]),
    };
    Some(Report {
        id: id.to_owned(),
        news,
        tag: tag.and_then(Value::as_str).and_then(|tag| tag.parse().ok()),
        provider_ids: event.data.email_id.into_iter().collect(),
        recipient: match event.data.to.as_slice() {
            [only] => address(Some(only)),
            _ => None,
        },
        at: event.created_at.unwrap_or(now).min(now),
        detail: detail([kind, sub_kind, status.as_deref()]),
    })
}
