//! The path of a link in an email.

/// The part of a path that says whose link it is.
#[derive(serde::Deserialize)]
pub(super) struct LinkPath {
    pub(super) token: String,
}
