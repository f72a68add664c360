//! Writes messages in the format of RFC 5322, as `multipart/alternative` with plain text first.
//!
//! Equal messages result in equal bytes, and no value can add a header.

use std::time::SystemTime;

use chrono::{DateTime, Utc};
use lettre::Address as MailAddress;
use lettre::message::header::{ContentType, HeaderName, HeaderValue, Headers, To};
use lettre::message::{Mailbox, Mailboxes, MultiPart, SinglePart};

use super::placeholders::in_text;
use super::{Message, SenderAddress};
use crate::domain::{Address, DeliveryId};

/// Returns 40 hexadecimal digits that replace a delivery's id where the id cannot be used.
///
/// They are in the `Message-ID`, in file names, and in the data that providers store with an email
/// and repeat in reports.
pub fn delivery_tag(delivery: &DeliveryId) -> String {
    delivery.tag().to_string()
}

/// Writes the email. Returns the reason if that is not possible; the reason contains no address.
pub(super) fn compose(message: &Message, sender: &SenderAddress) -> Result<Vec<u8>, String> {
    let tag = delivery_tag(&message.delivery);
    let content = message.fill_links();
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
    let email = builder.multipart(parts).map_err(|error| error.to_string())?;
    Ok(email.formatted())
}

/// Returns the `Message-ID` with this local part, in the sender's domain.
pub(super) fn message_id(name: &str, sender: &SenderAddress) -> String {
    format!("<{name}@{}>", sender.from.domain_in_ascii())
}

/// Returns the recipient. Providers' variables in the name are broken up.
pub(super) fn recipient(message: &Message) -> Result<Mailbox, String> {
    let name = message.to_name.as_deref().map(in_text);
    mailbox(&message.to, name.as_deref())
}

fn part(content_type: ContentType, body: &str) -> SinglePart {
    SinglePart::builder().header(content_type).body(body.to_owned())
}

/// Returns name and address. The domain is in Punycode, which needs no server extension.
pub(super) fn mailbox(address: &Address, name: Option<&str>) -> Result<Mailbox, String> {
    let parsed = MailAddress::new(address.local_part(), address.domain_in_ascii())
        .map_err(|error| format!("the address {address} cannot be written to: {error}"))?;
    let name = name.map(one_line).filter(|name| !name.is_empty());
    Ok(Mailbox::new(name, parsed))
}

/// Returns name and address in ASCII: the name as encoded words (RFC 2047), the domain in Punycode.
/// Fails if the local part is not ASCII, as it has no ASCII form.
pub(super) fn mailbox_in_ascii(address: &Address, name: Option<&str>) -> Result<String, String> {
    let mailbox = mailbox(address, name)?;
    if !address.local_part().is_ascii() {
        return Err(format!(
            "the address {address} cannot be written to: it is not of ASCII alone"
        ));
    }
    let mut headers = Headers::new();
    headers.set(To::from(Mailboxes::from(mailbox)));
    let folded = headers.to_string();
    let line = folded.lines().map(str::trim).collect::<Vec<_>>().join(" ");
    Ok(line.trim_start_matches("To:").trim().to_owned())
}

/// The maximum length of a subject or name in a header. RFC 5322 limits a line to 998 bytes.
const MAX_HEADER_CHARS: usize = 240;

/// Turns text into one line for a header. Control characters become spaces, runs of spaces become
/// one, and nothing looks like an encoded word.
pub(super) fn one_line(text: &str) -> String {
    let spaced: String = text.chars().map(|c| if c.is_control() { ' ' } else { c }).collect();
    let line = spaced.split_whitespace().collect::<Vec<_>>().join(" ");
    let shortened: String = line.chars().take(MAX_HEADER_CHARS).collect();
    shortened.replace("=?", "= ?")
}

/// Clamps the time to the years that a `Date` can contain, 1970 to 9999.
fn date(at: DateTime<Utc>) -> SystemTime {
    const LAST: i64 = 253_402_300_799; // 9999-12-31T23:59:59Z
    let last = DateTime::from_timestamp(LAST, 0).unwrap_or(DateTime::UNIX_EPOCH);
    SystemTime::from(at.clamp(DateTime::UNIX_EPOCH, last))
}

/// Returns the additional headers of a message, or the reason why one is invalid.
pub(super) fn headers(message: &Message) -> Result<Vec<(HeaderName, String)>, String> {
    let validate = |(name, value): (String, String)| {
        if name.chars().chain(value.chars()).any(char::is_control) {
            return Err(format!("the header {name:?} holds a control character"));
        }
        match HeaderName::new_from_ascii(name.clone()) {
            Ok(name) => Ok((name, value)),
            Err(_) => Err(format!("{name:?} is no name of a header")),
        }
    };
    message.headers().into_iter().map(validate).collect()
}

#[cfg(test)]
#[path = "mime_tests.rs"]
mod tests;
