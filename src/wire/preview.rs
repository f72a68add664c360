//! The JSON of the page of `tidings preview`. Only its local server uses these types.

use serde::Serialize;

/// The emails and pages of a preview.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Board {
    /// The version of the templates.
    pub(crate) version: u64,
    /// The locale of the sheets; `None` for each user's own.
    pub(crate) locale: Option<String>,
    /// The user's own locale in words, if the preview is of an existing user.
    pub(crate) spoken: Option<String>,
    /// The locales that have a catalog.
    pub(crate) locales: Vec<Locale>,
    pub(crate) sheets: Vec<Sheet>,
    /// The error that prevented a rebuild, if any. The sheets are then those from before it.
    pub(crate) trouble: Option<Trouble>,
    /// Explains which kinds have no sheets.
    pub(crate) notes: Vec<String>,
}

/// A locale that has a catalog.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Locale {
    pub(crate) tag: String,
    /// The name of the language in that language.
    pub(crate) name: String,
}

/// An email or a page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sheet {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) subject: Option<String>,
    pub(crate) text: Option<String>,
    /// The URL of the HTML.
    pub(crate) html: String,
    /// The size of the HTML, in bytes.
    pub(crate) bytes: usize,
}

/// An error, with its place in a template.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trouble {
    pub(crate) what: String,
    /// The lines of the template around the error with their numbers; empty if unknown.
    pub(crate) lines: Vec<(usize, String)>,
    /// The number of the line with the error, if known.
    pub(crate) line: Option<usize>,
}
