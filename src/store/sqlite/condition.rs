//! What the file says of itself. It has no clock: whoever opens it brings one.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::{Sqlite, schema, upgrade};
use crate::store::{Diagnostics, Engine, Result, Schema};

#[async_trait]
impl Diagnostics for Sqlite {
    async fn engine(&self) -> Result<Engine> {
        self.connections
            .read("looking at the file", |transaction| {
                let text = |sql| transaction.query_row(sql, [], |row| row.get::<_, String>(0));
                Ok(Engine::Sqlite {
                    version: text("SELECT sqlite_version()")?,
                    journal: text("PRAGMA journal_mode")?,
                })
            })
            .await
    }

    async fn schema(&self) -> Result<Schema> {
        // Opening brought it up to date.
        Ok(upgrade::schema(schema::VERSION))
    }

    async fn missing_indexes(&self) -> Result<Vec<String>> {
        self.connections
            .read("listing the indexes", |transaction| {
                let there = schema::indexes(transaction)?;
                let mut wanted = schema::wanted_indexes()?;
                wanted.retain(|index| !there.contains(index));
                Ok(wanted)
            })
            .await
    }

    async fn server_time(&self) -> Result<Option<DateTime<Utc>>> {
        Ok(None)
    }
}
