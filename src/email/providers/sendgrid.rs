//! SendGrid: one content per call, with up to 1,000 personalizations of one recipient each.
//!
//! Substitutions fill the placeholders; headers and our tags are in each personalization. SendGrid
//! cannot be queried, so a lost answer stays unknown (P2, P5). Its tracking and its own
//! unsubscribing are off: links are not rewritten, and the unsubscribe link is ours (P7).
//! `docs/decisions/0006-providers.md` cites the sources.

use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::email::http::{Account, Answer, Api, Body, all, heard, unexpected, words};
use crate::email::letter::{Call, Letter, Letters, share};
use crate::email::mime::one_line;
use crate::email::sign::Proof;
use crate::email::variables::{in_html, in_text};
use crate::email::{Certainty, Checked, Content, Leave, Mailer, Message, Outcome, Place};

/// The base URL.
pub(super) const URL: &str = "https://api.sendgrid.com";
/// The base URL for accounts in the European Union.
pub(super) const URL_EU: &str = "https://api.eu.sendgrid.com";

/// The maximum number of recipients in a call.
const MOST: usize = 1000;
/// The wait while SendGrid blocks the account.
const BLOCKED: Duration = Duration::from_secs(60 * 60);

/// A mailer for one SendGrid account.
pub(super) struct SendGrid {
    account: Account,
    api: Api,
}

#[derive(Deserialize)]
struct Faults {
    errors: Vec<Fault>,
}

#[derive(Deserialize)]
struct Fault {
    message: String,
    field: Option<String>,
}

#[derive(Deserialize)]
struct Scopes {
    scopes: Vec<String>,
}

impl SendGrid {
    /// Creates a mailer. Fails if the key cannot be a header value, or this machine has no root
    /// certificates.
    pub(super) fn new(account: Account) -> Result<Self, String> {
        Ok(Self {
            api: Api::new(&account, Proof::bearer(&account.key)?)?,
            account,
        })
    }

