//! The DKIM options `mail.dkim_…`, for email that is sent by SMTP.
//!
//! DMARC ignores a signature whose domain is not aligned with the sender's (RFC 7489, section 3.1).
//! Only the sender's domain and those above it are therefore accepted. Whether the key can sign is
//! checked when the signer is created.

use super::reader::Reader;
use crate::domain::{Address, Secret};

/// A key that signs email, and its name in the DNS.
#[derive(Debug, Clone)]
pub struct Signing {
    /// The signing domain, in ASCII and lower case.
    pub domain: String,
    /// The selector: the name of the public key below the domain.
    pub selector: String,
    /// The private key, in PEM.
    pub key: Secret,
}

/// The longest domain, in bytes.
const MOST: usize = 253;
const KEY_FILE: &str = "mail.dkim_key_file";

impl Signing {
    /// Reads the options; `None` if no key file is set.
    pub(super) fn read(
        r: &mut Reader<'_>,
        from: &Address,
        selector: Option<&String>,
    ) -> Option<Self> {
        let own = idna::domain_to_ascii(from.domain()).unwrap_or_default();
        let wanted = "a domain such as art.example: letters, digits, hyphens and dots";
        let domain = r.optional_parse("mail.dkim_domain", wanted, |text| domain(text, MOST));
        let Some(key) = r.secret_file(KEY_FILE) else {
            if domain.is_some() {
                r.problem(
                    "mail.dkim_domain",
                    format!("signs nothing without {KEY_FILE}"),
                );
            }
            return None;
        };
        if selector.is_none() {
            let what = format!("is needed with {KEY_FILE}: the key's name in the DNS");
            r.problem("mail.dkim_selector", what);
        }
        let domain = domain.unwrap_or_else(|| own.clone());
        let is_above = domain.contains('.') && own.ends_with(&format!(".{domain}"));
        let is_senders = own == domain || is_above;
        if !is_senders {
            let what = "must be the domain of mail.from, or one above it";
            r.problem("mail.dkim_domain", what);
        }
        Some(Self {
            domain,
            selector: selector?.clone(),
            key: Secret::new(key),
        })
    }
}

/// Returns the domain in ASCII and lower case; `None` if it is invalid or longer than `most` bytes.
pub(super) fn domain(text: &str, most: usize) -> Option<String> {
    let ascii = idna::domain_to_ascii(text).ok()?;
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let fits = |word: &str| !word.is_empty() && word.bytes().all(known);
    let fits = ascii.len() <= most && ascii.split('.').all(fits);
    fits.then_some(ascii)
}
