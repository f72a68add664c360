//! Diagnostics of the file. SQLite has no server and therefore no clock of its own.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::Transaction;

use super::days::has_day;
use super::rows::millis;
use super::suppressions::NOT_LIFTED;
use super::{Sqlite, schema};
use crate::domain::{BatchState, DeliveryState};
use crate::store::{
    CountedRecords, DatabaseStatus, Diagnostics, Engine, OutstandingWork, Result, Schema,
    WaitingItems,
};

#[async_trait]
impl Diagnostics for Sqlite {
    async fn condition(&self) -> Result<DatabaseStatus> {
        self.read(|transaction| {
            let text = |sql| transaction.query_row(sql, [], |row| row.get::<_, String>(0));
            let version = text("SELECT sqlite_version()")?;
            let journal = text("PRAGMA journal_mode")?;
            // Opening the file has already upgraded it.
            let schema_version = schema::VERSION.unsigned_abs();
            Ok(DatabaseStatus {
                engine: Engine::Sqlite { version, journal },
                server_time: None,
                time_since_read: Duration::ZERO,
                schema: Ok(Schema { version: schema_version, known: schema_version }),
                missing_indexes: Ok(schema::missing_indexes(transaction)?),
            })
        })
        .await
    }

    async fn outstanding(&self, now: DateTime<Utc>, limit: u64) -> Result<OutstandingWork> {
        self.read(move |transaction| outstanding(transaction, now, limit)).await
    }

    async fn count(&self, counted: &[CountedRecords]) -> Result<Vec<u64>> {
        self.read_each(counted, |transaction, counted| count(transaction, *counted)).await
    }
}

fn count(transaction: &Transaction<'_>, counted: CountedRecords) -> Result<u64> {
    let rows = match counted {
        CountedRecords::Stacks(day) if !has_day(transaction, day)? => return Ok(0),
        CountedRecords::Stacks(day) => day.collection_name(),
        CountedRecords::Fanouts(state) => format!("fanouts WHERE state = '{state}'"),
        CountedRecords::Batches(BatchState::Open) => {
            "accumulator_batches WHERE open = 1".to_owned()
        }
        // An ended batch is in its accumulator until it is filed, and in both tables for a moment.
        CountedRecords::Batches(state) => format!(
            "(SELECT id FROM batches WHERE state = '{state}'
              UNION ALL SELECT batch FROM accumulator_batches
                        WHERE open = 0 AND '{state}' = 'closing')"
        ),
        CountedRecords::Deliveries(state) => format!("deliveries WHERE state = '{state}'"),
        CountedRecords::Suppressions(reason) => {
            format!("suppressions WHERE reason = '{reason}' AND {NOT_LIFTED}")
        }
    };
    count_rows(transaction, &rows)
}

fn count_rows(transaction: &Transaction<'_>, rows: &str) -> Result<u64> {
    let sql = format!("SELECT count(*) FROM {rows}");
    let count: i64 = transaction.query_row(&sql, [], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Returns the work still to be done, each count at most `limit`. An index answers each query.
fn outstanding(
    transaction: &Transaction<'_>,
    now: DateTime<Utc>,
    limit: u64,
) -> Result<OutstandingWork> {
    let count_up_to_limit = |rows: &str| {
        count_rows(transaction, &format!("(SELECT 1 FROM {rows} LIMIT {})", limit as i64))
    };
    let pile = |rows: &str, time_column: &str| -> Result<WaitingItems> {
        let sql = format!("SELECT min({time_column}) FROM {rows}");
        let first: Option<i64> = transaction.query_row(&sql, [], |row| row.get(0))?;
        let since = first.and_then(DateTime::from_timestamp_millis);
        Ok(WaitingItems { count: count_up_to_limit(rows)?, since })
    };
    let deliveries = |state: DeliveryState| {
        pile(&format!("deliveries WHERE state = '{}'", state.as_str()), "created")
    };
    Ok(OutstandingWork {
        fanouts: pile("fanouts WHERE state = 'pending'", "at")?,
        batches_open: count_up_to_limit("accumulator_batches WHERE open = 1")?,
        batches_due: pile(&format!("accumulators WHERE due <= {}", millis(now)), "due")?,
        pending: deliveries(DeliveryState::Pending)?,
        sending: deliveries(DeliveryState::Sending)?,
        unknown: deliveries(DeliveryState::Unknown)?,
    })
}
