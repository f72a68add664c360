//! Previewed emails before rendering, and the kinds of previews.

use crate::domain::{Content, Occasion, User};

/// What can be looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Mails of digests.
    Digest,
    /// Mails of batches.
    Batch,
    /// The pages that people reach from their mails.
    Page,
}

impl Kind {
    /// All of them, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Digest, Self::Batch, Self::Page];

    /// The name in the command line, in names of files and on the page.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::Batch => "batch",
            Self::Page => "page",
        }
    }
}

/// A mail that is not rendered yet.
#[derive(Debug, Clone)]
pub struct Draft {
    /// What it shows, in a few words.
    pub name: String,
    /// Whom it is for.
    pub user: User,
    /// What it tells.
    pub content: Content,
    /// Whether it is a digest or of a batch.
    pub occasion: Occasion,
}

impl Draft {
    /// Of which kind it is.
    pub fn kind(&self) -> Kind {
        match self.occasion {
            Occasion::Digest { .. } => Kind::Digest,
            Occasion::Batch { .. } => Kind::Batch,
        }
    }
}
