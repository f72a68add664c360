//! Creates and verifies the links in emails: to unsubscribe, to mute and to the preferences.
//!
//! A link contains an encrypted token that names its user, its effect and when its email was begun.
//! It is valid for a year and needs no login (P7). Only tidings can create, change or read a token
//! (P8), and the same input gives the same token, so an email that is built again has the same
//! bytes. `docs/decisions/0007-links.md` explains the format. Start with [`Links`].

use std::sync::Arc;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use ring::hmac;
use subtle::ConstantTimeEq;
use tokio::sync::OnceCell;

use super::random_bytes;
use crate::config::Config;
use crate::domain::mutes_and_quiet_hours::Title;
use crate::domain::{Address, BrandName, EventType, FollowKey, StopAction, Subject, UserId};
use crate::email::RecipientLinks;
use crate::engine::Result;
use crate::store::Notes;

/// How long a link is valid after its email was begun.
pub const LINK_VALIDITY: TimeDelta = TimeDelta::days(365);

/// The note that stores the generated secret.
const SECRET_NOTE: &str = "link_secret";
/// The operation in error messages.
const CREATING_SECRET: &str = "creating the secret of links";
/// Version 1: a time and a user. The effect is [`StopAction::All`].
const V1_ALL: char = '1';
/// Version 2: the effect is between the time and the user.
const V2_EFFECT: char = '2';
/// Version 3: the brand is before the effect.
const V3_BRAND: char = '3';
/// Version 4: the address of the email is before the brand. An empty brand is the default.
const V4_ADDRESS: char = '4';
const VERSIONS: [char; 4] = [V1_ALL, V2_EFFECT, V3_BRAND, V4_ADDRESS];
const PROOF_BYTES: usize = 16;
/// The bytes of the time, in seconds since 1970.
const TIME_BYTES: usize = 4;
/// The longest encoded token after its version. Tokens of valid ids and effects are shorter.
const MAX_CHARS: usize = 1_024;
/// The most bytes after the time in a token with an address, so that it fits on a line of an email
/// header. A longer token omits the address.
const MAX_BYTES_WITH_ADDRESS: usize = 500;
/// The first byte of an encoded effect.
const STOP_DIGEST: u8 = 0;
const STOP_ALONE: u8 = 1;
const STOP_TYPES: u8 = 2;
/// Only in versions 3 and 4.
const STOP_ALL: u8 = 3;
const STOP_FOLLOW: u8 = 4;
const STOP_SUBJECT: u8 = 5;
/// The id of no user, because ids are not empty.
const NO_USER: &str = "";

/// Creates and opens links. A process has one, because it caches the secret.
pub struct Links {
    pub(crate) notes: Arc<dyn Notes>,
    /// The URL of the public pages, without a slash at the end. Without it, emails have no links.
    pub public_url: Option<String>,
    /// The brand of the emails; `None` for the default.
    pub brand: Option<BrandName>,
    /// The configured secret. Without it, a secret is generated and stored.
    pub secret: Option<String>,
    keys: OnceCell<LinkKeys>,
}

/// The content of a link.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Link {
    /// The recipient of the email.
    pub user: UserId,
    /// The effect of the link.
    pub stop: StopAction,
    /// The brand of the email; `None` for the default.
    pub brand: Option<BrandName>,
    /// The address of the email, if the token contains it.
    pub address: Option<Address>,
    /// When the email was begun, in whole seconds.
    pub issued_at: DateTime<Utc>,
}

/// The reasons why a token is rejected.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LinkError {
    /// The proof is wrong: the token was forged, cut or changed.
    Forged,
    /// The token is older than [`LINK_VALIDITY`].
    Expired,
}

/// Creates the links of emails.
pub struct LinkMaker<'a> {
    public_url: &'a str,
    brand: Option<&'a BrandName>,
    keys: &'a LinkKeys,
}

impl Links {
    /// Creates an instance that has not read the secret. The first call that needs it loads or
    /// generates it.
    pub fn new(notes: Arc<dyn Notes>, public_url: Option<String>, secret: Option<String>) -> Self {
        Self { notes, public_url, brand: None, secret, keys: OnceCell::new() }
    }

