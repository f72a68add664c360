//! SQLite: the embedded store, for one machine. A real store, not a mock: durable, and shared by
//! several processes.
//!
//! The rule: every write is one `BEGIN IMMEDIATE` transaction, or a few that may each be repeated;
//! every read is one snapshot; none is held over an await. Begin with [`stacks`] for the day
//! tables; [`schema`] shows all the others, and [`connections`] how they are reached.

mod answer;
mod batches;
mod codec;
mod columns;
mod condition;
mod connections;
mod days;
mod deliveries;
mod delivery_row;
mod directory;
mod entries;
mod feedback;
mod inboxes;
mod journal;
mod leases;
mod merge;
mod near;
mod notes;
mod objects;
mod odd_rows;
mod pokes;
mod retention;
mod retractions;
mod schema;
mod sightings;
mod stacks;
mod suppressions;
#[cfg(test)]
mod tests;
mod transfer;
mod upgrade;

use std::path::Path;
use std::sync::Arc;

use answer::Answer;
use connections::Connections;
use rusqlite::Transaction;

use super::{Result, Schema};

/// The schema that files are upgraded to.
pub const SCHEMA: u32 = upgrade::VERSION.unsigned_abs();

/// A store in one file (and two beside it while it is open: the write-ahead log and its index).
#[derive(Debug, Clone)]
pub struct Sqlite {
    connections: Arc<Connections>,
}

impl Sqlite {
    /// Opens the file, and creates it and its tables as needed. A file of another program, or of a
    /// newer tidings, is refused and left as it is.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        let connections = Connections::open(path.as_ref().to_owned()).await?;
        Ok(Self {
            connections: Arc::new(connections),
        })
    }

    /// Which schema a file has, without opening it for anything else, which would bring it up to
    /// date.
    pub async fn schema_of(path: impl AsRef<Path>) -> Result<Schema> {
        connections::schema_of(path.as_ref().to_owned()).await
    }

    /// One change for each of these, in one transaction; the answers are in their order.
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

    /// One look for each of these, in one snapshot; the answers are in their order.
    async fn read_each<T: Clone + Send + Sync + 'static, A: Send + 'static>(
        &self,
        doing: &str,
        items: &[T],
        look: impl Fn(&Transaction<'_>, &T) -> Answer<A> + Send + 'static,
    ) -> Result<Vec<A>> {
        match each(items, look) {
            Some(work) => self.connections.read(doing, work).await,
            None => Ok(Vec::new()),
        }
    }
}

/// The work for all of these, if there are any.
fn each<T: Clone, A, F: Fn(&Transaction<'_>, &T) -> Answer<A>>(
    items: &[T],
    one: F,
) -> Option<impl FnOnce(&Transaction<'_>) -> Answer<Vec<A>> + use<T, A, F>> {
    let items = (!items.is_empty()).then(|| items.to_vec())?;
    Some(move |transaction: &Transaction<'_>| {
        items.iter().map(|item| one(transaction, item)).collect()
    })
}
