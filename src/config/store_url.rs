//! The option `store`: the location of all data.

use std::fmt;
use std::path::PathBuf;

use super::redact;

/// The location of all data.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A SQLite file. A relative path refers to the current folder.
    Sqlite(PathBuf),
    /// A MongoDB connection string. It may contain a password.
    Mongo(String),
}

impl StoreUrl {
    /// Parses `sqlite:PATH`, `mongodb://…` or `mongodb+srv://…`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.trim() != text || text.contains(char::is_control) {
            return None;
        }
        if text.starts_with("mongodb://") || text.starts_with("mongodb+srv://") {
            return Some(Self::Mongo(text.to_owned()));
        }
        text.strip_prefix("sqlite:")
            // Reject a URL after `sqlite:`, because it may contain a password.
            .filter(|path| !path.is_empty() && !path.starts_with("//"))
            .filter(|path| !path.contains("://") && !path.starts_with("mongodb:"))
            .map(|path| Self::Sqlite(path.into()))
    }
}

impl fmt::Debug for StoreUrl {
    /// Writes the URL without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Mongo(url) => f.write_str(&redact::redact_url(url)),
        }
    }
}
