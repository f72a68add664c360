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

    async fn swap_note(&self, name: &str, read: Option<&str>, text: &str) -> Result<bool> {
        let doing = format!("changing the note {name}");
        let (name, read, text) = (name.to_owned(), read.map(str::to_owned), text.to_owned());
        let swap = move |transaction: &Transaction<'_>| {
            let changed = match read {
                Some(read) => transaction
                    .prepare_cached("UPDATE notes SET text = ?3 WHERE name = ?1 AND text = ?2")?
                    .execute([name, read, text])?,
                None => transaction
                    .prepare_cached(
                        "INSERT INTO notes (name, text) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                    )?
                    .execute([name, text])?,
            };
            Ok(changed == 1)
        };
        self.connections.write(doing, swap).await
    }

    async fn notes_under(&self, prefix: &str) -> Result<Vec<(String, String)>> {
        let doing = format!("reading the notes under {prefix}");
        let (from, to) = (prefix.to_owned(), format!("{prefix}{}", char::MAX));
        let read = move |transaction: &Transaction<'_>| {
            let sql = "SELECT name, text FROM notes WHERE name >= ?1 AND name < ?2 ORDER BY name";
            let mut statement = transaction.prepare_cached(sql)?;
            let notes = statement.query_map([from, to], |row| Ok((row.get(0)?, row.get(1)?)))?;
            Ok(notes.collect::<rusqlite::Result<_>>()?)
        };
        self.connections.read(doing, read).await
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
