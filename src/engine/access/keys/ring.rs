//! Recognizes a server key that is brought: the configured one, or one that was created.
//!
//! The rule (P8): comparing tells nothing of a key, not even its length. Keys that were created are
//! read again when one is brought and the last look is a few seconds old, so keys that are created
//! or revoked count soon, in every process; while the store is away, what was read last stands.

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

/// How old a look at the keys may be.
const FRESH: TimeDelta = TimeDelta::seconds(5);
/// What a look is called where it fails.
const READING: &str = "reading the server keys";
/// How long a look may take.
const PATIENCE: Duration = Duration::from_secs(2);

/// Whose key was brought, and what it may do.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// Its name; `None` is the configured key.
    pub name: Option<KeyName>,
    /// What it may do.
    pub scope: Scope,
}

/// Recognizes keys. One for all of a process: it remembers what it read.
pub struct KeyRing {
    configured: [u8; 32],
    context: Arc<Context>,
    look: Mutex<Look>,
}

/// The last look at the store's keys; whoever holds it may be looking again.
#[derive(Default)]
struct Look {
    asked: Option<DateTime<Utc>>,
    /// `None` until a look succeeded.
    known: Option<Arc<[Known]>>,
}

struct Known {
    hash: [u8; 32],
    entry: Entry,
}

impl KeyRing {
    /// A ring of the configured key and of those that the store has.
    pub fn new(configured: &str, context: Arc<Context>) -> Self {
        Self {
            configured: hash(configured.as_bytes()),
            context,
            look: Mutex::default(),
        }
    }

    /// Whose key this is; `None` if it is none. An error only where the store is away and was never
    /// read.
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
        // All are compared, so that time tells nothing of which it is.
        let mut found = None;
        for key in known.iter() {
            if bool::from(key.hash.ct_eq(&given_hash)) {
                found = Some(key.entry.clone());
            }
        }
        Ok(found)
    }

    /// The keys of the store, read again where that is due.
    async fn known(&self) -> Result<Arc<[Known]>> {
        let mut look = self.look.lock().await;
        let now = self.context.clock.now();
        // A clock that was put back makes no look fresh.
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
        // Only now: whoever went away while it waited has looked at nothing.
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

/// What a kept key is recognized by. One that cannot be read opens nothing.
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
