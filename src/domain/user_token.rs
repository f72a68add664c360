//! Keys for verifying user tokens.
//!
//! The algorithm follows from the key and is never taken from the token (P8).

use super::Secret;

/// A key for verifying user tokens.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TokenKey {
    /// The id (`kid`) of the key in token headers.
    pub id: String,
    /// The key and its algorithm.
    pub material: Material,
}

/// The key material, one variant per algorithm.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Material {
    /// HS256: the secret that the application also signs with.
    Hs256(Secret),
    /// `EdDSA` on Ed25519: the public key. Only the application has the private key.
    EdDsa([u8; 32]),
}
