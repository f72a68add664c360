//! The result of an import.

use std::fmt;

use serde::Serialize;

use super::round::FannedOut;
use crate::domain::ObjectKey;

/// A rejected line.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct BadLine {
    /// The line number in the file, from 1. Blank lines count.
    pub line: u64,
    /// The invalid field, such as `digest.hour`; `None` if the whole line is invalid.
    pub field: Option<String>,
    /// The error, for humans.
    pub why: String,
}

/// Prints `line 2, digest.hour: is …`.
impl fmt::Display for BadLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "line {}", self.line)?;
        if let Some(field) = &self.field {
            write!(f, ", {field}")?;
        }
        write!(f, ": {}", self.why)
    }
}

/// The result of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The number of accepted lines, including those that changed nothing.
    pub taken: u64,
    /// The number of rejected lines. Blank lines are neither accepted nor rejected.
    pub bad: u64,
    /// The first rejected lines, up to the limit of the import.
    pub bad_lines: Vec<BadLine>,
    /// The objects whose ids name no model, if there are any.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub without_model: Option<WithoutModel>,
}

/// Objects without a model in their ids. Only event types without a model can refer to them.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct WithoutModel {
    /// The number of such objects that were accepted.
    pub objects: u64,
    /// The first of them.
    pub such_as: ObjectKey,
}

/// The result of an import, and of fanning out its events.
#[derive(Debug, Serialize)]
pub(crate) struct Imported<'a> {
    #[serde(flatten)]
    pub(crate) report: &'a Report,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) fanned_out: Option<&'a FannedOut>,
}
