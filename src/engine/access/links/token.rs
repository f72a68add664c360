//! The encrypted token in a link: its user, its effect, and when the email was begun.
//!
//! Only tidings can create, change or read a token (P7, P8). The proof covers the effect, so a link
//! that stops one type cannot become one that stops another. The same input gives the same token,
//! so an email that is built again has the same bytes. Tokens of version 1 stop all email. The
//! format is explained in `docs/decisions/0007-links.md`; start with [`Keys::seal_to`].

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::domain::preferences::Title;
use crate::domain::{Address, BrandName, EventType, FollowKey, Stop, Subject, UserId};

/// How long a link is valid after its email was begun.
pub const VALID: TimeDelta = TimeDelta::days(365);

/// Version 1: a time and a user. The effect is [`Stop::All`].
const EVERYTHING: char = '1';
/// Version 2: the effect is between the time and the user.
const NAMED: char = '2';
/// Version 3: the brand is before the effect.
const BRANDED: char = '3';
/// Version 4: the address of the email is before the brand. An empty brand is the default.
const ADDRESSED: char = '4';
/// The bytes of the proof.
const PROOF: usize = 16;
/// The bytes of the time, in seconds since 1970.
const MOMENT: usize = 4;
/// The longest encoded token after its version. Tokens of valid ids and effects are shorter.
const MAX_CHARS: usize = 1_024;
/// The most bytes of effect and user in a token with an address. A longer token omits the address.
const MAX_ADDRESSED: usize = 500;
/// The first byte of an encoded effect.
const DIGEST: u8 = 0;
const ALONE: u8 = 1;
const TYPES: u8 = 2;
/// Only in versions 3 and 4.
const ALL: u8 = 3;
const FOLLOW: u8 = 4;
const SUBJECT: u8 = 5;

/// The reasons why a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// The proof is wrong: the token was forged, cut or changed.
    Forged,
    /// The token is older than [`VALID`].
    Expired,
}

/// The content of a verified token.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// The recipient of the email.
    pub user: UserId,
    /// The effect of the link.
    pub stop: Stop,
    /// The brand of the email; `None` for the default.
    pub brand: Option<BrandName>,
    /// The address of the email, if the token contains it.
    pub address: Option<Address>,
    /// When the email was begun, in whole seconds.
    pub issued: DateTime<Utc>,
}

/// The keys that create and open tokens.
#[derive(Clone)]
pub struct Keys {
    everything: Pair,
    named: Pair,
    branded: Pair,
    addressed: Pair,
}

/// The keys of one version. Each version has its own, so no token is valid in another version.
#[derive(Clone)]
struct Pair {
    prove: [u8; 32],
    mask: [u8; 32],
}

impl fmt::Debug for Keys {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

impl Keys {
    /// Derives the keys from a secret of any length.
    pub fn new(secret: &str) -> Self {
        let pair = |version: char| {
            let derive = |what: &str| {
                let what = format!("tidings link {version}: {what}");
                keyed(secret.as_bytes(), &[what.as_bytes()])
            };
            Pair {
                prove: derive("prove"),
                mask: derive("mask"),
            }
        };
        Self {
            everything: pair(EVERYTHING),
            named: pair(NAMED),
            branded: pair(BRANDED),
            addressed: pair(ADDRESSED),
        }
    }

    /// Creates a token for an email of the default brand that was begun at `issued`.
    pub fn seal(&self, user: &UserId, stop: &Stop, issued: DateTime<Utc>) -> String {
        self.seal_in(None, user, stop, issued)
    }

    /// Creates a token for an email of this brand.
    pub fn seal_in(
        &self,
        brand: Option<&BrandName>,
        user: &UserId,
        stop: &Stop,
        issued: DateTime<Utc>,
    ) -> String {
        self.seal_to(None, brand, user, stop, issued)
    }

