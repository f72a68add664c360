//! The mark of a store that an export or import has closed to others.

use serde::{Deserialize, Serialize};

use super::record::to_json;
use super::record_lines::{MOVE_NOTE, TRANSFER_NOTE};
use super::traits::Store;
use super::types::{Error, Result};

impl dyn Store + '_ {
    /// Returns the mark, if an export or import has closed this store.
    pub async fn transfer_mark(&self) -> Result<Option<TransferMark>> {
        let mark = self.note(TRANSFER_NOTE).await?;
        let moved = self.note(MOVE_NOTE).await?;
        let Some(mark) = mark else {
            return Ok(moved.filter(|moved| has_closed_store(moved)).map(|_| TransferMark::Moving));
        };
        let parsed = serde_json::from_str(&mark);
        parsed.map(Some).map_err(|why| Error::corrupt(format!("the note {TRANSFER_NOTE}"), why))
    }

    /// Replaces the mark if `old` is still the current one. Returns whether `new` is current now.
    pub async fn swap_transfer_mark(
        &self,
        old: Option<&TransferMark>,
        new: Option<&TransferMark>,
    ) -> Result<bool> {
        let old = old.map(to_json).transpose()?;
        let new = new.map(to_json).transpose()?;
        // A swap whose reply was lost may have succeeded.
        Ok(self.swap_note(TRANSFER_NOTE, old.as_deref(), new.as_deref()).await?
            || self.note(TRANSFER_NOTE).await? == new)
    }
}

/// Why only an export or import may open a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TransferMark {
    /// The store was exported to be moved.
    Closed {
        /// The folder of the export.
        folder: String,
    },
    /// An import has not ended.
    Importing(ImportProgress),
    /// An earlier version moves the store with `tidings move`. Never written.
    Moving,
}

/// The progress of an import.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ImportProgress {
    /// The folder of the export.
    pub folder: String,
    /// The SHA-256 of its manifest: an import continues only with the same export.
    pub manifest: String,
    /// Whether the store was still empty after it was marked.
    pub checked: bool,
    /// The number of files that were imported.
    pub files: usize,
    /// The number of lines of the next file that were imported.
    pub lines: u64,
}

/// Returns whether `tidings move` closed the store. It closes the source, and the target until the
/// move ends. An unreadable note counts as closed.
fn has_closed_store(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Move {
        role: String,
        done: bool,
    }
    serde_json::from_str(text).map_or(true, |Move { role, done }| role == "source" || !done)
}
