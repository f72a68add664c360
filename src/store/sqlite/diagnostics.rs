//! Diagnostics of the file, which has no clock of its own.

use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::Transaction;

use super::days::has_day;
use super::rows::millis;
use super::suppressions::NOT_LIFTED;
use super::{Sqlite, schema};
use crate::domain::{BatchState, DeliveryState};
use crate::store::{Condition, Counted, Diagnostics, Engine, Outstanding, Pile, Result, Schema};

#[async_trait]
impl Diagnostics for Sqlite {
    async fn condition(&self) -> Result<Condition> {
        self.read(|transaction| {
            let text = |sql| transaction.query_row(sql, [], |row| row.get::<_, String>(0));
            let version = text("SELECT sqlite_version()")?;
            let journal = text("PRAGMA journal_mode")?;
            Ok(Condition {
                engine: Engine::Sqlite { version, journal },
                time: None,
                age: Duration::ZERO,
                // Opening the file has already upgraded it.
                schema: Ok(Schema { version: super::SCHEMA, known: super::SCHEMA }),
                missing_indexes: Ok(schema::missing_indexes(transaction)?),
            })
        })
        .await
    }

    async fn outstanding(&self, now: DateTime<Utc>, most: u64) -> Result<Outstanding> {
        self.read(move |transaction| outstanding(transaction, now, most)).await
    }

    async fn count(&self, what: &[Counted]) -> Result<Vec<u64>> {
        self.read_each(what, |transaction, what| count(transaction, *what)).await
    }
}

fn count(transaction: &Transaction<'_>, what: Counted) -> Result<u64> {
    let rows = match what {
        Counted::Stacks(day) if !has_day(transaction, day)? => return Ok(0),
        Counted::Stacks(day) => day.collection(),
        Counted::Fanouts(state) => format!("fanouts WHERE state = '{state}'"),
        Counted::Batches(BatchState::Open) => "accumulator_batches WHERE open = 1".to_owned(),
        // A batch that has ended is in its accumulator until it is filed, and in both for a moment.
        Counted::Batches(state) => format!(
            "(SELECT id FROM batches WHERE state = '{state}'
              UNION ALL SELECT batch FROM accumulator_batches WHERE open = 0 AND '{state}' = 'closing')"
        ),
        Counted::Deliveries(state) => format!("deliveries WHERE state = '{state}'"),
        Counted::Suppressions(reason) => {
            format!("suppressions WHERE reason = '{reason}' AND {NOT_LIFTED}")
        }
    };
    let sql = format!("SELECT count(*) FROM {rows}");
    let count: i64 = transaction.query_row(&sql, [], |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Returns the work still to be done. An index answers each query.
fn outstanding(
    transaction: &Transaction<'_>,
    now: DateTime<Utc>,
    most: u64,
) -> Result<Outstanding> {
    let (now, most) = (millis(now), most as i64);
    let at_most = |of: &str| -> Result<u64> {
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {of} LIMIT {most})");
        let count: i64 = transaction.query_row(&sql, [], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    };
    let pile = |of: &str, since: &str| -> Result<Pile> {
        let sql = format!("SELECT min({since}) FROM {of}");
        let first: Option<i64> = transaction.query_row(&sql, [], |row| row.get(0))?;
        Ok(Pile { count: at_most(of)?, since: first.and_then(DateTime::from_timestamp_millis) })
    };
    let rows = |state: DeliveryState| {
        let of = format!("deliveries WHERE state = '{}'", state.as_str());
        pile(&of, "created")
    };
    Ok(Outstanding {
        fanouts: pile("fanouts WHERE state = 'pending'", "at")?,
        batches_open: at_most("accumulator_batches WHERE open = 1")?,
        batches_due: pile(&format!("accumulators WHERE due <= {now}"), "due")?,
        pending: rows(DeliveryState::Pending)?,
        sending: rows(DeliveryState::Sending)?,
        unknown: rows(DeliveryState::Unknown)?,
    })
}
