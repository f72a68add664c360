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

pub use super::text::heading_of;

const PAGE: Template = template!("report/dry-run.html");

/// The findings of a dry run.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DryRunPage {
    /// The moment of the run, such as `21 April 2014, 09:30 UTC`.
    pub at: String,
    /// How the request narrows the run, such as `at most 100 emails`.
    pub scope: Vec<String>,
    /// Problems to fix before anything is sent.
    pub warnings: Vec<String>,
    /// The users with an event in the window, by outcome; first those who get an email.
    pub people: Vec<Line>,
    /// `delivery.mails_per_hour`; 0 for no limit.
    pub mails_per_hour: u32,
    /// The emails of digests.
    pub digests: EmailSummary,
    /// The emails of batches; `None` if the request is about certain digests.
    pub batches: Option<BatchSummary>,
}

/// The emails of batches, as if each batch closed now.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct BatchSummary {
    /// The emails by outcome; first those that would be sent.
    pub lines: Vec<Line>,
    /// When the next batch closes, such as `21 April, 10:00 UTC`.
    pub next: Option<String>,
    /// The emails that would be sent.
    pub emails: EmailSummary,
}

/// The emails of digests, or of batches.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct EmailSummary {
    /// The number of emails.
    pub mails: u64,
    /// The number of events in them.
    pub events: u64,
    /// The events by type.
    pub types: Vec<TypeLine>,
    /// The sizes of the emails.
    pub sizes: Sizes,
    /// Some of the emails.
    pub samples: Vec<Sample>,
}

/// A count and its name.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Line {
    /// What is counted.
    pub label: String,
    /// The number.
    pub count: u64,
}

/// The events of one type.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct TypeLine {
    /// The heading of the type in emails.
    pub heading: String,
    /// The type.
    #[serde(rename = "type")]
    pub kind: String,
    /// The number of events.
    pub events: u64,
    /// The number of emails that include any.
    pub people: u64,
}

/// The sizes of emails, as bytes of HTML with each user's own links.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sizes {
    /// The number of emails that were rendered.
    pub measured: u64,
    /// The number of emails that cannot be rendered.
    pub failed: u64,
    /// Whether these are a part of the emails, so that the counts of emails are estimates.
    pub estimated: bool,
    /// The smallest size; 0 if none was rendered.
    pub smallest: u64,
    /// The median; 0 if none was rendered.
    pub median: u64,
    /// The largest size; 0 if none was rendered.
    pub largest: u64,
    /// Emails with a section that ends in "+N more".
    pub capped: u64,
    /// Emails that mail programs would clip.
    pub over: u64,
    /// The size above which mail programs clip an email.
    pub clip: usize,
}

/// An email as its user would get it, except for the user's own links.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct Sample {
    /// Why it is shown, such as `the largest`; empty if it was one of the first.
    pub why: Vec<&'static str>,
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
    /// The number of types.
    pub types: u64,
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
