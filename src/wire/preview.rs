//! What the page of `tidings preview` is told. No other server answers with these.

use serde::Serialize;

/// What there is to look at.
#[derive(Debug, Clone, Default, Serialize)]
pub(crate) struct Board {
    /// Another one, another board.
    pub(crate) version: u64,
    /// Which locale they are in; `None` for each person's own.
    pub(crate) locale: Option<String>,
    /// What a person's own is, in words, if they are one person's.
    pub(crate) spoken: Option<String>,
    /// The locales there are.
    pub(crate) locales: Vec<Locale>,
    pub(crate) sheets: Vec<Sheet>,
    /// Why there is nothing newer to look at; the sheets are those of before then.
    pub(crate) trouble: Option<Trouble>,
    /// What there is to know where there are no sheets of something.
    pub(crate) notes: Vec<String>,
}

/// A locale that has a catalog.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Locale {
    pub(crate) tag: String,
    /// What it calls itself.
    pub(crate) name: String,
}

/// A mail or a page.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Sheet {
    pub(crate) kind: &'static str,
    pub(crate) name: String,
    pub(crate) subject: Option<String>,
    pub(crate) text: Option<String>,
    /// Where its HTML is.
    pub(crate) html: String,
    /// How large that is, in bytes.
    pub(crate) bytes: usize,
}

/// What is wrong.
#[derive(Debug, Clone, Serialize)]
pub(crate) struct Trouble {
    pub(crate) what: String,
    /// The lines of the file where it is, with their numbers, if they are known.
    pub(crate) lines: Vec<(usize, String)>,
    /// Which of them it is.
    pub(crate) line: Option<usize>,
}
