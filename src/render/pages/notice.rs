//! Pages that only show a message: why a request had no effect, and what to do.
//!
//! Each has a message in the catalogs, in the language of its reader. Details of errors that only
//! programs cause are in English.

use serde::Serialize;

use super::super::voice::{Filled, Medium, Voice};

/// The message of a page.
#[derive(Debug, Clone, Copy)]
pub enum Notice<'a> {
    /// A link is incomplete or has an invalid signature.
    Forged,
    /// A link has expired.
    Expired,
    /// The user of a link has no record.
    Gone,
    /// The user does not follow the key that the link would end.
    NotFollowed,
    /// The link is for a type that has become mandatory; the reason.
    Mandatory(&'a str),
    /// The request body cannot be read; the cause, as a sentence.
    Form(&'a str),
    /// The HTTP method is not allowed here.
    Method(&'a str),
    /// A choice is invalid; the value and the cause.
    Choice(&'a str),
    /// The form of the preferences page has only one of the two times of the quiet hours.
    QuietHours,
    /// An internal error.
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
