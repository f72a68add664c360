//! Mailgun: one content per call, with variables for up to 1,000 recipients.
//!
//! Mailgun shows each recipient all others, unless each has variables, so each has (P8). Text that
//! looks like a variable is broken up and never replaced. The reference of a call determines its
//! `Message-Id`, by which Mailgun can be queried after a lost answer (P2, P5).
//! `docs/decisions/0006-providers.md` cites the sources.

use std::collections::HashMap;
use std::time::Duration;

use async_trait::async_trait;
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::domain::DeliveryId;
use crate::email::http::{
    Account, Answer, Api, Body, MOST_WAIT, all, answered, heard, unexpected, words,
};
use crate::email::letter::{Call, Letter, Letters, from, share};
use crate::email::mime::tag;
use crate::email::sign::Proof;
use crate::email::variables::{in_html, in_text};
use crate::email::{
    Answer as Found, Certainty, Checked, Leave, Mailer, Message, Outcome, Place, Silence,
};

/// The base URL.
pub(super) const URL: &str = "https://api.mailgun.net";
/// The base URL for domains in the European Union.
pub(super) const URL_EU: &str = "https://api.eu.mailgun.net";

/// The option that names the sending domain at Mailgun.
pub(super) const DOMAIN: &str = "mail.domain";

/// The maximum number of recipients in a call.
const MOST: usize = 1000;
/// The wait after a 402: the account has unpaid bills.
const UNPAID: Duration = Duration::from_secs(60 * 60);
/// The maximum number of events on a page.
const PAGE: usize = 300;
/// The maximum number of pages to read for a call, which has one accepted event for each recipient.
const MOST_PAGES: usize = 2 + MOST / PAGE;

/// A mailer for one Mailgun domain.
pub(super) struct Mailgun {
    account: Account,
    api: Api,
    domain: String,
    from: String,
}

#[derive(Deserialize)]
struct Queued {
    id: String,
}

#[derive(Deserialize)]
struct Fault {
    message: String,
}

#[derive(Deserialize)]
struct Domain {
    domain: State,
    #[serde(default)]
    sending_dns_records: Vec<DnsRecord>,
}

/// A record that the domain's owner adds to the DNS.
#[derive(Deserialize)]
struct DnsRecord {
    #[serde(default)]
    name: String,
}

impl Domain {
    /// Returns the DNS names of the domain's DKIM keys.
    fn dkim(self) -> Vec<String> {
        let names = self
            .sending_dns_records
            .into_iter()
            .map(|record| record.name);
        names.filter(|name| name.contains("._domainkey.")).collect()
    }
}

#[derive(Deserialize)]
struct State {
    state: String,
}

#[derive(Deserialize)]
struct Page {
    items: Vec<Event>,
    paging: Paging,
}

#[derive(Deserialize)]
struct Paging {
    next: Option<String>,
}

#[derive(Deserialize)]
struct Event {
    message: EventMessage,
    #[serde(rename = "user-variables", default)]
    variables: HashMap<String, Value>,
}

#[derive(Deserialize)]
struct EventMessage {
    headers: EventHeaders,
}

#[derive(Deserialize)]
struct EventHeaders {
    #[serde(rename = "message-id")]
    message_id: String,
}

impl Mailgun {
    /// Creates a mailer. Fails if the key cannot be a header value, the sender's address is
    /// invalid, or this machine has no root certificates.
    pub(super) fn new(account: Account) -> Result<Self, String> {
        Ok(Self {
            api: Api::new(&account, Proof::basic("api", &account.key)?)?,
            from: from(&account.sender)?,
            domain: account.option(DOMAIN),
            account,
        })
    }

    /// Returns the `Message-Id` that all emails of a call have, without brackets.
    fn message_id(&self, reference: &str) -> String {
        format!("{reference}@{}", self.domain)
    }

