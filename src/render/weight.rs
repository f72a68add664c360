//! How heavy mails become: a digest of so many items, as it would be if nothing had to be left out.
//!
//! The rule: measured on what the templates make, not estimated; the items are as long as items
//! usually are.

use super::mail_templates::{BATCH, DIGEST};
use super::{Error, LINK_BYTES, MAX_BYTES, Mail, Rendered, Renderer, sample};
use crate::domain::{Cadence, User, UserId};

/// The bytes of a mail's parts.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// Of the subject, which is bounded in characters: [`MAX_SUBJECT`](super::MAX_SUBJECT).
    pub subject: usize,
    /// Of the HTML body, with short sample links where a person's go.
    pub html: usize,
    /// Of the text body, with short sample links where a person's go.
    pub text: usize,
}

impl Weight {
    /// The most bytes a part may have before items are left out of it.
    pub const MOST: usize = MAX_BYTES - LINK_BYTES;

    fn of(rendered: &Rendered) -> Self {
        Self {
            subject: rendered.subject.trim().len(),
            html: rendered.html.trim().len(),
            text: rendered.text.trim().len(),
        }
    }

    /// Whether such a mail leaves with all its items.
    pub fn fits(&self) -> bool {
        self.html.max(self.text) < Self::MOST
    }
}

impl Renderer {
    /// Weighs a digest of one section of so many items.
    pub fn weigh(&self, items: usize) -> Result<Weight, Error> {
        let user = User::new(UserId::stored("sample"));
        let content = sample::works(items);
        let weekly = sample::of_cadence(Cadence::Weekly);
        let mail = Mail {
            links: sample::links(),
            ..sample::mail(&user, &content, &weekly)
        };
        self.fill_in(&DIGEST, &mail, &[items])
            .map(|mail| Weight::of(&mail))
    }

    /// Weighs batch mails of one event and of several: those of the templates for all types, and of
    /// each type's own, by their folder.
    pub fn weigh_batches(&self) -> Result<Vec<(String, Weight)>, Error> {
        let own = self.own.iter();
        let own = own.map(|(kind, templates)| (format!("batch/{kind}"), templates));
        let mut weights = Vec::new();
        for (folder, templates) in std::iter::once(("batch".to_owned(), &BATCH)).chain(own) {
            sample::batches(|mail| {
                let rendered = self.render_by(templates, mail)?;
                weights.push((folder.clone(), Weight::of(&rendered)));
                Ok(())
            })?;
        }
        Ok(weights)
    }
}

#[cfg(test)]
mod tests {
    use super::super::Site;
    use super::*;

    #[test]
    fn a_mail_of_more_items_is_heavier_until_it_does_not_fit() {
        let site = Site {
            name: "Art".into(),
            url: None,
            logo: None,
            postal_address: None,
            accent: "#1f4e79".into(),
        };
        let renderer = Renderer::new(site, None).unwrap();

        let weights = [1, 40, 600].map(|items| renderer.weigh(items).unwrap());

        assert!(weights[0].html < weights[1].html && weights[0].text < weights[1].text);
        assert_eq!(weights.map(|weight| weight.fits()), [true, true, false]);
        assert!(weights.iter().all(|weight| weight.subject > 0));
    }
}
