//! Views of server keys. Only the answer to the creation of a key contains the key itself (P8).

use chrono::{DateTime, Utc};
use serde::Serialize;

use crate::domain::{KeyName, Scope};

/// A server key, without its secret.
#[derive(Debug, Clone, Serialize)]
pub struct KeyView {
    /// The name of the key.
    pub name: KeyName,
    /// The scope of the key.
    pub scope: Scope,
    /// When the key was created.
    pub created: DateTime<Utc>,
}

/// A server key that was just created.
#[derive(Serialize)]
pub(crate) struct NewKeyView<'a> {
    pub(crate) name: &'a KeyName,
    pub(crate) scope: Scope,
    /// The secret.
    pub(crate) key: &'a str,
}
