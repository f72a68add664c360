//! The page of a dry run: one HTML file that can be passed around.
//!
//! It needs no scripts, loads only the pictures of its sample emails, and shows no address in full.
//! Sample emails are in frames that can neither run nor open anything. The template sees only
//! [`DryRunPage`].

use minijinja::Value;
use minijinja::value::Serde;
use serde::Serialize;

use super::catalogs::Catalogs;
use super::files::{Error, Template, template};
use super::site::Site;
use super::templates::Templates;

const PAGE: Template = template!("report/dry-run.html");

/// The findings of a dry run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DryRunPage {
    /// The moment of the run, such as `21 April 2014, 09:30 UTC`.
    pub at: String,
    /// The counts, as the command prints them.
    pub counts: Vec<String>,
    /// The problems to fix before anything is sent, as the command prints them.
    pub warnings: Vec<String>,
    /// The emails; flattened for the template.
    #[serde(flatten)]
    pub emails: DryRunEmails,
}

/// The emails of a dry run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DryRunEmails {
    /// The emails of digests.
    pub digests: EmailSummary,
    /// Why some emails cannot be rendered; the first reasons.
    #[serde(skip)]
    pub failures: Vec<String>,
}

/// The emails of digests.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmailSummary {
    /// The number of emails.
    pub mails: u64,
    /// The number of events in them.
    pub events: u64,
    /// The sizes of the emails.
    pub sizes: Sizes,
    /// The first emails, and the largest.
    pub samples: Vec<Sample>,
}

/// The sizes of emails, as bytes of HTML with each user's own links.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizes {
    /// The number of emails that were rendered. The other counts are of these.
    pub measured: u64,
    /// The number of emails that cannot be rendered.
    pub failed: u64,
    /// The smallest size; 0 if none was rendered.
    pub smallest: u64,
    /// The median; 0 if none was rendered.
    pub median: u64,
    /// The largest size; 0 if none was rendered.
    pub largest: u64,
    /// Emails that mail programs would clip.
    pub over: u64,
    /// The size above which mail programs clip an email.
    pub clip: usize,
}

/// An email as its user would get it, except for the user's own links.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// The masked address of the user.
    pub to: String,
    /// The subject.
    pub subject: String,
    /// The HTML part. Links to unsubscribe and to preferences lead nowhere.
    pub html: String,
    /// The text part. Links to unsubscribe and to preferences lead nowhere.
    pub text: String,
    /// The size of the HTML, with the user's own links.
    pub bytes: u64,
    /// The number of events, shown or counted.
    pub events: u64,
}

/// The compiled template of the page.
pub struct ReportPage {
    templates: Templates,
}

impl ReportPage {
    /// Compiles the built-in template.
    pub fn new(site: &Site) -> Result<Self, Error> {
        let templates = Templates::load([&PAGE], None, site, Catalogs::load(None)?)?;
        Ok(Self { templates })
    }

    /// Renders the page as HTML.
    pub fn render(&self, report: &DryRunPage) -> Result<String, Error> {
        let english = self.templates.catalogs().voice(None);
        self.templates
            .render(&PAGE.name, english, Value::from(Serde(report)))
    }
}

#[cfg(test)]
#[path = "report_tests.rs"]
mod tests;