    /// Returns the form fields of a call. The letters must have equal content.
    fn fields(&self, reference: &str, letters: &[Letter<'_>]) -> Vec<(String, String)> {
        let first = &letters[0];
        let content = &first.message.content;
        let mut fields = Vec::with_capacity(letters.len() + 16);
        let mut add = |name: &str, value: String| fields.push((name.to_owned(), value));
        add("from", self.from.clone());
        for letter in letters {
            add("to", in_text(&letter.to).into_owned());
        }
        add("subject", first.subject.clone());
        if !content.text.is_empty() {
            add("text", content.text.write(in_text, variable));
        }
        if !content.html.is_empty() {
            add("html", content.html.write(in_html, variable));
        }
        if let Some(reply_to) = &self.account.sender.reply_to {
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
        for tag in &self.account.tags {
            add("o:tag", tag.clone());
        }
        add("o:tracking", "no".into());
        let variables: Map<String, Value> = letters
            .iter()
            .map(|letter| (letter.address().to_owned(), variables(letter)))
            .collect();
        add("recipient-variables", Value::Object(variables).to_string());
        fields
    }

    /// Returns the deliveries' tags in the accepted events of a call.
    async fn accepted(&self, message_id: &str) -> Result<Vec<String>, Silence> {
        let events = format!("/v3/{}/events", self.domain);
        let asked = message_id.replace('@', "%40");
        let mut path = format!("{events}?event=accepted&limit={PAGE}&message-id={asked}");
        let mut tags = Vec::new();
        for _ in 0..MOST_PAGES {
            let answer = answered(self.api.get(&path).await)?;
            if answer.status != 200 {
                return Err(Silence {
                    reason: format!("Mailgun: {}", said(&answer)),
                    after: answer.wait(),
                });
            }
            let unreadable = || "Mailgun's list of events cannot be read".to_owned();
            let page: Page = answer.json().ok_or_else(unreadable)?;
            let read = page.items.len();
            for event in page.items {
                tags.push(tag_of(event, message_id)?);
            }
            if read < PAGE {
                return Ok(tags);
            }
            // Use only path and query of the URL, so that the key is never sent to another host.
            let next = page.paging.next.unwrap_or_default();
            let at = next.find(&events).ok_or_else(unreadable)?;
            path = next[at..].to_owned();
        }
        Err("Mailgun's list of events does not end".into())
    }
}

/// Returns the delivery's tag in an event. Fails if the event belongs to another call.
fn tag_of(event: Event, message_id: &str) -> Result<String, String> {
    let id = event.message.headers.message_id;
    if id.trim_matches(['<', '>']) != message_id {
        return Err("Mailgun listed events that were not asked for".into());
    }
    match event.variables.get("delivery") {
        Some(Value::String(tag)) => Ok(tag.clone()),
        _ => Err("Mailgun listed an event that names no delivery".into()),
    }
}

const UNSUBSCRIBE: &str = "%recipient.unsubscribe%";

/// Returns the variable that Mailgun replaces with a recipient's link.
fn variable(place: Place) -> &'static str {
    match place {
        Place::Unsubscribe => UNSUBSCRIBE,
        Place::Preferences => "%recipient.preferences%",
        Place::Mute => "%recipient.mute%",
    }
}

fn variables(letter: &Letter<'_>) -> Value {
    let mut variables = json!({ "delivery": letter.tag });
    if let Some(links) = &letter.message.personal {
        variables["unsubscribe"] = links.link(Place::Unsubscribe).into();
        variables["preferences"] = links.preferences.as_str().into();
        if let Some(mute) = &links.mute {
            variables["mute"] = mute.as_str().into();
        }
    }
    variables
}

/// Encodes fields as `multipart/form-data` (RFC 7578). Equal fields have an equal boundary.
fn form(reference: &str, fields: &[(String, String)]) -> Body {
    let mut boundary = format!("tidings-{reference}");
    while fields.iter().any(|(_, value)| value.contains(&boundary)) {
        boundary.push('-');
    }
    let mut text = String::new();
    for (name, value) in fields {
        text.push_str(&format!(
            "--{boundary}\r\nContent-Disposition: form-data; name=\"{name}\"\r\n\r\n{value}\r\n"
        ));
    }
    text.push_str(&format!("--{boundary}--\r\n"));
    Body {
        kind: format!("multipart/form-data; boundary={boundary}"),
        bytes: text.into_bytes(),
    }
}

/// Returns the domain in lower case if it is valid.
pub(super) fn domain(text: &str) -> Option<String> {
    let known = |b: u8| b.is_ascii_alphanumeric() || b"-.".contains(&b);
    let fits = !text.starts_with('.') && text.bytes().all(known);
    fits.then(|| text.to_ascii_lowercase())
}

#[async_trait]
impl Mailer for Mailgun {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        share(messages, self.account.per_call(MOST))
    }