    /// Builds the configured links of a brand; `None` for the default.
    pub fn from_config(config: &Config, notes: Arc<dyn Notes>, brand: Option<&BrandName>) -> Self {
        let server = &config.server;
        let secret = server.link_secret.as_ref().map(|secret| secret.expose().to_owned());
        Self { brand: brand.cloned(), ..Self::new(notes, server.public_url.clone(), secret) }
    }

    /// Returns the maker of links, or `None` without a public URL.
    pub async fn link_maker(&self) -> Result<Option<LinkMaker<'_>>> {
        let Some(public_url) = &self.public_url else {
            return Ok(None);
        };
        Ok(Some(LinkMaker { public_url, brand: self.brand.as_ref(), keys: self.keys().await? }))
    }

    /// Returns two links that test the public pages from outside: a valid one, and one with a wrong
    /// proof. They belong to no user, so using them changes nothing. `None` without a public URL.
    pub async fn probe_links(&self, now: DateTime<Utc>) -> Result<Option<(String, String)>> {
        let Some(maker) = self.link_maker().await? else {
            return Ok(None);
        };
        let link = Link {
            user: UserId::stored(NO_USER),
            stop: StopAction::All,
            brand: None,
            address: None,
            issued_at: now,
        };
        // Only the proof is wrong, because it comes from another secret.
        let other_keys = LinkKeys(hex::encode(random_bytes(CREATING_SECRET)?));
        let valid = link_url(maker.public_url, &maker.keys.seal(&link));
        Ok(Some((valid, link_url(maker.public_url, &other_keys.seal(&link)))))
    }

    /// Verifies a token and returns its content.
    pub async fn open(&self, token: &str, now: DateTime<Utc>) -> Result<Result<Link, LinkError>> {
        Ok(self.keys().await?.open(token, now))
    }

    /// Returns the token of a link, such as one of the same email with another effect.
    pub async fn seal(&self, link: &Link) -> Result<String> {
        Ok(self.keys().await?.seal(link))
    }

    async fn keys(&self) -> Result<&LinkKeys> {
        let load_or_create = async || match &self.secret {
            Some(secret) => Ok(LinkKeys(secret.clone())),
            // The first stored secret wins, for all processes.
            None => loop {
                if let Some(stored) = self.notes.note(SECRET_NOTE).await? {
                    break Ok(LinkKeys(stored));
                }
                let secret = hex::encode(random_bytes(CREATING_SECRET)?);
                self.notes.swap_note(SECRET_NOTE, None, Some(&secret)).await?;
            },
        };
        self.keys.get_or_try_init(load_or_create).await
    }
}

impl LinkMaker<'_> {
    /// Returns the links of an email to this user that was begun at `begun`. `stop` and `mute` are
    /// the effects of the links to unsubscribe and to mute; `None` leaves a link out. Both contain
    /// the address, so an unsubscribe link also works after the user was deleted.
    pub fn recipient_links(
        &self,
        user: &UserId,
        address: Option<&Address>,
        stop: Option<&StopAction>,
        mute: Option<&StopAction>,
        begun: DateTime<Utc>,
    ) -> RecipientLinks {
        let token = |stop: &StopAction, address: Option<&Address>| {
            self.keys.seal(&Link {
                user: user.clone(),
                stop: stop.clone(),
                brand: self.brand.cloned(),
                address: address.cloned(),
                issued_at: begun,
            })
        };
        let link = |stop: &StopAction| link_url(self.public_url, &token(stop, address));
        // The preferences page offers all choices, so its token does not depend on the email.
        let all = link_url(self.public_url, &token(&StopAction::All, None));
        RecipientLinks {
            unsubscribe: stop.map(link),
            preferences: format!("{all}/preferences"),
            mute: mute.map(link),
        }
    }
}

fn link_url(public_url: &str, token: &str) -> String {
    format!("{public_url}/u/{token}")
}

