//! Templates become mails: subject, HTML and text.
//!
//! The rule: a mail that is rendered can be sent. Its HTML stays under 90 KB, as Gmail hides what
//! comes after 102 KB; its subject is one line of at most 150 characters; nothing in an object can
//! break out of its place. What a template can get wrong is found by [`Renderer::new`]. `view` and
//! `bulletin` are what templates see; `inline` how styles get into the elements; [`pages`] is for
//! browsers, [`report`] for whoever sends.

mod batch;
mod bulletin;
mod colour;
mod inline;
mod naming;
pub mod pages;
mod parts;
pub mod report;
mod sample;
mod stray;
mod templates;
mod text;
mod view;
mod weight;

use std::collections::BTreeMap;
use std::path::PathBuf;

use chrono::{DateTime, Utc};
use chrono_tz::Tz;
use minijinja::value::Serde;
use minijinja::{Value, context};

use crate::domain::digest::{Digest, Section};
use crate::domain::{Cadence, EventType, User};

use templates::{BATCH, DIGEST, Mail, Templates};
use view::{DigestView, SiteView};

pub use batch::BatchMail;
pub use pages::{Page, Pages};
pub use report::ReportPage;
pub use stray::{Stray, strays};
pub use templates::{Error, Line};
pub use weight::Weight;

/// No part of a mail has this many bytes.
pub const MAX_BYTES: usize = 90_000;
/// So many of them are left free for a person's own links, which are longer than the places they
/// fill.
const LINK_BYTES: usize = 2_000;
/// Gmail hides what comes after so many.
pub const CLIP_BYTES: usize = 102_000;
/// The longest subject, in characters.
pub const MAX_SUBJECT: usize = 150;

/// More items than fit into any mail.
const MAX_ITEMS: usize = 600;
/// More sections than fit into any mail.
const MAX_SECTIONS: usize = 200;

/// Who writes, and how it looks.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Site {
    /// What mails and pages call the service.
    pub name: String,
    /// Where the name and "+12 more" lead.
    pub url: Option<String>,
    /// Shown at the end, line by line.
    pub postal_address: Option<String>,
    /// The colour of links, as `#rrggbb`; shades that can be read are made of it.
    pub accent: String,
}

/// A digest to be rendered.
#[derive(Debug, Clone)]
pub struct DigestMail<'a> {
    /// Whom it is for; templates see their id, name and locale.
    pub user: &'a User,
    /// What it tells.
    pub digest: &'a Digest,
    /// How often they get one; [`Cadence::Never`] for none that templates should name.
    pub cadence: Cadence,
    /// Such as `2014-W17`.
    pub period: &'a str,
    /// The moment the mail is of: days leave out its year.
    pub at: DateTime<Utc>,
    /// The zone in which its days are named.
    pub tz: Tz,
    /// The recipient's own links, or marks where they will go.
    pub links: Links,
}

/// Links by which people slow or stop the mails; each is shown if it is given.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Links {
    /// The page on which people choose what they get.
    pub preferences: Option<String>,
    /// Where the mails can be ended; the page asks once more.
    pub unsubscribe: Option<String>,
}

/// A mail without its envelope.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rendered {
    /// One line of at most [`MAX_SUBJECT`] characters.
    pub subject: String,
    /// The HTML body, so far below [`MAX_BYTES`] that a person's links fit in.
    pub html: String,
    /// The text body, bounded like the HTML.
    pub text: String,
    /// How many items it shows: fewer than there are where it would have been too long.
    pub shown: usize,
}

/// Templates, compiled and tried out.
pub struct Renderer {
    templates: Templates,
    /// Types whose batches have templates of their own.
    own: BTreeMap<EventType, Mail>,
}

