//! Secrets, keys for verifying user tokens, and server keys of applications.
//!
//! Only the hash of a server key is stored, and secrets print as `(hidden)`. The algorithm of a
//! user token follows from the key and is never taken from the token (P8).

use std::fmt;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::name::{debug_as_text, named_enum};

/// A key or password. `Debug` and `Display` show `(hidden)`.
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

impl Secret {
    /// Wraps any text, including an empty one. The reader of a configuration checks its strength.
    pub fn new(text: impl Into<String>) -> Self {
        Self(text.into())
    }

    /// Returns the secret, for authentication only.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("(hidden)")
    }
}

debug_as_text!(Secret);

/// A key for verifying user tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenKey {
    /// The id (`kid`) of the key in token headers.
    pub id: String,
    /// The key and its algorithm.
    pub material: KeyMaterial,
}

/// The key material, one variant per algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum KeyMaterial {
    /// HS256: the secret that the application also signs with.
    Hs256(Secret),
    /// `EdDSA` on Ed25519: the public key. Only the application has the private key.
    EdDsa([u8; 32]),
}

named_enum! {
    /// The permissions of a server key.
    Scope("scope") {
        /// Read everything, change nothing.
        Read = "read",
        /// Also write events, users, follows and objects, and close batches.
        Write = "write",
        /// Everything, including changes to suppressions.
        Admin = "admin",
    }
}

/// The stored record of a server key, under its name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyRecord {
    /// The SHA-256 of the key, in hexadecimal.
    pub hash: String,
    /// The permissions of the key.
    pub scope: Scope,
    /// When the key was created.
    pub created: DateTime<Utc>,
}

#[cfg(test)]
#[path = "secrets_tests.rs"]
mod tests;
