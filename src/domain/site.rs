//! The service that sends the emails, and its appearance: the section `[site]`.

/// The name and look of the service in emails and pages.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// The name of the service; never empty.
    pub name: String,
    /// The target of the heading and of "+12 more"; `None` for no link.
    pub url: Option<String>,
    /// The sender's postal address, which commercial email must contain; it may have several lines.
    pub postal_address: Option<String>,
    /// The URL of an image that replaces the name in emails; `None` to show the name.
    pub logo: Option<String>,
    /// The color of links and headings, as `#rrggbb`. Legible shades are derived from it.
    pub accent: String,
    /// The id under which Gmail counts spam reports, 5 to 15 characters; `None` for no
    /// `Feedback-ID`.
    pub feedback_id: Option<String>,
}
