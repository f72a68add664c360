//! Pages that only say something: what went otherwise than somebody expected, and what to do.
//!
//! The rule: each has its message in the catalogs, so that it is said in the language of whoever
//! sees it. What only programs send wrongly is told in English within it.

use serde::Serialize;

use super::super::voice::{Filled, Medium, Voice};

/// What a page says.
#[derive(Debug, Clone, Copy)]
pub enum Notice<'a> {
    /// A link is not whole, or none of ours.
    Forged,
    /// A link has expired.
    Expired,
    /// There is no record of whoever a link is of.
    Gone,
    /// They do not follow what a link would end.
    NotFollowed,
    /// What a link ended once cannot be turned off any more; why.
    Mandatory(&'a str),
    /// What was sent cannot be read; why, as a sentence.
    Form(&'a str),
    /// This method does not work here.
    Method(&'a str),
    /// What was sent cannot be chosen; what and why.
    Choice(&'a str),
    /// The form of the preferences page has only one of the two times of the quiet hours.
    QuietHours,
    /// It could not be done.
    Inside,
}

/// `heading`, `text` and `back` in the template.
#[derive(Serialize)]
pub(super) struct NoticeView {
    heading: String,
    text: String,
    /// The relative URL of the preferences page, if the notice is about its form.
    back: Option<&'static str>,
}

impl NoticeView {
    pub(super) fn of(notice: Notice<'_>, voice: &Voice) -> Self {
        let (id, filled) = match notice {
            Notice::Forged => ("notice-forged", None),
            Notice::Expired => ("notice-expired", None),
            Notice::Gone => ("notice-gone", None),
            Notice::NotFollowed => ("notice-not-followed", None),
            Notice::Mandatory(reason) => (
                "notice-mandatory",
                Some(("reason", reason.trim_end_matches('.'))),
            ),
            Notice::Form(why) => ("notice-form", Some(("why", why))),
            Notice::Method(method) => ("notice-method", Some(("method", method))),
            Notice::Choice(why) => ("notice-choice", Some(("why", why))),
            Notice::QuietHours => ("notice-quiet", None),
            Notice::Inside => ("notice-inside", None),
        };
        let back = matches!(notice, Notice::QuietHours).then_some("preferences");
        let filled = filled.map(|(name, words)| (name, Filled::words(words)));
        let say = |id: &str| {
            voice
                .say(id, filled.as_slice(), Medium::Text)
                .unwrap_or_default()
        };
        Self {
            heading: say(id),
            text: say(&format!("{id}.text")),
            back,
        }
    }
}
