//! Authentication: server keys, user tokens, and the links in emails.

use crate::engine::Result;
use crate::store::Error;

pub mod keys;
pub mod links;
pub mod tokens;

/// Returns 32 random bytes of the operating system. `doing` is the operation in error messages.
fn random_bytes(doing: &'static str) -> Result<[u8; 32]> {
    let mut bytes = [0; 32];
    getrandom::fill(&mut bytes).map_err(|error| Error::database(doing, error.to_string()))?;
    Ok(bytes)
}
