//! What a link ends, as templates of mails and pages see it.
//!
//! The rule: types go by the headings that people know them by; how it is said is the templates'.

use serde::Serialize;

use super::naming::{NAME, words};
use super::voice::Voice;
use crate::domain::{EventType, Policies, Stop};

/// `ends` in templates.
#[derive(Serialize)]
pub(super) struct EndsView {
    /// `all`, `digest`, `alone` for all that comes outside the digest, `types`, or `follow`.
    what: &'static str,
    /// Of which types, where it is types; what is followed, where it is that.
    headings: Vec<String>,
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
        };
        Self {
            what,
            headings: kinds.iter().map(heading).collect(),
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
