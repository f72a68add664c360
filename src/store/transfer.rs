//! Reads and writes a whole store as lines of JSON, one for each record.
//!
//! A record has the same line in every store, so sums of lines compare stores and files. Days have
//! lines already ([`super::Days`]). Leases by name, change notices and catch-up positions belong to
//! the processes of one store and are left out. Start with [`WholeStore`].

use async_trait::async_trait;
use futures::stream::BoxStream;
use serde::{Deserialize, Serialize};

use super::{Error, Result, Store};

mod kind;
mod record;

pub use kind::Kind;
pub use record::AnyRecord;
pub(in crate::store) use record::NO_REVISION;

/// Some records of one kind.
#[derive(Debug, Clone, Default)]
pub struct Page {
    /// One line for each readable record, in the order of their ids.
    pub lines: Vec<String>,
    /// The unreadable records, each with its id and the reason.
    pub bad: Vec<String>,
}

/// A store that can be exported, or imported into.
#[async_trait]
pub trait WholeStore: Store {
    /// Streams the records of this kind in the order of their ids. A page has at most 1,000 records
    /// or about 16 MB. The notes about the store itself are left out.
    fn export_pages(&self, kind: Kind) -> BoxStream<'_, Result<Page>>;

    /// Writes these records over those with the same ids. Durable, and harmless if repeated.
    async fn put_page(&self, kind: Kind, lines: &[String]) -> Result<()>;

    /// Returns what an export or import says of this store.
    async fn mark(&self) -> Result<Option<Mark>> {
        let text = self.note(NOTE).await?;
        if text.is_none()
            && self
                .note(MOVE)
                .await?
                .is_some_and(|text| is_move_open(&text))
        {
            return Ok(Some(Mark::Moving));
        }
        let read = |text: &str| serde_json::from_str(text);
        let mark = text.as_deref().map(read).transpose();
        mark.map_err(|why| Error::corrupt(format!("the note {NOTE}"), why))
    }

    /// Replaces the mark, if it is still the one that was read. Returns whether the new one is
    /// current.
    async fn swap_mark(&self, read: Option<&Mark>, mark: Option<&Mark>) -> Result<bool> {
        let text = |mark: &Mark| {
            serde_json::to_string(mark).map_err(|cause| Error::database("writing a note", cause))
        };
        let (read, mark) = (read.map(text).transpose()?, mark.map(text).transpose()?);
        let swapped = self.swap_note(NOTE, read.as_deref(), mark.as_deref());
        // A swap whose answer was lost has succeeded.
        Ok(swapped.await? || self.note(NOTE).await? == mark)
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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
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

/// The name of the note that holds the mark.
const NOTE: &str = "transfer";
/// The name of the note that `tidings move` wrote to both stores.
const MOVE: &str = "moving";

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

impl Page {
    /// Adds a record, unless it is a note about the store itself.
    pub(super) fn push(&mut self, record: &AnyRecord) -> Result<()> {
        match record {
            AnyRecord::Note(note) if [NOTE, MOVE, "schema"].contains(&note.name()) => {}
            record => self.lines.push(record.line()?),
        }
        Ok(())
    }
}
