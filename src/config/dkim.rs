//! What mails are signed with that leave by SMTP: the options `mail.dkim_…`.
//!
//! The rule: a signature that vouches for another domain than the sender's is worth nothing to
//! receivers (DMARC, RFC 7489, section 3.1), so it is not configured by mistake. Whether the key
//! can sign is said by whoever makes the signer.

use super::reader::Reader;
use crate::domain::{Address, Secret};

/// A key that signs mails, and whose it is.
#[derive(Debug, Clone)]
pub struct Signing {
    /// The domain that the signature vouches for, in ASCII and lower case.
    pub domain: String,
    /// Under which name the public key stands below it.
    pub selector: String,
    /// The private key, in PEM.
    pub key: Secret,
}

/// The longest domain there is, in bytes.
const MOST: usize = 253;
const KEY_FILE: &str = "mail.dkim_key_file";

impl Signing {
    /// Takes the options; `None` where no key is named.
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

/// The domain in ASCII and lower case; `None` for what is none, or is longer than so many bytes.
pub(super) fn domain(text: &str, most: usize) -> Option<String> {
    let ascii = idna::domain_to_ascii(text).ok()?;
    let known = |b: u8| b.is_ascii_alphanumeric() || b == b'-';
    let fits = |word: &str| !word.is_empty() && word.bytes().all(known);
    let fits = ascii.len() <= most && ascii.split('.').all(fits);
    fits.then_some(ascii)
}
