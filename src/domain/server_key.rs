//! Server keys of applications: their scopes and stored records.
//!
//! Only the hash of a key is stored (P8). Scopes are ordered, and each includes the lesser ones.

use std::fmt;
use std::str::FromStr;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use super::Invalid;

/// The permissions of a server key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Scope {
    /// Read everything, change nothing.
    Read,
    /// Also write events, users, follows and objects, and close batches.
    Write,
    /// Everything, including changes to suppressions.
    Admin,
}

impl Scope {
    /// All scopes, the least first.
    pub const ALL: [Self; 3] = [Self::Read, Self::Write, Self::Admin];

    /// Returns the name in the configuration, in the store and in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Write => "write",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for Scope {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for Scope {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        let found = Self::ALL.into_iter().find(|scope| scope.as_str() == text);
        found.ok_or_else(|| Invalid::new("scope", text, "is not read, write or admin"))
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
mod tests {
    use super::*;

    #[test]
    fn a_greater_scope_includes_the_lesser_ones() {
        assert!(Scope::Read < Scope::Write && Scope::Write < Scope::Admin);
        for scope in Scope::ALL {
            assert_eq!(scope.as_str().parse::<Scope>().unwrap(), scope);
        }
        assert!("root".parse::<Scope>().is_err());
    }
}
