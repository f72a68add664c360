//! The opaque part of a link: whose mails it is about and since when it stands, readable to us
//! alone.
//!
//! The rule (P7, P8): nobody else can make one, change one, or read a name or an address out of
//! one. The same person and moment make the same token, so a mail that is built again has the same
//! bytes. Why it is made so: `docs/decisions/0007-links.md`.

use std::fmt;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use chrono::{DateTime, TimeDelta, Utc};
use hmac::{Hmac, KeyInit, Mac};
use sha2::Sha256;
use subtle::ConstantTimeEq;

use crate::domain::UserId;

/// How long a link works after its mail was made.
pub const VALID: TimeDelta = TimeDelta::days(365);

/// Stands before every token; another way of making them would have another.
const VERSION: char = '1';
/// Bytes of the proof that we made it.
const PROOF: usize = 16;
/// Bytes of the moment: seconds since 1970.
const MOMENT: usize = 4;
/// No person's name makes a longer one.
const MAX_CHARS: usize = 1_024;

/// Why a token opens nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refused {
    /// We did not make it, or it lost or gained something on its way.
    Forged,
    /// It is older than [`VALID`].
    Expired,
}

/// What tokens are made and opened with.
#[derive(Clone)]
pub struct Keys {
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
        let derive = |what: &[u8]| keyed(secret.as_bytes(), &[what]);
        Self {
            prove: derive(b"tidings link 1: prove"),
            mask: derive(b"tidings link 1: mask"),
        }
    }

    /// The token of somebody's mail of that moment.
    pub fn seal(&self, user: &UserId, issued: DateTime<Utc>) -> String {
        let seconds = u32::try_from(issued.timestamp()).unwrap_or_default();
        let mut inside = seconds.to_be_bytes().to_vec();
        inside.extend_from_slice(user.as_str().as_bytes());
        let mut bytes = self.proof(&inside).to_vec();
        self.mask(&bytes, &mut inside);
        bytes.extend_from_slice(&inside);
        format!("{VERSION}{}", URL_SAFE_NO_PAD.encode(bytes))
    }

    /// Whose token it is, if it is one of ours and still valid.
    pub fn open(&self, token: &str, now: DateTime<Utc>) -> Result<UserId, Refused> {
        let (user, issued) = self.read(token).ok_or(Refused::Forged)?;
        if now.signed_duration_since(issued) > VALID {
            return Err(Refused::Expired);
        }
        Ok(user)
    }

    fn read(&self, token: &str) -> Option<(UserId, DateTime<Utc>)> {
        let rest = token.strip_prefix(VERSION)?;
        if rest.len() > MAX_CHARS {
            return None;
        }
        let bytes = URL_SAFE_NO_PAD.decode(rest).ok()?;
        let (proof, masked) = bytes.split_at_checked(PROOF)?;
        let mut inside = masked.to_vec();
        self.mask(proof, &mut inside);
        if !bool::from(self.proof(&inside).ct_eq(proof)) {
            return None;
        }
        let (seconds, user) = inside.split_first_chunk::<MOMENT>()?;
        let issued = DateTime::from_timestamp(i64::from(u32::from_be_bytes(*seconds)), 0)?;
        Some((UserId::stored(std::str::from_utf8(user).ok()?), issued))
    }

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

/// As many characters as this person's tokens have; it opens nothing, whatever the secret.
pub fn stand_in(user: &UserId) -> String {
    const BITS: usize = 6;
    let bytes = PROOF + MOMENT + user.as_str().len();
    "0".repeat(VERSION.len_utf8() + (bytes * 8).div_ceil(BITS))
}

fn keyed(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    let mut mac = Hmac::<Sha256>::new_from_slice(key).expect("HMAC takes keys of any length");
    for part in parts {
        mac.update(part);
    }
    mac.finalize().into_bytes().into()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn keys() -> Keys {
        Keys::new("a secret of the tests")
    }

    fn at(days: i64) -> DateTime<Utc> {
        DateTime::from_timestamp(1_398_124_800, 0).unwrap() + TimeDelta::days(days)
    }

    fn names() -> Vec<UserId> {
        let long = "x".repeat(256);
        let names = ["0", "mara", "533998b1c9dc24c371000041", "éve—🎨", &long];
        names.map(UserId::stored).to_vec()
    }

    #[test]
    fn a_token_opens_to_the_person_it_was_made_for() {
        for user in names() {
            let token = keys().seal(&user, at(0));

            assert_eq!(keys().open(&token, at(1)), Ok(user.clone()));
            assert_eq!(
                token,
                keys().seal(&user, at(0)),
                "the same mail, the same bytes"
            );
            assert_ne!(token, keys().seal(&user, at(7)), "each mail has its own");
        }
    }

    #[test]
    fn a_token_works_for_a_year_and_not_longer() {
        let token = keys().seal(&UserId::stored("mara"), at(0));

        for (days, expected) in [
            (0, Ok(UserId::stored("mara"))),
            (30, Ok(UserId::stored("mara"))),
            (365, Ok(UserId::stored("mara"))),
            (366, Err(Refused::Expired)),
            (3_660, Err(Refused::Expired)),
        ] {
            assert_eq!(keys().open(&token, at(days)), expected, "after {days} days");
        }
        // A machine whose clock is behind the one that made it.
        assert!(keys().open(&token, at(-1)).is_ok());
    }

    #[test]
    fn a_token_shows_neither_a_name_nor_what_two_have_in_common() {
        let token = keys().seal(&UserId::stored("mara@example.org"), at(0));
        let bytes = URL_SAFE_NO_PAD.decode(&token[1..]).unwrap();
        let other = keys().seal(&UserId::stored("mara@example.com"), at(0));

        assert!(!token.contains("mara") && !bytes.windows(4).any(|part| part == b"mara"));
        let common = token.chars().zip(other.chars()).take_while(|(a, b)| a == b);
        assert!(common.count() < 8, "{token} {other}");
        assert!(
            token
                .chars()
                .all(|c| c.is_ascii_alphanumeric() || "-_".contains(c))
        );
    }

    #[test]
    fn whatever_is_changed_of_a_token_it_opens_nothing() {
        let token = keys().seal(&UserId::stored("mara"), at(0));

        for (place, _) in token.char_indices() {
            for other in "AZaz09-_=+/.%"
                .chars()
                .filter(|c| !token[place..].starts_with(*c))
            {
                let mut forged = token.clone();
                forged.replace_range(place..=place, &other.to_string());
                assert_eq!(
                    keys().open(&forged, at(1)),
                    Err(Refused::Forged),
                    "{forged}"
                );
            }
            assert_eq!(keys().open(&token[..place], at(1)), Err(Refused::Forged));
        }
        for forged in [
            format!("{token}A"),
            format!("{token}="),
            format!(" {token}"),
            "x".repeat(100_000),
        ] {
            assert_eq!(keys().open(&forged, at(1)), Err(Refused::Forged));
        }
    }

    #[test]
    fn what_stands_in_for_a_token_is_as_long_and_opens_nothing() {
        for user in names() {
            let stand_in = stand_in(&user);

            assert_eq!(stand_in.len(), keys().seal(&user, at(0)).len(), "{user}");
            assert_eq!(keys().open(&stand_in, at(0)), Err(Refused::Forged));
        }
    }

    #[test]
    fn a_token_of_another_secret_opens_nothing() {
        let token = Keys::new("another secret of the tests").seal(&UserId::stored("mara"), at(0));

        assert_eq!(keys().open(&token, at(1)), Err(Refused::Forged));
    }
}
