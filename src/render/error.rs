//! Why templates cannot be used, and where in their files that is.

use std::fmt;
use std::path::PathBuf;

/// Why templates cannot be used, or a mail cannot be made of them.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// A template is wrong: its file, the line if that is known, and what is wrong there.
    #[error("{file}{line}: {why}")]
    Template {
        /// Its path, or which built-in template it is.
        file: String,
        /// Where in that file, as it was written.
        line: Line,
        /// What is wrong, in the words of the template engine.
        why: String,
    },
    /// A folder that was named for templates is missing or cannot be listed.
    #[error("the folder of templates {path} cannot be read")]
    Folder {
        /// The folder.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// A template's file is there and cannot be read, as when it is no text.
    #[error("the template {path} cannot be read")]
    Unreadable {
        /// The file.
        path: PathBuf,
        /// What the system said.
        #[source]
        cause: std::io::Error,
    },
    /// What the site is called or how it looks cannot stand in a mail.
    #[error(transparent)]
    Site(#[from] crate::domain::name::Invalid),
    /// The templates make more than a mail may be even of nothing.
    #[error("{file} makes {bytes} bytes of a mail without items; mail programs cut off at 102,000")]
    TooLong {
        /// The path of the longer template, HTML or text, or which built-in one it is.
        file: String,
        /// How long its output is.
        bytes: usize,
    },
}

/// A line of a file, as it stands after its name; nothing if it is not known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Line(pub Option<usize>);

impl fmt::Display for Line {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.map_or(Ok(()), |line| write!(f, ", line {line}"))
    }
}
