//! Resend: up to 100 emails per call, all or none, with an idempotency key.
//!
//! The call's reference is its `Idempotency-Key`, and a repeated call has an equal body. So a call
//! whose answer was lost can be repeated for a day without a second email (P2, P5).
//! `docs/decisions/0006-providers.md` cites the sources. [`read_reports`] verifies reports.

use std::time::Duration;

use async_trait::async_trait;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use ring::hmac;
use serde_json::{Value, json};

use super::ses_hook::kind_of_bounce;
use crate::domain::ReportKind;
use crate::email::api_calls::{KeyHeader, PreparedEmail, post, set_text, split_by_size};
use crate::email::hooks::{
    EmailReport, HookRejection, HookRequest, VerifiedReports, classify_failure, join_details,
    only_text, parse, status_in, time_in, wrong_signature,
};
use crate::email::http::{
    Account, ApiClient, ProviderResponse, RequestBody, failed_key_check, ledger_line,
    missing_id_outcome, outcome_of_status, repeat_outcome, status_and_body,
};
use crate::email::{CheckResult, Mailer, Message, Outcome, Resolution, SendPermit};

/// The maximum number of emails in a call.
const MAX_EMAILS: usize = 100;
/// The maximum size of the content of a call in bytes. Resend accepts 40 MB, and JSON escapes
/// enlarge the content.
const MAX_CONTENT_BYTES: usize = 20_000_000;
/// Resend keeps keys for 24 hours. An hour is left for wrong clocks and slow calls.
const KEY_LIFETIME: Duration = Duration::from_secs(23 * 60 * 60);
/// The wait after a used-up quota.
const QUOTA_WAIT: Duration = Duration::from_secs(60 * 60);

/// A mailer for one Resend account.
pub(super) struct Resend(ApiClient);

impl Resend {
    pub(super) fn new(account: Account) -> Result<Self, String> {
        let signer = KeyHeader::bearer(&account.key)?;
        ApiClient::new(account, signer).map(Self)
    }

    /// Checks the sender's domain, after the key was verified.
    async fn check_domain(&self, domains: &Value) -> CheckResult {
        let from = self.0.account.sender.from.domain();
        let mut listed = domains["data"].as_array().into_iter().flatten();
        let Some(domain) = listed.find(|domain| domain["name"] == from) else {
            if domains["has_more"] == true {
                return CheckResult::ready("Resend knows the key");
            }
            return CheckResult::wrong(
                format!("Resend knows the key, but not the domain {from}"),
                "add the domain at Resend, or set mail.from to an address of one that is there",
            );
        };
        let status = domain["status"].as_str().unwrap_or_default();
        if !matches!(status, "verified" | "partially_verified") {
            return CheckResult::wrong(
                format!("Resend knows the key, but {from} is {}", ledger_line(status)),
                "finish its DNS records at Resend",
            );
        }
        // The list does not include the records.
        let path = format!("/domains/{}", domain["id"].as_str().unwrap_or_default());
        let answer = self.0.get(&path).await;
        CheckResult::Ready(
            format!("Resend knows the key, and {from} is verified"),
            answer.map_or_else(|_| Vec::new(), |answer| dkim_names(&answer.json())),
        )
    }

    fn body(&self, emails: &[PreparedEmail<'_>]) -> Value {
        emails.iter().map(|email| self.email_json(email)).collect()
    }

    fn email_json(&self, email: &PreparedEmail<'_>) -> Value {
        let sender = &self.0.account.sender;
        let content = email.message.fill_links();
        let mut object = json!({
            "from": self.0.from,
            "to": [email.to],
            "subject": email.subject,
            "headers": email.all_headers(sender).into_iter().collect::<Value>(),
            "tags": [{ "name": "delivery", "value": email.tag }],
        });
        set_text(&mut object, "html", content.html);
        set_text(&mut object, "text", content.text);
        if let Some(reply_to) = &sender.reply_to {
            set_text(&mut object, "reply_to", reply_to.reveal());
        }
        object
    }
}

#[async_trait]
impl Mailer for Resend {
    fn split_into_calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        split_by_size(messages, self.0.account.per_call(MAX_EMAILS), MAX_CONTENT_BYTES)
    }