impl Renderer {
    /// Compiles the templates and tries them on sample mails. A template in `overrides`
    /// (`digest/subject.txt`, `body.txt` and `body.html`, those of `batch/`, and what they share in
    /// `mail/`) takes the place of the built-in one; one in `batch/TYPE/` does so in batches of
    /// that type alone.
    pub fn new(site: Site, overrides: Option<PathBuf>) -> Result<Self, Error> {
        let globals = vec![("site", Value::from(Serde(SiteView::of(&site)?)))];
        let own = batch::own(overrides.as_deref())?;
        let all = [&DIGEST, &BATCH].into_iter().chain(own.values());
        let all = all.flat_map(Mail::templates);
        let mut renderer = Self {
            templates: Templates::load(all, overrides.as_deref(), globals)?,
            own,
        };
        renderer.try_out()?;
        let Self { templates, own } = &mut renderer;
        let all = [&DIGEST, &BATCH].into_iter().chain(own.values());
        templates.inline_styles(all.map(|mail| &mail.html))?;
        renderer.try_out()?;
        Ok(renderer)
    }

    /// Renders a digest. Where that would be too long, the longest sections show fewer items and
    /// count the rest.
    pub fn digest(&self, mail: &DigestMail<'_>) -> Result<Rendered, Error> {
        let sections = mail.digest.sections.iter().take(MAX_SECTIONS);
        let shown = sections.map(|section: &Section| section.items.len());
        self.fit(&DIGEST, shown.collect(), |shown| {
            Value::from(Serde(DigestView::new(mail, shown)))
        })
    }

    /// Fills templates in with a view of so many items of each section: as many as fit.
    fn fit(
        &self,
        mail: &Mail,
        mut shown: Vec<usize>,
        view: impl Fn(&[usize]) -> Value,
    ) -> Result<Rendered, Error> {
        level(&mut shown, MAX_ITEMS);
        loop {
            let rendered = self.fill_in(mail, view(&shown), &shown)?;
            let bytes = rendered.html.len().max(rendered.text.len());
            if bytes < MAX_BYTES - LINK_BYTES {
                return Ok(rendered);
            }
            let items: usize = shown.iter().sum();
            if items > 0 {
                // In proportion, and a little less: what is not items does not shrink with them.
                level(
                    &mut shown,
                    (items * MAX_BYTES / bytes * 95 / 100).min(items - 1),
                );
            } else if shown.len() > 1 {
                shown.truncate(shown.len() / 2);
            } else {
                let longer = if rendered.html.len() == bytes {
                    &mail.html
                } else {
                    &mail.text
                };
                return Err(Error::TooLong {
                    file: self.templates.file(longer),
                    bytes,
                });
            }
        }
    }

    fn fill_in(&self, mail: &Mail, view: Value, shown: &[usize]) -> Result<Rendered, Error> {
        let subject = self.templates.render(&mail.subject, view.clone())?;
        let subject = text::clamp(&text::clean(&subject), MAX_SUBJECT).into_owned();
        let view = context! { subject => &subject, ..view };
        let html = self.templates.render(&mail.html, view.clone())?;
        let text = self.templates.render(&mail.text, view)?;
        Ok(Rendered {
            subject,
            html,
            text,
            shown: shown.iter().sum(),
        })
    }

    fn try_out(&self) -> Result<(), Error> {
        sample::mails(|mail| self.digest(mail).map(drop))?;
        for mail in std::iter::once(&BATCH).chain(self.own.values()) {
            sample::batches(|batch| self.batch_by(mail, batch).map(drop))?;
        }
        Ok(())
    }
}

/// Takes from the largest until all together are no more than `most`.
fn level(counts: &mut [usize], most: usize) {
    let sum_at = |counts: &[usize], height: usize| -> usize {
        counts.iter().map(|count| (*count).min(height)).sum()
    };
    let highest = counts.iter().copied().max().unwrap_or(0);
    // The greatest height at which all of it fits.
    let (mut fits, mut too_high) = (0, highest + 1);
    while too_high - fits > 1 {
        let middle = fits + (too_high - fits) / 2;
        if sum_at(counts, middle) <= most {
            fits = middle;
        } else {
            too_high = middle;
        }
    }
    let mut left = most.saturating_sub(sum_at(counts, fits));
    for count in counts {
        if *count > fits {
            let one_more = left.min(1);
            left -= one_more;
            *count = fits + one_more;
        }
    }
}

#[cfg(test)]
mod batch_template_tests;
#[cfg(test)]
mod batch_tests;
#[cfg(test)]
mod template_tests;
#[cfg(test)]
mod tests;
