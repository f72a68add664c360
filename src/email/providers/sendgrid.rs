//! SendGrid: one content per call, with up to 1,000 personalizations of one recipient each.
//!
//! Substitutions fill the placeholders; headers and our tags are in each personalization. SendGrid
//! cannot be queried, so a lost answer stays unknown (P2, P5). Its tracking and its own
//! unsubscribing are off: links are not rewritten, and the unsubscribe link is ours (P7).
//! `docs/decisions/0006-providers.md` cites the sources. [`read_reports`] verifies reports.

use std::time::Duration;

use async_trait::async_trait;
use base64::prelude::{BASE64_STANDARD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde_json::{Value, json};

use crate::domain::ReportKind;
use crate::email::api_calls::{KeyHeader, PreparedEmail, group_by_content, post, set_text};
use crate::email::hooks::{
    EmailReport, HookRejection, HookRequest, VerifiedReports, classify_failure, join_details,
    parse, text_in, wrong_signature,
};
use crate::email::http::{
    Account, ApiClient, ProviderResponse, RequestBody, accepted_outcome, failed_key_check,
    missing_id_outcome, outcome_of_status, repeat_outcome, status_and_body,
};
use crate::email::mime::one_line;
use crate::email::placeholders::{in_html, in_text};
use crate::email::{
    CheckResult, LinkPlaceholder, Mailer, Message, Outcome, Placeholders, SendPermit,
};

/// The maximum number of recipients in a call.
const MAX_RECIPIENTS: usize = 1000;
/// The wait while SendGrid blocks the account.
const BLOCKED_WAIT: Duration = Duration::from_secs(60 * 60);

/// A mailer for one SendGrid account.
pub(super) struct SendGrid(ApiClient);

impl SendGrid {
    pub(super) fn new(account: Account) -> Result<Self, String> {
        let signer = KeyHeader::bearer(&account.key)?;
        ApiClient::new(account, signer).map(Self)
    }

    /// Returns the body of a call. The emails must have equal content.
    fn body(&self, reference: &str, emails: &[PreparedEmail<'_>]) -> Value {
        let sender = &self.0.account.sender;
        let first = &emails[0];
        let content = &first.message.content;
        // SendGrid replaces these words with each recipient's links. They look like links, because
        // they are where a link is expected, and lead nowhere (RFC 2606). No text contains them,
        // because the reference is computed only now. No two can overlap.
        let placeholders = Placeholders::with(reference);
        let word_for = |placeholder: LinkPlaceholder| placeholders.marker(placeholder);
        let parts: Value = [
            ("text/plain", content.text.write(in_text, word_for)),
            ("text/html", content.html.write(in_html, word_for)),
        ]
        .into_iter()
        .filter(|(_, text)| !text.is_empty())
        .map(|(content_type, text)| json!({ "type": content_type, "value": text }))
        .collect();
        let off = json!({ "enable": false });
        let mut body = json!({
            "personalizations": emails
                .iter()
                .map(|email| self.personalization(reference, email, word_for))
                .collect::<Value>(),
            "from": { "email": sender.from.reveal(), "name": plain_name(&sender.from_name) },
            "subject": first.subject,
            "content": parts,
            "tracking_settings": {
                "click_tracking": { "enable": false, "enable_text": false },
                "open_tracking": off,
                "subscription_tracking": off,
            },
        });
        if let Some(reply_to) = &sender.reply_to {
            body["reply_to"] = json!({ "email": reply_to.reveal() });
        }
        body
    }

    fn personalization<'a>(
        &self,
        reference: &str,
        email: &PreparedEmail<'_>,
        word_for: impl Fn(LinkPlaceholder) -> &'a str,
    ) -> Value {
        let mut to = json!({ "email": email.address() });
        let name = email.message.to_name.as_deref().unwrap_or_default();
        set_text(&mut to, "name", plain_name(name));
        let mut personalization = json!({
            "to": [to],
            "headers": email.all_headers(&self.0.account.sender).into_iter().collect::<Value>(),
            "custom_args": { "delivery": email.tag, "call": reference },
        });
        if let Some(links) = &email.message.links {
            personalization["substitutions"] =
                links.links().map(|(placeholder, link)| (word_for(placeholder), link)).collect();
        }
        personalization
    }
}

/// Returns a name without the characters that separate addresses.
fn plain_name(name: &str) -> String {
    one_line(&name.replace([',', ';'], " "))
}

#[async_trait]
impl Mailer for SendGrid {
    fn split_into_calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        group_by_content(messages, self.0.account.per_call(MAX_RECIPIENTS))
    }

    async fn send(
        &self,
        reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome> {
        let body = |emails: &[PreparedEmail<'_>]| RequestBody::json(&self.body(reference, emails));
        post(messages, permit, (&self.0, "/v3/mail/send"), body, judge).await
    }

    async fn check(&self) -> CheckResult {
        let answer = self.0.get("/v3/scopes").await;
        match status_and_body(&answer).1["scopes"].as_array() {
            Some(scopes) if scopes.iter().any(|scope| scope == "mail.send") => {
                CheckResult::ready("SendGrid knows the key, and it may send")
            }
            Some(_) => CheckResult::wrong(
                "SendGrid knows the key, but it may not send",
                "give it the scope mail.send",
            ),
            None => failed_key_check("SendGrid", answer, describe, "put a valid one into mail.key"),
        }
    }

    fn name(&self) -> &str {
        "sendgrid"
    }

    fn account_id(&self) -> String {
        self.0.account(self.name())
    }
}

/// Returns SendGrid's own errors, if the answer has them.
fn errors(answer: &ProviderResponse) -> Option<Vec<String>> {
    let format_error = |error: &Value| {
        let message = error["message"].as_str()?;
        Some(match error["field"].as_str() {
            Some(field) => format!("{field}: {message}"),
            None => message.to_owned(),
        })
    };
    answer.json()["errors"].as_array()?.iter().map(format_error).collect()
}

fn describe(answer: &ProviderResponse) -> String {
    answer.describe(errors(answer).map(|errors| errors.join("; ")))
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &ProviderResponse, email_count: usize) -> Vec<Outcome> {
    let reason = format!("SendGrid: {}", describe(answer));
    let after = answer.wait();
    let outcome = match answer.status {
        // The answer has no body; status and id are enough.
        202 => accepted_outcome("SendGrid", answer, answer.header("x-message-id")),
        200..300 => missing_id_outcome("SendGrid", answer),
        // SendGrid's own error: it tried and did not accept the call.
        501.. if errors(answer).is_some() => Outcome::TryLater(reason, after),
        401 | 403 if is_temporary(&reason) => {
            Outcome::TryLater(reason, after.max(Some(BLOCKED_WAIT)))
        }
        451 => Outcome::Stop(reason),
        _ => outcome_of_status(answer, reason),
    };
    repeat_outcome(outcome, email_count)
}

/// Returns whether a 401 or 403 is temporary: a block after too many bad requests, or used-up daily
/// or monthly credits.
fn is_temporary(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    ["temporar", "too many", "try again", "credits exceeded"]
        .iter()
        .any(|words| reason.contains(words))
}

/// SendGrid retries for a day. The rest is a margin.
const MAX_REPORT_AGE: TimeDelta = TimeDelta::hours(26);

/// The start of a P-256 public key in DER (RFC 5480): the algorithm, the curve, and the tag of an
/// uncompressed point of 65 bytes.
const P256: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

/// Returns the key as an uncompressed point. The text is the DER key in Base64.
pub(super) fn parse_key(text: &str) -> Result<Vec<u8>, &'static str> {
    match BASE64_STANDARD.decode(text) {
        Ok(der) if der.len() == P256.len() + 64 && der.starts_with(&P256) => {
            Ok(der[P256.len() - 1..].to_vec())
        }
        _ => Err(
            "is not the verification key that SendGrid shows: Base64 that begins with MFkw, on one line",
        ),
    }
}

/// Verifies and reads reports: ECDSA (P-256, SHA-256) over the timestamp and the original body.
///
/// The signature covers the bytes, including the final line break, so the body must not be parsed
/// and rewritten first. Repeated events are recognized by their ids.
pub(super) fn read_reports(posted: &HookRequest<'_>) -> Result<VerifiedReports, HookRejection> {
    let timestamp = posted.required_header("x-twilio-email-event-webhook-timestamp")?;
    let signature = BASE64_STANDARD
        .decode(posted.required_header("x-twilio-email-event-webhook-signature")?)
        .map_err(|_| wrong_signature())?;
    let signed_text = [timestamp.as_bytes(), posted.body].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, posted.key)
        .verify(&signed_text, &signature)
        .map_err(|_| wrong_signature())?;
    posted.parse_signed_time(timestamp, MAX_REPORT_AGE)?;

    let events: Vec<Value> = parse(posted.body)?;
    let mut verified = VerifiedReports::default();
    for event in &events {
        match report(event, posted.now) {
            Ok(Some(report)) => verified.reports.push(report),
            Ok(None) => verified.ignored_count += 1,
            Err(_) => verified.unreadable_count += 1,
        }
    }
    if !events.is_empty() && verified.unreadable_count == events.len() as u64 {
        return Err(HookRejection::unreadable("none of the events has the documented form"));
    }
    Ok(verified)
}