    async fn send(
        &self,
        reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome> {
        let body = |emails: &[PreparedEmail<'_>]| {
            let mut body = RequestBody::json(&self.body(emails));
            body.headers.push(("idempotency-key", reference.to_owned()));
            body
        };
        let judge = |answer: &ProviderResponse, email_count| judge(answer, reference, email_count);
        post(messages, permit, (&self.0, "/emails/batch"), body, judge).await
    }

    fn resolution(&self) -> Resolution {
        Resolution::Repeat { within: Some(KEY_LIFETIME) }
    }

    async fn check(&self) -> CheckResult {
        let answer = self.0.get("/domains").await;
        let (_, body) = status_and_body(&answer);
        if body["data"].is_array() {
            return self.check_domain(&body).await;
        }
        // A key that may only send gets this error for every other request.
        if body["name"] == "restricted_api_key" {
            return CheckResult::ready("Resend knows the key; it may only send, which is enough");
        }
        failed_key_check("Resend", answer, describe, "put a valid one into mail.key")
    }

    fn name(&self) -> &str {
        "resend"
    }

    fn account_id(&self) -> String {
        self.0.account(self.name())
    }
}

/// Returns the DNS names of a domain's DKIM keys. Resend's record names are relative to the
/// registered domain or to one below it, but all of them start with the selector.
fn dkim_names(domain: &Value) -> Vec<String> {
    let name = domain["name"].as_str().unwrap_or_default();
    let records = domain["records"].as_array().into_iter().flatten();
    let keys = records.filter(|record| record["record"] == "DKIM");
    let selectors = keys.filter_map(|record| record["name"].as_str()?.split_once("._domainkey"));
    selectors.map(|(selector, _)| format!("{selector}._domainkey.{name}")).collect()
}

fn describe(answer: &ProviderResponse) -> String {
    let body = answer.json();
    let name = body["name"].as_str().filter(|name| !name.is_empty());
    let message = body["message"].as_str().unwrap_or_default();
    answer.describe(name.map(|name| format!("{name}: {message}")))
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &ProviderResponse, reference: &str, email_count: usize) -> Vec<Outcome> {
    let body = answer.json();
    if answer.is_success() {
        let items = body["data"].as_array().into_iter().flatten();
        let ids: Option<Vec<String>> =
            items.map(|item| Some(item["id"].as_str()?.to_owned())).collect();
        return match ids.filter(|ids| ids.len() == email_count) {
            Some(ids) => ids.into_iter().map(Outcome::Accepted).collect(),
            None => repeat_outcome(missing_id_outcome("Resend", answer), email_count),
        };
    }
    let reason = format!("Resend: {}", describe(answer));
    let later =
        |min_wait: Option<Duration>| Outcome::TryLater(reason.clone(), answer.wait().max(min_wait));
    let outcome = match (answer.status, body["name"].as_str().unwrap_or_default()) {
        (429, "daily_quota_exceeded" | "monthly_quota_exceeded") => later(Some(QUOTA_WAIT)),
        // An earlier attempt used this key with another body, so Resend has accepted the call. It
        // does not return the ids, so the key replaces them. A reference belongs to fixed
        // deliveries, so the recipients are the same.
        (409, "invalid_idempotent_request") => Outcome::Accepted(reference.to_owned()),
        (409, _) => later(None),
        // The call can be repeated under its key, also if the outcome is unknown.
        _ => outcome_of_status(answer, reason),
    };
    repeat_outcome(outcome, email_count)
}

/// The tolerance of Svix's own libraries.
const MAX_REPORT_AGE: TimeDelta = TimeDelta::minutes(5);
/// The maximum number of signatures to try. There are several while the key is rotated.
const MAX_SIGNATURES: usize = 8;

/// Decodes the part after `whsec_`.
pub(super) fn parse_key(text: &str) -> Result<Vec<u8>, &'static str> {
    let key = BASE64_STANDARD.decode(text.trim_start_matches("whsec_")).ok();
    key.filter(|key| !key.is_empty()).ok_or("is not a signing secret: whsec_ and Base64")
}

