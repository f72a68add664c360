//! Headers that say what a mail is: of which list, on which thread, and what Gmail counts it under.
//!
//! The rule: they depend on what the mail tells and when, never on whom it is for, so that people
//! who are told the same share a call; nothing in them names a person. A list's name and a thread's
//! are the same for ever, as people filter by one and mail programs gather by the other.
//! `docs/decisions/0021-headers.md` says why they are made so.

use sha2::{Digest as _, Sha256};

use crate::config::Config;
use crate::domain::{BrandName, Category, Content, Delivery, EventType, Occasion, Policies};

/// What such headers are made of.
#[derive(Debug, Clone)]
pub struct Headers {
    /// The domain in which lists and threads have their names, in ASCII.
    pub list_domain: String,
    /// The sender's part of `Feedback-ID`; without it mails have none.
    pub feedback_id: Option<String>,
    /// The brand whose lists and threads they are, apart from all others.
    pub brand: Option<BrandName>,
}

/// A header: its name and its value.
type Header = (String, String);

/// The list of digests.
const DIGEST: &str = "digest";
/// The list of batches of several types, that is of no category either.
const MIXED: &str = "batch";
/// The longest name of a list that stands as it is.
const NAME: usize = 60;
/// How many bytes of a digest stand for a name that cannot stand itself, and for a thread.
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

    /// Those of a mail that tells this.
    pub fn of(&self, row: &Delivery, told: &Content, policies: &Policies) -> Vec<Header> {
        let list = self.list(&list_of(&row.occasion, told, policies));
        let feedback = self.feedback(row, told);
        let mut headers: Vec<Header> = [list].into_iter().chain(feedback).collect();
        let thread = match row.occasion {
            Occasion::Digest { .. } => None,
            Occasion::Batch { .. } => told.thread(),
        };
        if let Some(thread) = thread {
            // The mail that all of them seem to answer was never sent.
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

    /// Those of a mail that is only sent to be looked at: a digest's list, or that of batches.
    pub fn of_test(&self, is_digest: bool) -> Vec<Header> {
        let name = if is_digest { DIGEST } else { MIXED };
        vec![self.list(name)]
    }

    /// RFC 2919.
    fn list(&self, name: &str) -> Header {
        let domain = &self.list_domain;
        let id = match &self.brand {
            Some(brand) => format!("<{name}.{brand}.{domain}>"),
            None => format!("<{name}.{domain}>"),
        };
        ("List-Id".into(), id)
    }

    /// What Gmail counts spam reports under: the run or the day, the kind of mail, and whose it is.
    fn feedback(&self, row: &Delivery, told: &Content) -> Option<Header> {
        let sender = self.feedback_id.as_ref()?;
        let of = match &row.occasion {
            Occasion::Digest { cadence, period } => format!("{period}:{cadence}:digest"),
            Occasion::Batch { .. } => {
                let kind = told.only().map(EventType::as_str);
                // A colon would part it, and what is not ASCII is no header.
                let plain =
                    kind.filter(|kind| kind.bytes().all(|byte| byte.is_ascii_alphanumeric()));
                let day = row.created.date_naive();
                format!("{day}:{}:batch", plain.unwrap_or("mixed"))
            }
        };
        Some(("Feedback-ID".into(), format!("{of}:{sender}")))
    }
}

/// The list a mail is of, by its name: a batch is of the category that all its types have, or else
/// of its one type.
fn list_of(occasion: &Occasion, told: &Content, policies: &Policies) -> String {
    if let Occasion::Digest { .. } = occasion {
        return DIGEST.to_owned();
    }
    let kinds: Vec<&EventType> = told.sections.iter().map(|section| &section.kind).collect();
    match policies.by_category(&kinds).as_slice() {
        [(Some(category), _)] => name(Category::as_str(category)),
        _ => told
            .only()
            .map_or_else(|| MIXED.to_owned(), |kind| name(kind.as_str())),
    }
}

/// A name as the beginning of a list's: as it is where it can be, or else what can be read of it
/// and digits that tell it from others.
fn name(text: &str) -> String {
    let fits = |c: char| c.is_ascii_alphanumeric() || c == '-' || c == '_';
    let is_ours = [DIGEST, MIXED]
        .iter()
        .any(|own| own.eq_ignore_ascii_case(text));
    let words = text.split('.');
    let is_name = words
        .clone()
        .all(|word| !word.is_empty() && word.chars().all(fits));
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

/// So many bytes that stand for a text, in hexadecimal digits.
fn digits(text: &str, bytes: usize) -> String {
    hex::encode(&Sha256::digest(text.as_bytes())[..bytes])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_stands_as_it_is_where_a_list_can_be_called_so() {
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
            assert!(
                named.bytes().all(|b| b.is_ascii_graphic() && b != b'>'),
                "{named}"
            );
        }
        assert_ne!(name("Über uns"), name("Äber uns"));
    }
}
