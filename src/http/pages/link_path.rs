//! The path of a link in an email.

/// The path parameter with the link's token.
#[derive(serde::Deserialize)]
pub(super) struct LinkPath {
    pub(super) token: String,
}
