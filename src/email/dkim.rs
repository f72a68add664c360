//! Signs emails that are sent over SMTP with DKIM (RFC 6376, RFC 8463), by RSA or Ed25519.
//!
//! An email is sent exactly as it was signed, and equal emails have equal signatures. Each header
//! that mail programs act on is listed once more than it occurs, so no one can add another.
//! Providers sign emails themselves. `operate::doctor` checks the DNS record.
//! `docs/decisions/0021-headers.md` gives the reasons.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::STANDARD;
use chrono::{DateTime, Utc};
use ring::rand::SystemRandom;
use ring::signature::{Ed25519KeyPair, KeyPair as _, RSA_PKCS1_SHA256, RsaKeyPair};
use rustls::pki_types::PrivateKeyDer;
use rustls::pki_types::pem::PemObject as _;
use sha2::{Digest as _, Sha256};

use crate::domain::Secret;

/// Signs emails for a domain.
pub struct Dkim {
    domain: String,
    selector: String,
    key: Key,
}

enum Key {
    Rsa(Box<RsaKeyPair>),
    Ed25519(Ed25519KeyPair),
}

/// Headers that are signed if they are present. RFC 8058, section 4, requires the two for
/// unsubscribing.
const COVERED: [&str; 18] = [
    "from",
    "sender",
    "to",
    "cc",
    "subject",
    "date",
    "message-id",
    "reply-to",
    "mime-version",
    "content-type",
    "content-transfer-encoding",
    "list-unsubscribe",
    "list-unsubscribe-post",
    "list-id",
    "auto-submitted",
    "references",
    "in-reply-to",
    "feedback-id",
];
/// Headers that are signed even if they are absent, so that no one can add them. An added one could
/// redirect replies, or change the apparent sender, the recipients or the encoding.
const ABSENT: [&str; 4] = ["reply-to", "sender", "cc", "content-transfer-encoding"];
/// The length of a line of the signature, and the number of header names on a line.
const LINE: usize = 70;
const NAMES: usize = 3;

impl Dkim {
    /// Creates a signer from a private key in PEM: RSA (PKCS#1 or PKCS#8) of 2,048 to 4,096 bits,
    /// or Ed25519 (PKCS#8). The error message reveals nothing about the key.
    pub fn new(domain: &str, selector: &str, key: &Secret) -> Result<Self, String> {
        Ok(Self {
            domain: domain.to_owned(),
            selector: selector.to_owned(),
            key: Key::read(key)?,
        })
    }

    /// Returns the DNS name of the public key.
    pub fn name(&self) -> String {
        format!("{}._domainkey.{}", self.selector, self.domain)
    }

    /// Returns the TXT record for that name.
    pub fn record(&self) -> String {
        let (kind, key) = (self.key.kind(), STANDARD.encode(self.key.public()));
        format!("v=DKIM1; k={kind}; p={key}")
    }

    /// Returns the email with its signature at the start. `at` is the time of signing.
    pub(super) fn signed(&self, mail: &[u8], at: DateTime<Utc>) -> Result<Vec<u8>, String> {
        let end = mail.windows(4).position(|four| four == b"\r\n\r\n");
        let (head, body) = end.map_or((mail, &[][..]), |end| (&mail[..end], &mail[end + 4..]));
        let fields = fields(&String::from_utf8_lossy(head));
        let names = names(&fields);
        let unsigned = self.field(&names, body, at);
        let covered = covered(&fields, &names, &unsigned);
        let signature = STANDARD.encode(self.key.sign(&covered)?);
        let mut signed = unsigned;
        for line in signature.as_bytes().chunks(LINE) {
            signed.push_str("\r\n ");
            signed.push_str(&String::from_utf8_lossy(line));
        }
        let mut signed = signed.into_bytes();
        signed.extend_from_slice(b"\r\n");
        signed.extend_from_slice(mail);
        Ok(signed)
    }

    /// Returns the signature header with an empty signature, which is what the signature covers.
    fn field(&self, names: &[&str], body: &[u8], at: DateTime<Utc>) -> String {
        let (domain, selector, time) = (&self.domain, &self.selector, at.timestamp().max(0));
        let hash = STANDARD.encode(Sha256::digest(relaxed_body(body)));
        let lines: Vec<String> = names.chunks(NAMES).map(|line| line.join(":")).collect();
        let (kind, list) = (self.key.kind(), lines.join(":\r\n  "));
        format!(
            "DKIM-Signature: v=1; a={kind}-sha256; c=relaxed/relaxed;\r\n d={domain}; s={selector}; \
             t={time};\r\n h={list};\r\n bh={hash};\r\n b="
        )
    }
}

/// The algorithm in the `SubjectPublicKeyInfo` of an RSA key, as DER.
const RSA: [u8; 15] = [
    0x30, 0x0d, 0x06, 0x09, 0x2a, 0x86, 0x48, 0x86, 0xf7, 0x0d, 0x01, 0x01, 0x01, 0x05, 0x00,
];

impl fmt::Debug for Dkim {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Dkim").field(&self.name()).finish()
    }
}

