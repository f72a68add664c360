//! What is removed once nobody needs it any more.

use async_trait::async_trait;
use chrono::{DateTime, Utc};

use super::Sqlite;
use super::codec::millis;
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
            // An event and its audience are accepted in one transaction here.
            Forgettable::Unaccepted => return Ok(0),
        };
        let asked = (millis(before), limit as i64);
        let forget = move |transaction: &rusqlite::Transaction<'_>| {
            Ok(transaction.prepare_cached(sql)?.execute(asked)? as u64)
        };
        self.connections
            .write("forgetting what is old", forget)
            .await
    }
}
