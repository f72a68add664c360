//! Measures the size of rendered emails, to show how many items fit.
//!
//! The sizes are those of samples with items of usual length, not estimates.

use super::mail_templates::{BATCH, DIGEST};
use super::{Error, LINK_BYTES, MAX_BYTES, Mail, Rendered, Renderer, sample};
use crate::domain::{Cadence, User, UserId};

/// The sizes of an email's parts, in bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Weight {
    /// The subject. Its limit is in characters: [`MAX_SUBJECT`](super::MAX_SUBJECT).
    pub subject: usize,
    /// The HTML body, with short sample links.
    pub html: usize,
    /// The text body, with short sample links.
    pub text: usize,
}

impl Weight {
    /// The size from which items are omitted, in bytes.
    pub const MOST: usize = MAX_BYTES - LINK_BYTES;

    fn of(rendered: &Rendered) -> Self {
        Self {
            subject: rendered.subject.trim().len(),
            html: rendered.html.trim().len(),
            text: rendered.text.trim().len(),
        }
    }

    /// Returns whether the email can be sent with all its items.
    pub fn fits(&self) -> bool {
        self.html.max(self.text) < Self::MOST
    }
}

impl Renderer {
    /// Measures a digest with one section of this many items, without omitting any.
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

    /// Measures batch emails with one event and with several, for the common templates and for each
    /// type's own. Each result has the name of its templates folder.
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
    fn an_email_with_more_items_is_larger_until_it_does_not_fit() {
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
