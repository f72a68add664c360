//! Recently seen webhook ids: one row for each key, until it expires.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::{OptionalExtension, Transaction};

use super::Sqlite;
use super::answer::Answer;
use super::codec::millis;
use crate::store::{Result, SeenReports};

#[async_trait]
impl SeenReports for Sqlite {
    async fn sight(
        &self,
        marks: &[(String, String)],
        now: DateTime<Utc>,
        until: DateTime<Utc>,
    ) -> Result<Vec<String>> {
        if marks.is_empty() {
            return Ok(Vec::new());
        }
        let marks = marks.to_vec();
        let keep = move |transaction: &Transaction<'_>| {
            transaction
                .prepare_cached("DELETE FROM sightings WHERE until <= ?1")?
                .execute([millis(now)])?;
            let sql = "INSERT INTO sightings (key, mark, until) VALUES (?1, ?2, ?3)
                       ON CONFLICT (key) DO NOTHING";
            let mut keep = transaction.prepare_cached(sql)?;
            let mut standing = Vec::with_capacity(marks.len());
            for (key, mark) in marks {
                keep.execute((&key, &mark, millis(until)))?;
                // If `until` has already passed, the new mark is not found.
                standing.push(find(transaction, &key, now)?.unwrap_or(mark));
            }
            Ok(standing)
        };
        self.connections.write("noting what was seen", keep).await
    }

    async fn sighted(&self, keys: &[String], now: DateTime<Utc>) -> Result<Vec<Option<String>>> {
        let find = move |transaction: &Transaction<'_>, key: &String| find(transaction, key, now);
        self.read_each("looking for what was seen", keys, find)
            .await
    }
}

fn find(transaction: &Transaction<'_>, key: &str, now: DateTime<Utc>) -> Answer<Option<String>> {
    let sql = "SELECT mark FROM sightings WHERE key = ?1 AND until > ?2";
    let mut statement = transaction.prepare_cached(sql)?;
    let found = statement.query_row((key, millis(now)), |row| row.get(0));
    Ok(found.optional()?)
}
