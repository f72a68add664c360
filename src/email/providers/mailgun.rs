//! Mailgun: one content per call, with variables for up to 1,000 recipients.
//!
//! Mailgun shows each recipient all others, unless each has variables, so each has (P8). Text that
//! looks like a variable is broken up and never replaced. The reference of a call determines its
//! `Message-Id`, by which Mailgun can be queried after a lost answer (P2, P5).
//! `docs/decisions/0006-providers.md` cites the sources. [`read`] verifies reports.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};

use crate::domain::{DeliveryId, ReportKind};
use crate::email::content::{in_html, in_text};
use crate::email::hooks::{
    Once, Posted, Refused, Report, Verified, detail, failed, fresh, json as parse, wrong_signature,
};
use crate::email::http::{
    Account, Answer, Api, Body, MOST_WAIT, all, unexpected, unreached, usual, without_id, words,
};
use crate::email::letter::{Letter, Letters, from, share};
use crate::email::mime::tag;
use crate::email::sign::Proof;
use crate::email::{
    Certainty, Checked, Mailer, Message, Outcome, Permit, Place, QueryAnswer, Silence,
};

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
        let wanted = message_id.replace('@', "%40");
        let mut path = format!("{events}?event=accepted&limit={PAGE}&message-id={wanted}");
        let mut tags = Vec::new();
        for _ in 0..MOST_PAGES {
            let answer = self.api.get(&path).await?;
            if answer.status != 200 {
                return Err(Silence {
                    reason: format!("Mailgun: {}", said(&answer)),
                    after: answer.wait(),
                });
            }
            let unreadable = || "Mailgun's list of events cannot be read".to_owned();
            let page = answer.value();
            let (Some(items), Some(paging)) =
                (page["items"].as_array(), page["paging"].as_object())
            else {
                return Err(unreadable().into());
            };
            for event in items {
                tags.push(tag_of(event, message_id)?.to_owned());
            }
            if items.len() < PAGE {
                return Ok(tags);
            }
            // Use only path and query of the URL, so that the key is never sent to another host.
            let next = paging.get("next").and_then(Value::as_str);
            let next = next.and_then(|next| Some(&next[next.find(&events)?..]));
            path = next.ok_or_else(unreadable)?.to_owned();
        }
        Err("Mailgun's list of events does not end".into())
    }
}

