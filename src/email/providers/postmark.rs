//! Postmark: up to 500 emails per call, each with an outcome of its own.
//!
//! A status of 200 accepts nothing; the error code of each email decides. After a lost answer the
//! call is not repeated but queried (P2, P5). Each email carries the call's reference and its
//! delivery as metadata, by which the list of sent emails can be searched.
//! `docs/decisions/0006-providers.md` cites the sources. [`read`] verifies reports.

use std::collections::HashMap;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use serde::Deserialize;
use serde_json::{Value, json};

use crate::domain::{DeliveryId, EnhancedStatus, ReportKind};
use crate::email::hooks::{
    Posted, Refused, Report, Verified, detail, failed, json as parse, time_in,
};
use crate::email::http::{Account, Answer, Api, Body, all, unexpected, unreached, usual, words};
use crate::email::letter::{Letter, Letters, cut, from};
use crate::email::mime::tag;
use crate::email::sign::Proof;
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
    account: Account,
    api: Api,
    from: String,
    /// The message stream. Digests belong in a broadcast stream.
    stream: String,
}

/// Postmark's answer for one email or for a whole call.
#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Item {
    error_code: i64,
    #[serde(default)]
    message: String,
    #[serde(rename = "MessageID")]
    message_id: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Sent {
    total_count: usize,
    messages: Vec<SentMail>,
}

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SentMail {
    #[serde(rename = "MessageID")]
    message_id: String,
    metadata: HashMap<String, String>,
}

impl Postmark {
    /// Creates a mailer. Fails if the key cannot be a header value, the sender's address is
    /// invalid, or this machine has no root certificates.
    pub(super) fn new(account: Account) -> Result<Self, String> {
        Ok(Self {
            api: Api::new(
                &account,
                Proof::header("x-postmark-server-token", &account.key)?,
            )?,
            from: from(&account.sender)?,
            stream: account.option(STREAM),
            account,
        })
    }

    fn body(&self, reference: &str, letters: &[Letter<'_>]) -> Value {
        let mails = letters.iter();
        mails.map(|letter| self.mail(reference, letter)).collect()
    }

    fn mail(&self, reference: &str, letter: &Letter<'_>) -> Value {
        let sender = &self.account.sender;
        let content = letter.message.filled();
        // Without this header, Postmark replaces our `Message-ID`.
        let keep = ("X-PM-KeepID".to_owned(), "true".to_owned());
        let headers: Vec<Value> = letter
            .all_headers(sender)
            .into_iter()
            .chain([keep])
            .map(|(name, value)| json!({ "Name": name, "Value": value }))
            .collect();
        let mut mail = json!({
            "From": self.from,
            "To": letter.to,
            "Subject": letter.subject,
            "Headers": headers,
            "Metadata": { "delivery": letter.tag, "call": reference },
            "MessageStream": self.stream,
            "TrackOpens": false,
            "TrackLinks": "None",
        });
        for (part, said) in [("HtmlBody", content.html), ("TextBody", content.text)] {
            if !said.is_empty() {
                mail[part] = said.into();
            }
        }
        if let Some(reply_to) = &sender.reply_to {
            mail["ReplyTo"] = reply_to.reveal().into();
        }
        if let Some(tag) = self.account.tags.first() {
            mail["Tag"] = tag.as_str().into();
        }
        mail
    }
}

/// Returns the name of a message stream if it is valid.
pub(super) fn stream(text: &str) -> Option<String> {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    text.bytes().all(known).then(|| text.to_owned())
}

#[async_trait]
impl Mailer for Postmark {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        cut(messages, self.account.per_call(MOST), MOST_BYTES)
    }

