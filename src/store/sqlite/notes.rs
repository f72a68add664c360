//! Notes and named leases: one row for each name. Change notices: rows that other processes poll
//! for.
//!
//! A notice is written in the transaction that makes the change, so a reader of the notice also
//! sees the change. Polling costs less than a wake-up between processes, so it runs ten times a
//! second.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use rusqlite::types::Value;
use rusqlite::{Transaction, params_from_iter};

use super::Sqlite;
use super::rows::{Statements as _, list, millis};
use crate::domain::coordination::furthest_lease_of;
use crate::domain::{ChangeNotice, Lease};
use crate::store::{ChangeNotices, NoteFilter, Notes, Release, Result};

#[async_trait]
impl Notes for Sqlite {
    async fn lease(&self, name: &str, lease: &Lease, now: DateTime<Utc>) -> Result<bool> {
        let sql = "INSERT INTO leases (name, owner, until) VALUES (?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
                   WHERE owner = excluded.owner OR until <= ?4 OR until > ?5";
        let row = (
            name.to_owned(),
            lease.owner.clone(),
            millis(lease.until),
            millis(now),
            millis(furthest_lease_of(name, now)),
        );
        let lease = move |transaction: &Transaction<'_>| transaction.run(sql, row);
        Ok(self.write(lease).await? == 1)
    }

    async fn release(&self, which: &Release<'_>) -> Result<()> {
        let (sql, values): (_, Vec<Value>) = match *which {
            Release::Lease { name, owner } => (
                "DELETE FROM leases WHERE name = ?1 AND owner = ?2",
                vec![name.to_owned().into(), owner.to_owned().into()],
            ),
            Release::Fanouts(owner) => (
                "UPDATE fanouts SET owner = NULL, until = NULL WHERE owner = ?1",
                vec![owner.to_owned().into()],
            ),
            Release::Deliveries(owner) => (
                "UPDATE deliveries SET owner = NULL, until = NULL WHERE owner = ?1 AND open",
                vec![owner.to_owned().into()],
            ),
            Release::Deferred(now) => (
                "UPDATE deliveries SET until = NULL
                 WHERE open AND coalesce(until, 0) > ?1 AND owner IS NULL AND state = 'pending'",
                vec![millis(now).into()],
            ),
        };
        self.write(move |transaction| transaction.run(sql, params_from_iter(values)).map(drop))
            .await
    }

    async fn notes(&self, which: NoteFilter<'_>) -> Result<Vec<(String, String)>> {
        let (condition, values) = match which {
            NoteFilter::Named(names) => {
                let names = list(names.iter().copied());
                ("name IN (SELECT value FROM json_each(?1))", vec![names])
            }
            NoteFilter::Prefix(prefix) => (
                "name >= ?1 AND name < ?2",
                vec![prefix.to_owned(), format!("{prefix}{}", char::MAX)],
            ),
        };
        self.read(move |transaction| {
            let sql = format!("SELECT name, text FROM notes WHERE {condition} ORDER BY name");
            transaction.all(&sql, params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .await
    }

    async fn swap_note(&self, name: &str, read: Option<&str>, text: Option<&str>) -> Result<bool> {
        let text_of = |text: Option<&str>| text.map(str::to_owned);
        let (name, read, text) = (name.to_owned(), text_of(read), text_of(text));
        self.write(move |transaction| {
            let sql = "SELECT text FROM notes WHERE name = ?1";
            let current: Option<String> = transaction.first(sql, [&name], |row| row.get(0))?;
            if current != read {
                return Ok(false);
            }
            let changed = match text {
                Some(text) => transaction
                    .run("INSERT OR REPLACE INTO notes (name, text) VALUES (?1, ?2)", [name, text]),
                None => transaction.run("DELETE FROM notes WHERE name = ?1", [name]),
            };
            Ok(changed? == 1)
        })
        .await
    }
}

/// Number of notices to keep. The oldest are removed.
const KEPT: i64 = 1_000;
/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(100);

#[async_trait]
impl ChangeNotices for Sqlite {
    async fn change_notices(&self) -> Result<BoxStream<'static, Result<ChangeNotice>>> {
        let newest = self.read(|transaction| {
            let sql = "SELECT coalesce(max(id), 0) FROM change_notices";
            Ok(transaction.query_row(sql, [], |row| row.get(0))?)
        });
        let (store, newest): (Sqlite, i64) = (self.clone(), newest.await?);
        // The id of the last notice that was read, and the notices to pass on.
        let next = move |(mut last, mut received): (i64, VecDeque<ChangeNotice>)| {
            let store = store.clone();
            async move {
                while received.is_empty() {
                    tokio::time::sleep(PAUSE).await;
                    let read = store.read(move |transaction| since(transaction, last));
                    (last, received) = read.await?;
                }
                let notice = received.pop_front();
                Ok(notice.map(|notice| (notice, (last, received))))
            }
        };
        let start = (newest, VecDeque::from([ChangeNotice::All]));
        Ok(stream::try_unfold(start, next).boxed())
    }
}

/// Returns the notices after `last` in order, and the id of the newest.
fn since(transaction: &Transaction<'_>, last: i64) -> Result<(i64, VecDeque<ChangeNotice>)> {
    let sql = "SELECT id, about, keys FROM change_notices WHERE id > ?1 ORDER BY id";
    let mut statement = transaction.prepare_cached(sql)?;
    let (mut rows, mut received, mut newest) = (statement.query([last])?, VecDeque::new(), last);
    while let Some(row) = rows.next()? {
        let (id, about, keys): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if newest == last && id > last + 1 {
            // The notices in between have already been removed.
            received.push_back(ChangeNotice::All);
        }
        newest = id;
        received.push_back(ChangeNotice::stored(&about, &keys));
    }
    Ok((newest, received))
}

/// Adds a notice, which subscribers see once the transaction commits.
pub(super) fn notify(transaction: &Transaction<'_>, notice: &ChangeNotice) -> Result<()> {
    let (about, keys) = notice.kept();
    let sql = "INSERT INTO change_notices (about, keys) VALUES (?1, ?2)";
    transaction.run(sql, (about, keys))?;
    let oldest = transaction.last_insert_rowid() - KEPT;
    transaction.run("DELETE FROM change_notices WHERE id <= ?1", [oldest]).map(drop)
}
