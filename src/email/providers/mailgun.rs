//! Mailgun: one content per call, with variables for up to 1,000 recipients.
//!
//! Mailgun shows each recipient all others, unless each has variables, so each has (P8). Text that
//! looks like a variable is broken up and never replaced. The reference of a call determines its
//! `Message-Id`, by which Mailgun can be queried after a lost answer (P2, P5).
//! `docs/decisions/0006-providers.md` cites the sources. [`read_reports`] verifies reports.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use ring::hmac;
use serde::Deserialize;
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

use crate::domain::{DeliveryId, ReportKind};
use crate::email::api_calls::{KeyHeader, PreparedEmail, group_by_content, post};
use crate::email::hooks::{
    EmailReport, HookRejection, HookRequest, SingleUseToken, VerifiedReports, classify_failure,
    join_details, parse, text_in, wrong_signature,
};
use crate::email::http::{
    Account, ApiClient, MAX_WAIT, ProviderResponse, RequestBody, accepted_outcome,
    failed_key_check, ledger_line, outcome_of_status, repeat_outcome, status_and_body,
};
use crate::email::placeholders::{in_html, in_text};
use crate::email::{
    CheckResult, LinkPlaceholder, Mailer, Message, Outcome, QueryAnswer, QueryFailure,
    RecipientLinks, Resolution, SendPermit,
};

/// The option that names the sending domain at Mailgun.
pub(super) const DOMAIN: &str = "mail.domain";

/// The maximum number of recipients in a call.
const MAX_RECIPIENTS: usize = 1000;
/// The wait after a 402: the account has unpaid bills.
const UNPAID_WAIT: Duration = Duration::from_secs(60 * 60);

/// A mailer for one Mailgun domain.
pub(super) struct Mailgun {
    api: ApiClient,
    domain: String,
}

impl Mailgun {
    pub(super) fn new(account: Account) -> Result<Self, String> {
        let signer = KeyHeader::basic("api", &account.key)?;
        Ok(Self { domain: account.option(DOMAIN), api: ApiClient::new(account, signer)? })
    }

    /// Returns the `Message-Id` that all emails of a call have, without brackets.
    fn message_id(&self, reference: &str) -> String {
        format!("{reference}@{}", self.domain)
    }

    /// Returns the form fields of a call. The emails must have equal content.
    fn fields(&self, reference: &str, emails: &[PreparedEmail<'_>]) -> Vec<(String, String)> {
        let first = &emails[0];
        let content = &first.message.content;
        let mut fields = Vec::with_capacity(emails.len() + 16);
        let mut add = |name: &str, value: String| fields.push((name.to_owned(), value));
        add("from", self.api.from.clone());
        for email in emails {
            add("to", in_text(&email.to).into_owned());
        }
        add("subject", first.subject.clone());
        if !content.text.is_empty() {
            add("text", content.text.write(in_text, variable));
        }
        if !content.html.is_empty() {
            add("html", content.html.write(in_html, variable));
        }
        if let Some(reply_to) = &self.api.account.sender.reply_to {
            add("h:Reply-To", reply_to.reveal().to_owned());
        }
        add("h:Message-Id", format!("<{}>", self.message_id(reference)));
        for (name, value) in &first.headers {
            let value = match name.as_str() {
                "List-Unsubscribe" => format!("<{UNSUBSCRIBE}>"),
                _ => value.clone(),
            };
            add(&format!("h:{name}"), value);
        }
        add("v:delivery", "%recipient.delivery%".into());
        add("o:tracking", "no".into());
        let variables: Value =
            emails.iter().map(|email| (email.address(), variables_of(email))).collect();
        add("recipient-variables", variables.to_string());
        fields
    }

    /// Returns whether Mailgun accepted the call with this `Message-Id`.
    async fn has_accepted(&self, message_id: &str) -> Result<bool, QueryFailure> {
        let (domain, encoded_id) = (&self.domain, message_id.replace('@', "%40"));
        let path = format!("/v3/{domain}/events?event=accepted&limit=1&message-id={encoded_id}");
        let answer = self.api.get(&path).await?;
        if answer.status != 200 {
            return Err(QueryFailure {
                reason: format!("Mailgun: {}", describe(&answer)),
                min_wait: answer.wait(),
            });
        }
        let page = answer.json();
        let Some(events) = page["items"].as_array() else {
            return Err("Mailgun's list of events cannot be read".into());
        };
        let is_ours = |event: &Value| {
            let id = event["message"]["headers"]["message-id"].as_str();
            id.map(|id| id.trim_matches(['<', '>'])) == Some(message_id)
        };
        if !events.iter().all(is_ours) {
            return Err("Mailgun listed events that were not requested".into());
        }
        Ok(!events.is_empty())
    }
}

const UNSUBSCRIBE: &str = "%recipient.unsubscribe%";

/// Returns the variable that Mailgun replaces with a recipient's link.
fn variable(placeholder: LinkPlaceholder) -> &'static str {
    match placeholder {
        LinkPlaceholder::Unsubscribe => UNSUBSCRIBE,
        LinkPlaceholder::Preferences => "%recipient.preferences%",
        LinkPlaceholder::Mute => "%recipient.mute%",
    }
}