    /// Creates a token for an email to this address. A long token omits the address.
    pub fn seal_to(
        &self,
        address: Option<&Address>,
        brand: Option<&BrandName>,
        user: &UserId,
        stop: &Stop,
        issued: DateTime<Utc>,
    ) -> String {
        let address = address.filter(|address| fits(address, brand, user, stop));
        let seconds = u32::try_from(issued.timestamp()).unwrap_or_default();
        let mut inside = seconds.to_be_bytes().to_vec();
        inside.extend(written(stop, brand, address));
        inside.extend_from_slice(user.as_str().as_bytes());
        let version = version(stop, brand, address);
        let pair = self.of(version);
        let mut bytes = pair.proof(&inside).to_vec();
        pair.mask(&bytes, &mut inside);
        bytes.extend_from_slice(&inside);
        format!("{version}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Verifies a token and returns its content.
    pub fn open(&self, token: &str, now: DateTime<Utc>) -> Result<Opened, Refused> {
        let opened = self.read(token).ok_or(Refused::Forged)?;
        if now.signed_duration_since(opened.issued) > VALID {
            return Err(Refused::Expired);
        }
        Ok(opened)
    }

    fn read(&self, token: &str) -> Option<Opened> {
        // Link detection in text may include the punctuation that follows a link.
        let token =
            token.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '>', '\'', '"']);
        let mut versions = [EVERYTHING, NAMED, BRANDED, ADDRESSED].into_iter();
        let version = versions.find(|one| token.starts_with(*one))?;
        let rest = token.strip_prefix(version)?;
        if rest.len() > MAX_CHARS {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(rest).ok()?;
        let (proof, masked) = bytes.split_at_checked(PROOF)?;
        let mut inside = masked.to_vec();
        let pair = self.of(version);
        pair.mask(proof, &mut inside);
        if !bool::from(pair.proof(&inside).ct_eq(proof)) {
            return None;
        }
        let (seconds, rest) = inside.split_first_chunk::<MOMENT>()?;
        let issued = DateTime::from_timestamp(i64::from(u32::from_be_bytes(*seconds)), 0)?;
        let (address, rest) = match version {
            ADDRESSED => {
                let (address, rest) = name(rest)?;
                (Some(Address::stored(address).ok()?), rest)
            }
            _ => (None, rest),
        };
        let (brand, rest) = match version {
            BRANDED | ADDRESSED => brand(rest)?,
            _ => (None, rest),
        };
        let (stop, user) = match version {
            NAMED | BRANDED | ADDRESSED => read(rest)?,
            _ => (Stop::All, rest),
        };
        Some(Opened {
            user: UserId::stored(std::str::from_utf8(user).ok()?),
            stop,
            brand,
            address,
            issued,
        })
    }

    fn of(&self, version: char) -> &Pair {
        match version {
            NAMED => &self.named,
            BRANDED => &self.branded,
            ADDRESSED => &self.addressed,
            _ => &self.everything,
        }
    }
}

impl Pair {
    fn proof(&self, inside: &[u8]) -> [u8; PROOF] {
        let mut proof = [0; PROOF];
        proof.copy_from_slice(&keyed(&self.prove, &[inside])[..PROOF]);
        proof
    }

