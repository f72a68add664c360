//! Recognizes server keys: the configured key, and keys that were created.
//!
//! Comparisons take constant time and reveal nothing about a key, not even its length (P8). The
//! stored keys are read again if the last read is older than five seconds. So each process soon
//! accepts new keys and rejects revoked ones. If the store is unreachable, the keys of the last
//! read remain valid.

use std::sync::Arc;
use std::time::Duration;

use chrono::{DateTime, TimeDelta, Utc};
use subtle::ConstantTimeEq;
use tokio::sync::Mutex;

use super::{hash, is_well_formed, read};
use crate::context::Context;
use crate::domain::{KeyName, KeyRecord, Scope};
use crate::engine::Result;
use crate::store::Error;

/// The longest time between two reads of the keys.
const FRESH: TimeDelta = TimeDelta::seconds(5);
/// The operation in error messages.
const READING: &str = "reading the server keys";
/// The time limit of a read.
const PATIENCE: Duration = Duration::from_secs(2);

/// A recognized key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// The name of the key; `None` for the configured key.
    pub name: Option<KeyName>,
    /// The permissions of the key.
    pub scope: Scope,
}

/// Recognizes server keys. A process has one, because it caches the stored keys.
pub struct KeyRing {
    configured: [u8; 32],
    context: Arc<Context>,
    look: Mutex<Look>,
}

/// The last read of the stored keys. The lock is held during a read.
#[derive(Default)]
struct Look {
    asked: Option<DateTime<Utc>>,
    /// `None` until the first successful read.
    known: Option<Arc<[Known]>>,
}

struct Known {
    hash: [u8; 32],
    entry: Entry,
}

impl KeyRing {
    /// Accepts the configured key and those in the store.
    pub fn new(configured: &str, context: Arc<Context>) -> Self {
        Self {
            configured: hash(configured.as_bytes()),
            context,
            look: Mutex::default(),
        }
    }

    /// Returns the entry of a key; `None` if it is invalid.
    ///
    /// # Errors
    ///
    /// Fails if the store is unreachable and its keys were never read.
    pub async fn entry(&self, given: &[u8]) -> Result<Option<Entry>> {
        let given_hash = hash(given);
        if self.configured.ct_eq(&given_hash).into() {
            return Ok(Some(Entry {
                name: None,
                scope: Scope::Admin,
            }));
        }
        if !std::str::from_utf8(given).is_ok_and(is_well_formed) {
            return Ok(None);
        }
        let known = self.known().await?;
        // All keys are compared, so that the time does not depend on the position.
        let mut found = None;
        for key in known.iter() {
            if bool::from(key.hash.ct_eq(&given_hash)) {
                found = Some(key.entry.clone());
            }
        }
        Ok(found)
    }

    /// Returns the stored keys, and reads them again if the last read is too old.
    async fn known(&self) -> Result<Arc<[Known]>> {
        let mut look = self.look.lock().await;
        let now = self.context.clock.now();
        // A clock that was set back makes an old read look new, so the difference is absolute.
        let is_fresh = look.asked.is_some_and(|asked| (now - asked).abs() < FRESH);
        if is_fresh {
            let away = || Error::database(READING, "the store did not answer a moment ago");
            return Ok(look.known.clone().ok_or_else(away)?);
        }
        let read = tokio::time::timeout(PATIENCE, read(&*self.context.store)).await;
        let read = read.unwrap_or_else(|_| {
            let why = format!("no answer within {PATIENCE:?}");
            Err(Error::database(READING, why).into())
        });
        // Set after the read: a caller that was canceled while it waited has read nothing.
        look.asked = Some(now);
        match (read, &look.known) {
            (Ok(read), _) => {
                let known: Arc<[Known]> = read.into_iter().filter_map(known).collect();
                look.known = Some(known.clone());
                Ok(known)
            }
            (Err(error), Some(known)) => {
                let error = &error as &dyn std::error::Error;
                tracing::warn!(
                    error,
                    "server keys cannot be read; those of the last look stand"
                );
                Ok(known.clone())
            }
            (Err(error), None) => Err(error),
        }
    }
}

/// Returns the cached form of a stored key. A key that cannot be read is ignored, with a warning.
fn known(kept: std::result::Result<(KeyName, KeyRecord), Error>) -> Option<Known> {
    let readable = kept.and_then(|(name, record)| {
        let mut hash = [0; 32];
        let decoded = hex::decode_to_slice(&record.hash, &mut hash);
        decoded.map_err(|_| Error::corrupt(format!("the key {name:?}"), "its hash is none"))?;
        let entry = Entry {
            name: Some(name),
            scope: record.scope,
        };
        Ok(Known { hash, entry })
    });
    readable
        .inspect_err(|error| tracing::warn!(%error, "a server key is left out"))
        .ok()
}
