//! What a link ends, as templates of mails and pages see it.
//!
//! The rule: types go by the headings that people know them by; how it is said is the templates'.

use serde::Serialize;

use super::naming::{NAME, words};
use super::voice::Voice;
use crate::domain::mute::Title;
use crate::domain::{EventType, Policies, Stop};

/// `ends` in templates.
#[derive(Serialize)]
pub(super) struct EndsView {
    /// `all`, `digest`, `alone` for all that comes outside the digest, `types`, `follow` or
    /// `subject`.
    what: &'static str,
    /// Of which types, where it is types; what is followed, where it is that.
    headings: Vec<String>,
    /// About what, where it is a subject: as people call it, if that is known.
    subject: Option<String>,
}

impl EndsView {
    /// With headings by type.
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

    /// With the headings of the configuration, or of the catalog.
    pub(super) fn configured(stop: &Stop, policies: &Policies, voice: &Voice) -> Self {
        Self::of(stop, |kind| voice.heading(policies.heading(kind), kind))
    }

    /// The same, of something that is called so.
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
