//! Email headers for lists, threads and feedback loops.
//!
//! They depend on the content and the time, never on the recipient, so users with equal content
//! share a call. They contain no personal data. The names of lists and threads never change,
//! because people filter by the former and mail programs group by the latter. See
//! `docs/decisions/0021-headers.md`.

use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::domain::{BrandName, Category, Delivery, EmailContent, EventType, Occasion, Policies};

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
/// The longest list name that is used unchanged.
const NAME: usize = 60;
/// The number of hash bytes that make a changed list name unique, and that identify a thread.
const SHORT: usize = 4;
const LONG: usize = 20;

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
    pub fn of(&self, row: &Delivery, content: &EmailContent, policies: &Policies) -> Vec<Header> {
        let list = self.list(&list_of(&row.occasion, content, policies));
        let feedback = self.feedback(row, content);
        let mut headers: Vec<Header> = [list].into_iter().chain(feedback).collect();
        let thread = match row.occasion {
            Occasion::Digest(..) => None,
            Occasion::Batch(..) => content.thread(),
        };
        if let Some(thread) = thread {
            // No email has this id. It only groups the emails of the thread.
            let thread = match &self.brand {
                Some(brand) => digits(&format!("{brand}\0{thread}"), LONG),
                None => digits(thread, LONG),
            };
            let root = format!("<thread-{thread}@{}>", self.list_domain);
            headers.push(("In-Reply-To".into(), root.clone()));
            headers.push(("References".into(), root));
        }
        headers
    }

    /// Returns the headers of a test email: the list of digests, or of batches.
    pub fn of_test(&self, is_digest: bool) -> Vec<Header> {
        let name = if is_digest { DIGEST } else { MIXED };
        vec![self.list(name)]
    }

    /// Returns the `List-Id` header (RFC 2919).
    fn list(&self, name: &str) -> Header {
        let domain = &self.list_domain;
        let id = match &self.brand {
            Some(brand) => format!("<{name}.{brand}.{domain}>"),
            None => format!("<{name}.{domain}>"),
        };
        ("List-Id".into(), id)
    }

    /// Returns the `Feedback-ID` header, under which Gmail counts spam reports: period or day,
    /// cadence or event type, `digest` or `batch`, and the sender.
    fn feedback(&self, row: &Delivery, content: &EmailContent) -> Option<Header> {
        let sender = self.feedback_id.as_ref()?;
        let of = match &row.occasion {
            Occasion::Digest(cadence, period) => format!("{period}:{cadence}:digest"),
            Occasion::Batch(..) => {
                let kind = content.only().map(EventType::as_str);
                // A colon separates the fields, and header values are ASCII.
                let plain =
                    kind.filter(|kind| kind.bytes().all(|byte| byte.is_ascii_alphanumeric()));
                let day = row.created.date_naive();
                format!("{day}:{}:batch", plain.unwrap_or("mixed"))
            }
        };
        Some(("Feedback-ID".into(), format!("{of}:{sender}")))
    }
}

/// Returns the name of the email's list. A batch belongs to the category that all its types share,
/// or else to its only type.
fn list_of(occasion: &Occasion, content: &EmailContent, policies: &Policies) -> String {
    if let Occasion::Digest(..) = occasion {
        return DIGEST.to_owned();
    }
    let kinds = content.sections.iter().map(|section| &section.kind);
    let kinds: Vec<&EventType> = kinds.collect();
    match policies.by_category(&kinds).as_slice() {
        [(Some(category), _)] => name(Category::as_str(category)),
        _ => content.only().map_or_else(|| MIXED.to_owned(), |kind| name(kind.as_str())),
    }
}

/// Returns the text as a list name. Invalid, reserved and long names are shortened to their valid
/// characters, and a hash makes them unique.
fn name(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_ours = [DIGEST, MIXED].iter().any(|own| own.eq_ignore_ascii_case(text));
    let words = text.split('.');
    let is_name = words.clone().all(|word| !word.is_empty() && word.chars().all(fits));
    if is_name && !is_ours && text.len() <= NAME {
        return text.to_owned();
    }
    let words = text.split(|c| !fits(c)).filter(|word| !word.is_empty());
    let mut readable: String = words.collect::<Vec<_>>().join("-");
    readable.truncate(NAME - 2 * SHORT - 1);
    let digits = digits(text, SHORT);
    match readable.is_empty() {
        true => digits,
        false => format!("{readable}-{digits}"),
    }
}

/// Returns the first bytes of the text's SHA-256 in hexadecimal.
fn digits(text: &str, bytes: usize) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_type_that_is_a_valid_list_name_is_used_unchanged() {
        for plain in ["Comment", "comment.created", "new_works-2026"] {
            assert_eq!(name(plain), plain);
        }
        for (other, begins) in [
            ("News & people", "News-people-"),
            ("Über uns", "ber-uns-"),
            ("digest", "digest-"),
            ("Batch", "Batch-"),
            (".a..b", "a-b-"),
            ("新着", ""),
            (&"x".repeat(70), "xxxxxxxx"),
            ("a>\r\nBcc: eve@example.org", "a-Bcc-eve-example-org-"),
        ] {
            let named = name(other);

            let digits = named.rsplit('-').next().unwrap();
            assert!(named.starts_with(begins) && named.len() <= NAME, "{named}");
            assert!(digits.bytes().all(|b| b.is_ascii_hexdigit()), "{named}");
            assert!(named.bytes().all(|b| b.is_ascii_graphic() && b != b'>'), "{named}");
        }
        assert_ne!(name("Über uns"), name("Äber uns"));
    }
}
