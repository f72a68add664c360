//! Errors of templates and catalogs.

use std::fmt;
use std::path::PathBuf;

/// A reason why templates cannot be loaded, or an email cannot be rendered.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template or catalog is invalid.
    #[error("{file}{line}: {why}")]
    Template {
        /// The path, or a description of the built-in template.
        file: String,
        /// The line in that file, if it is known.
        line: Line,
        /// The message of the template engine or of our own check.
        why: String,
    },
    /// A configured folder is missing or cannot be listed.
    #[error("the folder of templates {path} cannot be read")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: std::io::Error,
    },
    /// A file cannot be read, for example because it is not UTF-8 text.
    #[error("the template {path} cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// The error of the operating system.
        #[source]
        cause: std::io::Error,
    },
    /// The name or look of the site is invalid.
    #[error(transparent)]
    Site(#[from] crate::domain::name::Invalid),
    /// The email is too long even without items.
    #[error("{file} makes {bytes} bytes of a mail without items; mail programs cut off at 102,000")]
    TooLong {
        /// The path of the longer template, HTML or text, or a description of the built-in one.
        file: String,
        /// The length of its output, in bytes.
        bytes: usize,
    },
}

/// A line number, displayed as a suffix to the file name; empty if it is unknown.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line(pub Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ", line {line}"))
    }
}
