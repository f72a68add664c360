//! Describes the effect of a stop link to the templates of emails and pages.
//!
//! Types appear under the headings that users see. The wording is up to the templates.

use serde::Serialize;

use super::naming::{NAME, words};
use super::voice::Voice;
use crate::domain::preferences::Title;
use crate::domain::{EventType, Policies, Stop};

/// `ends` in templates.
#[derive(Serialize)]
pub(super) struct EndsView {
    /// `all`, `digest`, `alone` (all types that are emailed outside the digest), `types`, `follow`
    /// or `subject`.
    what: &'static str,
    /// The headings of the types, or the name of the follow.
    headings: Vec<String>,
    /// The title of the subject, or its key if it has no title.
    subject: Option<String>,
}

impl EndsView {
    /// Creates the view; `heading` returns the heading of a type.
    pub(super) fn of(stop: &Stop, heading: impl Fn(&EventType) -> String) -> Self {
        let (what, kinds) = match stop {
            Stop::All => ("all", &[][..]),
            Stop::Digest => ("digest", &[][..]),
            Stop::Alone => ("alone", &[][..]),
            Stop::Types(kinds) => ("types", kinds.as_slice()),
            Stop::Follow(_) => ("follow", &[][..]),
            Stop::Subject(..) => ("subject", &[][..]),
        };
        let subject = match stop {
            Stop::Subject(subject, title) => {
                let name = title.as_ref().map_or(subject.as_str(), Title::as_str);
                Some(name.to_owned())
            }
            _ => None,
        };
        Self {
            what,
            headings: kinds.iter().map(heading).collect(),
            subject,
        }
    }

    /// Creates the view with the headings of the catalog or the configuration.
    pub(super) fn configured(stop: &Stop, policies: &Policies, voice: &Voice) -> Self {
        Self::of(stop, |kind| voice.heading(policies.heading(kind), kind))
    }

    /// Sets the name of the follow.
    pub(super) fn called(self, name: Option<&str>) -> Self {
        match name.and_then(|name| words(name, NAME)) {
            Some(name) => Self {
                headings: vec![name],
                ..self
            },
            None => self,
        }
    }
}
