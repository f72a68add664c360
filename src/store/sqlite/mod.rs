//! The SQLite store: durable storage in one file, for one machine and any number of its processes.
//!
//! Every write is one `BEGIN IMMEDIATE` transaction, or a few that may each be repeated. Every read
//! is one snapshot. No transaction is held across an await. Start with [`stacks`] for the day
//! tables, [`schema`] for the other tables, and [`connections`] for how they are accessed.

mod answer;
mod batches;
mod change_notices;
mod condition;
mod connections;
mod days;
mod deliveries;
mod directory;
mod entries;
mod journal;
mod merge;
mod near;
mod notes;
mod objects;
mod rows;
mod schema;
mod stacks;
mod suppressions;
#[cfg(test)]
mod tests;
mod transfer;

use std::path::Path;
use std::sync::Arc;

use answer::Answer;
use connections::Connections;
use rusqlite::Transaction;

use super::{Result, Schema};

/// The schema version that files are upgraded to.
pub const SCHEMA: u32 = schema::VERSION.unsigned_abs();

/// A store in one file. While it is open, SQLite keeps two more beside it: the write-ahead log and
/// its index.
#[derive(Debug, Clone)]
pub struct Sqlite {
    connections: Arc<Connections>,
}

impl Sqlite {
    /// Opens the file, and creates it and its tables as needed.
    ///
    /// # Errors
    ///
    /// [`Error::Unsupported`](super::Error::Unsupported) if the file belongs to another program or
    /// to a newer tidings. Such a file is not changed.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        let connections = Connections::open(path.as_ref().to_owned()).await?;
        Ok(Self {
            connections: Arc::new(connections),
        })
    }

    /// Returns the schema of a file without upgrading it.
    pub async fn schema_of(path: impl AsRef<Path>) -> Result<Schema> {
        connections::schema_of(path.as_ref().to_owned()).await
    }

    /// Runs `work` on one snapshot.
    async fn read<T: Send + 'static>(
        &self,
        doing: impl Into<String>,
        work: impl FnOnce(&Transaction<'_>) -> Answer<T> + Send + 'static,
    ) -> Result<T> {
        self.connections.read(doing, work).await
    }

    /// Runs `work` in a transaction, which is durable when this returns.
    async fn write<T: Send + 'static>(
        &self,
        doing: impl Into<String>,
        work: impl FnOnce(&Transaction<'_>) -> Answer<T> + Send + 'static,
    ) -> Result<T> {
        self.connections.write(doing, work).await
    }

    /// Applies one change for each item, in one transaction. Returns the results in the order of
    /// the items.
    async fn change_each<T: Clone + Send + Sync + 'static, A: Send + 'static>(
        &self,
        doing: &str,
        items: &[T],
        change: impl Fn(&Transaction<'_>, &T) -> Answer<A> + Send + 'static,
    ) -> Result<Vec<A>> {
        match each(items, change) {
            Some(work) => self.connections.write(doing, work).await,
            None => Ok(Vec::new()),
        }
    }

    /// Runs one query for each item, in one snapshot. Returns the results in the order of the
    /// items.
    async fn read_each<T: Clone + Send + Sync + 'static, A: Send + 'static>(
        &self,
        doing: &str,
        items: &[T],
        find: impl Fn(&Transaction<'_>, &T) -> Answer<A> + Send + 'static,
    ) -> Result<Vec<A>> {
        match each(items, find) {
            Some(work) => self.connections.read(doing, work).await,
            None => Ok(Vec::new()),
        }
    }
}

/// Combines the work for all items; `None` if there are none.
fn each<T: Clone, A, F: Fn(&Transaction<'_>, &T) -> Answer<A>>(
    items: &[T],
    one: F,
) -> Option<impl FnOnce(&Transaction<'_>) -> Answer<Vec<A>> + use<T, A, F>> {
    let items = (!items.is_empty()).then(|| items.to_vec())?;
    Some(move |transaction: &Transaction<'_>| {
        items.iter().map(|item| one(transaction, item)).collect()
    })
}
