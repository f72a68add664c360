//! Removes old records.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use rusqlite::Transaction;
use rusqlite::types::Value as Sql;

use super::Sqlite;
use super::answer::Answer;
use super::codec::millis;
use crate::domain::Id;
use crate::store::{Forgettable, Result, Retention};

#[async_trait]
impl Retention for Sqlite {
    async fn forget(&self, what: Forgettable, before: DateTime<Utc>, limit: usize) -> Result<u64> {
        let sql = match what {
            Forgettable::Deliveries => {
                "DELETE FROM deliveries WHERE id IN (
                     SELECT id FROM deliveries WHERE settled < ?1 AND NOT open AND state <> 'unknown'
                     ORDER BY settled LIMIT ?2)"
            }
            Forgettable::Batches => {
                "DELETE FROM batches WHERE id IN
                     (SELECT id FROM batches WHERE settled < ?1 ORDER BY settled LIMIT ?2)"
            }
            Forgettable::Inboxes => {
                "DELETE FROM inboxes WHERE user IN
                     (SELECT user FROM inboxes WHERE changed < ?1 ORDER BY changed LIMIT ?2)"
            }
            Forgettable::Retractions => {
                "DELETE FROM retractions WHERE (type, object) IN
                     (SELECT type, object FROM retractions WHERE at < ?1 ORDER BY at LIMIT ?2)"
            }
            Forgettable::Events => return self.forget_events(before, limit).await,
            // SQLite writes an event and its audience in one transaction, so there are no
            // leftovers.
            Forgettable::Unaccepted => return Ok(0),
        };
        let before: Sql = match what {
            Forgettable::Retractions => Id::at(before, [0; 8]).to_string().into(),
            _ => millis(before).into(),
        };
        let asked = (before, limit as i64);
        let forget = move |transaction: &Transaction<'_>| {
            Ok(transaction.prepare_cached(sql)?.execute(asked)? as u64)
        };
        self.connections
            .write("forgetting what is old", forget)
            .await
    }
}

impl Sqlite {
    /// Removes the oldest events whose fan-out is done, with their audiences and details.
    async fn forget_events(&self, before: DateTime<Utc>, limit: usize) -> Result<u64> {
        let before = Id::at(before, [0; 8]).to_string();
        let forget = move |transaction: &Transaction<'_>| -> Answer<u64> {
            let sql =
                "SELECT id FROM fanouts WHERE id < ?1 AND state = 'done' ORDER BY id LIMIT ?2";
            let mut old = transaction.prepare_cached(sql)?;
            let old = old.query_map((before, limit as i64), |row| row.get::<_, String>(0))?;
            let old: Vec<String> = old.collect::<rusqlite::Result<_>>()?;
            for sql in [
                "DELETE FROM details WHERE fanout = ?1",
                "DELETE FROM audiences WHERE fanout = ?1",
                "DELETE FROM fanouts WHERE id = ?1",
            ] {
                let mut delete = transaction.prepare_cached(sql)?;
                for id in &old {
                    delete.execute([id])?;
                }
            }
            Ok(old.len() as u64)
        };
        self.connections
            .write("forgetting old events", forget)
            .await
    }
}
