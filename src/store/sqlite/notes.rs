//! Small texts under a name: one row each.

use async_trait::async_trait;
use rusqlite::{OptionalExtension, Transaction};

use super::Sqlite;
use crate::store::{Notes, Result};

const READ: &str = "SELECT text FROM notes WHERE name = ?1";

#[async_trait]
impl Notes for Sqlite {
    async fn note(&self, name: &str) -> Result<Option<String>> {
        let doing = format!("reading the note {name}");
        let name = name.to_owned();
        let read = move |transaction: &Transaction<'_>| {
            let mut statement = transaction.prepare_cached(READ)?;
            Ok(statement.query_row([name], |row| row.get(0)).optional()?)
        };
        self.connections.read(doing, read).await
    }

    async fn put_note(&self, name: &str, text: &str) -> Result<()> {
        let doing = format!("writing the note {name}");
        let row = (name.to_owned(), text.to_owned());
        let write = move |transaction: &Transaction<'_>| {
            let sql = "INSERT OR REPLACE INTO notes (name, text) VALUES (?1, ?2)";
            transaction.prepare_cached(sql)?.execute(row)?;
            Ok(())
        };
        self.connections.write(doing, write).await
    }

    async fn keep_note(&self, name: &str, text: &str) -> Result<String> {
        let doing = format!("keeping the note {name}");
        let row = (name.to_owned(), text.to_owned());
        let keep = move |transaction: &Transaction<'_>| {
            let sql =
                "INSERT INTO notes (name, text) VALUES (?1, ?2) ON CONFLICT (name) DO NOTHING";
            transaction.prepare_cached(sql)?.execute((&row.0, row.1))?;
            let mut statement = transaction.prepare_cached(READ)?;
            Ok(statement.query_row([row.0], |row| row.get(0))?)
        };
        self.connections.write(doing, keep).await
    }

    async fn drop_note(&self, name: &str) -> Result<()> {
        let doing = format!("forgetting the note {name}");
        let name = name.to_owned();
        let forget = move |transaction: &Transaction<'_>| {
            let sql = "DELETE FROM notes WHERE name = ?1";
            transaction.prepare_cached(sql)?.execute([name])?;
            Ok(())
        };
        self.connections.write(doing, forget).await
    }
}
