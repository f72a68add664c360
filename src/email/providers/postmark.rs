//! Postmark: up to 500 emails per call, each with an outcome of its own.
//!
//! A status of 200 accepts nothing; the error code of each email decides. After a lost answer the
//! call is not repeated but queried (P2, P5). Each email carries the call's reference and its
//! delivery as metadata, by which the list of sent emails can be searched.
//! `docs/decisions/0006-providers.md` cites the sources. [`read_reports`] verifies reports.

use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::domain::{DeliveryId, ReportKind};
use crate::email::api_calls::{KeyHeader, PreparedEmail, post, set_text, split_by_size};
use crate::email::hooks::{
    EmailReport, HookRejection, HookRequest, VerifiedReports, classify_failure, join_details,
    parse, status_in, time_in,
};
use crate::email::http::{
    Account, ApiClient, ProviderResponse, RequestBody, failed_key_check, ledger_line,
    missing_id_outcome, outcome_of_status, repeat_outcome, status_and_body,
};
use crate::email::mime::delivery_tag;
use crate::email::{
    CheckResult, Mailer, Message, Outcome, QueryAnswer, QueryFailure, Resolution, SendPermit,
};

/// The option that names the message stream.
pub(super) const STREAM: &str = "mail.stream";

/// The maximum number of emails in a call.
const MAX_EMAILS: usize = 500;
/// The maximum size of the content of a call in bytes. Postmark accepts 50 MB, and JSON escapes
/// enlarge the content.
const MAX_CONTENT_BYTES: usize = 20_000_000;

/// A mailer for one Postmark server, which is what an API token belongs to.
pub(super) struct Postmark {
    api: ApiClient,
    /// The message stream. Digests belong in a broadcast stream.
    stream: String,
}

impl Postmark {
    pub(super) fn new(account: Account) -> Result<Self, String> {
        let signer = KeyHeader::header("x-postmark-server-token", &account.key)?;
        Ok(Self { stream: account.option(STREAM), api: ApiClient::new(account, signer)? })
    }

    fn body(&self, reference: &str, emails: &[PreparedEmail<'_>]) -> Value {
        emails.iter().map(|email| self.email_json(reference, email)).collect()
    }

    fn email_json(&self, reference: &str, email: &PreparedEmail<'_>) -> Value {
        let sender = &self.api.account.sender;
        let content = email.message.fill_links();
        // Without this header, Postmark replaces our `Message-ID`.
        let keep_id = ("X-PM-KeepID".to_owned(), "true".to_owned());
        let headers: Value = email
            .all_headers(sender)
            .into_iter()
            .chain([keep_id])
            .map(|(name, value)| json!({ "Name": name, "Value": value }))
            .collect();
        let mut object = json!({
            "From": self.api.from,
            "To": email.to,
            "Subject": email.subject,
            "Headers": headers,
            "Metadata": { "delivery": email.tag, "call": reference },
            "MessageStream": self.stream,
            "TrackOpens": false,
            "TrackLinks": "None",
        });
        set_text(&mut object, "HtmlBody", content.html);
        set_text(&mut object, "TextBody", content.text);
        if let Some(reply_to) = &sender.reply_to {
            set_text(&mut object, "ReplyTo", reply_to.reveal());
        }
        object
    }
}

#[async_trait]
impl Mailer for Postmark {
    fn split_into_calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        split_by_size(messages, self.api.account.per_call(MAX_EMAILS), MAX_CONTENT_BYTES)
    }

