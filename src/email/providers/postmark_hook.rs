//! Postmark's reports: no signature, but user and password in the hook's URL (basic
//! authentication).
//!
//! Only the password proves that Postmark sent the request, so the hook needs HTTPS. There is no
//! signed time. A repeated report is recognized by its id, and has no further effect.

use chrono::{DateTime, Utc};
use serde::Deserialize;

use crate::domain::{EnhancedStatus, ReportKind};
use crate::email::hooks::{Posted, Refused, Report, Verified, address, detail, failed, json};

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Record {
    record_type: String,
    #[serde(rename = "MessageID")]
    message_id: Option<String>,
    #[serde(rename = "ID")]
    id: Option<i64>,
    #[serde(rename = "Type")]
    kind: Option<String>,
    type_code: Option<i64>,
    #[serde(default)]
    inactive: bool,
    email: Option<String>,
    recipient: Option<String>,
    delivered_at: Option<DateTime<Utc>>,
    bounced_at: Option<DateTime<Utc>>,
    changed_at: Option<DateTime<Utc>>,
    #[serde(default)]
    suppress_sending: bool,
    suppression_reason: Option<String>,
    /// The reply of the recipient's server.
    details: Option<String>,
    #[serde(default)]
    metadata: serde_json::Value,
}

pub(super) fn read(
    login: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    posted.has_login(login)?;
    let report = report(json(posted.body)?, now);
    Ok(Verified::of(report))
}

fn report(record: Record, now: DateTime<Utc>) -> Option<Report> {
    let kind = record.kind.as_deref();
    let suppressed = record.suppression_reason.as_deref();
    let news = match record.record_type.as_str() {
        "Delivery" => ReportKind::Delivered,
        "SpamComplaint" => ReportKind::Complained,
        "Bounce" => {
            let details = record.details.as_deref();
            bounced(kind.unwrap_or_default(), record.inactive, details)?
        }
        "SubscriptionChange" if record.suppress_sending => match suppressed {
            Some("HardBounce") => ReportKind::Bounced,
            Some("SpamComplaint") => ReportKind::Complained,
            _ => ReportKind::Unsubscribed,
        },
        _ => return None,
    };
    let message = record.message_id.unwrap_or_default();
    let times = [record.delivered_at, record.bounced_at, record.changed_at];
    let at = times.into_iter().flatten().next();
    let what = &record.record_type;
    let id = match (record.id, record.changed_at) {
        (Some(id), _) => format!("{what} {id}"),
        (None, Some(changed)) => format!("{what} {message} {changed}"),
        (None, None) => format!("{what} {message}"),
    };
    let code = record.type_code.map(|code| code.to_string());
    let status = record.details.as_deref().and_then(EnhancedStatus::in_reply);
    let status = status.map(|status| status.to_string());
    Some(Report {
        id,
        news,
        tag: record.metadata["delivery"]
            .as_str()
            .and_then(|tag| tag.parse().ok()),
        provider_ids: vec![message],
        recipient: address(record.recipient.as_deref().or(record.email.as_deref())),
        at: at.unwrap_or(now).min(now),
        detail: detail([kind, code.as_deref(), suppressed, status.as_deref()]),
    })
}

/// Returns the kind of report for a Postmark bounce type, or `None` if it reports no failure.
/// `details` is the server's reply.
fn bounced(kind: &str, inactive: bool, details: Option<&str>) -> Option<ReportKind> {
    let otherwise = match kind {
        "SpamComplaint" => return Some(ReportKind::Complained),
        "Unsubscribe" => return Some(ReportKind::Unsubscribed),
        // Postmark, or its user, judged the address itself.
        "BadEmailAddress" | "ManuallyDeactivated" => return Some(ReportKind::Bounced),
        // Automatic replies: a vacation, a new address, a challenge.
        "AutoResponder" | "AddressChange" | "Subscribe" | "ChallengeVerification" => return None,
        // Postmark continues to retry.
        "Transient" => return Some(ReportKind::Delayed),
        "Blocked"
        | "SpamNotification"
        | "DMARCPolicy"
        | "SMTPApiError"
        | "TemplateRenderingFailed" => ReportKind::Refused,
        "HardBounce" => ReportKind::Bounced,
        _ if inactive => ReportKind::Bounced,
        _ => ReportKind::Delayed,
    };
    Some(failed([details], otherwise))
}

#[cfg(test)]
#[path = "postmark_hook_tests.rs"]
mod tests;
