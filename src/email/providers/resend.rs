//! Resend: up to 100 emails per call, all or none, with an idempotency key.
//!
//! The call's reference is its `Idempotency-Key`, and a repeated call has an equal body. So a call
//! whose answer was lost can be repeated for a day without a second email (P2, P5).
//! `docs/decisions/0006-providers.md` cites the sources.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::email::http::{Account, Answer, Api, Body, all, answered, heard, unexpected, words};
use crate::email::letter::{Call, Letter, Letters, cut, from};
use crate::email::sign::Proof;
use crate::email::{Certainty, Checked, Leave, Mailer, Message, Outcome};

/// The base URL.
pub(super) const URL: &str = "https://api.resend.com";

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
pub(super) struct Resend {
    account: Account,
    api: Api,
    from: String,
}

#[derive(Deserialize)]
struct Taken {
    data: Vec<Id>,
}

#[derive(Deserialize)]
struct Id {
    id: String,
}

#[derive(Deserialize, Default)]
struct Fault {
    #[serde(default)]
    name: String,
    #[serde(default)]
    message: String,
}

#[derive(Deserialize)]
struct Domains {
    data: Vec<Domain>,
    /// Whether the list has more pages.
    #[serde(default)]
    has_more: bool,
}

#[derive(Deserialize)]
struct Domain {
    id: String,
    name: String,
    status: String,
    #[serde(default)]
    records: Vec<DnsRecord>,
}

/// A record that the domain's owner adds to the DNS.
#[derive(Deserialize)]
struct DnsRecord {
    record: String,
    name: String,
}

impl Domain {
    /// Returns the DNS names of the domain's DKIM keys. Resend's record names are relative to the
    /// registered domain or to one below it, but all of them start with the selector.
    fn dkim(&self) -> Vec<String> {
        let keys = self.records.iter().filter(|record| record.record == "DKIM");
        let selectors = keys.filter_map(|record| record.name.split_once("._domainkey"));
        selectors
            .map(|(selector, _)| format!("{selector}._domainkey.{}", self.name))
            .collect()
    }
}

impl Resend {
    /// Creates a mailer. Fails if the key cannot be a header value, the sender's address is
    /// invalid, or this machine has no root certificates.
    pub(super) fn new(account: Account) -> Result<Self, String> {
        Ok(Self {
            api: Api::new(&account, Proof::bearer(&account.key)?)?,
            from: from(&account.sender)?,
            account,
        })
    }

    /// Checks the sender's domain, after the key was verified.
    async fn check_domain(&self, domains: Domains) -> Checked {
        let from = self.account.sender.from.domain();
        let Some(domain) = domains.data.into_iter().find(|domain| domain.name == from) else {
            return match domains.has_more {
                true => Checked::ready("Resend knows the key"),
                false => Checked::wrong(
                    format!("Resend knows the key, but not the domain {from}"),
                    "add the domain at Resend, or set mail.from to an address of one that is there",
                ),
            };
        };
        if !matches!(domain.status.as_str(), "verified" | "partially_verified") {
            return Checked::wrong(
                format!(
                    "Resend knows the key, but {from} is {}",
                    words(&domain.status)
                ),
                "finish its DNS records at Resend",
            );
        }
        // The list does not include the records.
        let answer = answered(self.api.get(&format!("/domains/{}", domain.id)).await).ok();
        let whole = answer.and_then(|answer| answer.json::<Domain>());
        Checked::Ready {
            found: format!("Resend knows the key, and {from} is verified"),
            dkim: whole.map(|domain| domain.dkim()).unwrap_or_default(),
        }
    }

