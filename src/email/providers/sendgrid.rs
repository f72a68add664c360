//! SendGrid: one content per call, with up to 1,000 personalizations of one recipient each.
//!
//! Substitutions fill the placeholders; headers and our tags are in each personalization. SendGrid
//! cannot be queried, so a lost answer stays unknown (P2, P5). Its tracking and its own
//! unsubscribing are off: links are not rewritten, and the unsubscribe link is ours (P7).
//! `docs/decisions/0006-providers.md` cites the sources. [`read`] verifies reports.

use std::time::Duration;

use async_trait::async_trait;
use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, TimeDelta, Utc};
use ring::signature::{ECDSA_P256_SHA256_ASN1, UnparsedPublicKey};
use serde::Deserialize;
use serde_json::{Map, Value, json};

use crate::domain::ReportKind;
use crate::email::content::{in_html, in_text};
use crate::email::hooks::{
    Posted, Refused, Report, Verified, detail, failed, fresh, json as parse, wrong_signature,
};
use crate::email::http::{
    Account, Answer, Api, Body, all, unexpected, unreached, usual, without_id, words,
};
use crate::email::letter::{Letter, Letters, share};
use crate::email::mime::one_line;
use crate::email::sign::Proof;
use crate::email::{Checked, Content, Mailer, Message, Outcome, Permit, Place};

/// The maximum number of recipients in a call.
const MOST: usize = 1000;
/// The wait while SendGrid blocks the account.
const BLOCKED: Duration = Duration::from_secs(60 * 60);

/// A mailer for one SendGrid account.
pub(super) struct SendGrid {
    account: Account,
    api: Api,
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
            let is_used = |words: &&str| keys.0.iter().any(|key| words.contains(key));
            if !said.iter().any(is_used) {
                return keys;
            }
            n += 1;
        }
    }

    fn of_place(&self, place: Place) -> &str {
        &self.0[place as usize]
    }
}

#[async_trait]
impl Mailer for SendGrid {
    fn calls(&self, messages: &[Message]) -> Vec<Vec<usize>> {
        share(messages, self.account.per_call(MOST))
    }