    async fn send(&self, reference: &str, messages: &[Message], leave: &Leave) -> Vec<Outcome> {
        let call = |ready: &[Letter<'_>]| Call {
            path: format!("/v3/{}/messages", self.domain),
            headers: Vec::new(),
            body: form(reference, &self.fields(reference, ready)),
        };
        Letters::post(messages, leave, &self.api, call, judge).await
    }

    fn certainty(&self) -> Certainty {
        Certainty::Ask
    }

    async fn ask(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<Found> {
        let message_id = self.message_id(reference);
        let tags = match self.accepted(&message_id).await {
            Ok(tags) => tags,
            Err(silence) => return vec![Found::Silent(silence); deliveries.len()],
        };
        let found = |delivery: &DeliveryId| {
            if tags.contains(&tag(delivery)) {
                return Found::Taken {
                    provider_id: message_id.clone(),
                };
            }
            if tags.is_empty() {
                return Found::NotTaken;
            }
            // Mailgun accepts a call as a whole, so it accepted this email too. Its event is not
            // listed yet.
            Found::Silent("Mailgun took the call, and does not list this mail yet".into())
        };
        deliveries.iter().map(found).collect()
    }

    async fn check(&self) -> Checked {
        let domain = &self.domain;
        let path = format!("/v4/domains/{domain}");
        let answer = match heard(self.api.get(&path).await, "Mailgun") {
            Ok(answer) => answer,
            Err(unheard) => return unheard,
        };
        match (answer.status, answer.json::<Domain>()) {
            (200, Some(found)) if found.domain.state == "active" => Checked::Ready {
                found: format!("Mailgun knows the key, and {domain} is active"),
                dkim: found.dkim(),
            },
            (200, Some(found)) => Checked::wrong(
                format!(
                    "Mailgun knows the key, but {domain} is {}",
                    words(&found.domain.state)
                ),
                "finish its DNS records at Mailgun",
            ),
            (401 | 403, _) => Checked::wrong(
                format!("Mailgun turned the key away ({})", said(&answer)),
                "put an API key of the account into mail.key (a sending key can send, but not be checked)",
            ),
            (404, _) => Checked::wrong(
                format!("Mailgun does not know {domain}"),
                "set mail.domain to a domain of the account, and mail.region to where it is",
            ),
            _ => unexpected("Mailgun", &said(&answer)),
        }
    }

    fn name(&self) -> &str {
        "mailgun"
    }

    fn account(&self) -> String {
        format!("{} {}", self.api.account(self.name()), self.domain)
    }
}

fn said(answer: &Answer) -> String {
    match answer.json::<Fault>() {
        Some(fault) => words(&format!("{} {}", answer.status, fault.message)),
        None => answer.said(),
    }
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &Answer, mails: usize) -> Vec<Outcome> {
    let reason = format!("Mailgun: {}", said(answer));
    let wait = answer.wait().or_else(|| wait_in(&reason));
    let outcome = match answer.status {
        200..300 => match answer.json::<Queued>() {
            Some(Queued { id }) if !id.is_empty() => Outcome::Accepted {
                // Reports name the id without brackets.
                provider_id: id.trim_matches(['<', '>']).to_owned(),
            },
            _ => Outcome::Unknown {
                reason: format!(
                    "Mailgun answered {}, but not with the id of a mail",
                    answer.status
                ),
            },
        },
        429 | 500 | 502..=504 => Outcome::TryLater {
            reason,
            after: wait,
        },
        402 => Outcome::TryLater {
            reason,
            after: wait.max(Some(UNPAID)),
        },
        // A gateway answered. Mailgun may have accepted the call behind it.
        501.. => Outcome::Unknown { reason },
        300..=399 | 401 | 403 | 404 | 405 => Outcome::Stop { reason },
        _ => Outcome::Refused { reason },
    };
    all(outcome, mails)
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
    Some(Duration::from_secs(number.checked_mul(seconds)?).min(MOST_WAIT))
}

#[cfg(test)]
#[path = "mailgun_tests.rs"]
mod tests;