/// Verifies and reads a report, which Svix posts: HMAC-SHA256 over id, timestamp and body.
///
/// Svix signs each attempt anew. All attempts have the same id, which identifies repeated reports.
pub(super) fn read_reports(posted: &HookRequest<'_>) -> Result<VerifiedReports, HookRejection> {
    let id = posted.required_header("svix-id")?;
    let timestamp = posted.required_header("svix-timestamp")?;
    let signatures = posted.required_header("svix-signature")?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, posted.key);
    let signed_text = [format!("{id}.{timestamp}.").as_bytes(), posted.body].concat();
    let is_valid = signatures
        .split_ascii_whitespace()
        .take(MAX_SIGNATURES)
        .filter_map(|signature| BASE64_STANDARD.decode(signature.strip_prefix("v1,")?).ok())
        .any(|signature| hmac::verify(&key, &signed_text, &signature).is_ok());
    if !is_valid {
        return Err(wrong_signature());
    }
    posted.parse_signed_time(timestamp, MAX_REPORT_AGE)?;

    Ok(VerifiedReports::from_report(report(id, &parse(posted.body)?, posted.now)?))
}

fn report(
    id: &str,
    event: &Value,
    now: DateTime<Utc>,
) -> Result<Option<EmailReport>, HookRejection> {
    let event_type = event["type"].as_str().ok_or_else(HookRejection::incomplete)?;
    let data = &event["data"];
    let bounce = &data["bounce"];
    let (bounce_type, subtype) = (bounce["type"].as_str(), bounce["subType"].as_str());
    // The replies of the recipients' servers, or a single one.
    let diagnostic = &bounce["diagnosticCode"];
    let diagnostics = diagnostic.as_array().map_or(std::slice::from_ref(diagnostic), Vec::as_slice);
    let replies: Vec<&str> = diagnostics.iter().filter_map(Value::as_str).collect();
    let status = replies.first().copied().and_then(status_in);
    let kind = match event_type {
        "email.delivered" => ReportKind::Delivered,
        "email.delivery_delayed" => ReportKind::Delayed,
        "email.bounced" => classify_failure(
            replies.into_iter().map(Some),
            kind_of_bounce(bounce_type.or(Some("Permanent")), subtype),
        ),
        // Resend did not try, because the address is on its suppression list.
        "email.suppressed" if data["suppressed"]["reason"] == "previous_complaint" => {
            ReportKind::Complained
        }
        "email.suppressed" => ReportKind::Bounced,
        // Resend did not try, because of a quota or the account.
        "email.failed" => ReportKind::Refused,
        "email.complained" => ReportKind::Complained,
        _ => return Ok(None),
    };
    let tags = &data["tags"];
    let tag = match tags.as_array() {
        Some(list) => list.iter().find(|tag| tag["name"] == "delivery").map(|tag| &tag["value"]),
        None => Some(&tags["delivery"]),
    };
    let (recipient, at) = (only_text(&data["to"])?, time_in(&event["created_at"])?);
    let email_id = data["email_id"].as_str();
    Ok(Some(EmailReport {
        provider_ids: Vec::from_iter(email_id.map(str::to_owned)),
        detail: join_details([bounce_type, subtype, status.as_deref()]),
        ..EmailReport::new(id, kind, tag.and_then(Value::as_str), recipient, at, now)
    }))
}

#[cfg(test)]
#[path = "resend_tests.rs"]
mod tests;
