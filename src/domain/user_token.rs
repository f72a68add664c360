//! The keys that user tokens are verified by.
//!
//! The rule (P8): the key says the algorithm, and a token never does. A secret prints hidden.

use super::Secret;

/// A key that user tokens are verified by, under the id (`kid`) that tokens name it by.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenKey {
    /// What a token's header calls it.
    pub id: String,
    /// What it is, and so the algorithm.
    pub material: Material,
}

/// What a key of user tokens is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Material {
    /// HS256: the application signs with the same secret.
    Hs256(Secret),
    /// `EdDSA` on Ed25519: the public key; only the application has the private one.
    EdDsa([u8; 32]),
}
