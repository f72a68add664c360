//! Change notices: rows that other processes poll for.
//!
//! A notice is written in the transaction that makes the change, so a reader of the notice also
//! sees the change. Polling costs less than a wake-up between processes, so it runs ten times a
//! second.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use rusqlite::Transaction;

use super::Sqlite;
use super::rows::Statements as _;
use crate::domain::ChangeNotice;
use crate::store::{ChangeNotices, Result};

/// Number of notices to keep. The oldest are removed.
const KEPT: i64 = 1_000;
/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of a subscription.
struct Listener {
    store: Sqlite,
    last: i64,
    received: VecDeque<ChangeNotice>,
}

#[async_trait]
impl ChangeNotices for Sqlite {
    async fn change_notices(&self) -> Result<BoxStream<'static, Result<ChangeNotice>>> {
        let newest = self.read(|transaction| {
            let sql = "SELECT coalesce(max(id), 0) FROM change_notices";
            Ok(transaction.query_row(sql, [], |row| row.get(0))?)
        });
        let listener = Listener {
            store: self.clone(),
            last: newest.await?,
            received: VecDeque::from([ChangeNotice::All]),
        };
        let next = move |mut listener: Listener| async move {
            while listener.received.is_empty() {
                tokio::time::sleep(PAUSE).await;
                let last = listener.last;
                let read = move |transaction: &Transaction<'_>| since(transaction, last);
                let read = listener.store.read(read);
                let (last, received) = read.await?;
                listener.last = last;
                listener.received.extend(received);
            }
            let notice = listener.received.pop_front();
            Ok(notice.map(|notice| (notice, listener)))
        };
        Ok(stream::try_unfold(listener, next).boxed())
    }
}

/// Returns the notices after `last` in order, and the id of the newest.
fn since(transaction: &Transaction<'_>, last: i64) -> Result<(i64, Vec<ChangeNotice>)> {
    let sql = "SELECT id, about, keys FROM change_notices WHERE id > ?1 ORDER BY id";
    let mut statement = transaction.prepare_cached(sql)?;
    let (mut rows, mut received, mut newest) = (statement.query([last])?, Vec::new(), last);
    while let Some(row) = rows.next()? {
        let (id, about, keys): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if newest == last && id > last + 1 {
            // The notices in between have already been removed.
            received.push(ChangeNotice::All);
        }
        newest = id;
        received.push(ChangeNotice::stored(&about, &keys));
    }
    Ok((newest, received))
}

/// Adds a notice, which subscribers see once the transaction commits.
pub(super) fn notify(transaction: &Transaction<'_>, notice: &ChangeNotice) -> Result<()> {
    let (about, keys) = notice.kept();
    let sql = "INSERT INTO change_notices (about, keys) VALUES (?1, ?2)";
    transaction.run(sql, (about, keys))?;
    let oldest = transaction.last_insert_rowid() - KEPT;
    transaction
        .run("DELETE FROM change_notices WHERE id <= ?1", [oldest])
        .map(drop)
}
