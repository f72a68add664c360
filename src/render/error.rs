//! The errors of templates, catalogs and rendering.

use std::fmt::Display;
use std::path::{Path, PathBuf};

/// A reason why templates cannot be loaded, or an email cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template or catalog is invalid.
    #[error("{0}")]
    Template(String),
    /// A folder or file is missing, or it cannot be read, for example because it is not UTF-8 text.
    #[error("{path} cannot be read")]
    Unreadable {
        /// The folder or file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: std::io::Error,
    },
    /// The name or theme of the site is invalid.
    #[error(transparent)]
    Site(#[from] crate::domain::name::InvalidValue),
}

impl Error {
    /// Returns the error for an invalid template or catalog. `file` is the path, or a description
    /// of the built-in template.
    pub(super) fn invalid(file: impl Display, line: Option<usize>, why: impl Display) -> Self {
        let line = line.map_or_else(String::new, |line| format!(", line {line}"));
        Self::Template(format!("{file}{line}: {why}"))
    }

    pub(super) fn unreadable(path: &Path, cause: std::io::Error) -> Self {
        Self::Unreadable { path: path.to_owned(), cause }
    }
}
