//! Records by which processes coordinate: leases, the pause of sending, and change notices.
//!
//! Clocks can be wrong. An expiry more than [`MAX_LEASE`] ahead, or a retry time more than
//! [`MAX_DEFERRAL`] ahead, was written by a fast clock and is ignored. A process with a slow clock
//! may therefore take a valid lease. That costs work but sends no email twice: sending requires a
//! compare-and-set by the holder, and an interrupted call is resolved as after a crash.

use chrono::{DateTime, TimeDelta, Utc};
use serde::{Deserialize, Serialize};

use super::schedule::SCAN_INTERVAL;

/// The longest that a lease can last: an hour by configuration, and another for differing clocks.
pub const MAX_LEASE: TimeDelta = TimeDelta::hours(2);
/// The longest time for which a record without a lease can be deferred, such as until a retry.
pub const MAX_DEFERRAL: TimeDelta = TimeDelta::days(1);

/// The lease for finding due digests, which one worker does every [`SCAN_INTERVAL`].
pub const DIGEST_SCAN_LEASE: &str = "digest-scan";

/// A process's claim on something.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Lease {
    /// The process, by a name that it chose when it started.
    pub owner: String,
    /// When the lease expires.
    pub until: DateTime<Utc>,
}

/// Returns the latest time to which the lease of this name can be valid at `now`.
pub fn latest_valid_expiry(name: &str, now: DateTime<Utc>) -> DateTime<Utc> {
    // A wrong decision about this lease only costs work, so a shorter limit is safe.
    now + if name == DIGEST_SCAN_LEASE { SCAN_INTERVAL * 2 } else { MAX_LEASE }
}

impl Lease {
    /// Returns whether the lease is valid at `now`.
    pub fn is_valid_at(&self, now: DateTime<Utc>) -> bool {
        now < self.until && self.until <= now + MAX_LEASE
    }
}

/// The reason for a pause, stored as a note.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Pause {
    /// When sending was paused; 1970 if the note cannot be read.
    pub at: DateTime<Utc>,
    /// The reason, in words; the whole note if it cannot be read.
    pub reason: String,
    /// The name of the process that paused sending, as in its leases.
    pub by: String,
}

/// A user or an object, by a hash of its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NoticeKey(pub u32);

impl NoticeKey {
    /// Returns the hash of a user id or object key: 64-bit FNV-1a, folded to 32 bits. Notices are
    /// stored for minutes, so all versions must compute the same hash.
    pub fn from_name(name: &str) -> Self {
        let hash = fnv1a(name);
        Self((hash >> 32) as u32 ^ hash as u32)
    }
}

/// Returns the 64-bit FNV-1a hash of a text. It is the same in all versions.
pub(crate) fn fnv1a(text: &str) -> u64 {
    const BASIS: u64 = 0xcbf2_9ce4_8422_2325;
    const PRIME: u64 = 0x0100_0000_01b3;
    let mix = |hash: u64, byte: u8| (hash ^ u64::from(byte)).wrapping_mul(PRIME);
    text.bytes().fold(BASIS, mix)
}

/// A change notice.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ChangeNotice {
    /// Anything may have changed, because notices were missed.
    All,
    /// The feeds of these users may have changed.
    Users(Vec<NoticeKey>),
    /// The feeds that show or count these objects may have changed.
    Objects(Vec<NoticeKey>),
}

impl ChangeNotice {
    /// Creates a notice about these users.
    pub fn users<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Users(names.into_iter().map(NoticeKey::from_name).collect())
    }

    /// Creates a notice about these objects.
    pub fn objects<'a>(names: impl IntoIterator<Item = &'a str>) -> Self {
        Self::Objects(names.into_iter().map(NoticeKey::from_name).collect())
    }

    /// Returns the stored form: the kind of the notice, and its hashes as little-endian bytes.
    pub fn to_stored(&self) -> (&'static str, Vec<u8>) {
        let bytes = |keys: &[NoticeKey]| keys.iter().flat_map(|key| key.0.to_le_bytes()).collect();
        match self {
            Self::All => (ALL, Vec::new()),
            Self::Users(keys) => (USERS, bytes(keys)),
            Self::Objects(keys) => (OBJECTS, bytes(keys)),
        }
    }

    /// Parses the stored form. An unknown kind may concern anything.
    pub fn from_stored(kind: &str, bytes: &[u8]) -> Self {
        let (chunks, rest) = bytes.as_chunks::<4>();
        let keys = chunks.iter().map(|chunk| NoticeKey(u32::from_le_bytes(*chunk)));
        match kind {
            USERS if rest.is_empty() => Self::Users(keys.collect()),
            OBJECTS if rest.is_empty() => Self::Objects(keys.collect()),
            _ => Self::All,
        }
    }
}

/// Every version reads an unknown kind as [`ChangeNotice::All`].
const ALL: &str = "all";
const USERS: &str = "people";
const OBJECTS: &str = "objects";

#[cfg(test)]
#[path = "coordination_tests.rs"]
mod tests;