impl Key {
    fn kind(&self) -> &'static str {
        match self {
            Self::Rsa(_) => "rsa",
            Self::Ed25519(_) => "ed25519",
        }
    }

    fn read(pem: &Secret) -> Result<Self, String> {
        let wanted = "it is an RSA key (PKCS#1 or PKCS#8) or an Ed25519 key (PKCS#8), in PEM and \
                      not encrypted";
        let key = PrivateKeyDer::from_pem_slice(pem.expose().as_bytes())
            .map_err(|_| format!("it holds no private key that can be read: {wanted}"))?;
        let rsa = match &key {
            PrivateKeyDer::Pkcs1(der) => RsaKeyPair::from_der(der.secret_pkcs1_der()),
            PrivateKeyDer::Pkcs8(der) => {
                let der = der.secret_pkcs8_der();
                if let Ok(key) = Ed25519KeyPair::from_pkcs8_maybe_unchecked(der) {
                    return Ok(Self::Ed25519(key));
                }
                RsaKeyPair::from_pkcs8(der)
            }
            _ => return Err(format!("it holds a key of another kind: {wanted}")),
        };
        match rsa {
            Ok(key) => Ok(Self::Rsa(Box::new(key))),
            Err(why) => Err(format!(
                "its key cannot sign ({why}): {wanted}; RSA of 2,048 to 4,096 bits"
            )),
        }
    }

    /// Returns the public key as in the DNS record: a `SubjectPublicKeyInfo` for RSA, the key's
    /// bytes for Ed25519.
    fn public(&self) -> Vec<u8> {
        match self {
            Self::Ed25519(key) => key.public_key().as_ref().to_vec(),
            Self::Rsa(key) => {
                // The DER of the key takes two bytes to state a length, at 2,048 to 4,096 bits.
                let key = key.public_key().as_ref();
                let element = |tag: u8, more: usize| {
                    let [.., high, low] = (key.len() + more).to_be_bytes();
                    [tag, 0x82, high, low]
                };
                let (info, bits) = (element(0x30, 20), element(0x03, 1));
                [&info[..], &RSA, &bits, &[0], key].concat()
            }
        }
    }

    fn sign(&self, covered: &[u8]) -> Result<Vec<u8>, String> {
        match self {
            // RFC 8463, section 3: Ed25519 signs the hash.
            Self::Ed25519(key) => Ok(key.sign(&Sha256::digest(covered)).as_ref().to_vec()),
            Self::Rsa(key) => {
                let mut signature = vec![0; key.public().modulus_len()];
                key.sign(
                    &RSA_PKCS1_SHA256,
                    &SystemRandom::new(),
                    covered,
                    &mut signature,
                )
                .map_err(|_| "the mail could not be signed (DKIM)".to_owned())?;
                Ok(signature)
            }
        }
    }
}

/// A canonical header: its name in lower case, and `name:value` without a line break.
type Field = (String, String);

/// Returns the headers in order, canonical ("relaxed", RFC 6376, section 3.4.2).
fn fields(head: &str) -> Vec<Field> {
    let head = head.replace("\r\n ", " ").replace("\r\n\t", "\t");
    let fields = head.split("\r\n").filter_map(|line| {
        let (name, value) = line.split_once(':')?;
        let name = name.trim_matches([' ', '\t']).to_ascii_lowercase();
        let words = value.split([' ', '\t']).filter(|word| !word.is_empty());
        let line = format!("{name}:{}", words.collect::<Vec<_>>().join(" "));
        Some((name, line))
    });
    fields.collect()
}

/// Returns the header names for `h=`: each covered name once for each header with that name, and
/// once more.
fn names(fields: &[Field]) -> Vec<&'static str> {
    let mut names = Vec::new();
    for name in COVERED {
        let times = fields.iter().filter(|(of, _)| of == name).count();
        if times > 0 || ABSENT.contains(&name) {
            names.extend(std::iter::repeat_n(name, times + 1));
        }
    }
    names
}

/// Returns the text to sign. For each name, it takes the last header that is not included yet (RFC
/// 6376, section 5.4.2). The signature's own header comes last.
fn covered(fields: &[Field], names: &[&str], unsigned: &str) -> Vec<u8> {
    let mut rest: Vec<&Field> = fields.iter().collect();
    let mut all = String::new();
    for name in names {
        if let Some(last) = rest.iter().rposition(|(of, _)| of == name) {
            all.push_str(&rest.remove(last).1);
            all.push_str("\r\n");
        }
    }
    all.extend(self::fields(unsigned).into_iter().map(|(_, line)| line));
    all.into_bytes()
}

/// Returns the body, canonical ("relaxed", RFC 6376, section 3.4.4).
fn relaxed_body(body: &[u8]) -> Vec<u8> {
    let is_space = |byte: &u8| matches!(byte, b' ' | b'\t');
    let mut all = Vec::with_capacity(body.len() + 2);
    let mut end = 0;
    let mut rest = body;
    while !rest.is_empty() {
        let line = rest.windows(2).position(|two| two == b"\r\n");
        let line = line.map_or(rest, |at| &rest[..at]);
        rest = rest.get(line.len() + 2..).unwrap_or_default();
        let start = all.len();
        for word in line.split(is_space).filter(|word| !word.is_empty()) {
            if all.len() > start || line.first().is_some_and(is_space) {
                all.push(b' ');
            }
            all.extend_from_slice(word);
        }
        let is_empty = all.len() == start;
        all.extend_from_slice(b"\r\n");
        if !is_empty {
            end = all.len();
        }
    }
    all.truncate(end);
    all
}

#[cfg(test)]
#[path = "dkim_tests.rs"]
mod tests;