fn variables_of(email: &PreparedEmail<'_>) -> Value {
    let mut variables = json!({ "delivery": email.tag });
    for (placeholder, link) in email.message.links.iter().flat_map(RecipientLinks::links) {
        variables[placeholder.as_str()] = link.into();
    }
    variables
}

/// Encodes fields as `multipart/form-data` (RFC 7578). Equal fields have an equal boundary.
fn form(reference: &str, fields: &[(String, String)]) -> RequestBody {
    let mut boundary = format!("tidings-{reference}");
    while fields.iter().any(|(_, value)| value.contains(&boundary)) {
        boundary.push('-');
    }
    let mut body = String::new();
    for (name, value) in fields {
        body.push_str(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        ));
    }
    body.push_str(&format!("--{boundary}--\r\n"));
    let content_type = format!("multipart/form-data; boundary={boundary}");
    RequestBody { headers: vec![("content-type", content_type)], bytes: body.into_bytes() }
}

#[async_trait]
impl Mailer for Mailgun {
    fn split_into_calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        group_by_content(messages, self.api.account.per_call(MAX_RECIPIENTS))
    }

    async fn send(
        &self,
        reference: &str,
        messages: &[Message],
        permit: &SendPermit,
    ) -> Vec<Outcome> {
        let path = format!("/v3/{}/messages", self.domain);
        let body = |emails: &[PreparedEmail<'_>]| form(reference, &self.fields(reference, emails));
        post(messages, permit, (&self.api, &path), body, judge).await
    }

    fn resolution(&self) -> Resolution {
        Resolution::Query
    }

    async fn query_outcomes(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<QueryAnswer> {
        let message_id = self.message_id(reference);
        // Mailgun accepts a call as a whole, so one event is enough.
        let answer = match self.has_accepted(&message_id).await {
            Ok(true) => QueryAnswer::Accepted(message_id),
            Ok(false) => QueryAnswer::NotAccepted,
            Err(silence) => QueryAnswer::Failed(silence),
        };
        vec![answer; deliveries.len()]
    }

    async fn check(&self) -> CheckResult {
        let domain = &self.domain;
        let answer = self.api.get(&format!("/v4/domains/{domain}")).await;
        let (status, body) = status_and_body(&answer);
        match (status, body["domain"]["state"].as_str()) {
            (200, Some("active")) => CheckResult::Ready(
                format!("Mailgun knows the key, and {domain} is active"),
                dkim_names(&body),
            ),
            (200, Some(state)) => CheckResult::wrong(
                format!("Mailgun knows the key, but {domain} is {}", ledger_line(state)),
                "finish its DNS records at Mailgun",
            ),
            (404, _) => CheckResult::wrong(
                format!("Mailgun does not know {domain}"),
                "set mail.domain to a domain of the account, and mail.region to where it is",
            ),
            _ => {
                let remedy = "put an API key of the account into mail.key (a sending key can send, but not be checked)";
                failed_key_check("Mailgun", answer, describe, remedy)
            }
        }
    }

    fn name(&self) -> &str {
        "mailgun"
    }

    fn account_id(&self) -> String {
        format!("{} {}", self.api.account(self.name()), self.domain)
    }
}

/// Returns the names of the domain's DKIM keys, among the records that its owner adds to the DNS.
fn dkim_names(domain: &Value) -> Vec<String> {
    let records = domain["sending_dns_records"].as_array().into_iter().flatten();
    let names = records.filter_map(|record| record["name"].as_str());
    names.filter(|name| name.contains("._domainkey.")).map(str::to_owned).collect()
}

fn describe(answer: &ProviderResponse) -> String {
    answer.describe(answer.json()["message"].as_str().map(str::to_owned))
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &ProviderResponse, email_count: usize) -> Vec<Outcome> {
    let reason = format!("Mailgun: {}", describe(answer));
    let after = answer.wait().or_else(|| wait_in(&reason));
    let outcome = match answer.status {
        // Reports name the id without brackets.
        200..300 => accepted_outcome("Mailgun", answer, answer.json()["id"].as_str()),
        429 | 500 | 502..=504 => Outcome::TryLater(reason, after),
        402 => Outcome::TryLater(reason, after.max(Some(UNPAID_WAIT))),
        _ => outcome_of_status(answer, reason),
    };
    repeat_outcome(outcome, email_count)
}

/// Returns the wait that Mailgun names in its message: "… try again after 30 seconds".
fn wait_in(text: &str) -> Option<Duration> {
    let (_, rest) = text.split_once("try again after ")?;
    let (number, unit) = rest.split_once(' ')?;
    let number: u64 = number.parse().ok()?;
    let seconds = match unit {
        unit if unit.starts_with("second") => 1,
        unit if unit.starts_with("minute") => 60,
        unit if unit.starts_with("hour") => 3600,
        _ => return None,
    };
    Some(Duration::from_secs(number.checked_mul(seconds)?).min(MAX_WAIT))
}

/// Mailgun retries for eight hours. The rest is a margin.
const MAX_REPORT_AGE: TimeDelta = TimeDelta::hours(12);

#[derive(Deserialize)]
struct SignedBody {
    signature: Signature,
}

#[derive(Deserialize)]
struct Signature {
    timestamp: String,
    token: String,
    signature: String,
}

impl Signature {
    fn is_valid(&self, key: &[u8]) -> bool {
        let key = hmac::Key::new(hmac::HMAC_SHA256, key);
        let signed = format!("{}{}", self.timestamp, self.token);
        let given = hex::decode(&self.signature).unwrap_or_default();
        hmac::verify(&key, signed.as_bytes(), &given).is_ok()
    }
}

/// Verifies and reads a report: HMAC-SHA256 over timestamp and token, inside the body.
///
/// The signature is verified before anything else is built from the body. It does **not** cover the
/// event, so a token is bound to the first event that it arrives with ([`SingleUseToken`]).
/// Mailgun does not document whether it signs each attempt anew, so a timestamp may be as old as
/// the first attempt.
pub(super) fn read_reports(posted: &HookRequest<'_>) -> Result<VerifiedReports, HookRejection> {
    let SignedBody { signature } = serde_json::from_slice(posted.body)
        .map_err(|_| HookRejection::unverified("the body is not JSON with a signature"))?;
    if !signature.is_valid(posted.key) {
        return Err(wrong_signature());
    }
    let signed_at = posted.parse_signed_time(&signature.timestamp, MAX_REPORT_AGE)?;

    let body: Value = parse(posted.body)?;
    let event = &body["event-data"];
    let status = &event["delivery-status"];
    // A retry may order the fields differently, so the digest covers the values that are read here.
    let values = [
        &event["event"],
        &event["id"],
        &event["timestamp"],
        &event["recipient"],
        &event["severity"],
        &event["reason"],
        &status["code"],
        &status["enhanced-code"],
        &status["message"],
        &event["message"]["headers"]["message-id"],
        &event["user-variables"]["delivery"],
    ];
    let digest = Sha256::digest(serde_json::to_vec(&values).map_err(HookRejection::unreadable)?);
    let once = SingleUseToken {
        token: signature.token,
        body_digest: hex::encode(digest),
        expires_at: signed_at + MAX_REPORT_AGE,
    };
    Ok(VerifiedReports {
        single_use_token: Some(once),
        ..VerifiedReports::from_report(report(event, posted.now)?)
    })
}

fn report(event: &Value, now: DateTime<Utc>) -> Result<Option<EmailReport>, HookRejection> {
    let (Some(event_type), Some(id), Some(seconds)) =
        (event["event"].as_str(), event["id"].as_str(), event["timestamp"].as_f64())
    else {
        return Err(HookRejection::incomplete());
    };
    let (reason, status) = (text_in(&event["reason"])?, &event["delivery-status"]);
    let enhanced = text_in(&status["enhanced-code"])?;
    // The reply of the recipient's server.
    let reply = text_in(&status["message"])?;
    let kind = match (event_type, text_in(&event["severity"])?) {
        ("delivered", _) => ReportKind::Delivered,
        ("failed", Some("permanent")) => match reason {
            // Mailgun did not try, because the address is on its suppression list.
            Some("suppress-bounce") => ReportKind::Bounced,
            Some("suppress-unsubscribe") => ReportKind::Unsubscribed,
            Some("suppress-complaint") => ReportKind::Complained,
            // Mailgun gave up after many attempts.
            Some("old") => classify_failure([enhanced, reply], ReportKind::Delayed),
            Some("espblock") => classify_failure([enhanced, reply], ReportKind::Refused),
            _ => classify_failure([enhanced, reply], ReportKind::Bounced),
        },
        ("failed", _) => ReportKind::Delayed,
        ("complained", _) => ReportKind::Complained,
        ("unsubscribed", _) => ReportKind::Unsubscribed,
        _ => return Ok(None),
    };
    let message_id =
        text_in(&event["message"]["headers"]["message-id"])?.map(|id| id.trim_matches(['<', '>']));
    let code = status["code"].as_i64().map(|code| code.to_string());
    let at = DateTime::from_timestamp_millis((seconds * 1000.0) as i64);
    let tag = event["user-variables"]["delivery"].as_str();
    let recipient = text_in(&event["recipient"])?;
    Ok(Some(EmailReport {
        // With the brackets that the header has, and without.
        provider_ids: message_id.map_or_else(Vec::new, |id| vec![format!("<{id}>"), id.to_owned()]),
        detail: match kind {
            ReportKind::Delivered => None,
            _ => join_details([code.as_deref(), enhanced, reason]),
        },
        ..EmailReport::new(id, kind, tag, recipient, at, now)
    }))
}

#[cfg(test)]
#[path = "mailgun_tests.rs"]
mod tests;
