//! The page of a dry run: one HTML file that can be passed around.
//!
//! It needs no scripts, loads only the pictures of its emails, and shows no address. Emails are in
//! frames that can neither run nor open anything. The template sees only [`DryRunPage`].

use std::collections::BTreeSet;

use minijinja::Value;
use minijinja::value::Serde;
use serde::Serialize;

use super::built_in_templates::{Template, template};
use super::error::Error;
use super::templates::Templates;
use crate::domain::Site;

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
    pub dry_run: DryRunEmails,
}

/// The emails of a dry run. Sizes are the bytes of their HTML, without the user's own links.
#[derive(Debug, Clone, Default, PartialEq, Serialize)]
pub struct DryRunEmails {
    /// The number of emails.
    pub total: u64,
    /// The first emails, in the order of user ids.
    pub emails: Vec<DryRunEmail>,
    /// The median of their sizes; 0 if there are none.
    pub median: usize,
    /// The largest of their sizes; 0 if there are none.
    pub largest: usize,
    /// Why some emails cannot be rendered; the first reasons.
    #[serde(skip)]
    pub failures: BTreeSet<String>,
}

/// An email that a run would send.
#[derive(Debug, Clone, PartialEq, Serialize)]
pub struct DryRunEmail {
    /// The id of the user.
    pub user: String,
    /// The subject.
    pub subject: String,
    /// The number of events, shown or counted.
    pub events: u64,
    /// The size.
    pub bytes: usize,
    /// The HTML part, if the page shows it. The user's own links lead nowhere.
    pub html: Option<String>,
}

impl DryRunPage {
    /// Renders the page as HTML.
    pub fn render(&self, site: &Site) -> Result<String, Error> {
        let templates = Templates::load([&PAGE], None, site, None)?;
        let english = templates.catalogs().formatter(None);
        templates.render(PAGE.name, english, Value::from(Serde(self)))
    }
}

#[cfg(test)]
#[path = "dry_run_page_tests.rs"]
mod tests;
