//! Diagnostics of the file. It has no clock of its own.

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use rusqlite::{Transaction, params_from_iter};

use super::answer::Answer;
use super::codec::millis;
use super::days::has_day;
use super::suppressions::NOT_LIFTED;
use super::{Sqlite, schema, upgrade};
use crate::domain::{BatchState, DeliveryState, FanoutState};
use crate::store::{Counted, Diagnostics, Engine, Outstanding, Pile, Result, Schema, Server};

#[async_trait]
impl Diagnostics for Sqlite {
    async fn server(&self) -> Result<Server> {
        self.connections
            .read("looking at the file", |transaction| {
                let text = |sql| transaction.query_row(sql, [], |row| row.get::<_, String>(0));
                let engine = Engine::Sqlite {
                    version: text("SELECT sqlite_version()")?,
                    journal: text("PRAGMA journal_mode")?,
                };
                Ok(Server { engine, time: None })
            })
            .await
    }

    async fn schema(&self) -> Result<Schema> {
        // Opening the file has already upgraded it.
        Ok(upgrade::schema(upgrade::VERSION))
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

    async fn outstanding(&self, now: DateTime<Utc>, most: u64) -> Result<Outstanding> {
        let look = move |transaction: &Transaction<'_>| outstanding(transaction, now, most);
        let doing = "looking what is to be done";
        self.connections.read(doing, look).await
    }

    async fn count(&self, what: &[Counted]) -> Result<Vec<u64>> {
        let what = what.to_vec();
        let count = move |transaction: &Transaction<'_>| {
            what.iter().map(|what| count(transaction, *what)).collect()
        };
        self.connections.read("counting", count).await
    }
}

fn count(transaction: &Transaction<'_>, what: Counted) -> Answer<u64> {
    let (sql, of) = match what {
        Counted::Stacks(day) if !has_day(transaction, day)? => return Ok(0),
        Counted::Stacks(day) => (format!("SELECT count(*) FROM {}", day.collection()), None),
        Counted::Fanouts(state) => {
            let pending = "SELECT count(*) FROM fanouts WHERE state = 'pending'";
            let sql = match state {
                FanoutState::Pending => pending.to_owned(),
                FanoutState::Done => format!("SELECT count(*) - ({pending}) FROM fanouts"),
            };
            (sql, None)
        }
        Counted::Batches(BatchState::Open) => {
            let open = "SELECT count(*) FROM seat_batches WHERE open = 1";
            (open.to_owned(), None)
        }
        Counted::Batches(state) => {
            let ended = "SELECT count(*) FROM seat_batches WHERE open = 0 AND ?1 = 'closing'";
            let sql = format!("SELECT count(*) + ({ended}) FROM batches WHERE state = ?1");
            (sql, Some(state.as_str()))
        }
        Counted::Deliveries(state) => {
            let sql = "SELECT count(*) FROM deliveries WHERE state = ?1";
            (sql.to_owned(), Some(state.as_str()))
        }
        Counted::Suppressions(reason) => {
            let sql =
                format!("SELECT count(*) FROM suppressions WHERE reason = ?1 AND {NOT_LIFTED}");
            (sql, Some(reason.as_str()))
        }
    };
    let mut statement = transaction.prepare_cached(&sql)?;
    let count: i64 = statement.query_row(params_from_iter(of), |row| row.get(0))?;
    Ok(count.unsigned_abs())
}

/// Returns the work still to be done. An index answers each query.
fn outstanding(
    transaction: &Transaction<'_>,
    now: DateTime<Utc>,
    most: u64,
) -> Answer<Outstanding> {
    let (now, most) = (millis(now), i64::try_from(most).unwrap_or(i64::MAX));
    let at_most = |of: &str| -> Answer<u64> {
        let sql = format!("SELECT count(*) FROM (SELECT 1 FROM {of} LIMIT {most})");
        let count: i64 = transaction.query_row(&sql, [], |row| row.get(0))?;
        Ok(count.unsigned_abs())
    };
    let pile = |of: &str, since: &str| -> Answer<Pile> {
        let sql = format!("SELECT min({since}) FROM {of}");
        let first: Option<i64> = transaction.query_row(&sql, [], |row| row.get(0))?;
        Ok(Pile {
            count: at_most(of)?,
            since: first.and_then(DateTime::from_timestamp_millis),
        })
    };
    let rows = |state: DeliveryState| {
        let of = format!("deliveries WHERE state = '{}'", state.as_str());
        pile(&of, "created")
    };
    Ok(Outstanding {
        fanouts: pile("fanouts WHERE state = 'pending'", "at")?,
        batches_open: at_most("seat_batches WHERE open = 1")?,
        batches_due: pile(&format!("seats WHERE due <= {now}"), "due")?,
        pending: rows(DeliveryState::Pending)?,
        sending: rows(DeliveryState::Sending)?,
        unknown: rows(DeliveryState::Unknown)?,
        leases: at_most(&format!("leases WHERE until > {now}"))?,
    })
}
