//! Authentication: server keys, user tokens, and the links in emails.

pub mod keys;
pub mod links;
pub mod tokens;
