//! SendGrid: one content a call, with up to a thousand personalizations of one recipient each.
//!
//! The rule (P2, P5, P7): the places of the content are filled in by substitution of words that the
//! mail does not say, the headers and our names for the mail are each personalization's own. Nobody
//! can ask SendGrid what it took, so what is not known stays unknown. Its own tracking and
//! unsubscribing are turned off: links lead where they say, and the unsubscribe link is ours.
//! `docs/decisions/0006-providers.md` says where its rules are written.

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

/// Where the API is.
pub(super) const URL: &str = "https://api.sendgrid.com";
/// Where it is for accounts in the European Union.
pub(super) const URL_EU: &str = "https://api.eu.sendgrid.com";

/// The most recipients of a call.
const MOST: usize = 1000;
/// How long to wait when SendGrid has blocked us for a while.
const BLOCKED: Duration = Duration::from_secs(60 * 60);

/// A SendGrid account.
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
    /// A mailer for this account. Fails where the key cannot stand in a header, or this machine has
    /// no certificates.
    pub(super) fn new(account: Account) -> Result<Self, String> {
        Ok(Self {
            api: Api::new(&account, Proof::bearer(&account.key)?)?,
            account,
        })
    }

    /// The call that mails these letters, which have their content in common.
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
            // A link that nobody in the call has stands nowhere in it.
            let has = |place: &Place| *place != Place::Mute || links.mute.is_some();
            let places = Place::ALL.into_iter().filter(has);
            let substitutions: Map<String, Value> = places.map(of).collect();
            person["substitutions"] = substitutions.into();
        }
        person
    }
}

/// A name as SendGrid takes it: without what separates addresses.
fn plain(name: &str) -> String {
    one_line(&name.replace([',', ';'], " "))
}

/// What SendGrid fills each recipient's links in for: words that nothing in the mail says. They
/// look like links, as they stand where links are expected, and lead nowhere (RFC 2606). No two of
/// them can overlap, as each has an `h` at its beginning only.
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

/// What an answer means for the mails of its call.
fn judge(answer: &Answer, mails: usize) -> Vec<Outcome> {
    let reason = format!("SendGrid: {}", said(answer));
    let outcome = match (answer.status, answer.header("x-message-id")) {
        // There is no body to read: the status and the id are the answer.
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
        // SendGrid's own words: it tried, and did not take it.
        (501.., _) if answer.json::<Faults>().is_some() => Outcome::TryLater {
            reason,
            after: answer.wait(),
        },
        // Some gateway's answer, not SendGrid's: behind it the call may have been made.
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

/// Whether a 401 or 403 ends by itself: a block after too many bad requests, or the credits of a
/// day or a month that are used up.
fn for_a_while(reason: &str) -> bool {
    let reason = reason.to_lowercase();
    ["temporar", "too many", "try again", "credits exceeded"]
        .iter()
        .any(|word| reason.contains(word))
}

#[cfg(test)]
#[path = "sendgrid_tests.rs"]
mod tests;
