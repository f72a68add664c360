//! Amazon SES, API version 2: one email per call, as separate fields, signed with an access key.
//!
//! SES has no idempotency key and cannot be queried, so a lost answer stays unknown (P2, P5). A
//! call holds one email, so that no other is affected. The exception's name decides the outcome,
//! and then the status. `docs/decisions/0006-providers.md` cites the sources, and explains why bulk
//! calls are not used. [`super::ses_account`] checks the account.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::domain::Address;
use crate::email::http::{Account, Answer, Api, Body, all, words};
use crate::email::letter::{Call, Letter, Letters, cut};
use crate::email::mime::mailbox_in_ascii;
use crate::email::sign::Aws;
use crate::email::variables::in_text;
use crate::email::{Certainty, Checked, Leave, Mailer, Message, Outcome};

/// The option that names the access key whose secret is `mail.key`.
pub(super) const KEY_ID: &str = "mail.access_key_id";
/// The option that names the configuration set of all emails.
pub(super) const SET: &str = "mail.configuration_set";

/// The maximum number of additional headers, and the maximum length of one, name and value
/// together.
const MOST_HEADERS: usize = 15;
const MOST_HEADER: usize = 996;
/// The wait after a used-up quota, which SES counts over the last 24 hours.
const QUOTA: Duration = Duration::from_secs(60 * 60);

/// Exceptions after which no email is accepted until an operator acts.
const STOPPING: [&str; 14] = [
    "AccountSuspendedException",
    "SendingPausedException",
    "MailFromDomainNotVerifiedException",
    "NotFoundException",
    "AccessDeniedException",
    "ExpiredTokenException",
    "IncompleteSignature",
    "IncompleteSignatureException",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "NotAuthorized",
    "OptInRequired",
    "RequestExpired",
    "UnrecognizedClientException",
];

/// A mailer for one SES account in one region.
pub(super) struct Ses {
    pub account: Account,
    pub api: Api,
    from: String,
    reply_to: Vec<String>,
    set: String,
}

#[derive(Deserialize)]
struct Taken {
    #[serde(rename = "MessageId")]
    id: String,
}

#[derive(Deserialize, Default)]
struct Fault {
    #[serde(rename = "__type", default)]
    kind: String,
    #[serde(alias = "Message", default)]
    message: String,
}

impl Ses {
    /// Creates a mailer. Fails if the session token cannot be a header value, the sender's address
    /// is invalid, or this machine has no root certificates.
    pub(super) fn new(account: Account) -> Result<Self, String> {
        let signer = Aws {
            id: account.option(KEY_ID),
            secret: account.key.clone(),
            session: account.session.as_ref().map(Aws::session).transpose()?,
            region: account.option("mail.region"),
            service: "ses",
        };
        let sender = &account.sender;
        let reply_to = sender.reply_to.iter();
        Ok(Self {
            api: Api::new(&account, signer)?,
            from: mailbox_in_ascii(&sender.from, Some(&in_text(&sender.from_name)))?,
            reply_to: reply_to
                .map(|address| mailbox_in_ascii(address, None))
                .collect::<Result<_, _>>()?,
            set: account.option(SET),
            account,
        })
    }

    /// Returns the recipient in ASCII, or the reason why SES does not accept the message.
    fn to(message: &Message) -> Result<String, String> {
        let headers = message.headers();
        if headers.len() > MOST_HEADERS {
            return Err(format!("SES takes {MOST_HEADERS} further headers at most"));
        }
        for (name, value) in &headers {
            let fits = |b: u8| b == b' ' || b.is_ascii_graphic();
            if name.len() + value.len() > MOST_HEADER || !value.bytes().all(fits) {
                return Err(format!(
                    "the header {name} is too long for SES, or not of ASCII alone"
                ));
            }
        }
        let name = message.to_name.as_deref().map(in_text);
        mailbox_in_ascii(&message.to, name.as_deref())
    }

    fn body(&self, letter: &Letter<'_>, to: &str) -> Value {
        let part = |text: &str| json!({ "Data": text, "Charset": "UTF-8" });
        let content = letter.message.filled();
        let headers: Vec<Value> = letter
            .headers
            .iter()
            .map(|(name, value)| json!({ "Name": name, "Value": value }))
            .collect();
        let mut tags = vec![json!({ "Name": "delivery", "Value": letter.tag })];
        tags.extend((self.account.tags.iter()).map(|tag| json!({ "Name": tag, "Value": "yes" })));
        let mut says = json!({});
        for (name, said) in [("Html", content.html), ("Text", content.text)] {
            if !said.is_empty() {
                says[name] = part(&said);
            }
        }
        let mut body = json!({
            "FromEmailAddress": self.from,
            "Destination": { "ToAddresses": [to] },
            "Content": { "Simple": {
                "Subject": part(&letter.subject),
                "Body": says,
                "Headers": headers,
            }},
            "EmailTags": tags,
            "ConfigurationOverrides": { "Tracking": {
                "OpenTrackingEnabled": "DISABLED",
                "ClickTrackingEnabled": "DISABLED",
            }},
        });
        if !self.reply_to.is_empty() {
            body["ReplyToAddresses"] = self.reply_to.clone().into();
        }
        if !self.set.is_empty() {
            body["ConfigurationSetName"] = self.set.as_str().into();
        }
        body
    }

    async fn one(&self, message: &Message, leave: &Leave) -> Outcome {
        let to = match Self::to(message) {
            Ok(to) => to,
            Err(reason) => return Outcome::Unsendable { reason },
        };
        let call = |ready: &[Letter<'_>]| Call {
            path: "/v2/email/outbound-emails".into(),
            headers: Vec::new(),
            body: Body::json(&self.body(&ready[0], &to)),
        };
        let judge =
            |answer: &Answer, mails: usize| all(judge(answer, &self.account.sender.from), mails);
        let message = std::slice::from_ref(message);
        let outcomes = Letters::post(message, leave, &self.api, call, judge).await;
        outcomes.into_iter().next().unwrap_or(Outcome::Unknown {
            reason: "SES did not answer for it".into(),
        })
    }
}

