//! Templates become mails: subject, HTML and text.
//!
//! The rule: a mail that is rendered can be sent. Its HTML stays under 90 KB, as Gmail hides what
//! comes after 102 KB; its subject is one line of at most 150 characters; nothing in an object can
//! break out of its place. What a mail says depends on what it tells, the time zone and the site,
//! and the words of a locale ([`Catalogs`]), and on nothing else of the person, so that people who
//! are told the same share their mail. What a
//! template can get wrong is found by [`Renderer::new`]. `view` is what templates see; `inline` how
//! styles get into the elements; [`pages`] is for browsers, [`report`] for whoever sends.

mod bundle;
mod catalogs;
mod color;
mod data;
mod ends;
mod error;
mod following;
mod inline;
mod mail;
mod mail_templates;
mod naming;
pub mod pages;
mod parts;
mod recipient;
pub mod report;
mod sample;
mod sentence;
mod speech;
mod stray;
mod template_limits;
mod templates;
mod text;
mod view;
mod voice;
mod weight;
mod wording;

use std::collections::BTreeMap;
use std::path::PathBuf;

use minijinja::value::Serde;
use minijinja::{Value, context};

use crate::domain::content::Section;
use crate::domain::{EventType, Occasion, User};

use mail_templates::{BATCH, DIGEST, MailTemplates};
use recipient::Recipient;
use templates::Templates;
use view::MailView;
use voice::Voice;

pub use catalogs::{Catalogs, Gap};
pub use error::{Error, Line};
pub use mail::{Links, Mail, Site};
pub use pages::{Page, Pages};
pub use report::ReportPage;
pub use stray::{Stray, strays};
pub use weight::Weight;

/// No part of a mail has this many bytes.
pub const MAX_BYTES: usize = 90_000;
/// So many of them are left free for a person's own links, which are longer than the places they
/// fill.
const LINK_BYTES: usize = 7_000;
/// Gmail hides what comes after so many.
pub const CLIP_BYTES: usize = 102_000;
/// The longest subject, in characters.
pub const MAX_SUBJECT: usize = 150;

/// More items than fit into any mail.
const MAX_ITEMS: usize = 600;
/// More sections than fit into any mail.
const MAX_SECTIONS: usize = 200;

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
    /// Whether the templates asked who it is for: if not, it is the same for all who are told this.
    pub is_personal: bool,
}

/// Templates, compiled and tried out.
pub struct Renderer {
    templates: Templates,
    /// Types whose batches have templates of their own.
    own: BTreeMap<EventType, MailTemplates>,
}

impl Renderer {
    /// Compiles the templates and tries them on sample mails. A template in `overrides`
    /// (`digest/subject.txt`, `body.txt` and `body.html`, those of `batch/`, and what they share in
    /// `mail/`) takes the place of the built-in one; one in `batch/TYPE/` does so in batches of
    /// that type alone.
    pub fn new(site: Site, overrides: Option<PathBuf>) -> Result<Self, Error> {
        let own = MailTemplates::of_types(overrides.as_deref())?;
        let all = [&DIGEST, &BATCH].into_iter().chain(own.values());
        let all = all.flat_map(MailTemplates::all);
        let catalogs = Catalogs::load(overrides.as_deref())?;
        let templates = Templates::load(all, overrides.as_deref(), &site, catalogs)?;
        let mut renderer = Self { templates, own };
        renderer.try_out()?;
        let Self { templates, own } = &mut renderer;
        let all = [&DIGEST, &BATCH].into_iter().chain(own.values());
        templates.inline_styles(all.map(|mail| &mail.html))?;
        renderer.try_out()?;
        Ok(renderer)
    }

    /// The words of all locales.
    pub fn catalogs(&self) -> &Catalogs {
        self.templates.catalogs()
    }

    /// The locale of the words that mails to this person are written in.
    pub fn locale_of(&self, user: &User) -> &str {
        self.catalogs().spoken(user.locale.as_deref())
    }

    fn voice_of(&self, user: &User) -> &Voice {
        self.catalogs().voice(user.locale.as_deref())
    }

    /// Renders a mail. Where it would be too long, the longest sections show fewer items and count
    /// the rest.
    pub fn render(&self, mail: &Mail<'_>) -> Result<Rendered, Error> {
        let own = mail.content.only().and_then(|kind| self.own.get(kind));
        let templates = match mail.occasion {
            Occasion::Digest { .. } => &DIGEST,
            Occasion::Batch { .. } => own.unwrap_or(&BATCH),
        };
        self.render_by(templates, mail)
    }

    /// Renders it by these templates.
    fn render_by(&self, templates: &MailTemplates, mail: &Mail<'_>) -> Result<Rendered, Error> {
        let sections = mail.content.sections.iter().take(MAX_SECTIONS);
        let mut shown: Vec<usize> = sections.map(Section::shown).collect();
        level(&mut shown, MAX_ITEMS);
        loop {
            let rendered = self.fill_in(templates, mail, &shown)?;
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
                    &templates.html
                } else {
                    &templates.text
                };
                return Err(Error::TooLong {
                    file: self.templates.file(longer),
                    bytes,
                });
            }
        }
    }

    /// Fills templates in with so many items of each section.
    fn fill_in(
        &self,
        templates: &MailTemplates,
        mail: &Mail<'_>,
        shown: &[usize],
    ) -> Result<Rendered, Error> {
        let recipient = Recipient::of(mail.user);
        let user = Value::from_dyn_object(recipient.clone());
        let voice = self.voice_of(mail.user);
        let view = Value::from(Serde(MailView::new(mail, voice, user, shown)));
        let subject = self
            .templates
            .render(&templates.subject, voice, view.clone())?;
        let subject = text::clamp(&text::one_line(&subject), MAX_SUBJECT).into_owned();
        let subject = voice::closed(subject);
        let view = context! { subject => &subject, ..view };
        let html = self
            .templates
            .render(&templates.html, voice, view.clone())?;
        let text = self.templates.render(&templates.text, voice, view)?;
        Ok(Rendered {
            subject,
            html,
            text,
            shown: shown.iter().sum(),
            is_personal: recipient.was_asked(),
        })
    }

    fn try_out(&self) -> Result<(), Error> {
        sample::digests(|mail| self.render(mail).map(drop))?;
        for templates in std::iter::once(&BATCH).chain(self.own.values()) {
            sample::batches(|mail| self.render_by(templates, mail).map(drop))?;
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
