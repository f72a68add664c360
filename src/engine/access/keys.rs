//! The server keys that were created: made, listed, revoked, and recognized.
//!
//! The rule (P8): a key is shown once, when it is made; the store keeps its hash, in a note. A key
//! is `tdg_<scope>_<43 characters>_<8 digits>`: 256 random bits need no slow hash, the prefix is
//! for programs that look for leaked secrets, and the digits are a checksum, so that what was
//! mistyped never reaches the store. Recognizing one is [`KeyRing`]'s.

use std::sync::Arc;

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use sha2::{Digest, Sha256};

use crate::context::Context;
use crate::domain::{Invalid, KeyName, KeyRecord, Scope, Secret};
use crate::engine::Result;
use crate::store::{Error, Notes};
use crate::wire::key::KeyView;

mod ring;

pub use ring::{Entry, KeyRing};

/// What the names of the notes start with.
const NOTES: &str = "key:";
/// What every key starts with.
const PREFIX: &str = "tdg_";
/// Characters that stand for 32 random bytes.
const RANDOM: usize = 43;

/// Creates, lists and revokes server keys.
pub struct ServerKeys {
    pub(crate) context: Arc<Context>,
}

impl ServerKeys {
    /// Makes a key of this name; the answer is the only time it is shown.
    pub async fn create(&self, name: &KeyName, scope: Scope) -> Result<Secret> {
        let key = made_up(scope)?;
        let record = KeyRecord {
            hash: hex::encode(hash(key.expose().as_bytes())),
            scope,
            created: self.context.clock.now(),
        };
        let text = serde_json::to_string(&record).expect("text and a time are always JSON");
        let note = note(name);
        if self
            .context
            .store
            .swap_note(&note, None, Some(&text))
            .await?
        {
            return Ok(key);
        }
        // An answer that was lost looks like a name that is taken.
        match self.context.store.note(&note).await? {
            Some(stands) if stands == text => Ok(key),
            _ => Err(Invalid::new(
                "key name",
                name,
                "is taken; choose another, or revoke that key first",
            )
            .into()),
        }
    }

    /// The keys there are, by name.
    pub async fn list(&self) -> Result<Vec<KeyView>> {
        let view = |(name, record): (KeyName, KeyRecord)| KeyView {
            name,
            scope: record.scope,
            created: record.created,
        };
        let read = read(&*self.context.store).await?;
        read.into_iter().map(|kept| Ok(view(kept?))).collect()
    }

    /// Forgets the key of this name; says whether there was one.
    pub async fn revoke(&self, name: &KeyName) -> Result<bool> {
        let note = note(name);
        let mut was_there = false;
        // Again where it was made anew in between.
        while let Some(stands) = self.context.store.note(&note).await? {
            was_there = true;
            self.context
                .store
                .swap_note(&note, Some(&stands), None)
                .await?;
        }
        Ok(was_there)
    }
}

fn note(name: &KeyName) -> String {
    format!("{NOTES}{name}")
}

/// What a key is compared by.
fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// All notes of keys; one that cannot be read is an error of its own.
async fn read(notes: &dyn Notes) -> Result<Vec<std::result::Result<(KeyName, KeyRecord), Error>>> {
    let notes = notes.notes(NOTES).await?;
    let read = |(note, text): (String, String)| {
        let name = KeyName::stored(note.strip_prefix(NOTES).unwrap_or(&note));
        let record = serde_json::from_str(&text);
        record
            .map(|record| (name, record))
            // Not what it says: there may be a hash in it.
            .map_err(|_| Error::corrupt(format!("the note {note:?}"), "it is no key's"))
    };
    Ok(notes.into_iter().map(read).collect())
}

/// A key nobody can guess: 32 bytes of the operating system's randomness.
fn made_up(scope: Scope) -> Result<Secret> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes)
        .map_err(|error| Error::database("making up a server key", error.to_string()))?;
    let key = format!("{PREFIX}{scope}_{}", URL_SAFE_NO_PAD.encode(bytes));
    let sum = checksum(&key);
    Ok(Secret::new(format!("{key}_{sum}")))
}

/// Eight digits of a CRC-32.
fn checksum(text: &str) -> String {
    let mut crc = flate2::Crc::new();
    crc.update(text.as_bytes());
    format!("{:08x}", crc.sum())
}

/// Whether this can be a key that was created.
fn is_well_formed(text: &str) -> bool {
    let Some((key, sum)) = text.rsplit_once('_') else {
        return false;
    };
    let parts = key.strip_prefix(PREFIX).and_then(|key| key.split_once('_'));
    parts.is_some_and(|(scope, random)| scope.parse::<Scope>().is_ok() && random.len() == RANDOM)
        && checksum(key) == sum
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_that_was_mistyped_is_no_key() {
        for scope in Scope::ALL {
            let key = made_up(scope).unwrap();
            let key = key.expose();
            assert!(is_well_formed(key), "{key}");
            assert_eq!(key.len(), "tdg__".len() + scope.as_str().len() + 43 + 9);

            let other = if key.as_bytes()[20] == b'A' { "B" } else { "A" };
            let mut mistyped = key.to_owned();
            mistyped.replace_range(20..21, other);
            for wrong in [
                &mistyped,
                &key[1..],
                &key[..key.len() - 1],
                "tdg_read_x_0",
                "",
            ] {
                assert!(!is_well_formed(wrong), "{wrong}");
            }
        }
    }
}