    fn body(&self, letters: &[Letter<'_>]) -> Value {
        letters.iter().map(|letter| self.mail(letter)).collect()
    }

    fn mail(&self, letter: &Letter<'_>) -> Value {
        let sender = &self.account.sender;
        let content = letter.message.filled();
        let headers: Map<String, Value> = letter
            .all_headers(sender)
            .into_iter()
            .map(|(name, value)| (name, value.into()))
            .collect();
        let mut tags = vec![json!({ "name": "delivery", "value": letter.tag })];
        tags.extend((self.account.tags.iter()).map(|tag| json!({ "name": tag, "value": "yes" })));
        let mut mail = json!({
            "from": self.from,
            "to": [letter.to],
            "subject": letter.subject,
            "headers": headers,
            "tags": tags,
        });
        for (part, said) in [("html", content.html), ("text", content.text)] {
            if !said.is_empty() {
                mail[part] = said.into();
            }
        }
        if let Some(reply_to) = &sender.reply_to {
            mail["reply_to"] = reply_to.reveal().into();
        }
        mail
    }
}

#[async_trait]
impl Mailer for Resend {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        cut(messages, self.account.per_call(MOST), MOST_BYTES)
    }

    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let call = |ready: &[Letter<'_>]| Call {
            path: "/emails/batch".into(),
            headers: vec![("idempotency-key", reference)],
            body: Body::json(&self.body(ready)),
        };
        Letters::post(messages, leave, &self.api, call, |answer, mails| {
            judge(answer, reference, mails)
        })
        .await
    }

    fn certainty(&self) -> Certainty {
        Certainty::Repeat { within: Some(KEPT) }
    }

    async fn check(&self) -> Checked {
        let answer = match heard(self.api.get("/domains").await, "Resend") {
            Ok(answer) => answer,
            Err(unheard) => return unheard,
        };
        let fault: Fault = answer.json().unwrap_or_default();
        match (answer.status, fault.name.as_str()) {
            (200, _) => match answer.json::<Domains>() {
                Some(domains) => self.check_domain(domains).await,
                None => unexpected("Resend", &said(&answer, &fault)),
            },
            // A key that may only send gets this error for every other request.
            (401 | 403, "restricted_api_key") => {
                Checked::ready("Resend knows the key; it may only send, which is enough")
            }
            (401 | 403, _) => Checked::wrong(
                format!("Resend turned the key away ({})", said(&answer, &fault)),
                "put a valid one into mail.key",
            ),
            _ => unexpected("Resend", &said(&answer, &fault)),
        }
    }

    fn name(&self) -> &str {
        "resend"
    }

    fn account(&self) -> String {
        self.api.account(self.name())
    }
}

fn said(answer: &Answer, fault: &Fault) -> String {
    if fault.name.is_empty() {
        return answer.said();
    }
    words(&format!(
        "{} {}: {}",
        answer.status, fault.name, fault.message
    ))
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &Answer, reference: &str, mails: usize) -> Vec<Outcome> {
    if (200..300).contains(&answer.status) {
        return match answer.json::<Taken>() {
            Some(taken) if taken.data.len() == mails => {
                let accepted = |Id { id }| Outcome::Accepted { provider_id: id };
                taken.data.into_iter().map(accepted).collect()
            }
            _ => {
                let reason = format!("Resend answered {}, but not for each mail", answer.status);
                all(Outcome::Unknown { reason }, mails)
            }
        };
    }
    let fault: Fault = answer.json().unwrap_or_default();
    let reason = format!("Resend: {}", said(answer, &fault));
    let later = |least: Option<Duration>| Outcome::TryLater {
        reason: reason.clone(),
        after: answer.wait().max(least),
    };
    let outcome = match (answer.status, fault.name.as_str()) {
        (429, "daily_quota_exceeded" | "monthly_quota_exceeded") => later(Some(QUOTA)),
        (429 | 500 | 503, _) => later(None),
        // A gateway answered. Resend may have accepted the call behind it, which can be repeated
        // under its key.
        (501.., _) => Outcome::Unknown { reason },
        // An earlier attempt used this key with another body, so Resend has accepted the call. It
        // does not return the ids, so the key replaces them. A reference belongs to fixed
        // deliveries, so the recipients are the same.
        (409, "invalid_idempotent_request") => Outcome::Accepted {
            provider_id: reference.to_owned(),
        },
        (409, _) => later(None),
        (300..=399 | 401 | 403 | 404 | 405, _) => Outcome::Stop { reason },
        _ => Outcome::Refused { reason },
    };
    all(outcome, mails)
}

#[cfg(test)]
#[path = "resend_tests.rs"]
mod tests;