    async fn send(&self, reference: &str, messages: &[Message], permit: &Permit) -> Vec<Outcome> {
        let body = |ready: &[Letter<'_>]| Body::json(&self.body(reference, ready));
        Letters::post(messages, permit, (&self.api, "/v3/mail/send"), body, judge).await
    }

    async fn check(&self) -> Checked {
        let answer = match self.api.get("/v3/scopes").await {
            Ok(answer) => answer,
            Err(failed) => return unreached("SendGrid", failed),
        };
        match (answer.status, answer.value()["scopes"].as_array()) {
            (200, Some(scopes)) if scopes.iter().any(|scope| scope == "mail.send") => {
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

/// Returns SendGrid's own errors, if the answer has them.
fn errors(answer: &Answer) -> Option<Vec<String>> {
    let value = answer.value();
    let errors = value["errors"].as_array()?.iter().map(|error| {
        let message = error["message"].as_str()?;
        Some(match error["field"].as_str() {
            Some(field) => format!("{field}: {message}"),
            None => message.to_owned(),
        })
    });
    errors.collect()
}

fn said(answer: &Answer) -> String {
    match errors(answer) {
        Some(errors) => words(&format!("{} {}", answer.status, errors.join("; "))),
        None => answer.said(),
    }
}

/// Returns the outcomes that an answer means for the emails of its call.
fn judge(answer: &Answer, mails: usize) -> Vec<Outcome> {
    let reason = format!("SendGrid: {}", said(answer));
    let after = answer.wait();
    let outcome = match (answer.status, answer.header("x-message-id")) {
        // The answer has no body; status and id are enough.
        (202, Some(id)) if !id.is_empty() => Outcome::Accepted {
            provider_id: id.to_owned(),
        },
        (200..300, _) => without_id("SendGrid", answer),
        // SendGrid's own error: it tried and did not accept the call.
        (501.., _) if errors(answer).is_some() => Outcome::TryLater { reason, after },
        (401 | 403, _) if for_a_while(&reason) => Outcome::TryLater {
            reason,
            after: after.max(Some(BLOCKED)),
        },
        (451, _) => Outcome::Stop { reason },
        _ => usual(answer, reason),
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

/// SendGrid retries for a day. The rest is a margin.
const OLDEST: TimeDelta = TimeDelta::hours(26);

/// The start of a P-256 public key in DER (RFC 5480): the algorithm, the curve, and the tag of an
/// uncompressed point of 65 bytes.
const P256: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

#[derive(Deserialize)]
struct Event {
    event: String,
    email: Option<String>,
    timestamp: i64,
    sg_event_id: String,
    sg_message_id: Option<String>,
    #[serde(rename = "type")]
    kind: Option<String>,
    status: Option<String>,
    reason: Option<String>,
    bounce_classification: Option<String>,
    /// Our custom argument, which SendGrid repeats among its own fields.
    delivery: Option<String>,
}

/// Returns the key as an uncompressed point. The text is the DER key in Base64.
pub(super) fn key(text: &str) -> Result<Vec<u8>, &'static str> {
    match STANDARD.decode(text) {
        Ok(der) if der.len() == P256.len() + 64 && der.starts_with(&P256) => {
            Ok(der[P256.len() - 1..].to_vec())
        }
        _ => Err(
            "is not the verification key that SendGrid shows: Base64 that begins with MFkw, on one line",
        ),
    }
}

/// Verifies and reads reports: ECDSA (P-256, SHA-256) over the timestamp and the original body.
///
/// The signature covers the bytes, including the final line break, so the body must not be parsed
/// and rewritten first. Repeated events are recognized by their ids.
pub(super) fn read(
    key: &[u8],
    posted: &Posted<'_>,
    now: DateTime<Utc>,
) -> Result<Verified, Refused> {
    let timestamp = posted.needs("x-twilio-email-event-webhook-timestamp")?;
    let signature = posted.needs("x-twilio-email-event-webhook-signature")?;
    let signature = STANDARD.decode(signature).map_err(|_| wrong_signature())?;
    let signed = [timestamp.as_bytes(), posted.body].concat();
    UnparsedPublicKey::new(&ECDSA_P256_SHA256_ASN1, key)
        .verify(&signed, &signature)
        .map_err(|_| wrong_signature())?;
    fresh(timestamp, now, OLDEST)?;

    let items: Vec<Value> = parse(posted.body)?;
    let all = items.len();
    let events: Vec<Event> = items
        .iter()
        .filter_map(|item| Event::deserialize(item).ok())
        .collect();
    let readable = events.len();
    if readable == 0 && all > 0 {
        return Err(Refused::unreadable(
            "none of the events has the documented form",
        ));
    }
    let reports: Vec<Report> = events
        .into_iter()
        .filter_map(|event| report(event, now))
        .collect();
    Ok(Verified {
        ignored: (readable - reports.len()) as u64,
        unreadable: (all - readable) as u64,
        reports,
        once: None,
        confirm: None,
    })
}

fn report(event: Event, now: DateTime<Utc>) -> Option<Report> {
    let (kind, reason) = (event.kind.as_deref(), event.reason.as_deref());
    let news = match event.event.as_str() {
        "delivered" => ReportKind::Delivered,
        "deferred" => ReportKind::Delayed,
        "bounce" => {
            let otherwise = match kind {
                Some("blocked") => ReportKind::Refused,
                _ => ReportKind::Bounced,
            };
            failed([event.status.as_deref(), reason], otherwise)
        }
        // SendGrid did not try, usually because the address is on its suppression list.
        "dropped" => dropped(reason.unwrap_or_default()),
        "spamreport" => ReportKind::Complained,
        "unsubscribe" | "group_unsubscribe" => ReportKind::Unsubscribed,
        _ => return None,
    };
    let (tag, recipient) = (event.delivery.as_deref(), event.email.as_deref());
    let at = DateTime::from_timestamp(event.timestamp, 0);
    // The part before the first dot is the id in the answer to the call.
    let known_as = event.sg_message_id.as_deref();
    let known_as = known_as.and_then(|id| id.split('.').next());
    Some(Report {
        provider_ids: Vec::from_iter(known_as.map(str::to_owned)),
        detail: detail([
            event.status.as_deref(),
            event.bounce_classification.as_deref(),
        ]),
        ..Report::of(event.sg_event_id.clone(), news, tag, recipient, at, now)
    })
}

fn dropped(reason: &str) -> ReportKind {
    let reason = reason.to_lowercase();
    if reason.contains("unsubscribed") {
        ReportKind::Unsubscribed
    } else if reason.contains("spam report") {
        ReportKind::Complained
    } else if reason.contains("bounced")
        || (reason.contains("invalid") && !reason.contains("header"))
    {
        ReportKind::Bounced
    } else {
        // The content, the headers or the account are at fault. The mailbox may be fine.
        ReportKind::Refused
    }
}

#[cfg(test)]
#[path = "sendgrid_tests.rs"]
mod tests;
