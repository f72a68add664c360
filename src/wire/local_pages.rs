//! The JSON of the pages of `serve --demo` and of `tidings preview`. No other server has them.

use std::collections::BTreeMap;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::domain::UserId;

/// The current gallery.
#[derive(Debug, Serialize)]
pub(crate) struct GalleryState {
    #[serde(rename = "people")]
    pub(crate) users: Vec<LocalUser>,
    /// Newest first.
    pub(crate) works: Vec<Work>,
    /// The followers of each artist, by the artist's name.
    pub(crate) followers: BTreeMap<String, Vec<UserId>>,
}

/// A user that the visitor can act as.
#[derive(Debug, Serialize)]
pub(crate) struct LocalUser {
    pub(crate) id: UserId,
    pub(crate) name: String,
    /// When the user gets a digest, in words.
    pub(crate) digest: String,
}

/// A work of the gallery, as in `works.ndjson`.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct Work {
    pub(crate) id: String,
    pub(crate) title: String,
    #[serde(alias = "by")]
    pub(crate) artist: String,
    pub(crate) data: WorkDetails,
}

/// How a work was made.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub(crate) struct WorkDetails {
    pub(crate) medium: String,
    pub(crate) year: Option<u32>,
}

/// The token and links in the browser of a signed-in user.
#[derive(Debug, Serialize)]
pub(crate) struct LocalVisit<'a> {
    /// A user token.
    pub(crate) token: &'a str,
    pub(crate) preferences: &'a str,
    pub(crate) unsubscribe: Option<&'a str>,
}

/// A published event.
#[derive(Debug, Serialize)]
pub(crate) struct Published {
    /// The object's id.
    pub(crate) id: String,
    /// The number of notified users.
    #[serde(rename = "people")]
    pub(crate) notified_users: u64,
}

/// The sent emails.
#[derive(Debug, Serialize)]
pub(crate) struct DemoEmails {
    /// The number of emails that this request sent; they are the first ones.
    pub(crate) new: usize,
    /// Newest first.
    pub(crate) emails: Vec<DemoEmail>,
}

/// A sent email.
#[derive(Debug, Serialize)]
pub(crate) struct DemoEmail {
    pub(crate) number: usize,
    pub(crate) user: String,
    pub(crate) subject: String,
    pub(crate) at: DateTime<Utc>,
}

/// The emails and pages of a preview.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct PreviewBoard {
    /// The version of the templates.
    pub(crate) version: u64,
    pub(crate) sheets: Vec<RenderedSheet>,
    /// The error that prevented a rebuild, if any. The sheets are then those from before it.
    #[serde(rename = "trouble")]
    pub(crate) rebuild_error: Option<String>,
    /// Explains which kinds have no sheets.
    pub(crate) notes: Vec<String>,
}

/// An email or a page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct RenderedSheet {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) subject: Option<String>,
    pub(crate) text: Option<String>,
    /// The URL of the HTML.
    pub(crate) html: String,
    /// The size of the HTML, in bytes.
    pub(crate) bytes: usize,
}
