//! Email headers for lists, threads and feedback loops.
//!
//! They depend on the content and the time, never on the recipient, so users with equal content
//! share a call. They contain no personal data. The names of lists and threads never change,
//! because people filter by the former and mail programs group by the latter. See
//! `docs/decisions/0021-headers.md`.

use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::domain::{
    BrandName, Category, Delivery, DeliverySource, EmailContent, EventType, Policies,
};

/// The settings for these headers.
#[derive(Debug, Clone)]
pub struct Headers {
    /// The domain of list and thread names, in ASCII.
    pub list_domain: String,
    /// The sender's part of `Feedback-ID`; `None` omits the header.
    pub feedback_id: Option<String>,
    /// The brand, which has lists and threads of its own.
    pub brand: Option<BrandName>,
}

/// The name and the value of a header.
type Header = (String, String);

/// The list of digests.
const DIGEST: &str = "digest";
/// The list of batches with several types that share no category.
const MIXED: &str = "batch";
/// The longest list name that is used unchanged, in bytes.
const MAX_NAME: usize = 60;
/// The number of hash bytes that make a changed list name unique.
const NAME_HASH: usize = 4;
/// The number of hash bytes that identify a thread.
const THREAD_HASH: usize = 20;

impl Headers {
    /// Builds the headers of a brand; `None` for the default.
    pub fn new(config: &Config, brand: Option<&BrandName>) -> Self {
        Self {
            list_domain: config.mail.list_domain.clone(),
            feedback_id: config.site.feedback_id.clone(),
            brand: brand.cloned(),
        }
    }

    /// Returns the headers of an email with this content.
    pub fn headers_for(
        &self,
        row: &Delivery,
        content: &EmailContent,
        policies: &Policies,
    ) -> Vec<Header> {
        let mut headers = vec![self.list_id(&list_of(&row.source, content, policies))];
        headers.extend(self.feedback_header(row, content));
        let thread = match row.source {
            DeliverySource::Digest(..) => None,
            DeliverySource::Batch(..) => content.common_topic(),
        };
        if let Some(thread) = thread {
            // No email has this id. It only groups the emails of the thread.
            let thread = match &self.brand {
                Some(brand) => hash_digits(&format!("{brand}\0{thread}"), THREAD_HASH),
                None => hash_digits(thread, THREAD_HASH),
            };
            let root = format!("<thread-{thread}@{}>", self.list_domain);
            headers.push(("In-Reply-To".into(), root.clone()));
            headers.push(("References".into(), root));
        }
        headers
    }

    /// Returns the headers of a test email: the list of digests, or of batches.
    pub fn headers_of_test(&self, is_digest: bool) -> Vec<Header> {
        vec![self.list_id(if is_digest { DIGEST } else { MIXED })]
    }

    /// Returns the `List-Id` header (RFC 2919).
    fn list_id(&self, name: &str) -> Header {
        let domain = &self.list_domain;
        let id = match &self.brand {
            Some(brand) => format!("<{name}.{brand}.{domain}>"),
            None => format!("<{name}.{domain}>"),
        };
        ("List-Id".into(), id)
    }

    /// Returns the `Feedback-ID` header, under which Gmail counts spam reports: period or day,
    /// cadence or event type, `digest` or `batch`, and the sender.
    fn feedback_header(&self, row: &Delivery, content: &EmailContent) -> Option<Header> {
        let sender = self.feedback_id.as_ref()?;
        let stream = match &row.source {
            DeliverySource::Digest(cadence, period) => format!("{period}:{cadence}:digest"),
            DeliverySource::Batch(..) => {
                // A colon separates the fields, and header values are ASCII.
                let is_plain = |kind: &&str| kind.bytes().all(|byte| byte.is_ascii_alphanumeric());
                let kind = content.only_kind().map(EventType::as_str).filter(is_plain);
                let day = row.created.date_naive();
                format!("{day}:{}:batch", kind.unwrap_or("mixed"))
            }
        };
        Some(("Feedback-ID".into(), format!("{stream}:{sender}")))
    }
}

/// Returns the name of the email's list. A batch belongs to the category that all its types share,
/// or else to its only type.
fn list_of(occasion: &DeliverySource, content: &EmailContent, policies: &Policies) -> String {
    if let DeliverySource::Digest(..) = occasion {
        return DIGEST.to_owned();
    }
    let kinds: Vec<&EventType> = content.sections.iter().map(|section| &section.kind).collect();
    match policies.by_category(&kinds).as_slice() {
        [(Some(category), _)] => list_name(Category::as_str(category)),
        _ => content.only_kind().map_or_else(|| MIXED.to_owned(), |kind| list_name(kind.as_str())),
    }
}

/// Returns the text as a list name. Invalid, reserved and long names are shortened to their valid
/// characters, and a hash makes them unique.
fn list_name(text: &str) -> String {
    let is_valid = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_reserved = [DIGEST, MIXED].iter().any(|name| name.eq_ignore_ascii_case(text));
    let is_name = text.split('.').all(|word| !word.is_empty() && word.chars().all(is_valid));
    if is_name && !is_reserved && text.len() <= MAX_NAME {
        return text.to_owned();
    }
    let words = text.split(|c| !is_valid(c)).filter(|word| !word.is_empty());
    let mut readable = words.collect::<Vec<_>>().join("-");
    readable.truncate(MAX_NAME - 2 * NAME_HASH - 1);
    let digits = hash_digits(text, NAME_HASH);
    if readable.is_empty() { digits } else { format!("{readable}-{digits}") }
}

/// Returns the first bytes of the text's SHA-256 in hexadecimal.
fn hash_digits(text: &str, bytes: usize) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_a_valid_list_name_is_used_unchanged() {
        for plain in ["Comment", "comment.created", "new_works-2026"] {
            assert_eq!(list_name(plain), plain);
        }
        for (other, prefix) in [
            ("News & people", "News-people-"),
            ("Über uns", "ber-uns-"),
            ("digest", "digest-"),
            ("Batch", "Batch-"),
            (".a..b", "a-b-"),
            ("新着", ""),
            (&"x".repeat(70), "xxxxxxxx"),
            ("a>\r\nBcc: eve@example.org", "a-Bcc-eve-example-org-"),
        ] {
            let name = list_name(other);

            let digits = name.rsplit('-').next().unwrap();
            assert!(name.starts_with(prefix) && name.len() <= MAX_NAME, "{name}");
            assert!(digits.bytes().all(|b| b.is_ascii_hexdigit()), "{name}");
            assert!(name.bytes().all(|b| b.is_ascii_graphic() && b != b'>'), "{name}");
        }
        assert_ne!(list_name("Über uns"), list_name("Äber uns"));
    }
}