/// The secret from which the keys of tokens are derived. Each version has its own keys, so no token
/// is valid in another version.
struct LinkKeys(String);

struct KeyPair {
    proof_key: [u8; 32],
    mask_key: [u8; 32],
}

impl LinkKeys {
    /// Derives the keys of a version from the secret, which may have any length.
    fn pair(&self, version: char) -> KeyPair {
        let derive = |purpose: &str| {
            let label = format!("tidings link {version}: {purpose}");
            hmac_sha256(self.0.as_bytes(), &[label.as_bytes()])
        };
        KeyPair { proof_key: derive("prove"), mask_key: derive("mask") }
    }

    /// Creates the token of a link. A long token omits the address.
    fn seal(&self, link: &Link) -> String {
        let link = link.shortened();
        let (version, mut content) = (link.version(), link.encode());
        let pair = self.pair(version);
        let mut bytes = pair.proof(&content).to_vec();
        pair.mask(&bytes, &mut content);
        bytes.extend_from_slice(&content);
        format!("{version}{}", BASE64_URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Verifies a token and returns its content.
    fn open(&self, token: &str, now: DateTime<Utc>) -> Result<Link, LinkError> {
        let link = self.verify(token).ok_or(LinkError::Forged)?;
        if now.signed_duration_since(link.issued_at) > LINK_VALIDITY {
            return Err(LinkError::Expired);
        }
        Ok(link)
    }

    fn verify(&self, token: &str) -> Option<Link> {
        // Link detection in text may include the punctuation that follows a link.
        let token =
            token.trim_end_matches(['.', ',', ';', ':', '!', '?', ')', ']', '>', '\'', '"']);
        let version = token.chars().next().filter(|c| VERSIONS.contains(c))?;
        let rest = token.strip_prefix(version)?;
        if rest.len() > MAX_CHARS {
            return None;
        }
        let bytes = BASE64_URL_SAFE_NO_PAD.decode(rest).ok()?;
        let (proof, masked) = bytes.split_at_checked(PROOF_BYTES)?;
        let mut content = masked.to_vec();
        let pair = self.pair(version);
        pair.mask(proof, &mut content);
        let is_valid = bool::from(pair.proof(&content).ct_eq(proof));
        is_valid.then(|| Link::decode(version, &content)).flatten()
    }
}

impl KeyPair {
    fn proof(&self, content: &[u8]) -> [u8; PROOF_BYTES] {
        let mut proof = [0; PROOF_BYTES];
        proof.copy_from_slice(&hmac_sha256(&self.proof_key, &[content])[..PROOF_BYTES]);
        proof
    }

    /// Encrypts the content with a keystream that depends on the proof, or decrypts it.
    fn mask(&self, proof: &[u8], content: &mut [u8]) {
        for (block, bytes) in (0_u32..).zip(content.chunks_mut(32)) {
            let noise = hmac_sha256(&self.mask_key, &[proof, &block.to_be_bytes()]);
            for (byte, noise) in bytes.iter_mut().zip(noise) {
                *byte ^= noise;
            }
        }
    }
}

fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let key = hmac::Key::new(hmac::HMAC_SHA256, key);
    let tag = hmac::sign(&key, &parts.concat());
    tag.as_ref().try_into().expect("a tag has 32 bytes")
}

impl Link {
    fn version(&self) -> char {
        match self.stop {
            _ if self.address.is_some() => V4_ADDRESS,
            _ if self.brand.is_some() => V3_BRAND,
            StopAction::All => V1_ALL,
            _ => V2_EFFECT,
        }
    }

    /// Returns the link without its address if its token would be too long.
    fn shortened(&self) -> Self {
        let mut link = self.clone();
        if link.address.is_some() && link.encode().len() > TIME_BYTES + MAX_BYTES_WITH_ADDRESS {
            link.address = None;
        }
        link
    }

