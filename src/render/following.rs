//! What a mail's reader follows, as its templates see it.
//!
//! The rule: the link to unfollow is the same words for all who share the mail, behind the link to
//! the preferences, which is each person's own.

use form_urlencoded::byte_serialize;
use serde::Serialize;

use super::Mail;
use super::naming::{NAME, words};
use super::text::link;
use crate::domain::content::Followed;

/// The parameter of the page of choices that names what to unfollow.
pub const UNFOLLOW: &str = "unfollow";

/// What a mail's reader follows.
#[derive(Serialize)]
pub(super) struct FollowedView<'a> {
    key: &'a str,
    name: String,
    url: Option<&'a str>,
    /// Where it can be unfollowed; the page asks once more.
    unfollow: Option<String>,
}

impl<'a> FollowedView<'a> {
    /// As far as it has a name that can be shown.
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
