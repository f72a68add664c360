//! Resend: up to 100 emails per call, all or none, with an idempotency key.
//!
//! The call's reference is its `Idempotency-Key`, and a repeated call has an equal body. So a call
//! whose answer was lost can be repeated for a day without a second email (P2, P5).
//! `docs/decisions/0006-providers.md` cites the sources. [`read`] verifies reports.

use std::time::Duration;

use async_trait::async_trait;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use ring::hmac;
use serde_json::{Value, json};

use super::ses_hook::by_type;
use crate::domain::ReportKind;
use crate::email::api_calls::{Letter, Proof, cut, post, set_text};
use crate::email::hooks::{
    EmailReport, HookRejection, Posted, VerifiedReports, detail, failed, json as parse, only_text,
    status_in, time_in, wrong_signature,
};
use crate::email::http::{
    Account, ApiClient, Body, ProviderResponse, all, invalid, status_and_body, usual, without_id,
    words,
};
use crate::email::{Certainty, Checked, Mailer, Message, Outcome, Permit};

/// The maximum number of emails in a call.
const MOST: usize = 100;
/// The maximum size of the content of a call in bytes. Resend accepts 40 MB, and JSON escapes
/// enlarge the content.
const MOST_BYTES: usize = 20_000_000;
/// Resend keeps keys for 24 hours. An hour is left for wrong clocks and slow calls.
const KEPT: Duration = Duration::from_secs(23 * 60 * 60);
/// The wait after a used-up quota.
const QUOTA: Duration = Duration::from_secs(60 * 60);

/// A mailer for one Resend account.
pub(super) struct Resend(ApiClient);

impl Resend {
    pub(super) fn new(account: Account) -> Result<Self, String> {
        let proof = Proof::bearer(&account.key)?;
        ApiClient::new(account, proof).map(Self)
    }

    /// Checks the sender's domain, after the key was verified.
    async fn check_domain(&self, domains: &Value) -> Checked {
        let from = self.0.account.sender.from.domain();
        let mut all = domains["data"].as_array().into_iter().flatten();
        let Some(domain) = all.find(|domain| domain["name"] == from) else {
            return match domains["has_more"] == true {
                true => Checked::ready("Resend knows the key"),
                false => Checked::wrong(
                    format!("Resend knows the key, but not the domain {from}"),
                    "add the domain at Resend, or set mail.from to an address of one that is there",
                ),
            };
        };
        let status = domain["status"].as_str().unwrap_or_default();
        if !matches!(status, "verified" | "partially_verified") {
            return Checked::wrong(
                format!("Resend knows the key, but {from} is {}", words(status)),
                "finish its DNS records at Resend",
            );
        }
        // The list does not include the records.
        let path = format!("/domains/{}", domain["id"].as_str().unwrap_or_default());
        let whole = self.0.get(&path).await.ok();
        Checked::Ready(
            format!("Resend knows the key, and {from} is verified"),
            whole.map_or_else(Vec::new, |answer| dkim_names(&answer.value())),
        )
    }

    fn body(&self, letters: &[Letter<'_>]) -> Value {
        letters.iter().map(|letter| self.email(letter)).collect()
    }

    fn email(&self, letter: &Letter<'_>) -> Value {
        let sender = &self.0.account.sender;
        let content = letter.message.filled();
        let mut email = json!({
            "from": self.0.from,
            "to": [letter.to],
            "subject": letter.subject,
            "headers": letter.all_headers(sender).into_iter().collect::<Value>(),
            "tags": [{ "name": "delivery", "value": letter.tag }],
        });
        set_text(&mut email, "html", content.html);
        set_text(&mut email, "text", content.text);
        if let Some(reply_to) = &sender.reply_to {
            set_text(&mut email, "reply_to", reply_to.reveal());
        }
        email
    }
}

#[async_trait]
impl Mailer for Resend {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        cut(messages, self.0.account.per_call(MOST), MOST_BYTES)
    }

    async fn send(&self, reference: &str, messages: &[Message], permit: &Permit) -> Vec<Outcome> {
        let body = |ready: &[Letter<'_>]| {
            let mut body = Body::json(&self.body(ready));
            let key = ("idempotency-key", reference.to_owned());
            body.headers.push(key);
            body
        };
        let judge = |answer: &ProviderResponse, emails| judge(answer, reference, emails);
        post(messages, permit, (&self.0, "/emails/batch"), body, judge).await
    }

    fn certainty(&self) -> Certainty {
        Certainty::Repeat { within: Some(KEPT) }
    }

    async fn check(&self) -> Checked {
        let answer = self.0.get("/domains").await;
        let (_, found) = status_and_body(&answer);
        if found["data"].is_array() {
            return self.check_domain(&found).await;
        }
        // A key that may only send gets this error for every other request.
        if found["name"] == "restricted_api_key" {
            return Checked::ready("Resend knows the key; it may only send, which is enough");
        }
        invalid("Resend", answer, said, "put a valid one into mail.key")
    }

    fn name(&self) -> &str {
        "resend"
    }

