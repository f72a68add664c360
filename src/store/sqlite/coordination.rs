//! Notes and named leases, one row for each name. Change notices, which other processes poll for.
//!
//! A notice is written in the transaction that makes the change, so a reader of the notice also
//! sees the change. Polling costs less than waking other processes, so it runs ten times a second.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use chrono::{DateTime, Utc};
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use rusqlite::types::Value;
use rusqlite::{Transaction, params_from_iter};

use super::Sqlite;
use super::rows::{Statements as _, json_list, millis};
use crate::domain::coordination::latest_valid_expiry;
use crate::domain::{ChangeNotice, Lease};
use crate::store::{ChangeNotices, LeasesToEnd, NoteFilter, Notes, Result};

#[async_trait]
impl Notes for Sqlite {
    async fn lease(&self, name: &str, lease: &Lease, now: DateTime<Utc>) -> Result<bool> {
        let sql = "INSERT INTO leases (name, owner, until) VALUES (?1, ?2, ?3)
                   ON CONFLICT (name) DO UPDATE SET owner = excluded.owner, until = excluded.until
                   WHERE owner = excluded.owner OR until <= ?4 OR until > ?5";
        let values = (
            name.to_owned(),
            lease.owner.clone(),
            millis(lease.until),
            millis(now),
            millis(latest_valid_expiry(name, now)),
        );
        Ok(self.write(move |transaction| transaction.run(sql, values)).await? == 1)
    }

    async fn release(&self, release: &LeasesToEnd<'_>) -> Result<()> {
        let (sql, values): (_, Vec<Value>) = match *release {
            LeasesToEnd::Lease { name, owner } => (
                "DELETE FROM leases WHERE name = ?1 AND owner = ?2",
                vec![name.to_owned().into(), owner.to_owned().into()],
            ),
            LeasesToEnd::Fanouts(owner) => (
                "UPDATE fanouts SET owner = NULL, until = NULL WHERE owner = ?1",
                vec![owner.to_owned().into()],
            ),
            LeasesToEnd::Deliveries(owner) => (
                "UPDATE deliveries SET owner = NULL, until = NULL WHERE owner = ?1 AND open",
                vec![owner.to_owned().into()],
            ),
            LeasesToEnd::Deferred(now) => (
                "UPDATE deliveries SET until = NULL
                 WHERE open AND coalesce(until, 0) > ?1 AND owner IS NULL AND state = 'pending'",
                vec![millis(now).into()],
            ),
        };
        self.write(move |transaction| transaction.run(sql, params_from_iter(values)).map(drop))
            .await
    }

    async fn notes(&self, filter: NoteFilter<'_>) -> Result<Vec<(String, String)>> {
        let (condition, values) = match filter {
            NoteFilter::Named(names) => {
                let names = json_list(names.iter().copied());
                ("name IN (SELECT value FROM json_each(?1))", vec![names])
            }
            NoteFilter::Prefix(prefix) => (
                "name >= ?1 AND name < ?2",
                vec![prefix.to_owned(), format!("{prefix}{}", char::MAX)],
            ),
        };
        self.read(move |transaction| {
            let sql = format!("SELECT name, text FROM notes WHERE {condition} ORDER BY name");
            transaction
                .query_all(&sql, params_from_iter(values), |row| Ok((row.get(0)?, row.get(1)?)))
        })
        .await
    }

    async fn swap_note(
        &self,
        name: &str,
        expected: Option<&str>,
        text: Option<&str>,
    ) -> Result<bool> {
        let (name, text) = (name.to_owned(), text.map(str::to_owned));
        let expected = expected.map(str::to_owned);
        self.write(move |transaction| {
            let sql = "SELECT text FROM notes WHERE name = ?1";
            let stored: Option<String> = transaction.query_first(sql, [&name], |row| row.get(0))?;
            if stored != expected {
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
const MAX_NOTICES: i64 = 1_000;
/// Pause between two polls.
const POLL_INTERVAL: Duration = Duration::from_millis(100);

#[async_trait]
impl ChangeNotices for Sqlite {
    async fn change_notices(&self) -> Result<BoxStream<'static, Result<ChangeNotice>>> {
        let sql = "SELECT coalesce(max(id), 0) FROM change_notices";
        let newest: i64 = self
            .read(move |transaction| Ok(transaction.query_row(sql, [], |row| row.get(0))?))
            .await?;
        let store = self.clone();
        // The state is the id of the last notice that was read, and the notices not yet returned.
        let next = move |(mut last, mut notices): (i64, VecDeque<ChangeNotice>)| {
            let store = store.clone();
            async move {
                while notices.is_empty() {
                    tokio::time::sleep(POLL_INTERVAL).await;
                    let newer = store.read(move |transaction| notices_after(transaction, last));
                    (last, notices) = newer.await?;
                }
                let notice = notices.pop_front();
                Ok(notice.map(|notice| (notice, (last, notices))))
            }
        };
        let start = (newest, VecDeque::from([ChangeNotice::All]));
        Ok(stream::try_unfold(start, next).boxed())
    }
}

/// Returns the id of the newest notice, and the notices after `last` in order.
fn notices_after(
    transaction: &Transaction<'_>,
    last: i64,
) -> Result<(i64, VecDeque<ChangeNotice>)> {
    let sql = "SELECT id, about, keys FROM change_notices WHERE id > ?1 ORDER BY id";
    let mut statement = transaction.prepare_cached(sql)?;
    let (mut rows, mut notices, mut newest) = (statement.query([last])?, VecDeque::new(), last);
    while let Some(row) = rows.next()? {
        let (id, about, keys): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if newest == last && id > last + 1 {
            // The notices in between have already been removed.
            notices.push_back(ChangeNotice::All);
        }
        newest = id;
        notices.push_back(ChangeNotice::from_stored(&about, &keys));
    }
    Ok((newest, notices))
}

/// Adds a notice, which subscribers see once the transaction commits.
pub(super) fn notify(transaction: &Transaction<'_>, notice: &ChangeNotice) -> Result<()> {
    let (about, keys) = notice.to_stored();
    let sql = "INSERT INTO change_notices (about, keys) VALUES (?1, ?2)";
    transaction.run(sql, (about, keys))?;
    let oldest = transaction.last_insert_rowid() - MAX_NOTICES;
    transaction.run("DELETE FROM change_notices WHERE id <= ?1", [oldest]).map(drop)
}
