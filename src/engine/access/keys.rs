//! Creates, lists, revokes and recognizes server keys.
//!
//! A key is `tdg_<scope>_<43 characters>`. It is shown once, when it is created; the store has only
//! its hash (P8). The random part has 256 bits, so a fast hash is enough. Scanners for leaked
//! secrets find keys by the prefix.

use std::sync::Arc;
use std::time::Duration;

use base64::prelude::{BASE64_URL_SAFE_NO_PAD, Engine as _};
use chrono::{DateTime, TimeDelta, Utc};
use sha2::{Digest, Sha256};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;

use super::random_bytes;
use crate::context::Context;
use crate::domain::{InvalidValue, KeyName, KeyRecord, Scope, Secret};
use crate::engine::Result;
use crate::store::{self, Error, NoteFilter, Notes};
use crate::wire::key::KeyView;

/// The prefix of the names of the notes that store keys.
const NOTE_PREFIX: &str = "key:";
const KEY_PREFIX: &str = "tdg_";

/// Creates, lists and revokes server keys.
pub struct ServerKeys {
    pub(crate) context: Arc<Context>,
}

impl ServerKeys {
    /// Creates a key with this name. The key cannot be read again later.
    ///
    /// # Errors
    ///
    /// [`InvalidValue`] if a key with this name exists.
    pub async fn create(&self, name: &KeyName, scope: Scope) -> Result<Secret> {
        let random = BASE64_URL_SAFE_NO_PAD.encode(random_bytes("creating a server key")?);
        let key = Secret::new(format!("{KEY_PREFIX}{scope}_{random}"));
        let record = KeyRecord {
            hash: hex::encode(hash(key.expose().as_bytes())),
            scope,
            created: self.context.clock.now(),
        };
        let text = serde_json::to_string(&record).expect("text and a time are always JSON");
        let (note_name, store) = (note_name(name), &self.context.store);
        let is_new = store.swap_note(&note_name, None, Some(&text)).await?;
        // If the reply to the first write was lost, the note is our own.
        if is_new || store.note(&note_name).await? == Some(text) {
            return Ok(key);
        }
        let why = "is taken; choose another, or revoke that key first";
        Err(InvalidValue::new("key name", name, why).into())
    }

    /// Returns all keys, ordered by name.
    pub async fn list(&self) -> Result<Vec<KeyView>> {
        let view = |(name, record): (KeyName, KeyRecord)| KeyView {
            name,
            scope: record.scope,
            created: record.created,
        };
        let keys = read_keys(&*self.context.store).await?;
        keys.into_iter().map(|key| Ok(key.map(view)?)).collect()
    }

    /// Removes the key with this name. Returns whether it existed.
    pub async fn revoke(&self, name: &KeyName) -> Result<bool> {
        let (note_name, store) = (note_name(name), &self.context.store);
        let mut existed = false;
        // Repeats if another process creates the key again at the same time.
        while let Some(stored) = store.note(&note_name).await? {
            existed = true;
            store.swap_note(&note_name, Some(&stored), None).await?;
        }
        Ok(existed)
    }
}

fn note_name(name: &KeyName) -> String {
    format!("{NOTE_PREFIX}{name}")
}

fn hash(key: &[u8]) -> [u8; 32] {
    Sha256::digest(key).into()
}

/// Reads all stored keys. A note that cannot be read is an error in the list.
async fn read_keys(store: &dyn Notes) -> Result<Vec<store::Result<NamedKey>>> {
    let parse = |(note, text): (String, String)| {
        let name = KeyName::stored(note.strip_prefix(NOTE_PREFIX).unwrap_or(&note));
        // The text is not part of the error, because it may contain a hash.
        let corrupt = |_| Error::corrupt(format!("the note {note:?}"), "it is no key's");
        Ok((name, serde_json::from_str(&text).map_err(corrupt)?))
    };
    Ok(store.notes(NoteFilter::Prefix(NOTE_PREFIX)).await?.into_iter().map(parse).collect())
}

type NamedKey = (KeyName, KeyRecord);

/// The longest time between two reads of the keys.
const MAX_CACHE_AGE: TimeDelta = TimeDelta::seconds(5);
/// The operation in error messages.
const READING: &str = "reading the server keys";
/// The time limit of a read.
const READ_TIMEOUT: Duration = Duration::from_secs(2);

/// A recognized key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RecognizedKey {
    /// The name of the key; `None` for the configured key.
    pub name: Option<KeyName>,
    /// The permissions of the key.
    pub scope: Scope,
}

/// Recognizes server keys. A process has one, because it caches the stored keys.
pub struct KeyRing {
    configured: [u8; 32],
    context: Arc<Context>,
    cache: Mutex<KeyCache>,
}

/// The last read of the stored keys. The lock is held during a read.
#[derive(Default)]
struct KeyCache {
    read_at: Option<DateTime<Utc>>,
    /// `None` until the first successful read.
    keys: Option<Arc<[NamedKey]>>,
}

impl KeyRing {
    /// Accepts the configured key and those in the store.
    pub fn new(configured: &str, context: Arc<Context>) -> Self {
        Self { configured: hash(configured.as_bytes()), context, cache: Mutex::default() }
    }

    /// Returns the name and scope of a key; `None` if it is invalid.
    ///
    /// # Errors
    ///
    /// Fails if the store is unreachable and its keys were never read.
    pub async fn recognize(&self, key: &[u8]) -> Result<Option<RecognizedKey>> {
        let key_hash = hash(key);
        if self.configured.ct_eq(&key_hash).into() {
            return Ok(Some(RecognizedKey { name: None, scope: Scope::Admin }));
        }
        if !key.starts_with(KEY_PREFIX.as_bytes()) {
            return Ok(None);
        }
        // All keys are compared, so that the time does not depend on the position.
        let (mut recognized, key_hash) = (None, hex::encode(key_hash));
        for (name, record) in self.stored_keys().await?.iter() {
            if bool::from(record.hash.as_bytes().ct_eq(key_hash.as_bytes())) {
                let (name, scope) = (Some(name.clone()), record.scope);
                recognized = Some(RecognizedKey { name, scope });
            }
        }
        Ok(recognized)
    }

    /// Returns the stored keys, and reads them again if the last read is too old.
    async fn stored_keys(&self) -> Result<Arc<[NamedKey]>> {
        let mut cache = self.cache.lock().await;
        let now = self.context.clock.now();
        // A clock that was set back makes an old read look new, so the difference is absolute.
        if cache.read_at.is_some_and(|at| (now - at).abs() < MAX_CACHE_AGE) {
            let unavailable = || Error::database(READING, "the store did not answer a moment ago");
            return Ok(cache.keys.clone().ok_or_else(unavailable)?);
        }
        let read = tokio::time::timeout(READ_TIMEOUT, read_keys(&*self.context.store)).await;
        // Set after the read: a caller that was canceled while it waited has read nothing.
        cache.read_at = Some(now);
        let stored = read.unwrap_or_else(|_| {
            let why = format!("no answer within {READ_TIMEOUT:?}");
            Err(Error::database(READING, why).into())
        });
        match (stored, &cache.keys) {
            (Ok(stored), _) => {
                let warn = |error: &Error| tracing::warn!(%error, "a server key is ignored");
                let readable = stored.into_iter().filter_map(|key| key.inspect_err(warn).ok());
                let keys: Arc<[NamedKey]> = readable.collect();
                cache.keys = Some(keys.clone());
                Ok(keys)
            }
            (Err(error), Some(keys)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(error, "server keys cannot be read, so the last ones stay valid");
                Ok(keys.clone())
            }
            (Err(error), None) => Err(error),
        }
    }
}