    fn account(&self) -> String {
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

fn said(answer: &ProviderResponse) -> String {
    let value = answer.value();
    let name = value["name"].as_str().filter(|name| !name.is_empty());
    let message = value["message"].as_str().unwrap_or_default();
    answer.said(name.map(|name| format!("{name}: {message}")))
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &ProviderResponse, reference: &str, emails: usize) -> Vec<Outcome> {
    let value = answer.value();
    if answer.is_success() {
        let ids = value["data"].as_array().into_iter().flatten();
        let ids = ids.map(|item| Some(item["id"].as_str()?.to_owned()));
        let ids: Option<Vec<String>> = ids.collect();
        return match ids.filter(|ids| ids.len() == emails) {
            Some(ids) => ids.into_iter().map(Outcome::Accepted).collect(),
            None => all(without_id("Resend", answer), emails),
        };
    }
    let reason = format!("Resend: {}", said(answer));
    let later =
        |least: Option<Duration>| Outcome::TryLater(reason.clone(), answer.wait().max(least));
    let outcome = match (answer.status, value["name"].as_str().unwrap_or_default()) {
        (429, "daily_quota_exceeded" | "monthly_quota_exceeded") => later(Some(QUOTA)),
        // An earlier attempt used this key with another body, so Resend has accepted the call. It
        // does not return the ids, so the key replaces them. A reference belongs to fixed
        // deliveries, so the recipients are the same.
        (409, "invalid_idempotent_request") => Outcome::Accepted(reference.to_owned()),
        (409, _) => later(None),
        // The call can be repeated under its key, also if the outcome is unknown.
        _ => usual(answer, reason),
    };
    all(outcome, emails)
}

/// The tolerance of Svix's own libraries.
const OLDEST: TimeDelta = TimeDelta::minutes(5);
/// The maximum number of signatures to try. There are several while the key is rotated.
const MOST_SIGNATURES: usize = 8;

/// Decodes the part after `whsec_`.
pub(super) fn key(text: &str) -> Result<Vec<u8>, &'static str> {
    let text = text.trim_start_matches("whsec_");
    let key = BASE64_STANDARD.decode(text).ok();
    key.filter(|key| !key.is_empty()).ok_or("is not a signing secret: whsec_ and Base64")
}

/// Verifies and reads a report, which Svix posts: HMAC-SHA256 over id, timestamp and body.
///
/// Svix signs each attempt anew. All attempts have the same id, which identifies repeated reports.
pub(super) fn read(posted: &Posted<'_>) -> Result<VerifiedReports, HookRejection> {
    let id = posted.needs("svix-id")?;
    let timestamp = posted.needs("svix-timestamp")?;
    let signatures = posted.needs("svix-signature")?;
    let key = hmac::Key::new(hmac::HMAC_SHA256, posted.key);
    let signed = [format!("{id}.{timestamp}.").as_bytes(), posted.body].concat();
    let signatures = signatures.split_ascii_whitespace().take(MOST_SIGNATURES);
    let ours = signatures
        .filter_map(|signature| BASE64_STANDARD.decode(signature.strip_prefix("v1,")?).ok())
        .any(|signature| hmac::verify(&key, &signed, &signature).is_ok());
    if !ours {
        return Err(wrong_signature());
    }
    posted.fresh(timestamp, OLDEST)?;

    let report = report(id, &parse(posted.body)?, posted.now)?;
    Ok(VerifiedReports::of(report))
}

fn report(
    id: &str,
    event: &Value,
    now: DateTime<Utc>,
) -> Result<Option<EmailReport>, HookRejection> {
    let event_type = event["type"].as_str().ok_or_else(HookRejection::incomplete)?;
    let data = &event["data"];
    let bounce = &data["bounce"];
    let (kind, sub_kind) = (bounce["type"].as_str(), bounce["subType"].as_str());
    // The replies of the recipients' servers, or a single one.
    let replies = &bounce["diagnosticCode"];
    let replies = replies.as_array().map_or(std::slice::from_ref(replies), Vec::as_slice);
    let replies: Vec<&str> = replies.iter().filter_map(Value::as_str).collect();
    let status = replies.first().copied().and_then(status_in);
    let news = match event_type {
        "email.delivered" => ReportKind::Delivered,
        "email.delivery_delayed" => ReportKind::Delayed,
        "email.bounced" => {
            failed(replies.into_iter().map(Some), by_type(kind.or(Some("Permanent")), sub_kind))
        }
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
        Some(list) => {
            let ours = list.iter().find(|tag| tag["name"] == "delivery");
            ours.and_then(|tag| tag["value"].as_str())
        }
        None => tags["delivery"].as_str(),
    };
    let (recipient, at) = (only_text(&data["to"])?, time_in(&event["created_at"])?);
    let known_as = data["email_id"].as_str();
    Ok(Some(EmailReport {
        provider_ids: Vec::from_iter(known_as.map(str::to_owned)),
        detail: detail([kind, sub_kind, status.as_deref()]),
        ..EmailReport::of(id, news, tag, recipient, at, now)
    }))
}

#[cfg(test)]
#[path = "resend_tests.rs"]
mod tests;
