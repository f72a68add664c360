//! Postmark: up to 500 emails per call, each with an outcome of its own.
//!
//! A status of 200 accepts nothing; the error code of each email decides. After a lost answer the
//! call is not repeated but queried (P2, P5). Each email carries the call's reference and its
//! delivery as metadata, by which the list of sent emails can be searched.
//! `docs/decisions/0006-providers.md` cites the sources.

use std::collections::HashMap;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Value, json};

use crate::domain::DeliveryId;
use crate::email::http::{Account, Answer, Api, Body, all, answered, heard, unexpected, words};
use crate::email::letter::{Call, Letter, Letters, cut, from};
use crate::email::mime::tag;
use crate::email::sign::Proof;
use crate::email::{Answer as Found, Certainty, Checked, Leave, Mailer, Message, Outcome, Silence};

/// The base URL.
pub(super) const URL: &str = "https://api.postmarkapp.com";

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
struct Word {
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

#[derive(Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Server {
    name: String,
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

    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let call = |ready: &[Letter<'_>]| Call {
            path: "/email/batch".into(),
            headers: Vec::new(),
            body: Body::json(&self.body(reference, ready)),
        };
        Letters::post(messages, leave, &self.api, call, judge).await
    }

    fn certainty(&self) -> Certainty {
        Certainty::Ask
    }

    async fn ask(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<Found> {
        let path = format!(
            "/messages/outbound?count={MOST}&offset=0&messagestream={}&metadata_call={reference}",
            self.stream
        );
        match answered(self.api.get(&path).await) {
            Ok(answer) => found(&answer, reference, deliveries),
            Err(reason) => vec![Found::Silent(reason.into()); deliveries.len()],
        }
    }

    async fn check(&self) -> Checked {
        let answer = match heard(self.api.get("/server").await, "Postmark") {
            Ok(answer) => answer,
            Err(unheard) => return unheard,
        };
        match (answer.status, answer.json::<Server>()) {
            (200, Some(server)) => {
                Checked::ready(format!("Postmark knows the key of {:?}", server.name))
            }
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
            Some(words) if words.len() == mails => words.into_iter().map(one).collect(),
            _ => {
                let reason = format!("Postmark answered {}, but not for each mail", answer.status);
                all(Outcome::Unknown { reason }, mails)
            }
        };
    }
    let word: Option<Word> = answer.json();
    let reason = match &word {
        Some(word) => said(answer.status, word),
        None => format!("Postmark: {}", answer.said()),
    };
    let outcome = match answer.status {
        429 | 500 | 503 => Outcome::TryLater {
            reason,
            after: answer.wait(),
        },
        // A gateway answered. Postmark may have accepted the call behind it.
        501.. => Outcome::Unknown { reason },
        422 => match word {
            Some(word) => meaning(&word, reason),
            None => Outcome::Refused { reason },
        },
        300..=399 | 401 | 403 | 404 | 405 => Outcome::Stop { reason },
        _ => Outcome::Refused { reason },
    };
    all(outcome, mails)
}

/// Returns the outcome of one email, from its item in the answer.
fn one(word: Value) -> Outcome {
    match serde_json::from_value::<Word>(word) {
        Ok(Word {
            error_code: 0,
            message_id: Some(provider_id),
            ..
        }) => Outcome::Accepted { provider_id },
        Ok(word) if word.error_code != 0 => meaning(&word, said(200, &word)),
        Ok(_) | Err(_) => Outcome::Unknown {
            reason: "Postmark answered 200, but for this mail in no form we know".into(),
        },
    }
}

fn said(status: u16, word: &Word) -> String {
    words(&format!(
        "Postmark: {status}, code {}: {}",
        word.error_code, word.message
    ))
}

/// Returns the outcome that an error code other than 0 means.
fn meaning(word: &Word, reason: String) -> Outcome {
    match word.error_code {
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
fn found(answer: &Answer, reference: &str, deliveries: &[DeliveryId]) -> Vec<Found> {
    let silent = |silence: Silence| vec![Found::Silent(silence); deliveries.len()];
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
        Some(id) => Found::Taken {
            provider_id: (*id).to_owned(),
        },
        None if whole => Found::NotTaken,
        None => Found::Silent("Postmark's list of sent mails is longer than it shows".into()),
    };
    deliveries.iter().map(answer).collect()
}

#[cfg(test)]
#[path = "postmark_tests.rs"]
mod tests;