#[async_trait]
impl Mailer for Ses {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        cut(messages, 1, usize::MAX)
    }

    async fn send(&self, _reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let mut outcomes = Vec::with_capacity(messages.len());
        for message in messages {
            outcomes.push(self.one(message, leave).await);
        }
        outcomes
    }

    fn certainty(&self) -> Certainty {
        Certainty::Never
    }

    async fn check(&self) -> Checked {
        self.check_account().await
    }

    fn name(&self) -> &str {
        "ses"
    }

    fn account(&self) -> String {
        self.api.account(self.name())
    }
}

/// Returns an exception's name and message. Both may be empty.
fn fault(answer: &Answer) -> (String, String) {
    let Fault { kind, message } = answer.json().unwrap_or_default();
    // A URL may follow the name in the header. A namespace may precede it in the body.
    let named = answer.header("x-amzn-errortype").unwrap_or(&kind);
    let named = named.split(':').next().unwrap_or_default();
    let named = named.rsplit('#').next().unwrap_or_default();
    (named.to_owned(), message)
}

/// Returns the exception's name, and a text for the ledger with status, name and message.
pub(super) fn said(answer: &Answer) -> (String, String) {
    let (name, message) = fault(answer);
    let said = match name.is_empty() && message.is_empty() {
        true => answer.said(),
        false => words(&format!("{} {name}: {message}", answer.status)),
    };
    (name, said)
}

/// Returns the outcome that an answer means for the email of its call.
fn judge(answer: &Answer, from: &Address) -> Outcome {
    if (200..300).contains(&answer.status) {
        return match answer.json::<Taken>() {
            Some(Taken { id }) if !id.is_empty() => Outcome::Accepted { provider_id: id },
            _ => Outcome::Unknown {
                reason: format!(
                    "SES answered {}, but not with the id of a mail",
                    answer.status
                ),
            },
        };
    }
    let (name, message) = fault(answer);
    let reason = format!("Amazon SES: {}", said(answer).1);
    let later = |least: Option<Duration>| Outcome::TryLater {
        reason: reason.clone(),
        after: answer.wait().max(least),
    };
    let quota = message.to_lowercase().contains("quota").then_some(QUOTA);
    match (answer.status, name.as_str()) {
        (429, _) | (_, "TooManyRequestsException" | "ThrottlingException" | "Throttling") => {
            later(quota)
        }
        (_, "LimitExceededException") => later(Some(QUOTA)),
        // The request was aborted, so its effect is unknown.
        (408, _) | (_, "RequestAbortedException" | "RequestTimeoutException") => {
            Outcome::Unknown { reason }
        }
        (500 | 503, _) => later(None),
        // A gateway answered. SES may have accepted the call behind it.
        (501.., _) => Outcome::Unknown { reason },
        (_, name) if STOPPING.contains(&name) => Outcome::Stop { reason },
        (_, "MessageRejected") if is_ours_unverified(&message, from) => Outcome::Stop { reason },
        (300..=399 | 401 | 403 | 404 | 405, _) => Outcome::Stop { reason },
        _ => Outcome::Refused { reason },
    }
}

/// Returns whether the unverified identity is our sender: "Email address is not verified. The
/// following identities failed the check in region EU-WEST-1: digest@art.example". In the sandbox,
/// SES uses the same words for a recipient, which concerns only that email.
fn is_ours_unverified(message: &str, from: &Address) -> bool {
    let message = message.to_lowercase();
    let Some((_, identities)) = message.rsplit_once(':') else {
        return false;
    };
    // SES repeats the address as in the call, in Punycode, or as it was registered.
    let spellings = from.spellings();
    let is_ours = |identity: &str| {
        let names = |from: &Address| identity.contains(from.reveal()) || identity == from.domain();
        spellings.iter().any(names)
    };
    message.contains("not verified") && identities.split(',').map(str::trim).any(is_ours)
}

/// Returns the id of an access key if it is valid.
pub(super) fn key_id(text: &str) -> Option<String> {
    let fits = (16..=128).contains(&text.len()) && text.bytes().all(|b| b.is_ascii_alphanumeric());
    fits.then(|| text.to_owned())
}

/// Returns the name of a configuration set if it is valid.
pub(super) fn set(text: &str) -> Option<String> {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"-_".contains(&b);
    let fits = text.len() <= 64 && text.bytes().all(known);
    fits.then(|| text.to_owned())
}

/// Returns the domain of AWS in this region, if the name has the form of one: `eu-west-1`,
/// `us-gov-east-1`.
pub(super) fn domain_in(region: &str) -> Option<&'static str> {
    let parts: Vec<&str> = region.split('-').collect();
    let letters = |part: &&str| !part.is_empty() && part.bytes().all(|b| b.is_ascii_lowercase());
    let fits = match parts.split_last() {
        Some((number, names)) if (2..=4).contains(&names.len()) && region.len() <= 32 => {
            names.iter().all(letters)
                && !number.is_empty()
                && number.bytes().all(|b| b.is_ascii_digit())
        }
        _ => false,
    };
    let domain = match region.starts_with("cn-") {
        true => "amazonaws.com.cn",
        false => "amazonaws.com",
    };
    fits.then_some(domain)
}

/// Returns the base URL in this region.
pub(super) fn url(region: &str) -> Option<String> {
    domain_in(region).map(|domain| format!("https://email.{region}.{domain}"))
}

#[cfg(test)]
#[path = "ses_tests.rs"]
mod tests;
