//! What the templates render: a mail, the site that sends it, and the links of its reader.

use chrono::{DateTime, Utc};
use chrono_tz::Tz;

use crate::domain::{Content, Occasion, Stop, User};

/// Who writes, and how it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// What mails and pages call the service.
    pub name: String,
    /// Where the name and "+12 more" lead.
    pub url: Option<String>,
    /// A picture of the name, which stands for it in mails.
    pub logo: Option<String>,
    /// Shown at the end, line by line.
    pub postal_address: Option<String>,
    /// The color of links, as `#rrggbb`; shades that can be read are made of it.
    pub accent: String,
}

/// A mail to be rendered.
#[derive(Debug, Clone)]
pub struct Mail<'a> {
    /// Whom it is for; templates see their id, name and locale.
    pub user: &'a User,
    /// What it tells.
    pub content: &'a Content,
    /// Whether it is a digest, and of what, or a batch. A cadence of `never` is none that templates
    /// should name.
    pub occasion: &'a Occasion,
    /// The moment the mail is of: times leave out its day, and days its year.
    pub at: DateTime<Utc>,
    /// The zone in which its days and times are told.
    pub tz: Tz,
    /// The recipient's own links, or placeholders where they will go.
    pub links: Links,
    /// What the link to unsubscribe ends; everything, where that is not said.
    pub stop: Option<&'a Stop>,
}

/// Links by which people slow or stop the mails; each is shown if it is given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Links {
    /// The page on which people choose what they get.
    pub preferences: Option<String>,
    /// Where what the mail is about can be ended; the page asks once more.
    pub unsubscribe: Option<String>,
    /// Where all that is about the same can be muted, if the mail is about one thing.
    pub mute: Option<String>,
}
