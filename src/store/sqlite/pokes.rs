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
use super::answer::Answer;
use crate::domain::ChangeNotice;
use crate::store::{Pokes, Result};

/// Number of notices to keep. The oldest are removed.
const KEPT: i64 = 1_000;
/// Pause between two polls.
const PAUSE: Duration = Duration::from_millis(100);

/// The state of a subscription.
struct Listener {
    store: Sqlite,
    last: i64,
    heard: VecDeque<ChangeNotice>,
}

#[async_trait]
impl Pokes for Sqlite {
    async fn pokes(&self) -> Result<BoxStream<'static, Result<ChangeNotice>>> {
        let newest = |transaction: &Transaction<'_>| {
            let sql = "SELECT coalesce(max(id), 0) FROM pokes";
            Ok(transaction.query_row(sql, [], |row| row.get(0))?)
        };
        let doing = "listening for what changes in feeds";
        let listener = Listener {
            store: self.clone(),
            last: self.connections.read(doing, newest).await?,
            heard: VecDeque::from([ChangeNotice::All]),
        };
        let next = move |mut listener: Listener| async move {
            while listener.heard.is_empty() {
                tokio::time::sleep(PAUSE).await;
                let last = listener.last;
                let look = move |transaction: &Transaction<'_>| since(transaction, last);
                let (last, heard) = listener.store.connections.read(doing, look).await?;
                listener.last = last;
                listener.heard.extend(heard);
            }
            let poke = listener.heard.pop_front();
            Ok(poke.map(|poke| (poke, listener)))
        };
        Ok(stream::try_unfold(listener, next).boxed())
    }
}

/// Returns the notices after `last` in order, and the id of the newest.
fn since(transaction: &Transaction<'_>, last: i64) -> Answer<(i64, Vec<ChangeNotice>)> {
    let sql = "SELECT id, about, keys FROM pokes WHERE id > ?1 ORDER BY id";
    let mut statement = transaction.prepare_cached(sql)?;
    let (mut rows, mut heard, mut newest) = (statement.query([last])?, Vec::new(), last);
    while let Some(row) = rows.next()? {
        let (id, about, keys): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if newest == last && id > last + 1 {
            // The notices in between have already been removed.
            heard.push(ChangeNotice::All);
        }
        newest = id;
        heard.push(ChangeNotice::stored(&about, &keys));
    }
    Ok((newest, heard))
}

/// Adds a notice, which subscribers see once the transaction commits.
pub(super) fn poke(transaction: &Transaction<'_>, poke: &ChangeNotice) -> Answer<()> {
    let (about, keys) = poke.kept();
    let sql = "INSERT INTO pokes (about, keys) VALUES (?1, ?2)";
    transaction.prepare_cached(sql)?.execute((about, keys))?;
    let oldest = transaction.last_insert_rowid() - KEPT;
    let sql = "DELETE FROM pokes WHERE id <= ?1";
    transaction.prepare_cached(sql)?.execute([oldest])?;
    Ok(())
}
