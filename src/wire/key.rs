//! Server keys.
//!
//! The rule (P8): a key itself is in the answer to its making and nowhere else.

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::{KeyName, Scope};

/// A key that was created.
#[derive(Debug, Clone, Serialize)]
pub struct KeyView {
    /// What it is called.
    pub name: KeyName,
    /// What it may do.
    pub scope: Scope,
    /// Since when.
    pub created: DateTime<Utc>,
}

/// A key that was just made.
#[derive(Serialize)]
pub(crate) struct NewKeyView<'a> {
    pub(crate) name: &'a KeyName,
    pub(crate) scope: Scope,
    /// The key itself.
    pub(crate) key: &'a str,
}