/// Returns the delivery's tag in an event. Fails if the event belongs to another call.
fn tag_of<'a>(event: &'a Value, message_id: &str) -> Result<&'a str, String> {
    let id = event["message"]["headers"]["message-id"].as_str();
    if id.map(|id| id.trim_matches(['<', '>'])) != Some(message_id) {
        return Err("Mailgun listed events that were not asked for".into());
    }
    let tag = event["user-variables"]["delivery"].as_str();
    tag.ok_or_else(|| "Mailgun listed an event that names no delivery".into())
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
    let kind = format!("multipart/form-data; boundary={boundary}");
    Body {
        headers: vec![("content-type", kind)],
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

    async fn send(&self, reference: &str, messages: &[Message], permit: &Permit) -> Vec<Outcome> {
        let path = format!("/v3/{}/messages", self.domain);
        let body = |ready: &[Letter<'_>]| form(reference, &self.fields(reference, ready));
        Letters::post(messages, permit, (&self.api, &path), body, judge).await
    }

    fn certainty(&self) -> Certainty {
        Certainty::Ask
    }

    async fn ask(&self, reference: &str, deliveries: &[DeliveryId]) -> Vec<QueryAnswer> {
        let message_id = self.message_id(reference);
        let tags = match self.accepted(&message_id).await {
            Ok(tags) => tags,
            Err(silence) => return vec![QueryAnswer::Silent(silence); deliveries.len()],
        };
        let found = |delivery: &DeliveryId| {
            if tags.contains(&tag(delivery)) {
                return QueryAnswer::Accepted {
                    provider_id: message_id.clone(),
                };
            }
            if tags.is_empty() {
                return QueryAnswer::NotAccepted;
            }
            // Mailgun accepts a call as a whole, so it accepted this email too. Its event is not
            // listed yet.
            QueryAnswer::Silent("Mailgun took the call, and does not list this mail yet".into())
        };
        deliveries.iter().map(found).collect()
    }

    async fn check(&self) -> Checked {
        let domain = &self.domain;
        let answer = match self.api.get(&format!("/v4/domains/{domain}")).await {
            Ok(answer) => answer,
            Err(failed) => return unreached("Mailgun", failed),
        };
        let found = answer.value();
        match (answer.status, found["domain"]["state"].as_str()) {
            (200, Some("active")) => Checked::Ready {
                found: format!("Mailgun knows the key, and {domain} is active"),
                dkim: dkim_names(&found),
            },
            (200, Some(state)) => Checked::wrong(
                format!("Mailgun knows the key, but {domain} is {}", words(state)),
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

/// Returns the names of the domain's DKIM keys, among the records that its owner adds to the DNS.
fn dkim_names(domain: &Value) -> Vec<String> {
    let records = domain["sending_dns_records"].as_array();
    let names = records.into_iter().flatten();
    let names = names.filter_map(|record| record["name"].as_str());
    let names = names.filter(|name| name.contains("._domainkey."));
    names.map(str::to_owned).collect()
}

fn said(answer: &Answer) -> String {
    match answer.value()["message"].as_str() {
        Some(message) => words(&format!("{} {message}", answer.status)),
        None => answer.said(),
    }
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &Answer, mails: usize) -> Vec<Outcome> {
    let reason = format!("Mailgun: {}", said(answer));
    let after = answer.wait().or_else(|| wait_in(&reason));
    let outcome = match answer.status {
        200..300 => match answer.value()["id"].as_str() {
            Some(id) if !id.is_empty() => Outcome::Accepted {
                // Reports name the id without brackets.
                provider_id: id.trim_matches(['<', '>']).to_owned(),
            },
            _ => without_id("Mailgun", answer),
        },
        429 | 500 | 502..=504 => Outcome::TryLater { reason, after },
        402 => Outcome::TryLater {
            reason,
            after: after.max(Some(UNPAID)),
        },
        _ => usual(answer, reason),
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

/// Mailgun retries for eight hours. The rest is a margin.
const OLDEST: TimeDelta = TimeDelta::hours(12);

#[derive(Deserialize)]
struct Posting {
    #[serde(rename = "event-data")]
    event: Event,
}

#[derive(Deserialize)]
struct Signed {
    signature: Signature,
}

#[derive(Deserialize)]
struct Signature {
    timestamp: String,
    token: String,
    signature: String,
}

impl Signature {
    fn fits(&self, key: &[u8]) -> bool {
        let Ok(mut mac) = Hmac::<Sha256>::new_from_slice(key) else {
            return false;
        };
        mac.update(self.timestamp.as_bytes());
        mac.update(self.token.as_bytes());
        hex::decode(&self.signature).is_ok_and(|given| mac.verify_slice(&given).is_ok())
    }
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Event {
    event: String,
    id: String,
    timestamp: f64,
    recipient: Option<String>,
    severity: Option<String>,
    reason: Option<String>,
    delivery_status: Option<Status>,
    message: Option<EventMessage>,
    #[serde(default)]
    user_variables: Value,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Status {
    code: Option<i64>,
    enhanced_code: Option<String>,
    /// The reply of the recipient's server.
    message: Option<String>,
}

#[derive(Deserialize, Serialize)]
struct EventMessage {
    headers: Option<Headers>,
}

#[derive(Deserialize, Serialize)]
#[serde(rename_all = "kebab-case")]
struct Headers {
    message_id: Option<String>,
}

/// Verifies and reads a report: HMAC-SHA256 over timestamp and token, inside the body.
///
/// The signature is verified before anything else is built from the body. It does **not** cover the
/// event, so a token is bound to the first event that it arrives with ([`Once`]).
/// Mailgun does not document whether it signs each attempt anew, so a timestamp may be as old as
/// the last retry.
pub(super) fn read(
    key: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    let signed = serde_json::from_slice(posted.body);
    let Signed { signature } =
        signed.map_err(|_| Refused::unverified("the body is not JSON with a signature"))?;
    if !signature.fits(key) {
        return Err(wrong_signature());
    }
    let signed = fresh(&signature.timestamp, now, OLDEST)?;

    let Posting { event } = parse(posted.body)?;
    // A retry may order the fields differently, so the digest covers the fields that are read here.
    let with = Sha256::digest(serde_json::to_vec(&event).map_err(Refused::unreadable)?);
    let once = Once {
        token: signature.token,
        with: hex::encode(with),
        until: signed + OLDEST,
    };
    Ok(Verified {
        once: Some(once),
        ..Verified::of(report(&event, now))
    })
}

fn report(event: &Event, now: DateTime<Utc>) -> Option<Report> {
    let reason = event.reason.as_deref();
    let status = event.delivery_status.as_ref();
    let enhanced = status.and_then(|status| status.enhanced_code.as_deref());
    let reply = status.and_then(|status| status.message.as_deref());
    let news = match (event.event.as_str(), event.severity.as_deref()) {
        ("delivered", _) => ReportKind::Delivered,
        ("failed", Some("permanent")) => match reason {
            // Mailgun did not try, because the address is on its suppression list.
            Some("suppress-bounce") => ReportKind::Bounced,
            Some("suppress-unsubscribe") => ReportKind::Unsubscribed,
            Some("suppress-complaint") => ReportKind::Complained,
            // Mailgun gave up after many attempts.
            Some("old") => failed([enhanced, reply], ReportKind::Delayed),
            Some("espblock") => failed([enhanced, reply], ReportKind::Refused),
            _ => failed([enhanced, reply], ReportKind::Bounced),
        },
        ("failed", _) => ReportKind::Delayed,
        ("complained", _) => ReportKind::Complained,
        ("unsubscribed", _) => ReportKind::Unsubscribed,
        _ => return None,
    };
    let headers = event.message.as_ref().and_then(|one| one.headers.as_ref());
    let known_as = headers.and_then(|headers| headers.message_id.as_deref());
    let known_as = known_as.map(|id| id.trim_matches(['<', '>']));
    let code = status.and_then(|status| Some(status.code?.to_string()));
    let at = DateTime::from_timestamp_millis((event.timestamp * 1000.0) as i64);
    let recipient = event.recipient.as_deref();
    Some(Report {
        // With the brackets that the header has, and without.
        provider_ids: known_as.map_or_else(Vec::new, |id| vec![format!("<{id}>"), id.to_owned()]),
        detail: match news {
            ReportKind::Delivered => None,
            _ => detail([code.as_deref(), enhanced, reason]),
        },
        ..Report::of(
            event.id.clone(),
            news,
            event.user_variables["delivery"].as_str(),
            recipient,
            at,
            now,
        )
    })
}

#[cfg(test)]
#[path = "mailgun_tests.rs"]
mod tests;
