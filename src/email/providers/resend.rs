//! Resend: up to a hundred mails a call, all of them or none, under an idempotency key.
//!
//! The rule (P2, P5): the call's reference is its `Idempotency-Key`, and nothing in the body
//! changes from one try to the next, so a call whose answer was lost is made again and mails
//! nothing twice, for a day. `docs/decisions/0006-providers.md` says where its rules are written.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::email::http::{Account, Answer, Api, Body, all, answered, heard, unexpected, words};
use crate::email::letter::{Call, Letter, Letters, cut, from};
use crate::email::sign::Proof;
use crate::email::{Certainty, Checked, Leave, Mailer, Message, Outcome};

/// Where the API is.
pub(super) const URL: &str = "https://api.resend.com";

/// The most mails of a call.
const MOST: usize = 100;
/// The most content of a call; Resend takes 40 MB, and quoting makes it longer.
const MOST_BYTES: usize = 20_000_000;
/// Keys are kept for 24 hours; an hour is left for slow clocks and slow calls.
const KEPT: Duration = Duration::from_secs(23 * 60 * 60);
/// How long to wait when a quota is used up.
const QUOTA: Duration = Duration::from_secs(60 * 60);

/// A Resend account.
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
    /// Whether there are more than it lists at once.
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

/// A record that the domain's owner puts into the DNS.
#[derive(Deserialize)]
struct DnsRecord {
    record: String,
    name: String,
}

impl Domain {
    /// The names of its keys. Resend names records as the owner's DNS does, from any place below
    /// the registered domain; the selector stands first in all of them.
    fn dkim(&self) -> Vec<String> {
        let keys = self.records.iter().filter(|record| record.record == "DKIM");
        let selectors = keys.filter_map(|record| record.name.split_once("._domainkey"));
        selectors
            .map(|(selector, _)| format!("{selector}._domainkey.{}", self.name))
            .collect()
    }
}

impl Resend {
    /// A mailer for this account. Fails where the key cannot stand in a header, the sender cannot
    /// be written, or this machine has no certificates.
    pub(super) fn new(account: Account) -> Result<Self, String> {
        Ok(Self {
            api: Api::new(&account, Proof::bearer(&account.key)?)?,
            from: from(&account.sender)?,
            account,
        })
    }

    /// Whether the sender's domain can be sent from, now that the key is known.
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
        // The list leaves the records out.
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
            // A key that may do nothing but send says so to every other question.
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

/// What an answer means for the mails of its call.
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
        // Some gateway's answer, not Resend's: behind it the call may have been made. Under its key
        // it can be made again.
        (501.., _) => Outcome::Unknown { reason },
        // Another try of this call took the key with a body that is not this one: the call was
        // made, and what it mailed is not known by any id but the key. (A reference stands for its
        // deliveries, so these are the same people.)
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
