//! SQLite: the embedded store, for one machine. A real store, not a mock: durable, and shared by
//! several processes.
//!
//! The rule: every write is one `BEGIN IMMEDIATE` transaction, or a few that may each be repeated;
//! every read is one snapshot; none is held over an await. Begin with [`stacks`] for the day
//! tables; [`schema`] shows all the others, and [`connections`] how they are reached.

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
mod journal;
mod leases;
mod merge;
mod near;
mod notes;
mod objects;
mod odd_rows;
mod retention;
mod schema;
mod sightings;
mod stacks;
mod suppressions;
#[cfg(test)]
mod tests;
mod upgrade;

use std::path::Path;

use connections::Connections;

use super::{Result, Schema};

/// The schema that files are upgraded to.
pub const SCHEMA: u32 = schema::VERSION.unsigned_abs();

/// A store in one file (and two beside it while it is open: the write-ahead log and its index).
#[derive(Debug)]
pub struct Sqlite {
    connections: Connections,
}

impl Sqlite {
    /// Opens the file, and creates it and its tables as needed. A file of another program, or of a
    /// newer tidings, is refused and left as it is.
    pub async fn open(path: impl AsRef<Path>) -> Result<Self> {
        let connections = Connections::open(path.as_ref().to_owned()).await?;
        Ok(Self { connections })
    }

    /// Which schema a file has, without opening it for anything else, which would bring it up to
    /// date.
    pub async fn schema_of(path: impl AsRef<Path>) -> Result<Schema> {
        connections::schema_of(path.as_ref().to_owned()).await
    }
}
