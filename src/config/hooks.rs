//! What providers' reports are verified by, and what follows from them.
//!
//! The rule: a key is read once, here, into what verifying takes; `Debug` shows none of it.

use std::fmt;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use toml::Table;

use super::reader::Reader;
use super::set;

/// A hook without a key does not exist.
#[derive(Clone)]
pub struct Hooks {
    /// The webhook signing key, which is not the key that sends.
    pub mailgun_key: Option<String>,
    /// The point of the curve P-256 that the key is, uncompressed.
    pub sendgrid_public_key: Option<Vec<u8>>,
    /// `user:password`.
    pub postmark_login: Option<String>,
    /// The bytes after `whsec_`.
    pub resend_secret: Option<Vec<u8>>,
    /// An address is suppressed after so many soft bounces in a row.
    pub soft_bounces: u64,
}

impl fmt::Debug for Hooks {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hooks")
            .field("soft_bounces", &self.soft_bounces)
            .finish_non_exhaustive()
    }
}

/// The options that name files.
pub(super) const FILES: [&str; 4] = [
    "mailgun_key_file",
    "sendgrid_public_key_file",
    "postmark_password_file",
    "resend_secret_file",
];

const SECRETS: [&str; 3] = ["mailgun_key", "postmark_password", "resend_secret"];

pub(super) fn read(r: &mut Reader<'_>) -> Hooks {
    Hooks {
        mailgun_key: r.secret("hooks.mailgun_key", "hooks.mailgun_key_file"),
        sendgrid_public_key: sendgrid(r),
        postmark_login: postmark(r),
        resend_secret: resend(r),
        soft_bounces: r.number("delivery.soft_bounces", 1..=100) as u64,
    }
}

/// How a public key on P-256 begins (RFC 5480, DER): the algorithm, the curve, and 65 bytes of a
/// point that is not compressed.
const P256: [u8; 27] = [
    0x30, 0x59, 0x30, 0x13, 0x06, 0x07, 0x2a, 0x86, 0x48, 0xce, 0x3d, 0x02, 0x01, 0x06, 0x08, 0x2a,
    0x86, 0x48, 0xce, 0x3d, 0x03, 0x01, 0x07, 0x03, 0x42, 0x00, 0x04,
];

fn sendgrid(r: &mut Reader<'_>) -> Option<Vec<u8>> {
    let option = "hooks.sendgrid_public_key";
    let text = r.secret(option, "hooks.sendgrid_public_key_file")?;
    let key = STANDARD.decode(text).ok();
    let key = key
        .filter(|der| der.len() == P256.len() + 64 && der.starts_with(&P256))
        .map(|der| der[P256.len() - 1..].to_vec());
    if key.is_none() {
        let what = "is not the verification key that SendGrid shows: Base64 that begins with MFkw, on one line";
        r.problem(option, what);
    }
    key
}

fn postmark(r: &mut Reader<'_>) -> Option<String> {
    let option = "hooks.postmark_user";
    let user = r.optional(option);
    let password = r.secret("hooks.postmark_password", "hooks.postmark_password_file");
    match (user, password) {
        (None, None) => None,
        (Some(user), _) if user.contains(':') => {
            r.problem(option, "holds a colon, which a user name cannot have here");
            None
        }
        (Some(user), Some(password)) => Some(format!("{user}:{password}")),
        (Some(_), None) => {
            r.problem(
                "hooks.postmark_password",
                "is missing, though hooks.postmark_user is set",
            );
            None
        }
        (None, Some(_)) => {
            r.problem(option, "is missing, though hooks.postmark_password is set");
            None
        }
    }
}

fn resend(r: &mut Reader<'_>) -> Option<Vec<u8>> {
    let option = "hooks.resend_secret";
    let text = r.secret(option, "hooks.resend_secret_file")?;
    let key = STANDARD.decode(text.trim_start_matches("whsec_")).ok();
    let key = key.filter(|key| !key.is_empty());
    if key.is_none() {
        r.problem(option, "is not a signing secret: whsec_ and Base64");
    }
    key
}

/// Masks what is secret, where it is set.
pub(super) fn redact(table: &mut Table) {
    for name in SECRETS {
        let set_here = table
            .get("hooks")
            .and_then(|hooks| hooks.get(name)?.as_str())
            .is_some_and(|text| !text.is_empty());
        if set_here {
            set(table, &format!("hooks.{name}"), "(hidden)");
        }
    }
}
