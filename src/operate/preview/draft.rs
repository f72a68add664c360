//! Previewed emails before rendering, and the kinds of previews.

use crate::domain::{Content, Occasion, User};

/// The kinds of previews.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Digest emails.
    Digest,
    /// Batch emails.
    Batch,
    /// The public pages that emails link to.
    Page,
}

impl Kind {
    /// All kinds, in the order in which they are shown.
    pub const ALL: [Self; 3] = [Self::Digest, Self::Batch, Self::Page];

    /// Returns the name on the command line, in file names and on the page.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Digest => "digest",
            Self::Batch => "batch",
            Self::Page => "page",
        }
    }
}

/// An email before rendering.
#[derive(Debug, Clone)]
pub struct Draft {
    /// A short description.
    pub name: String,
    /// The recipient.
    pub user: User,
    /// The content.
    pub content: Content,
    /// The digest or batch of the email.
    pub occasion: Occasion,
}

impl Draft {
    /// Returns the kind of the preview.
    pub fn kind(&self) -> Kind {
        match self.occasion {
            Occasion::Digest { .. } => Kind::Digest,
            Occasion::Batch { .. } => Kind::Batch,
        }
    }
}
