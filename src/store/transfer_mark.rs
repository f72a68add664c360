//! The mark of a store that an export or import has closed to others.

use serde::{Deserialize, Serialize};

use super::record::to_json;
use super::record_lines::{MARK, MOVE};
use super::traits::Store;
use super::types::{Error, Result};

impl dyn Store + '_ {
    /// Returns what an export or import says of this store.
    pub async fn mark(&self) -> Result<Option<Mark>> {
        let text = self.note(MARK).await?;
        let moved = self.note(MOVE).await?;
        if text.is_none() && moved.is_some_and(|moved| is_move_open(&moved)) {
            return Ok(Some(Mark::Moving));
        }
        let read = |text: &str| serde_json::from_str(text);
        let mark = text.as_deref().map(read).transpose();
        mark.map_err(|why| Error::corrupt(format!("the note {MARK}"), why))
    }

    /// Replaces the mark, if it is still the one that was read. Returns whether the new one is
    /// current.
    pub async fn swap_mark(&self, read: Option<&Mark>, mark: Option<&Mark>) -> Result<bool> {
        let read = read.map(to_json).transpose()?;
        let mark = mark.map(to_json).transpose()?;
        let swapped = self.swap_note(MARK, read.as_deref(), mark.as_deref());
        // A swap whose answer was lost has succeeded.
        Ok(swapped.await? || self.note(MARK).await? == mark)
    }
}

/// Why only an export or import may open a store.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Mark {
    /// The store was exported to be moved.
    Closed {
        /// The folder of the export.
        folder: String,
    },
    /// An import has not ended.
    Importing(Importing),
    /// An earlier version moves the store with `tidings move`. Never written.
    Moving,
}

/// How far an import has come.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Importing {
    /// The folder of the export.
    pub folder: String,
    /// The SHA-256 of its manifest: an import continues only with the same export.
    pub manifest: String,
    /// Whether the store was still empty after it was marked.
    pub checked: bool,
    /// How many files were imported.
    pub files: usize,
    /// How many lines of the next file were imported.
    pub lines: u64,
}

/// Returns whether `tidings move` closed the store: the source, and the target until the end.
fn is_move_open(text: &str) -> bool {
    #[derive(Deserialize)]
    struct Move {
        role: String,
        done: bool,
    }
    let read = serde_json::from_str(text);
    read.map_or(true, |Move { role, done }| role == "source" || !done)
}
