//! Messages made ready for a provider's API, and how they are cut into calls.
//!
//! The rule: what cannot be a mail is refused here, alone, before it could spoil a call for others.
//! Recipients who share a call share the content and nothing else: the API fills in each one's
//! links, and no one sees another's address. Cutting keeps the order, and the same messages are
//! always cut the same way.

use std::collections::{HashMap, HashSet};

use super::http::{Answer, Api, Body, outcomes};
use super::mime::{headers, mailbox, message_id, one_line, recipient, tag};
use super::variables::in_text;
use super::{Content, Leave, Message, Outcome, Sender};
use crate::domain::Address;

/// A message that can be a mail, with what every API asks for.
pub(super) struct Letter<'a> {
    pub message: &'a Message,
    /// What the provider keeps with the mail and repeats in its events.
    pub tag: String,
    /// Name and address, quoted as RFC 5322 wants it.
    pub to: String,
    pub subject: String,
    /// Further headers, and the one-click unsubscribe with this person's link.
    pub headers: Vec<(String, String)>,
}

impl<'a> Letter<'a> {
    /// The letter of a message, or why it cannot be one.
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

    /// All headers that an API sets as they are: these and the mail's own `Message-ID`.
    pub(super) fn all_headers(&self, sender: &Sender) -> Vec<(String, String)> {
        let mut headers = self.headers.clone();
        headers.push(("Message-ID".into(), message_id(&self.tag, sender)));
        headers
    }

    pub(super) fn address(&self) -> &'a str {
        self.message.to.reveal()
    }
}

/// The sender's name and address, quoted.
pub(super) fn from(sender: &Sender) -> Result<String, String> {
    Ok(mailbox(&sender.from, Some(&sender.from_name))?.to_string())
}

/// What is posted to an API.
pub(super) struct Call<'a> {
    pub path: String,
    pub headers: Vec<(&'static str, &'a str)>,
    pub body: Body,
}

/// The letters of a call, and why some messages are none.
pub(super) struct Letters<'a> {
    pub ready: Vec<Letter<'a>>,
    /// A place for each message: why it is no letter.
    refused: Vec<Option<String>>,
}

impl<'a> Letters<'a> {
    pub(super) fn of(messages: &'a [Message]) -> Self {
        let mut ready = Vec::with_capacity(messages.len());
        let mut refused = Vec::with_capacity(messages.len());
        for message in messages {
            match Letter::new(message) {
                Ok(letter) => {
                    ready.push(letter);
                    refused.push(None);
                }
                Err(reason) => refused.push(Some(reason)),
            }
        }
        Self { ready, refused }
    }

    /// Makes one call of those that can be mails, if any can: `call` says where and with what.
    /// `judge` tells what an answer means for so many mails.
    pub(super) async fn post(
        messages: &'a [Message],
        leave: &Leave,
        api: &Api,
        call: impl FnOnce(&[Letter<'a>]) -> Call<'a>,
        judge: impl FnOnce(&Answer, usize) -> Vec<Outcome>,
    ) -> Vec<Outcome> {
        let letters = Self::of(messages);
        let mails = letters.ready.len();
        if mails == 0 {
            return letters.outcomes(Vec::new());
        }
        let Call {
            path,
            headers,
            body,
        } = call(&letters.ready);
        let reply = api.post(&path, &headers, body, leave).await;
        letters.outcomes(outcomes(reply, mails, |answer| judge(answer, mails)))
    }

    /// The outcomes of all messages, in their order, from those of the ready ones.
    fn outcomes(self, ready: Vec<Outcome>) -> Vec<Outcome> {
        let mut ready = ready.into_iter();
        let merged = self.refused.into_iter().map(|refused| match refused {
            Some(reason) => Outcome::Unsendable { reason },
            None => ready.next().unwrap_or_else(|| Outcome::Unknown {
                reason: "the provider did not answer for it".into(),
            }),
        });
        merged.collect()
    }
}

/// Calls of at most so many messages, and of at most so many bytes of content unless one message
/// alone is longer.
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

/// What messages of a shared call have in common.
#[derive(PartialEq, Eq, Hash)]
struct Common<'a> {
    content: &'a Content,
    further: &'a [(String, String)],
    /// Which headers come of the personal links; `None` without any.
    one_click: Option<bool>,
}

impl<'a> Common<'a> {
    fn of(message: &'a Message) -> Self {
        let links = message.personal.as_ref();
        Self {
            content: &message.content,
            further: &message.further,
            one_click: links.map(|links| links.one_click().is_some()),
        }
    }
}

/// Calls of at most so many messages with the same content, each address once in a call. Calls are
/// in the order of their first messages.
pub(super) fn share(messages: &[Message], most: usize) -> Vec<Vec<usize>> {
    struct Open {
        call: usize,
        addresses: HashSet<Address>,
    }
    let mut calls: Vec<Vec<usize>> = Vec::new();
    let mut open: HashMap<Common<'_>, Open> = HashMap::new();
    for (place, message) in messages.iter().enumerate() {
        let address = message.to.folded();
        match open.get_mut(&Common::of(message)) {
            Some(Open { call, addresses })
                if calls[*call].len() < most && !addresses.contains(&address) =>
            {
                calls[*call].push(place);
                addresses.insert(address);
            }
            _ => {
                let addresses = HashSet::from([address]);
                let call = calls.len();
                calls.push(vec![place]);
                open.insert(Common::of(message), Open { call, addresses });
            }
        }
    }
    calls
}

#[cfg(test)]
#[path = "letter_tests.rs"]
mod tests;
