//! The URL of the store, as the option `store` holds it.

use std::fmt;
use std::path::PathBuf;

use super::hidden;

/// Where everything is kept.
#[derive(Clone, PartialEq, Eq)]
pub enum StoreUrl {
    /// A file of SQLite's; a relative path begins at the current folder, wherever it was written.
    Sqlite(PathBuf),
    /// A MongoDB's address as the driver reads it; it may hold a password.
    Mongo(String),
}

impl StoreUrl {
    /// `sqlite:PATH`, `mongodb://…` or `mongodb+srv://…`.
    pub fn parse(text: &str) -> Option<Self> {
        if text.starts_with("mongodb://") || text.starts_with("mongodb+srv://") {
            return Some(Self::Mongo(text.to_owned()));
        }
        text.strip_prefix("sqlite:")
            // Two slashes or a scheme are of an address, which may hold a password.
            .filter(|path| !path.is_empty() && !path.starts_with("//"))
            .filter(|path| !path.contains("://") && !path.starts_with("mongodb:"))
            .map(|path| Self::Sqlite(path.into()))
    }
}

impl fmt::Debug for StoreUrl {
    /// Without its secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sqlite(path) => write!(f, "sqlite:{}", path.display()),
            Self::Mongo(url) => f.write_str(&hidden::address(url)),
        }
    }
}
