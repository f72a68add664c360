//! Prepares messages for a provider's API, and splits them into calls.
//!
//! A message that cannot be an email fails alone, before the call. Recipients of one call share
//! only the content: the API fills in each one's links, and no recipient sees another's address.
//! Splitting keeps the order and is deterministic.

use std::collections::{HashMap, HashSet};

use serde_json::Value;

use super::http::{Answer, Api, Body};
use super::mime::{headers, message_id, one_line, recipient, tag};
use super::placeholders::in_text;
use super::{Message, Outcome, Permit, Sender};
use crate::domain::Address;

/// A valid message, with the fields that every API needs.
pub(super) struct Letter<'a> {
    pub message: &'a Message,
    /// The id that the provider stores with the email and repeats in its reports.
    pub tag: String,
    /// Name and address, quoted as RFC 5322 requires.
    pub to: String,
    pub subject: String,
    /// All headers of [`Message::headers`], validated.
    pub headers: Vec<(String, String)>,
}

impl<'a> Letter<'a> {
    /// Prepares a message. Returns the reason if it cannot be an email.
    fn new(message: &'a Message) -> Result<Self, String> {
        let content = &message.content;
        if content.says_nothing() {
            return Err("the mail says nothing".into());
        }
        let headers = headers(message)?.into_iter();
        Ok(Self {
            message,
            tag: tag(&message.delivery),
            to: recipient(message)?.to_string(),
            subject: in_text(&one_line(&content.subject)).into_owned(),
            headers: headers
                .map(|(name, value)| (name.to_string(), value))
                .collect(),
        })
    }

    /// Returns the headers with the email's own `Message-ID`, for an API that sets headers
    /// unchanged.
    pub(super) fn all_headers(&self, sender: &Sender) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        headers.push(("Message-ID".into(), message_id(&self.tag, sender)));
        headers
    }

    pub(super) fn address(&self) -> &'a str {
        self.message.to.reveal()
    }
}

/// Sets a field of a JSON object, unless the text is empty.
pub(super) fn set_text(object: &mut Value, field: &str, text: impl Into<String>) {
    let text = text.into();
    if !text.is_empty() {
        object[field] = text.into();
    }
}

/// Posts one call with the valid messages, if there are any, and returns an outcome for each
/// message, in order. `judge` returns the outcomes that an answer means for this number of emails.
pub(super) async fn post<'a>(
    messages: &'a [Message],
    permit: &Permit,
    (api, path): (&Api, &str),
    body: impl FnOnce(&[Letter<'a>]) -> Body,
    judge: impl FnOnce(&Answer, usize) -> Vec<Outcome>,
) -> Vec<Outcome> {
    let (ready, refused) = prepare(messages);
    let answered = match ready.len() {
        0 => Vec::new(),
        mails => match api.post(path, body(&ready), permit).await {
            Ok(answer) => judge(&answer, mails),
            Err(failed) => vec![Outcome::from(failed); mails],
        },
    };
    merged(refused, answered)
}

/// Returns the valid messages, and for each message its outcome if it is invalid.
pub(super) fn prepare(messages: &[Message]) -> (Vec<Letter<'_>>, Vec<Option<Outcome>>) {
    let (mut ready, mut refused) = (Vec::new(), Vec::new());
    for message in messages {
        match Letter::new(message) {
            Ok(letter) => {
                ready.push(letter);
                refused.push(None);
            }
            Err(reason) => refused.push(Some(Outcome::Unsendable(reason))),
        }
    }
    (ready, refused)
}

/// Fills the gaps in a list of outcomes with the outcomes of a call, in order.
fn merged(outcomes: Vec<Option<Outcome>>, answered: Vec<Outcome>) -> Vec<Outcome> {
    let mut answered = answered.into_iter();
    let unanswered = || Outcome::Unknown("the provider did not answer for it".into());
    let filled = outcomes
        .into_iter()
        .map(|outcome| outcome.or_else(|| answered.next()));
    filled
        .map(|outcome| outcome.unwrap_or_else(unanswered))
        .collect()
}

/// Splits messages into calls of at most `most` messages and `most_bytes` bytes of content. A
/// longer message gets a call of its own.
pub(super) fn cut(messages: &[Message], most: usize, most_bytes: usize) -> Vec<Vec<usize>> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    let mut bytes = 0;
    for (place, message) in messages.iter().enumerate() {
        let long = message.content.bytes();
        match calls.last_mut() {
            Some(call) if call.len() < most && bytes + long <= most_bytes => {
                call.push(place);
                bytes += long;
            }
            _ => {
                calls.push(vec![place]);
                bytes = long;
            }
        }
    }
    calls
}

/// Splits messages into calls of at most `most` messages with equal content and headers. An address
/// occurs at most once per call. Calls are in the order of their first messages.
pub(super) fn share(messages: &[Message], most: usize) -> Vec<Vec<usize>> {
    let mut calls: Vec<Vec<usize>> = Vec::new();
    // The last call with this content and these headers, and its addresses.
    let mut open: HashMap<_, (usize, HashSet<Address>)> = HashMap::new();
    for (place, message) in messages.iter().enumerate() {
        let links = message.personal.as_ref();
        let has_one_click = links.map(|links| links.one_click().is_some());
        let common = (&message.content, &message.further, has_one_click);
        let address = message.to.folded();
        match open.get_mut(&common) {
            Some((call, addresses))
                if calls[*call].len() < most && !addresses.contains(&address) =>
            {
                calls[*call].push(place);
                addresses.insert(address);
            }
            _ => {
                open.insert(common, (calls.len(), HashSet::from([address])));
                calls.push(vec![place]);
            }
        }
    }
    calls
}

#[cfg(test)]
#[path = "api_calls_tests.rs"]
mod tests;
