//! The SQLite store: durable storage in one file, for one machine and any number of its processes.
//!
//! Every write is one `BEGIN IMMEDIATE` transaction, or a few that may each be repeated. Every read
//! is one snapshot. No transaction is held across an await. Start with [`stacks`] for the day
//! tables, [`schema`] for the other tables, and [`connections`] for how they are accessed.

mod batches;
mod connections;
mod coordination;
mod days;
mod deliveries;
mod diagnostics;
mod entry_text;
mod expired;
mod feedback;
mod journal;
mod objects;
mod rows;
mod schema;
mod stacks;
mod suppressions;
mod transfer;
mod users;
mod users_near_point;

pub use connections::Sqlite;

#[cfg(test)]
mod tests;
