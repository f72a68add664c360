//! What became of a file that was brought in.

use std::fmt;

use serde::Serialize;

use super::round::FannedOut;
use crate::domain::ObjectKey;

/// A line that could not be taken.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// Its number in the file, from 1; blank lines count.
    pub line: u64,
    /// Which of its fields is to blame, such as `digest.hour`; none where it is all of it.
    pub field: Option<String>,
    /// What is wrong with it, for people to read.
    pub why: String,
}

/// `line 2, digest.hour: is …`.
impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(field) = &self.field {
            write!(f, ", {field}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// What an import came to.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// Lines that were taken, whether they changed anything or not.
    pub taken: u64,
    /// Lines that were left out; blank ones are neither.
    pub bad: u64,
    /// The first bad lines, at most as many as an import shows.
    pub bad_lines: Vec<BadLine>,
    /// Objects whose ids name no model, if there were any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_model: Option<WithoutModel>,
}

/// Objects without a model in their ids: only types without a model name them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WithoutModel {
    /// How many were taken.
    pub objects: u64,
    /// The first of them.
    pub such_as: ObjectKey,
}

/// What an import came to, and what fanning its events out did.
#[derive(Debug, Serialize)]
pub(crate) struct Imported<'a> {
    #[serde(flatten)]
    pub(crate) report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fanned_out: Option<&'a FannedOut>,
}