    async fn send(
        &self,
        reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome> {
        let body = |emails: &[PreparedEmail<'_>]| RequestBody::json(&self.body(reference, emails));
        post(messages, permit, (&self.api, "/email/batch"), body, judge).await
    }

    fn resolution(&self) -> Resolution {
        Resolution::Query
    }

    async fn query_outcomes(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<QueryAnswer> {
        let path = format!(
            "/messages/outbound?count={MAX_EMAILS}&offset=0&messagestream={}&metadata_call={reference}",
            self.stream
        );
        match self.api.get(&path).await {
            Ok(answer) => query_answers(&answer, reference, deliveries),
            Err(no_answer) => vec![QueryAnswer::Failed(no_answer.into()); deliveries.len()],
        }
    }

    async fn check(&self) -> CheckResult {
        let answer = self.api.get("/server").await;
        match status_and_body(&answer) {
            (200, server) if server["Name"].is_string() => {
                CheckResult::ready(format!("Postmark knows the key of {}", server["Name"]))
            }
            _ => {
                let remedy = "put a server's API token into mail.key";
                failed_key_check("Postmark", answer, describe_answer, remedy)
            }
        }
    }

    fn name(&self) -> &str {
        "postmark"
    }

    fn account_id(&self) -> String {
        self.api.account(self.name())
    }
}

fn describe_answer(answer: &ProviderResponse) -> String {
    answer.describe(None)
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &ProviderResponse, email_count: usize) -> Vec<Outcome> {
    let body = answer.json();
    if answer.is_success() {
        return match body.as_array().filter(|items| items.len() == email_count) {
            Some(items) => items.iter().map(|item| outcome_of_item(answer, item)).collect(),
            None => repeat_outcome(missing_id_outcome("Postmark", answer), email_count),
        };
    }
    let outcome = match (answer.status, body["ErrorCode"].as_i64()) {
        (422, Some(code)) => outcome_of_code(code, describe(answer, &body)),
        _ => outcome_of_status(answer, describe(answer, &body)),
    };
    repeat_outcome(outcome, email_count)
}

/// Returns the outcome of one email, from its item in the answer.
fn outcome_of_item(answer: &ProviderResponse, item: &Value) -> Outcome {
    match (item["ErrorCode"].as_i64(), item["MessageID"].as_str()) {
        (Some(0), Some(id)) => Outcome::Accepted(id.to_owned()),
        (None | Some(0), _) => missing_id_outcome("Postmark", answer),
        (Some(code), _) => outcome_of_code(code, describe(answer, item)),
    }
}

/// Returns the error message of an answer, or of its item for one email.
fn describe(answer: &ProviderResponse, item: &Value) -> String {
    let message = item["Message"].as_str().unwrap_or_default();
    match item["ErrorCode"].as_i64() {
        Some(code) => ledger_line(&format!("Postmark: {}, code {code}: {message}", answer.status)),
        None => format!("Postmark: {}", describe_answer(answer)),
    }
}

/// Returns the outcome that an error code other than 0 means.
fn outcome_of_code(code: i64, reason: String) -> Outcome {
    match code {
        // Maintenance, and too many requests.
        100 | 429 => Outcome::TryLater(reason, None),
        406 => Outcome::Undeliverable(reason),
        // Token, sender signature, credits, or an account that is not approved or may not send.
        10 | 400 | 401 | 405 | 412 | 413 => Outcome::Stop(reason),
        _ => Outcome::Refused(reason),
    }
}

/// Interprets the list of sent emails for some deliveries of a call.
fn query_answers(
    answer: &ProviderResponse,
    reference: &str,
    deliveries: &[DeliveryId],
) -> Vec<QueryAnswer> {
    let silent = |silence: QueryFailure| vec![QueryAnswer::Failed(silence); deliveries.len()];
    if answer.status != 200 {
        return silent(QueryFailure {
            reason: format!("Postmark: {}", describe_answer(answer)),
            min_wait: answer.wait(),
        });
    }
    let list = answer.json();
    let (Some(total), Some(emails)) = (list["TotalCount"].as_u64(), list["Messages"].as_array())
    else {
        return silent("Postmark's list of sent emails cannot be read".into());
    };
    let is_ours = |email: &Value| email["Metadata"]["call"] == reference;
    if !emails.iter().all(is_ours) {
        return silent("Postmark listed emails that were not requested".into());
    }
    let ids = emails.iter().map(|email| {
        let tag = email["Metadata"]["delivery"].as_str()?;
        Some((tag, email["MessageID"].as_str()?))
    });
    let Some(ids) = ids.collect::<Option<HashMap<&str, &str>>>() else {
        return silent("Postmark listed emails without an id or a delivery".into());
    };
    let is_complete = total == emails.len() as u64;
    let answer = |delivery: &DeliveryId| match ids.get(delivery_tag(delivery).as_str()) {
        Some(id) => QueryAnswer::Accepted((*id).to_owned()),
        None if is_complete => QueryAnswer::NotAccepted,
        None => QueryAnswer::Failed("Postmark listed only a part of the sent emails".into()),
    };
    deliveries.iter().map(answer).collect()
}

/// Verifies and reads a report. There is no signature, but user and password in the hook's URL
/// (basic authentication), so the hook needs HTTPS. There is no signed time: a repeated report is
/// recognized by its id, and has no further effect.
pub(super) fn read_reports(posted: &HookRequest<'_>) -> Result<VerifiedReports, HookRejection> {
    posted.check_login()?;
    Ok(VerifiedReports::from_report(report(&parse(posted.body)?, posted.now)?))
}

fn report(record: &Value, now: DateTime<Utc>) -> Result<Option<EmailReport>, HookRejection> {
    let text = |name: &str| record[name].as_str();
    let record_type = text("RecordType").ok_or_else(HookRejection::incomplete)?;
    let bounce_type = text("Type");
    // The reply of the recipient's server.
    let reply = text("Details");
    let suppression_reason = text("SuppressionReason");
    let kind = match record_type {
        "Delivery" => ReportKind::Delivered,
        "SpamComplaint" => ReportKind::Complained,
        "Bounce" => {
            let is_inactive = record["Inactive"] == true;
            match kind_of_bounce(bounce_type.unwrap_or_default(), is_inactive, reply) {
                Some(kind) => kind,
                None => return Ok(None),
            }
        }
        "SubscriptionChange" if record["SuppressSending"] == true => match suppression_reason {
            Some("HardBounce") => ReportKind::Bounced,
            Some("SpamComplaint") => ReportKind::Complained,
            _ => ReportKind::Unsubscribed,
        },
        _ => return Ok(None),
    };
    let message_id = text("MessageID").unwrap_or_default();
    let changed_at = time_in(&record["ChangedAt"])?;
    let at = time_in(&record["DeliveredAt"])?.or(time_in(&record["BouncedAt"])?);
    let id = match (record["ID"].as_i64(), changed_at) {
        (Some(id), _) => format!("{record_type} {id}"),
        (None, Some(changed_at)) => format!("{record_type} {message_id} {changed_at}"),
        (None, None) => format!("{record_type} {message_id}"),
    };
    let code = record["TypeCode"].as_i64().map(|code| code.to_string());
    let status = reply.and_then(status_in);
    let tag = record["Metadata"]["delivery"].as_str();
    let recipient = text("Recipient").or(text("Email"));
    Ok(Some(EmailReport {
        provider_ids: vec![message_id.to_owned()],
        detail: join_details([bounce_type, code.as_deref(), suppression_reason, status.as_deref()]),
        ..EmailReport::new(&id, kind, tag, recipient, at.or(changed_at), now)
    }))
}

/// Returns the kind of report for a Postmark bounce type, or `None` if it reports no failure.
/// `reply` is that of the recipient's server.
fn kind_of_bounce(bounce_type: &str, is_inactive: bool, reply: Option<&str>) -> Option<ReportKind> {
    let default = match bounce_type {
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
        _ if is_inactive => ReportKind::Bounced,
        _ => ReportKind::Delayed,
    };
    Some(classify_failure([reply], default))
}

#[cfg(test)]
#[path = "postmark_hook_tests.rs"]
mod hook_tests;
#[cfg(test)]
#[path = "postmark_tests.rs"]
mod tests;