    fn encode(&self) -> Vec<u8> {
        let version = self.version();
        let seconds = u32::try_from(self.issued_at.timestamp()).unwrap_or_default();
        let mut bytes = seconds.to_be_bytes().to_vec();
        if let Some(address) = &self.address {
            put_text(&mut bytes, address.reveal());
        }
        if version >= V3_BRAND {
            put_text(&mut bytes, self.brand.as_ref().map_or("", BrandName::as_str));
        }
        if version >= V2_EFFECT {
            put_stop(&mut bytes, &self.stop);
        }
        bytes.extend_from_slice(self.user.as_str().as_bytes());
        bytes
    }

    fn decode(version: char, bytes: &[u8]) -> Option<Self> {
        let (seconds, rest) = bytes.split_first_chunk::<TIME_BYTES>()?;
        let mut reader = TokenReader(rest);
        let address =
            if version >= V4_ADDRESS { Some(Address::stored(reader.text()?).ok()?) } else { None };
        let brand = if version >= V3_BRAND { reader.text()? } else { "" };
        let stop = if version >= V2_EFFECT { reader.stop()? } else { StopAction::All };
        Some(Self {
            user: UserId::stored(std::str::from_utf8(reader.0).ok()?),
            stop,
            brand: (!brand.is_empty()).then(|| BrandName::stored(brand)),
            address,
            issued_at: DateTime::from_timestamp(u32::from_be_bytes(*seconds).into(), 0)?,
        })
    }
}

fn put_stop(bytes: &mut Vec<u8>, stop: &StopAction) {
    match stop {
        StopAction::All => bytes.push(STOP_ALL),
        StopAction::Digest => bytes.push(STOP_DIGEST),
        StopAction::OutsideDigest => bytes.push(STOP_ALONE),
        StopAction::Types(kinds) => {
            bytes.push(STOP_TYPES);
            put_number(bytes, kinds.len());
            kinds.iter().for_each(|kind| put_text(bytes, kind.as_str()));
        }
        StopAction::Subject(subject, title) => {
            bytes.push(STOP_SUBJECT);
            put_text(bytes, subject.as_str());
            put_text(bytes, title.as_ref().map_or("", Title::as_str));
        }
        StopAction::Follow(key) => {
            bytes.push(STOP_FOLLOW);
            put_text(bytes, key.as_str());
        }
    }
}

/// Appends the length of a text, then the text.
fn put_text(bytes: &mut Vec<u8>, text: &str) {
    put_number(bytes, text.len());
    bytes.extend_from_slice(text.as_bytes());
}

/// Appends a number as two bytes. Lengths and counts are far smaller ([`StopAction::for_types`]).
fn put_number(bytes: &mut Vec<u8>, number: usize) {
    bytes.extend(u16::try_from(number).unwrap_or(u16::MAX).to_be_bytes());
}

/// The bytes of a token that are not decoded yet.
struct TokenReader<'a>(&'a [u8]);

impl<'a> TokenReader<'a> {
    fn take(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(first)
    }

    fn number(&mut self) -> Option<usize> {
        let bytes = self.take(2)?.try_into().ok()?;
        Some(u16::from_be_bytes(bytes).into())
    }

    /// Decodes a text after its length.
    fn text(&mut self) -> Option<&'a str> {
        let length = self.number()?;
        std::str::from_utf8(self.take(length)?).ok()
    }

    fn stop(&mut self) -> Option<StopAction> {
        Some(match self.take(1)?[0] {
            STOP_ALL => StopAction::All,
            STOP_DIGEST => StopAction::Digest,
            STOP_ALONE => StopAction::OutsideDigest,
            STOP_TYPES => {
                let kinds = (0..self.number()?).map(|_| self.text().map(EventType::stored));
                StopAction::Types(kinds.collect::<Option<_>>()?)
            }
            STOP_FOLLOW => StopAction::Follow(FollowKey::stored(self.text()?)),
            STOP_SUBJECT => {
                let (subject, title) = (Subject::stored(self.text()?), self.text()?);
                StopAction::Subject(subject, (!title.is_empty()).then(|| Title::stored(title)))
            }
            _ => return None,
        })
    }
}

#[cfg(test)]
#[path = "link_tests.rs"]
mod tests;
