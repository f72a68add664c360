//! Notes: one row for each name.

use async_trait::async_trait;
use rusqlite::{OptionalExtension, Transaction};

use super::Sqlite;
use super::answer::Answer;
use crate::store::{Notes, Result};

#[async_trait]
impl Notes for Sqlite {
    async fn note(&self, name: &str) -> Result<Option<String>> {
        let doing = format!("reading the note {name}");
        let name = name.to_owned();
        let read = move |transaction: &Transaction<'_>| find(transaction, &name);
        self.connections.read(doing, read).await
    }

    async fn notes_named(&self, names: &[String]) -> Result<Vec<Option<String>>> {
        self.read_each("reading notes", names, find).await
    }

    async fn swap_note(&self, name: &str, read: Option<&str>, text: Option<&str>) -> Result<bool> {
        let doing = format!("changing the note {name}");
        let text_of = |text: Option<&str>| text.map(str::to_owned);
        let (name, read, text) = (name.to_owned(), text_of(read), text_of(text));
        let swap = move |transaction: &Transaction<'_>| {
            let prepare = |sql| transaction.prepare_cached(sql);
            let changed = match (read, text) {
                (None, None) => 0,
                (None, Some(text)) => prepare(
                    "INSERT INTO notes (name, text) VALUES (?1, ?2) ON CONFLICT DO NOTHING",
                )?
                .execute([name, text])?,
                (Some(read), Some(text)) => {
                    prepare("UPDATE notes SET text = ?3 WHERE name = ?1 AND text = ?2")?
                        .execute([name, read, text])?
                }
                (Some(read), None) => prepare("DELETE FROM notes WHERE name = ?1 AND text = ?2")?
                    .execute([name, read])?,
            };
            Ok(changed == 1)
        };
        self.connections.write(doing, swap).await
    }

    async fn notes(&self, prefix: &str) -> Result<Vec<(String, String)>> {
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
}

fn find(transaction: &Transaction<'_>, name: &String) -> Answer<Option<String>> {
    let mut statement = transaction.prepare_cached("SELECT text FROM notes WHERE name = ?1")?;
    Ok(statement.query_row([name], |row| row.get(0)).optional()?)
}
