//! The follows that an email lists, with links to unfollow.
//!
//! The link to unfollow is a fixed suffix of the recipient's preference link. Recipients of the
//! same content can therefore share the rendered email.

use form_urlencoded::byte_serialize;
use serde::Serialize;

use super::Mail;
use super::naming::{NAME, words};
use super::text::link;
use crate::domain::content::Followed;

/// The query parameter of the preference page that names the follow to end.
pub const UNFOLLOW: &str = "unfollow";

/// A follow that brought events to the user.
#[derive(Serialize)]
pub(super) struct FollowedView<'a> {
    key: &'a str,
    name: String,
    url: Option<&'a str>,
    /// The URL to unfollow. The page asks for confirmation.
    unfollow: Option<String>,
}

impl<'a> FollowedView<'a> {
    /// Returns the follows of an email that have a printable name.
    pub(super) fn all(mail: &'a Mail<'_>) -> Vec<Self> {
        let preferences = mail.links.preferences.as_deref().and_then(link);
        let of = |followed: &'a Followed| {
            let key = byte_serialize(followed.key.as_str().as_bytes());
            let key: String = key.collect();
            Some(Self {
                key: followed.key.as_str(),
                name: words(&followed.name, NAME)?,
                url: followed.url.as_deref().and_then(link),
                unfollow: preferences.map(|page| format!("{page}?{UNFOLLOW}={key}")),
            })
        };
        mail.content.because.iter().filter_map(of).collect()
    }
}
