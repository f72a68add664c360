//! What a store is in a move: the source, or the target.
//!
//! The rule: both stores have the note before anything is copied, with one id, so that no two moves
//! mix. A source is closed from then on. A target may be used once it was compared with its source
//! and found the same, and keeps its note, as that says how the move ended.

use serde::{Deserialize, Serialize};

use super::kind::Kind;
use crate::domain::{Day, Id};
use crate::store::{Error, Result};

/// What a store is in a move.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct MoveNote {
    /// The move; source and target have the same.
    pub id: Id,
    /// What this store is in it.
    pub role: Role,
    /// Where everything comes from, without secrets.
    pub from: String,
    /// Where it goes, without secrets.
    pub to: String,
    /// Whether all was copied and compared.
    pub done: bool,
    /// In a target, how far it was copied.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reached: Option<Reached>,
}

/// Which of the two stores.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// What is moved away from.
    Source,
    /// What is moved into.
    Target,
}

/// How far a copy has come: all before this was copied.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reached {
    /// Records of this kind, up to here.
    Kind {
        /// Which kind is being copied.
        kind: Kind,
        /// What to go on after in the source; nothing at its start.
        after: Option<String>,
    },
    /// All kinds, and all days before this one.
    Day(Day),
    /// Everything.
    End,
}

impl MoveNote {
    pub(in crate::store) fn text(&self) -> Result<String> {
        serde_json::to_string(self).map_err(|cause| Error::database("writing a note", cause))
    }

    pub(in crate::store) fn read(text: &str) -> Result<Self> {
        serde_json::from_str(text).map_err(|why| Error::corrupt("the note moving", why))
    }
}