    /// Encrypts the content with a keystream that depends on the proof, or decrypts it.
    fn mask(&self, proof: &[u8], inside: &mut [u8]) {
        for (block, bytes) in (0_u32..).zip(inside.chunks_mut(32)) {
            let noise = keyed(&self.mask, &[proof, &block.to_be_bytes()]);
            for (byte, noise) in bytes.iter_mut().zip(noise) {
                *byte ^= noise;
            }
        }
    }
}

/// Returns whether a token with this address is short enough for a line of an email header.
fn fits(address: &Address, brand: Option<&BrandName>, user: &UserId, stop: &Stop) -> bool {
    written(stop, brand, Some(address)).len() + user.as_str().len() <= MAX_ADDRESSED
}

fn version(stop: &Stop, brand: Option<&BrandName>, address: Option<&Address>) -> char {
    match stop {
        _ if address.is_some() => ADDRESSED,
        _ if brand.is_some() => BRANDED,
        Stop::All => EVERYTHING,
        Stop::Digest | Stop::Alone | Stop::Types(_) | Stop::Follow(_) | Stop::Subject(..) => NAMED,
    }
}

/// Encodes the address, the brand and the effect. The result is empty for [`Stop::All`] of the
/// default brand without an address, as in version 1.
fn written(stop: &Stop, brand: Option<&BrandName>, address: Option<&Address>) -> Vec<u8> {
    if brand.is_none() && address.is_none() {
        return ended(stop);
    }
    let mut bytes = Vec::new();
    if let Some(address) = address {
        put(&mut bytes, address.reveal());
    }
    put(&mut bytes, brand.map_or("", BrandName::as_str));
    match stop {
        Stop::All => bytes.push(ALL),
        named => bytes.extend(ended(named)),
    }
    bytes
}

fn ended(stop: &Stop) -> Vec<u8> {
    match stop {
        Stop::All => Vec::new(),
        Stop::Digest => vec![DIGEST],
        Stop::Alone => vec![ALONE],
        Stop::Types(kinds) => {
            let mut bytes = vec![TYPES];
            bytes.extend(short(kinds.len()));
            kinds.iter().for_each(|kind| put(&mut bytes, kind.as_str()));
            bytes
        }
        Stop::Subject(subject, title) => {
            let mut bytes = vec![SUBJECT];
            put(&mut bytes, subject.as_str());
            put(&mut bytes, title.as_ref().map_or("", Title::as_str));
            bytes
        }
        Stop::Follow(key) => {
            let mut bytes = vec![FOLLOW];
            put(&mut bytes, key.as_str());
            bytes
        }
    }
}

/// Appends the length of a text, then the text.
fn put(bytes: &mut Vec<u8>, name: &str) {
    bytes.extend(short(name.len()));
    bytes.extend_from_slice(name.as_bytes());
}

/// Encodes a number in two bytes. Lengths and counts are far smaller ([`Stop::of_types`]).
fn short(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number).into(), rest))
}

/// Decodes a text after its length. Returns it and the rest.
fn name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, named) = number(bytes)?;
    let (name, rest) = named.split_at_checked(length)?;
    Some((std::str::from_utf8(name).ok()?, rest))
}

/// Decodes a brand. Returns it and the rest.
fn brand(bytes: &[u8]) -> Option<(Option<BrandName>, &[u8])> {
    let (name, rest) = name(bytes)?;
    let brand = (!name.is_empty()).then(|| BrandName::stored(name));
    Some((brand, rest))
}

/// Decodes an effect. Returns it and the rest.
fn read(bytes: &[u8]) -> Option<(Stop, &[u8])> {
    match bytes.split_first()? {
        (&ALL, rest) => Some((Stop::All, rest)),
        (&DIGEST, rest) => Some((Stop::Digest, rest)),
        (&ALONE, rest) => Some((Stop::Alone, rest)),
        (&TYPES, rest) => {
            let (count, mut rest) = number(rest)?;
            let mut kinds = Vec::new();
            for _ in 0..count {
                let (kind, after) = name(rest)?;
                kinds.push(EventType::stored(kind));
                rest = after;
            }
            Some((Stop::Types(kinds), rest))
        }
        (&FOLLOW, rest) => {
            let (key, rest) = name(rest)?;
            Some((Stop::Follow(FollowKey::stored(key)), rest))
        }
        (&SUBJECT, rest) => {
            let (subject, rest) = name(rest)?;
            let (title, rest) = name(rest)?;
            let title = (!title.is_empty()).then(|| Title::stored(title));
            Some((Stop::Subject(Subject::stored(subject), title), rest))
        }
        _ => None,
    }
}

/// Returns a text with the length of a token with these contents. It opens nothing.
pub fn stand_in(
    brand: Option<&BrandName>,
    user: &UserId,
    stop: &Stop,
    address: Option<&Address>,
) -> String {
    const BITS: usize = 6;
    let address = address.filter(|address| fits(address, brand, user, stop));
    let bytes = PROOF + MOMENT + written(stop, brand, address).len() + user.as_str().len();
    "0".repeat(version(stop, brand, address).len_utf8() + (bytes * 8).div_ceil(BITS))
}

fn keyed(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
#[path = "token_tests.rs"]
mod tests;
