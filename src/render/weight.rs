//! How heavy mails become: a digest of so many items, as it would be if nothing had to be left out.
//!
//! The rule: measured on what the templates make, not estimated; the items are as long as items
//! usually are.

use chrono::DateTime;
use chrono_tz::Tz;
use minijinja::Value;
use minijinja::value::Serde;

use super::templates::{BATCH, DIGEST};
use super::view::DigestView;
use super::{DigestMail, Error, LINK_BYTES, Links, MAX_BYTES, Rendered, Renderer, sample};
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
        let at = DateTime::from_timestamp(1_398_153_600, 0).unwrap_or_default();
        let user = User::new(UserId::stored("sample"));
        let digest = sample::of(at, items);
        let mail = DigestMail {
            user: &user,
            digest: &digest,
            cadence: Cadence::Weekly,
            period: "2014-W17",
            at,
            tz: Tz::UTC,
            links: Links {
                preferences: Some("https://example.org/preferences".into()),
                unsubscribe: Some("https://example.org/unsubscribe".into()),
            },
        };
        let view = Value::from(Serde(DigestView::new(&mail, &[items])));
        self.fill_in(&DIGEST, view, &[items])
            .map(|mail| Weight::of(&mail))
    }

    /// Weighs batch mails of one event and of several: those of the templates for all types, and of
    /// each type's own, by their folder.
    pub fn weigh_batches(&self) -> Result<Vec<(String, Weight)>, Error> {
        let own = self.own.iter();
        let own = own.map(|(kind, mail)| (format!("batch/{kind}"), mail));
        let mut weights = Vec::new();
        for (folder, mail) in std::iter::once(("batch".to_owned(), &BATCH)).chain(own) {
            sample::batches(|batch| {
                let rendered = self.batch_by(mail, batch)?;
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
