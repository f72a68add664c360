//! Postmark: up to 500 emails per call, each with an outcome of its own.
//!
//! A status of 200 accepts nothing; the error code of each email decides. After a lost answer the
//! call is not repeated but queried (P2, P5). Each email carries the call's reference and its
//! delivery as metadata, by which the list of sent emails can be searched.
//! `docs/decisions/0006-providers.md` cites the sources. [`read`] verifies reports.

use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde_json::{Value, json};

use crate::domain::{DeliveryId, ReportKind};
use crate::email::api_calls::{Letter, Proof, cut, post, set_text};
use crate::email::hooks::{
    EmailReport, HookRejection, Posted, VerifiedReports, detail, failed, json as parse, status_in,
    time_in,
};
use crate::email::http::{
    Account, ApiClient, Body, ProviderResponse, all, invalid, status_and_body, usual, without_id,
    words,
};
use crate::email::mime::tag;
use crate::email::{Certainty, Checked, Mailer, Message, Outcome, Permit, QueryAnswer, Silence};

/// The option that names the message stream.
pub(super) const STREAM: &str = "mail.stream";

/// The maximum number of emails in a call.
const MOST: usize = 500;
/// The maximum size of the content of a call in bytes. Postmark accepts 50 MB, and JSON escapes
/// enlarge the content.
const MOST_BYTES: usize = 20_000_000;

/// A mailer for one Postmark server, which is what an API token belongs to.
pub(super) struct Postmark {
    api: ApiClient,
    /// The message stream. Digests belong in a broadcast stream.
    stream: String,
}

impl Postmark {
    pub(super) fn new(account: Account) -> Result<Self, String> {
        let proof = Proof::header("x-postmark-server-token", &account.key)?;
        Ok(Self { stream: account.option(STREAM), api: ApiClient::new(account, proof)? })
    }

    fn body(&self, reference: &str, letters: &[Letter<'_>]) -> Value {
        let emails = letters.iter();
        emails.map(|letter| self.email(reference, letter)).collect()
    }

    fn email(&self, reference: &str, letter: &Letter<'_>) -> Value {
        let sender = &self.api.account.sender;
        let content = letter.message.filled();
        // Without this header, Postmark replaces our `Message-ID`.
        let keep = ("X-PM-KeepID".to_owned(), "true".to_owned());
        let headers = letter.all_headers(sender).into_iter().chain([keep]);
        let headers = headers.map(|(name, value)| json!({ "Name": name, "Value": value }));
        let mut email = json!({
            "From": self.api.from,
            "To": letter.to,
            "Subject": letter.subject,
            "Headers": headers.collect::<Value>(),
            "Metadata": { "delivery": letter.tag, "call": reference },
            "MessageStream": self.stream,
            "TrackOpens": false,
            "TrackLinks": "None",
        });
        set_text(&mut email, "HtmlBody", content.html);
        set_text(&mut email, "TextBody", content.text);
        if let Some(reply_to) = &sender.reply_to {
            set_text(&mut email, "ReplyTo", reply_to.reveal());
        }
        email
    }
}

#[async_trait]
impl Mailer for Postmark {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        cut(messages, self.api.account.per_call(MOST), MOST_BYTES)
    }

