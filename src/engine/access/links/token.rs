//! The opaque part of a link: whose mails it is about, what it ends, and since when it stands,
//! readable to us alone.
//!
//! The rule (P7, P8): nobody else can make one, change one, or read a name or an address out of
//! one. What it ends is signed with the rest: a link that ends one type cannot be made into one
//! that ends another. The same person, moment and end make the same token, so a mail that is built
//! again has the same bytes. Tokens of the first version end everything, as they did when they were
//! sent. Why it is made so: `docs/decisions/0007-links.md`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::domain::mute::Title;
use crate::domain::{Address, BrandName, EventType, FollowKey, Stop, Subject, UserId};

/// How long a link works after its mail was made.
pub const VALID: TimeDelta = TimeDelta::days(365);

/// Stands before every token: what is inside is a moment and a person, and the end is everything.
const EVERYTHING: char = '1';
/// The same of those that name what they end, between the moment and the person.
const NAMED: char = '2';
/// The same of those that also name the brand of their mail, before what they end.
const BRANDED: char = '3';
/// The same of those that also name the address that the email goes to, before the brand. A brand
/// without a name is the default.
const ADDRESSED: char = '4';
/// Bytes of the proof that we made it.
const PROOF: usize = 16;
/// Bytes of the moment: seconds since 1970.
const MOMENT: usize = 4;
/// No person's name and no end make a longer one.
const MAX_CHARS: usize = 1_024;
/// A token that would hold more bytes leaves the address out.
const MAX_ADDRESSED: usize = 500;
/// What a named end begins with.
const DIGEST: u8 = 0;
const ALONE: u8 = 1;
const TYPES: u8 = 2;
/// Only where a brand stands before it.
const ALL: u8 = 3;
const FOLLOW: u8 = 4;
const SUBJECT: u8 = 5;

/// Why a token opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// We did not make it, or it lost or gained something on its way.
    Forged,
    /// It is older than [`VALID`].
    Expired,
}

/// What a token says.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Opened {
    /// Whose mails it is about.
    pub user: UserId,
    /// What it ends.
    pub stop: Stop,
    /// Of which brand its mail was; `None` for the default.
    pub brand: Option<BrandName>,
    /// The address that its email went to, if the link says it.
    pub address: Option<Address>,
    /// When its mail was begun, to the second.
    pub issued: DateTime<Utc>,
}

/// What tokens are made and opened with.
#[derive(Clone)]
pub struct Keys {
    everything: Pair,
    named: Pair,
    branded: Pair,
    addressed: Pair,
}

/// The keys of one version, so that none passes for one of another.
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
    /// The keys that a secret of any length stands for.
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

    /// The token of somebody's mail of that moment, which ends this.
    pub fn seal(&self, user: &UserId, stop: &Stop, issued: DateTime<Utc>) -> String {
        self.seal_in(None, user, stop, issued)
    }

    /// The same of a mail of this brand.
    pub fn seal_in(
        &self,
        brand: Option<&BrandName>,
        user: &UserId,
        stop: &Stop,
        issued: DateTime<Utc>,
    ) -> String {
        self.seal_to(None, brand, user, stop, issued)
    }

    /// The same of an email to this address, if the link is to say it.
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

    /// What a token says, if it is one of ours and still valid.
    pub fn open(&self, token: &str, now: DateTime<Utc>) -> Result<Opened, Refused> {
        let opened = self.read(token).ok_or(Refused::Forged)?;
        if now.signed_duration_since(opened.issued) > VALID {
            return Err(Refused::Expired);
        }
        Ok(opened)
    }

    fn read(&self, token: &str) -> Option<Opened> {
        // Programs that find links in text may take the punctuation after them for a part.
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

    /// Turns what is inside into noise that depends on the proof, and back.
    fn mask(&self, proof: &[u8], inside: &mut [u8]) {
        for (block, bytes) in (0_u32..).zip(inside.chunks_mut(32)) {
            let noise = keyed(&self.mask, &[proof, &block.to_be_bytes()]);
            for (byte, noise) in bytes.iter_mut().zip(noise) {
                *byte ^= noise;
            }
        }
    }
}

/// Whether a link that says this address stays short enough for a header's line.
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

/// The address, the brand and what a token ends, as they stand before the person; nothing where
/// that is everything, of the default, to no address.
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

/// A name behind its length.
fn put(bytes: &mut Vec<u8>, name: &str) {
    bytes.extend(short(name.len()));
    bytes.extend_from_slice(name.as_bytes());
}

/// A number as two bytes: names and how many there are stay far below ([`Stop::of_types`]).
fn short(number: usize) -> [u8; 2] {
    u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes()
}

fn number(bytes: &[u8]) -> Option<(usize, &[u8])> {
    let (number, rest) = bytes.split_first_chunk()?;
    Some((u16::from_be_bytes(*number).into(), rest))
}

/// A name behind its length, and what follows it.
fn name(bytes: &[u8]) -> Option<(&str, &[u8])> {
    let (length, named) = number(bytes)?;
    let (name, rest) = named.split_at_checked(length)?;
    Some((std::str::from_utf8(name).ok()?, rest))
}

/// The brand that was written, and what follows it.
fn brand(bytes: &[u8]) -> Option<(Option<BrandName>, &[u8])> {
    let (name, rest) = name(bytes)?;
    let brand = (!name.is_empty()).then(|| BrandName::stored(name));
    Some((brand, rest))
}

/// What was written, and what follows it.
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

/// As many characters as this person's tokens of this end have; it opens nothing, whatever the
/// secret.
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