    /// Returns the body of a call. The letters must have equal content.
    fn body(&self, reference: &str, letters: &[Letter<'_>]) -> Value {
        let sender = &self.account.sender;
        let first = &letters[0];
        let content = &first.message.content;
        let keys = Keys::of(content);
        let text = content.text.write(in_text, |place| keys.of_place(place));
        let html = content.html.write(in_html, |place| keys.of_place(place));
        let parts: Vec<Value> = [("text/plain", text), ("text/html", html)]
            .into_iter()
            .filter(|(_, said)| !said.is_empty())
            .map(|(kind, said)| json!({ "type": kind, "value": said }))
            .collect();
        let off = json!({ "enable": false });
        let mut body = json!({
            "personalizations": letters
                .iter()
                .map(|letter| self.personalization(reference, letter, &keys))
                .collect::<Vec<_>>(),
            "from": { "email": sender.from.reveal(), "name": plain(&sender.from_name) },
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
        if !self.account.tags.is_empty() {
            body["categories"] = self.account.tags.clone().into();
        }
        body
    }

    fn personalization(&self, reference: &str, letter: &Letter<'_>, keys: &Keys) -> Value {
        let mut to = json!({ "email": letter.address() });
        if let Some(name) = letter.message.to_name.as_deref().map(plain)
            && !name.is_empty()
        {
            to["name"] = name.into();
        }
        let headers: Map<String, Value> = letter
            .all_headers(&self.account.sender)
            .into_iter()
            .map(|(name, value)| (name, value.into()))
            .collect();
        let mut person = json!({
            "to": [to],
            "headers": headers,
            "custom_args": { "delivery": letter.tag, "call": reference },
        });
        if let Some(links) = &letter.message.personal {
            let of = |place| (keys.of_place(place).to_owned(), links.link(place).into());
            // Without a mute link, the content has no such placeholder.
            let has = |place: &Place| *place != Place::Mute || links.mute.is_some();
            let places = Place::ALL.into_iter().filter(has);
            let substitutions: Map<String, Value> = places.map(of).collect();
            person["substitutions"] = substitutions.into();
        }
        person
    }
}

/// Returns a name without the characters that separate addresses.
fn plain(name: &str) -> String {
    one_line(&name.replace([',', ';'], " "))
}

/// The words that SendGrid replaces with each recipient's links. They look like links, because they
/// are where a link is expected, and lead nowhere (RFC 2606). The email's text does not contain
/// them. No two can overlap, as `h` occurs only at the start of each.
struct Keys([String; Place::ALL.len()]);

impl Keys {
    fn of(content: &Content) -> Self {
        let numbered = |n: usize| {
            let key = |place: Place| format!("https://tidings.invalid/{}-{n}/", place.name());
            Self(Place::ALL.map(key))
        };
        let bodies = content.text.said().chain(content.html.said());
        let said: Vec<&str> = bodies.chain([content.subject.as_str()]).collect();
        let mut n = 0;
        loop {
            let keys = numbered(n);
            let taken = |words: &&str| keys.0.iter().any(|key| words.contains(key));
            if !said.iter().any(taken) {
                return keys;
            }
            n += 1;
        }
    }

    fn of_place(&self, place: Place) -> &str {
        &self.0[place.index()]
    }
}

#[async_trait]
impl Mailer for SendGrid {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        share(messages, self.account.per_call(MOST))
    }

    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let call = |ready: &[Letter<'_>]| Call {
            path: "/v3/mail/send".into(),
            headers: Vec::new(),
            body: Body::json(&self.body(reference, ready)),
        };
        Letters::post(messages, leave, &self.api, call, judge).await
    }

    fn certainty(&self) -> Certainty {
        Certainty::Never
    }

    async fn check(&self) -> Checked {
        let answer = match heard(self.api.get("/v3/scopes").await, "SendGrid") {
            Ok(answer) => answer,
            Err(unheard) => return unheard,
        };
        match (answer.status, answer.json::<Scopes>()) {
            (200, Some(Scopes { scopes })) if scopes.iter().any(|scope| scope == "mail.send") => {
                Checked::ready("SendGrid knows the key, and it may send")
            }
            (200, Some(_)) => Checked::wrong(
                "SendGrid knows the key, but it may not send",
                "give it the scope mail.send",
            ),
            (401 | 403, _) => Checked::wrong(
                format!("SendGrid turned the key away ({})", said(&answer)),
                "put a valid one into mail.key",
            ),
            _ => unexpected("SendGrid", &said(&answer)),
        }
    }

    fn name(&self) -> &str {
        "sendgrid"
    }

    fn account(&self) -> String {
        self.api.account(self.name())
    }
}

fn said(answer: &Answer) -> String {
    let Some(Faults { errors }) = answer.json() else {
        return answer.said();
    };
    let errors: Vec<String> = errors
        .into_iter()
        .map(|Fault { message, field }| match field {
            Some(field) => format!("{field}: {message}"),
            None => message,
        })
        .collect();
    words(&format!("{} {}", answer.status, errors.join("; ")))
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &Answer, mails: usize) -> Vec<Outcome> {
    let reason = format!("SendGrid: {}", said(answer));
    let outcome = match (answer.status, answer.header("x-message-id")) {
        // The answer has no body; status and id are enough.
        (202, Some(id)) if !id.is_empty() => Outcome::Accepted {
            provider_id: id.to_owned(),
        },
        (200..300, _) => Outcome::Unknown {
            reason: format!(
                "SendGrid answered {}, but not with the id of a mail",
                answer.status
            ),
        },
        (429 | 500 | 503, _) => Outcome::TryLater {
            reason,
            after: answer.wait(),
        },
        // SendGrid's own error: it tried and did not accept the call.
        (501.., _) if answer.json::<Faults>().is_some() => Outcome::TryLater {
            reason,
            after: answer.wait(),
        },
        // A gateway answered. SendGrid may have accepted the call behind it.
        (501.., _) => Outcome::Unknown { reason },
        (401 | 403, _) if for_a_while(&reason) => Outcome::TryLater {
            reason,
            after: answer.wait().max(Some(BLOCKED)),
        },
        (300..=399 | 401 | 403 | 404 | 405 | 451, _) => Outcome::Stop { reason },
        _ => Outcome::Refused { reason },
    };
    all(outcome, mails)
}

/// Returns whether a 401 or 403 is temporary: a block after too many bad requests, or used-up daily
/// or monthly credits.
fn for_a_while(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    ["temporar", "too many", "try again", "credits exceeded"]
        .iter()
        .any(|word| reason.contains(word))
}

#[cfg(test)]
#[path = "sendgrid_tests.rs"]
mod tests;