    async fn send(&self, reference: &str, messages: &[Message], permit: &Permit) -> Vec<Outcome> {
        let body = |ready: &[Letter<'_>]| Body::json(&self.body(reference, ready));
        post(messages, permit, (&self.api, "/email/batch"), body, judge).await
    }

    fn certainty(&self) -> Certainty {
        Certainty::Ask
    }

    async fn ask(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<QueryAnswer> {
        let path = format!(
            "/messages/outbound?count={MOST}&offset=0&messagestream={}&metadata_call={reference}",
            self.stream
        );
        match self.api.get(&path).await {
            Ok(answer) => found(&answer, reference, deliveries),
            Err(failed) => vec![QueryAnswer::Silent(failed.into()); deliveries.len()],
        }
    }

    async fn check(&self) -> Checked {
        let answer = self.api.get("/server").await;
        match status_and_body(&answer) {
            (200, server) if server["Name"].is_string() => {
                Checked::ready(format!("Postmark knows the key of {}", server["Name"]))
            }
            _ => {
                let remedy = "put a server's API token into mail.key";
                invalid("Postmark", answer, plain, remedy)
            }
        }
    }

    fn name(&self) -> &str {
        "postmark"
    }

    fn account(&self) -> String {
        self.api.account(self.name())
    }
}

fn plain(answer: &ProviderResponse) -> String {
    answer.said(None)
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &ProviderResponse, emails: usize) -> Vec<Outcome> {
    let value = answer.value();
    if answer.is_success() {
        return match value.as_array().filter(|items| items.len() == emails) {
            Some(items) => items.iter().map(|item| one(answer, item)).collect(),
            None => all(without_id("Postmark", answer), emails),
        };
    }
    let outcome = match (answer.status, value["ErrorCode"].as_i64()) {
        (422, Some(code)) => meaning(code, said(answer, &value)),
        _ => usual(answer, said(answer, &value)),
    };
    all(outcome, emails)
}

/// Returns the outcome of one email, from its item in the answer.
fn one(answer: &ProviderResponse, item: &Value) -> Outcome {
    match (item["ErrorCode"].as_i64(), item["MessageID"].as_str()) {
        (Some(0), Some(id)) => Outcome::Accepted(id.to_owned()),
        (None | Some(0), _) => without_id("Postmark", answer),
        (Some(code), _) => meaning(code, said(answer, item)),
    }
}

/// Returns the words of an answer, or of its item for one email.
fn said(answer: &ProviderResponse, item: &Value) -> String {
    let message = item["Message"].as_str().unwrap_or_default();
    match item["ErrorCode"].as_i64() {
        Some(code) => words(&format!("Postmark: {}, code {code}: {message}", answer.status)),
        None => format!("Postmark: {}", plain(answer)),
    }
}

/// Returns the outcome that an error code other than 0 means.
fn meaning(code: i64, reason: String) -> Outcome {
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
fn found(
    answer: &ProviderResponse,
    reference: &str,
    deliveries: &[DeliveryId],
) -> Vec<QueryAnswer> {
    let silent = |silence: Silence| vec![QueryAnswer::Silent(silence); deliveries.len()];
    if answer.status != 200 {
        return silent(Silence {
            reason: format!("Postmark: {}", plain(answer)),
            after: answer.wait(),
        });
    }
    let sent = answer.value();
    let (Some(total), Some(emails)) = (sent["TotalCount"].as_u64(), sent["Messages"].as_array())
    else {
        return silent("Postmark's list of sent emails cannot be read".into());
    };
    let ours = |email: &Value| email["Metadata"]["call"] == reference;
    if !emails.iter().all(ours) {
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
    let answer = |delivery: &DeliveryId| match ids.get(tag(delivery).as_str()) {
        Some(id) => QueryAnswer::Accepted((*id).to_owned()),
        None if is_complete => QueryAnswer::NotAccepted,
        None => QueryAnswer::Silent("Postmark listed only a part of the sent emails".into()),
    };
    deliveries.iter().map(answer).collect()
}

/// Verifies and reads a report. There is no signature, but user and password in the hook's URL
/// (basic authentication), so the hook needs HTTPS. There is no signed time: a repeated report is
/// recognized by its id, and has no further effect.
pub(super) fn read(posted: &Posted<'_>) -> Result<VerifiedReports, HookRejection> {
    posted.has_login()?;
    let report = report(&parse(posted.body)?, posted.now)?;
    Ok(VerifiedReports::of(report))
}

fn report(record: &Value, now: DateTime<Utc>) -> Result<Option<EmailReport>, HookRejection> {
    let text = |name: &str| record[name].as_str();
    let what = text("RecordType").ok_or_else(HookRejection::incomplete)?;
    // The details are the reply of the recipient's server.
    let (kind, details) = (text("Type"), text("Details"));
    let suppressed = text("SuppressionReason");
    let news = match what {
        "Delivery" => ReportKind::Delivered,
        "SpamComplaint" => ReportKind::Complained,
        "Bounce" => {
            let kind = kind.unwrap_or_default();
            match bounced(kind, record["Inactive"] == true, details) {
                Some(news) => news,
                None => return Ok(None),
            }
        }
        "SubscriptionChange" if record["SuppressSending"] == true => match suppressed {
            Some("HardBounce") => ReportKind::Bounced,
            Some("SpamComplaint") => ReportKind::Complained,
            _ => ReportKind::Unsubscribed,
        },
        _ => return Ok(None),
    };
    let message = text("MessageID").unwrap_or_default();
    let changed = time_in(&record["ChangedAt"])?;
    let at = time_in(&record["DeliveredAt"])?.or(time_in(&record["BouncedAt"])?);
    let id = match (record["ID"].as_i64(), changed) {
        (Some(id), _) => format!("{what} {id}"),
        (None, Some(changed)) => format!("{what} {message} {changed}"),
        (None, None) => format!("{what} {message}"),
    };
    let code = record["TypeCode"].as_i64().map(|code| code.to_string());
    let status = details.and_then(status_in);
    let tag = record["Metadata"]["delivery"].as_str();
    let recipient = text("Recipient").or(text("Email"));
    Ok(Some(EmailReport {
        provider_ids: vec![message.to_owned()],
        detail: detail([kind, code.as_deref(), suppressed, status.as_deref()]),
        ..EmailReport::of(&id, news, tag, recipient, at.or(changed), now)
    }))
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
mod hook_tests;
#[cfg(test)]
#[path = "postmark_tests.rs"]
mod tests;
