//! The state of a feed item, and the filter that selects items by state.

use std::str::FromStr;

use super::name::Invalid;

/// The state of an item for its reader, in the order of progress.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// Not shown yet.
    Unseen,
    /// Shown.
    Seen,
    /// Opened, or marked as read.
    Read,
    /// Archived. Feeds omit it unless the request asks for archived items.
    Archived,
}

impl ItemState {
    /// Returns the name in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unseen => "unseen",
            Self::Seen => "seen",
            Self::Read => "read",
            Self::Archived => "archived",
        }
    }

    /// Returns whether the item is neither read nor archived.
    pub fn is_unread(self) -> bool {
        self < Self::Read
    }
}

/// A filter for items by state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateFilter {
    /// Items that are not archived: the default of feeds.
    #[default]
    Current,
    /// Items that were not shown yet.
    Unseen,
    /// Items that are neither read nor archived.
    Unread,
    /// Items that are read and not archived.
    Read,
    /// Archived items.
    Archived,
    /// All items.
    All,
}

impl StateFilter {
    /// Returns the name in a query.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Current => "current",
            Self::Unseen => "unseen",
            Self::Unread => "unread",
            Self::Read => "read",
            Self::Archived => "archived",
            Self::All => "all",
        }
    }

    /// Returns whether an item in this state passes the filter.
    pub fn admits(self, state: ItemState) -> bool {
        match self {
            Self::Current => state != ItemState::Archived,
            Self::Unseen => state == ItemState::Unseen,
            Self::Unread => state.is_unread(),
            Self::Read => state == ItemState::Read,
            Self::Archived => state == ItemState::Archived,
            Self::All => true,
        }
    }
}

impl FromStr for StateFilter {
    type Err = Invalid;

    fn from_str(text: &str) -> Result<Self, Invalid> {
        Ok(match text {
            "current" => Self::Current,
            "unseen" => Self::Unseen,
            "unread" => Self::Unread,
            "read" => Self::Read,
            "archived" => Self::Archived,
            "all" => Self::All,
            _ => {
                let why = "is none of current, unseen, unread, read, archived, all";
                return Err(Invalid::new("state", text, why));
            }
        })
    }
}