    async fn send(&self, reference: &str, messages: &[Message], permit: &Permit) -> Vec<Outcome> {
        let body = |ready: &[Letter<'_>]| Body::json(&self.body(reference, ready));
        Letters::post(messages, permit, (&self.api, "/email/batch"), body, judge).await
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
        let answer = match self.api.get("/server").await {
            Ok(answer) => answer,
            Err(failed) => return unreached("Postmark", failed),
        };
        match (answer.status, answer.value()["Name"].as_str()) {
            (200, Some(name)) => Checked::ready(format!("Postmark knows the key of {name:?}")),
            (401 | 403, _) => Checked::wrong(
                format!("Postmark turned the key away ({})", answer.said()),
                "put a server's API token into mail.key",
            ),
            _ => unexpected("Postmark", &answer.said()),
        }
    }

    fn name(&self) -> &str {
        "postmark"
    }

    fn account(&self) -> String {
        self.api.account(self.name())
    }
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &Answer, mails: usize) -> Vec<Outcome> {
    if (200..300).contains(&answer.status) {
        return match answer.json::<Vec<Value>>() {
            Some(items) if items.len() == mails => items.into_iter().map(one).collect(),
            _ => {
                let reason = format!("Postmark answered {}, but not for each mail", answer.status);
                all(Outcome::Unknown { reason }, mails)
            }
        };
    }
    let item: Option<Item> = answer.json();
    let reason = match &item {
        Some(item) => said(answer.status, item),
        None => format!("Postmark: {}", answer.said()),
    };
    let outcome = match (answer.status, item) {
        (422, Some(item)) => meaning(&item, reason),
        _ => usual(answer, reason),
    };
    all(outcome, mails)
}

/// Returns the outcome of one email, from its item in the answer.
fn one(item: Value) -> Outcome {
    match serde_json::from_value::<Item>(item) {
        Ok(Item {
            error_code: 0,
            message_id: Some(provider_id),
            ..
        }) => Outcome::Accepted { provider_id },
        Ok(item) if item.error_code != 0 => meaning(&item, said(200, &item)),
        Ok(_) | Err(_) => Outcome::Unknown {
            reason: "Postmark answered 200, but for this mail in no form we know".into(),
        },
    }
}

fn said(status: u16, item: &Item) -> String {
    words(&format!(
        "Postmark: {status}, code {}: {}",
        item.error_code, item.message
    ))
}

/// Returns the outcome that an error code other than 0 means.
fn meaning(item: &Item, reason: String) -> Outcome {
    match item.error_code {
        // Maintenance, and too many requests.
        100 | 429 => Outcome::TryLater {
            reason,
            after: None,
        },
        406 => Outcome::Undeliverable { reason },
        // Token, sender signature, credits, or an account that is not approved or may not send.
        10 | 400 | 401 | 405 | 412 | 413 => Outcome::Stop { reason },
        _ => Outcome::Refused { reason },
    }
}

/// Interprets the list of sent emails for some deliveries of a call.
fn found(answer: &Answer, reference: &str, deliveries: &[DeliveryId]) -> Vec<QueryAnswer> {
    let silent = |silence: Silence| vec![QueryAnswer::Silent(silence); deliveries.len()];
    if answer.status != 200 {
        return silent(Silence {
            reason: format!("Postmark: {}", answer.said()),
            after: answer.wait(),
        });
    }
    let Some(sent) = answer.json::<Sent>() else {
        return silent("Postmark's list of sent mails cannot be read".into());
    };
    let ours = |mail: &SentMail| {
        mail.metadata
            .get("call")
            .is_some_and(|call| call == reference)
    };
    if !sent.messages.iter().all(ours) {
        return silent("Postmark listed mails that were not asked for".into());
    }
    let whole = sent.total_count == sent.messages.len();
    let ids: HashMap<&str, &str> = (sent.messages.iter())
        .filter_map(|mail| Some((mail.metadata.get("delivery")?.as_str(), &*mail.message_id)))
        .collect();
    let answer = |delivery: &DeliveryId| match ids.get(tag(delivery).as_str()) {
        Some(id) => QueryAnswer::Accepted {
            provider_id: (*id).to_owned(),
        },
        None if whole => QueryAnswer::NotAccepted,
        None => QueryAnswer::Silent("Postmark's list of sent mails is longer than it shows".into()),
    };
    deliveries.iter().map(answer).collect()
}

/// Verifies and reads a report. There is no signature, but user and password in the hook's URL
/// (basic authentication), so the hook needs HTTPS. There is no signed time: a repeated report is
/// recognized by its id, and has no further effect.
pub(super) fn read(
    login: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    posted.has_login(login)?;
    let report = report(&parse(posted.body)?, now)?;
    Ok(Verified::of(report))
}

fn report(record: &Value, now: DateTime<Utc>) -> Result<Option<Report>, Refused> {
    let text = |name: &str| record[name].as_str();
    let what = text("RecordType").ok_or_else(Refused::incomplete)?;
    // The details are the reply of the recipient's server.
    let (kind, details) = (text("Type"), text("Details"));
    let suppressed = text("SuppressionReason");
    let news = match what {
        "Delivery" => Some(ReportKind::Delivered),
        "SpamComplaint" => Some(ReportKind::Complained),
        "Bounce" => bounced(
            kind.unwrap_or_default(),
            record["Inactive"] == true,
            details,
        ),
        "SubscriptionChange" if record["SuppressSending"] == true => Some(match suppressed {
            Some("HardBounce") => ReportKind::Bounced,
            Some("SpamComplaint") => ReportKind::Complained,
            _ => ReportKind::Unsubscribed,
        }),
        _ => None,
    };
    let Some(news) = news else { return Ok(None) };
    let message = text("MessageID").unwrap_or_default();
    let changed = time_in(&record["ChangedAt"])?;
    let at = time_in(&record["DeliveredAt"])?.or(time_in(&record["BouncedAt"])?);
    let id = match (record["ID"].as_i64(), changed) {
        (Some(id), _) => format!("{what} {id}"),
        (None, Some(changed)) => format!("{what} {message} {changed}"),
        (None, None) => format!("{what} {message}"),
    };
    let code = record["TypeCode"].as_i64().map(|code| code.to_string());
    let status = details.and_then(EnhancedStatus::in_reply);
    let status = status.map(|status| status.to_string());
    let tag = record["Metadata"]["delivery"].as_str();
    let recipient = text("Recipient").or(text("Email"));
    Ok(Some(Report {
        provider_ids: vec![message.to_owned()],
        detail: detail([kind, code.as_deref(), suppressed, status.as_deref()]),
        ..Report::of(id, news, tag, recipient, at.or(changed), now)
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
