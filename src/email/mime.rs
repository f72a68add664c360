//! Messages as RFC 5322 texts: one `multipart/alternative`, plain text first.
//!
//! The rule: the same message always makes the same bytes, and nothing in it can add a header. What
//! a mail has anyway (`From`, `Date`, `Message-ID` …) cannot be given as a further header.

use std::time::SystemTime;

use chrono::{DateTime, Utc};
use lettre::Address as MailAddress;
use lettre::message::header::{ContentType, HeaderName, HeaderValue, Headers, To};
use lettre::message::{Mailbox, Mailboxes, MultiPart, SinglePart};

use super::variables::in_text;
use super::{Message, Sender};
use crate::domain::{Address, DeliveryId};

/// Forty hexadecimal digits that stand for a delivery wherever its id cannot: in a `Message-ID`, in
/// a file's name, in what a provider keeps with a mail and repeats in its events.
pub fn tag(delivery: &DeliveryId) -> String {
    delivery.tag().to_string()
}

/// The mail as bytes, or why it cannot be one; the reason holds no address.
pub(super) fn compose(message: &Message, sender: &Sender) -> Result<Vec<u8>, String> {
    let tag = tag(&message.delivery);
    let content = message.filled();
    let mut builder = lettre::Message::builder()
        .from(mailbox(&sender.from, Some(&sender.from_name))?)
        .to(recipient(message)?)
        .subject(one_line(&content.subject))
        .date(date(message.at))
        .message_id(Some(message_id(&tag, sender)));
    if let Some(reply_to) = &sender.reply_to {
        builder = builder.reply_to(mailbox(reply_to, None)?);
    }
    for (name, value) in headers(message)? {
        builder = builder.raw_header(HeaderValue::new(name, value));
    }
    let parts = MultiPart::alternative()
        .boundary(format!("tidings-{tag}"))
        .singlepart(part(ContentType::TEXT_PLAIN, &content.text))
        .singlepart(part(ContentType::TEXT_HTML, &content.html));
    let mail = builder
        .multipart(parts)
        .map_err(|error| error.to_string())?;
    Ok(mail.formatted())
}

/// The `Message-ID` of what is known by this name, in the sender's domain.
pub(super) fn message_id(name: &str, sender: &Sender) -> String {
    format!("<{name}@{}>", sender.from.domain_in_ascii())
}

/// Whom the mail is for. A name says no variable either.
pub(super) fn recipient(message: &Message) -> Result<Mailbox, String> {
    let name = message.to_name.as_deref().map(in_text);
    mailbox(&message.to, name.as_deref())
}

fn part(kind: ContentType, body: &str) -> SinglePart {
    SinglePart::builder().header(kind).body(body.to_owned())
}

/// Name and address, the domain in Punycode: servers need no extension for that.
pub(super) fn mailbox(address: &Address, name: Option<&str>) -> Result<Mailbox, String> {
    let parsed = MailAddress::new(address.local(), address.domain_in_ascii())
        .map_err(|error| format!("the address {address} cannot be written to: {error}"))?;
    let name = name.map(one_line).filter(|name| !name.is_empty());
    Ok(Mailbox::new(name, parsed))
}

/// Name and address in ASCII alone: the name as encoded words (RFC 2047), the domain in Punycode.
/// The local part cannot be written otherwise.
pub(super) fn mailbox_in_ascii(address: &Address, name: Option<&str>) -> Result<String, String> {
    let mailbox = mailbox(address, name)?;
    if !address.local().is_ascii() {
        return Err(format!(
            "the address {address} cannot be written to: it is not of ASCII alone"
        ));
    }
    let mut headers = Headers::new();
    headers.set(To::from(Mailboxes::from(mailbox)));
    let folded = headers.to_string();
    let line: Vec<&str> = folded.lines().map(str::trim).collect();
    let line = line.join(" ");
    Ok(line.trim_start_matches("To:").trim().to_owned())
}

/// How much of a subject or a name a header takes: a mail's line must not be longer than 998 bytes.
const MAX_HEADER_CHARS: usize = 240;

/// Headers are one line: control characters become spaces, spaces do not pile up, and nothing poses
/// as an encoded word.
pub(super) fn one_line(text: &str) -> String {
    let spaced: String = text
        .chars()
        .map(|c| if c.is_control() { ' ' } else { c })
        .collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    let line: String = line.chars().take(MAX_HEADER_CHARS).collect();
    line.replace("=?", "= ?")
}

/// The years in which a mail's date can be written.
fn date(at: DateTime<Utc>) -> SystemTime {
    const LAST: i64 = 253_402_300_799; // 9999-12-31T23:59:59Z
    let last = DateTime::from_timestamp(LAST, 0).unwrap_or(DateTime::UNIX_EPOCH);
    SystemTime::from(at.clamp(DateTime::UNIX_EPOCH, last))
}

/// Headers that every mail has from elsewhere.
const OWN: [&str; 12] = [
    "from",
    "sender",
    "reply-to",
    "to",
    "cc",
    "bcc",
    "subject",
    "date",
    "message-id",
    "mime-version",
    "return-path",
    "received",
];

/// The longest line a mail may have (RFC 5322, 2.1.1), less room for the header's name.
const MAX_HEADER_WORD: usize = 900;

/// The headers beside those every mail has, if they can stand in one.
pub(super) fn headers(message: &Message) -> Result<Vec<(HeaderName, String)>, String> {
    let headers = message.headers().into_iter();
    headers
        .map(|(name, value)| Ok((further(&name, &value)?, value)))
        .collect()
}

/// The header's name, if it and the value can stand in a mail beside what it has anyway.
fn further(name: &str, value: &str) -> Result<HeaderName, String> {
    let lower = name.to_ascii_lowercase();
    if !name.bytes().all(|b| b.is_ascii_graphic() && b != b':') {
        return Err(format!("{name:?} is no name of a header"));
    }
    if OWN.contains(&lower.as_str()) || lower.starts_with("content-") {
        return Err(format!(
            "the header {name} cannot be given: the mail has its own"
        ));
    }
    if value.chars().any(char::is_control) {
        return Err(format!("the header {name} holds a control character"));
    }
    if value.split(' ').any(|word| word.len() > MAX_HEADER_WORD) {
        return Err(format!(
            "the header {name} is longer than a mail's line may be"
        ));
    }
    HeaderName::new_from_ascii(name.to_owned())
        .map_err(|_| format!("{name:?} is no name of a header"))
}

#[cfg(test)]
#[path = "mime_tests.rs"]
mod tests;