fn report(event: &Value, now: DateTime<Utc>) -> Result<Option<EmailReport>, HookRejection> {
    let text = |name: &str| text_in(&event[name]);
    let (Some(event_type), Some(id), Some(seconds)) =
        (text("event")?, text("sg_event_id")?, event["timestamp"].as_i64())
    else {
        return Err(HookRejection::incomplete());
    };
    let (status, reason) = (text("status")?, text("reason")?);
    let kind = match event_type {
        "delivered" => ReportKind::Delivered,
        "deferred" => ReportKind::Delayed,
        "bounce" => {
            let default = match text("type")? {
                Some("blocked") => ReportKind::Refused,
                _ => ReportKind::Bounced,
            };
            classify_failure([status, reason], default)
        }
        // SendGrid did not try, usually because the address is on its suppression list.
        "dropped" => kind_of_drop(reason.unwrap_or_default()),
        "spamreport" => ReportKind::Complained,
        "unsubscribe" | "group_unsubscribe" => ReportKind::Unsubscribed,
        _ => return Ok(None),
    };
    let at = DateTime::from_timestamp(seconds, 0);
    // The part before the first dot is the id in the answer to the call.
    let message_id = text("sg_message_id")?.and_then(|id| id.split('.').next());
    Ok(Some(EmailReport {
        provider_ids: Vec::from_iter(message_id.map(str::to_owned)),
        detail: join_details([status, text("bounce_classification")?]),
        // Our custom argument is among SendGrid's own fields.
        ..EmailReport::new(id, kind, text("delivery")?, text("email")?, at, now)
    }))
}

fn kind_of_drop(reason: &str) -> ReportKind {
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

#[cfg(test)]
#[path = "sendgrid_tests.rs"]
mod tests;
