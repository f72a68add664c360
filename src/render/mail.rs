//! The input of the templates: an email, its site, and the recipient's links.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use crate::domain::{Content, Occasion, Stop, User};

/// The service that sends the emails, and its appearance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The name of the service.
    pub name: String,
    /// The target of the name and of "+12 more".
    pub url: Option<String>,
    /// The URL of an image that replaces the name in emails.
    pub logo: Option<String>,
    /// The postal address in the footer; it may have several lines.
    pub postal_address: Option<String>,
    /// The color of links, as `#rrggbb`. Legible shades are derived from it.
    pub accent: String,
}

/// An email to be rendered.
#[derive(Debug, Clone)]
pub struct Mail<'a> {
    /// The recipient. Templates see the id, name and locale.
    pub user: &'a User,
    /// The included events.
    pub content: &'a Content,
    /// The digest or batch. Templates see no cadence if it is `never`.
    pub occasion: &'a Occasion,
    /// The time of the email. Times on its day omit the date, and dates in its year omit the year.
    pub at: DateTime<Utc>,
    /// The time zone of its dates and times.
    pub tz: Tz,
    /// The recipient's own links, or placeholders for them.
    pub links: Links,
    /// The effect of the unsubscribe link. `None` means all email.
    pub stop: Option<&'a Stop>,
}

/// Links to reduce or stop emails. Templates show those that are set.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Links {
    /// The preference page.
    pub preferences: Option<String>,
    /// The page that unsubscribes from emails like this one, after a confirmation.
    pub unsubscribe: Option<String>,
    /// The page that mutes the subject, if the email has only one.
    pub mute: Option<String>,
}
