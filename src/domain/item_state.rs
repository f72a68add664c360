//! The state of an item in a feed, and the filter that a request selects items by.

use std::str::FromStr;

use super::name::Invalid;

/// How an item stands with its reader; the later, the more was done.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum ItemState {
    /// It was not shown yet.
    Unseen,
    /// It was shown.
    Seen,
    /// It was opened, or marked as read.
    Read,
    /// It is put away: the feed shows it only where it is asked for.
    Archived,
}

impl ItemState {
    /// Its name, as in JSON.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Unseen => "unseen",
            Self::Seen => "seen",
            Self::Read => "read",
            Self::Archived => "archived",
        }
    }

    /// Whether it is to be opened still.
    pub fn is_unread(self) -> bool {
        self < Self::Read
    }
}

/// Which items are asked for, by their states.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum StateFilter {
    /// Those that are not put away: what a feed shows unless asked otherwise.
    #[default]
    Current,
    /// Those that were not shown yet.
    Unseen,
    /// Those that are to be opened still, shown or not.
    Unread,
    /// Those that were read and not put away.
    Read,
    /// Those that are put away.
    Archived,
    /// All.
    All,
}

impl StateFilter {
    /// Its name, as in a query.
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

    /// Whether such an item is asked for.
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
