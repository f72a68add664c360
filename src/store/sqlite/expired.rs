//! Deletes expired records.

use chrono::{DateTime, Utc};
use rusqlite::types::Value;

use super::Sqlite;
use super::rows::{Statements as _, millis};
use crate::domain::Id;
use crate::store::{ExpiringRecords, Result};

impl Sqlite {
    /// Deletes at most `limit` records from before this time, the oldest first. Returns their
    /// number.
    pub(super) async fn delete_expired(
        &self,
        kind: ExpiringRecords,
        before: DateTime<Utc>,
        limit: usize,
    ) -> Result<u64> {
        // The table, the columns of its key, and the condition and order of the expired rows.
        let (table, key, expired) = match kind {
            ExpiringRecords::Deliveries => (
                "deliveries",
                "id",
                "settled < ?1 AND NOT open AND state <> 'unknown' ORDER BY settled",
            ),
            ExpiringRecords::Batches => ("batches", "id", "settled < ?1 ORDER BY settled"),
            ExpiringRecords::Inboxes => ("inboxes", "user", "changed < ?1 ORDER BY changed"),
            ExpiringRecords::Retractions => ("retractions", "type, object", "at < ?1 ORDER BY at"),
            ExpiringRecords::Events => ("fanouts", "id", "id < ?1 AND state = 'done' ORDER BY id"),
        };
        let cutoff: Value = match kind {
            ExpiringRecords::Retractions | ExpiringRecords::Events => {
                Id::at(before, [0; 8]).to_string().into()
            }
            _ => millis(before).into(),
        };
        self.write(move |transaction| {
            let expired_keys = format!("SELECT {key} FROM {table} WHERE {expired} LIMIT ?2");
            let delete = |table: &str, key: &str| {
                let sql = format!("DELETE FROM {table} WHERE ({key}) IN ({expired_keys})");
                transaction.run(&sql, (&cutoff, limit as i64))
            };
            if kind == ExpiringRecords::Events {
                delete("details", "fanout")?;
                delete("audiences", "fanout")?;
            }
            Ok(delete(table, key)? as u64)
        })
        .await
    }
}
