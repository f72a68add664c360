//! Renders emails and web pages from templates: subject, HTML and text.
//!
//! HTML and text stay below 90 KB, because Gmail clips at 102 KB, and object data cannot inject
//! markup. Recipients with equal content, zone and locale share one email, unless a template reads
//! the user. Start with [`Renderer`]; [`pages`] renders the public pages, [`dry_run_page`] the
//! operator's.

mod built_in_templates;
mod catalog_files;
mod catalogs;
pub mod dry_run_page;
mod error;
mod inline;
mod locale_formatter;
mod mail_view;
pub mod pages;
mod safe_text;
mod sample;
mod sentence;
mod site;
mod template_input;
mod templates;

use std::path::PathBuf;

use minijinja::context;

use crate::domain::email_sections::EmailSection;
use crate::domain::{DeliverySource, Site, User};

use built_in_templates::{BATCH, DIGEST, EmailTemplates};
use templates::Templates;

pub(crate) use built_in_templates::template_names;
pub use catalogs::Catalogs;
pub use error::Error;
pub use pages::{Pages, WebPage};
pub use sample::EmailDraft;
pub(crate) use sample::{Samples, sample_user};
pub use template_input::{EmailInput, EmailLinks};

/// The size limit of an HTML or text body, in bytes. Every body is shorter.
pub const MAX_BYTES: usize = 90_000;
/// The bytes reserved for a recipient's own links, which are longer than their placeholders.
const LINK_BYTES: usize = 7_000;
/// The longest subject, in characters.
pub const MAX_SUBJECT: usize = 150;

/// More items than fit into any email.
const MAX_ITEMS: usize = 600;
/// More sections than fit into any email.
const MAX_SECTIONS: usize = 200;

/// A rendered email, without its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct EmailParts {
    /// One line of at most [`MAX_SUBJECT`] characters.
    pub subject: String,
    /// The HTML body, short enough that a recipient's own links fit below [`MAX_BYTES`].
    pub html: String,
    /// The text body, with the same limit as the HTML.
    pub text: String,
    /// The number of items shown. Some are omitted if the email would be too long.
    pub shown_items: usize,
    /// Whether templates read fields of the user. If not, all recipients of the same content share
    /// this email.
    pub is_personal: bool,
}

/// Compiled templates. Configured ones have rendered the sample emails without an error.
pub struct Renderer {
    templates: Templates,
    is_personal: bool,
}

impl Renderer {
    /// Compiles the templates. If there are `overrides`, renders the sample emails; tests do it for
    /// the built-in templates.
    ///
    /// A template in `overrides` replaces the built-in one: `subject.txt`, `body.txt` and
    /// `body.html` in `digest/` and `batch/`, and the shared parts in `mail/`.
    ///
    /// # Errors
    ///
    /// Fails if a template or catalog cannot be read, does not compile, or cannot render a sample.
    pub fn new(site: Site, overrides: Option<PathBuf>) -> Result<Self, Error> {
        let built_in = [&DIGEST, &BATCH].into_iter().flat_map(EmailTemplates::all);
        let inliner = Some(inline::inliner());
        let templates = Templates::load(built_in, overrides.as_deref(), &site, inliner)?;
        let renderer = Self { is_personal: templates.mention_user(), templates };
        if overrides.is_some() {
            sample::try_all(|email| renderer.render(email).map(drop))?;
        }
        Ok(renderer)
    }

    /// Returns the message catalogs of all locales.
    pub fn catalogs(&self) -> &Catalogs {
        self.templates.catalogs()
    }

    /// Returns the locale in which emails to this user are written.
    pub fn locale_of(&self, user: &User) -> &str {
        self.catalogs().locale_or_english(user.locale.as_deref())
    }

    /// Renders an email. If it would be too long, the longest sections show fewer items and count
    /// the rest.
    pub fn render(&self, email: &EmailInput<'_>) -> Result<EmailParts, Error> {
        let templates = templates_of(email);
        let sections = email.content.sections.iter().take(MAX_SECTIONS);
        let mut shown: Vec<usize> = sections.map(EmailSection::shown_count).collect();
        level(&mut shown, MAX_ITEMS);
        loop {
            let rendered = self.fill_in(templates, email, &shown)?;
            let bytes = rendered.html.len().max(rendered.text.len());
            if bytes < MAX_BYTES - LINK_BYTES {
                return Ok(rendered);
            }
            let items: usize = shown.iter().sum();
            if items > 0 {
                // In proportion, and 5% less, because only the items shrink.
                let fewer = items * MAX_BYTES / bytes * 95 / 100;
                level(&mut shown, fewer.min(items - 1));
            } else if shown.len() > 1 {
                shown.truncate(shown.len() / 2);
            } else {
                let is_html = rendered.html.len() == bytes;
                let longer = if is_html { &templates.html } else { &templates.text };
                let file = self.templates.file(longer.name);
                return Err(Error::Template(format!(
                    "{file} makes {bytes} bytes of an email without items; email programs cut off \
                     at 102,000"
                )));
            }
        }
    }

    /// Fills in the templates with the given number of items for each section.
    fn fill_in(
        &self,
        templates: &EmailTemplates,
        email: &EmailInput<'_>,
        shown: &[usize],
    ) -> Result<EmailParts, Error> {
        let formatter = self.catalogs().formatter(email.user.locale.as_deref());
        let view = mail_view::view_of(email, formatter, shown);
        let render = |name, view| self.templates.render(name, formatter, view);
        let line = safe_text::one_line(&render(templates.subject.name, view.clone())?);
        let subject =
            locale_formatter::close_isolates(safe_text::clamp(&line, MAX_SUBJECT).into_owned());
        let body_view = context! { subject => &subject, ..view };
        let html = render(templates.html.name, body_view.clone())?;
        let text = render(templates.text.name, body_view)?;
        Ok(EmailParts {
            subject,
            html,
            text,
            shown_items: shown.iter().sum(),
            is_personal: self.is_personal,
        })
    }
}

fn templates_of(email: &EmailInput<'_>) -> &'static EmailTemplates {
    match email.occasion {
        DeliverySource::Digest(..) => &DIGEST,
        DeliverySource::Batch(..) => &BATCH,
    }
}

/// Reduces the largest counts, until their sum is at most `max_sum`.
fn level(counts: &mut [usize], max_sum: usize) {
    let excess = counts.iter().sum::<usize>().saturating_sub(max_sum);
    for _ in 0..excess {
        if let Some(largest) = counts.iter_mut().max() {
            *largest -= 1;
        }
    }
}

#[cfg(test)]
mod batch_template_tests;
#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod language_tests;
#[cfg(test)]
mod opening_tests;
#[cfg(test)]
mod support_tests;
#[cfg(test)]
mod template_tests;
#[cfg(test)]
mod tests;
#[cfg(test)]
mod wording_tests;
