//! News of what may have changed in feeds: rows that other processes look for.
//!
//! The rule: a poke is a part of the transaction that changes something, so whoever sees it sees
//! that as well. Looking costs less than a wake-up does, so it is done ten times a second.

use std::collections::VecDeque;
use std::time::Duration;

use async_trait::async_trait;
use futures::StreamExt;
use futures::stream::{self, BoxStream};
use rusqlite::Transaction;

use super::Sqlite;
use super::answer::Answer;
use crate::domain::Poke;
use crate::store::{Pokes, Result};

/// So many of the newest stand.
const KEPT: i64 = 1_000;
/// How long there is between two looks.
const PAUSE: Duration = Duration::from_millis(100);

/// Where somebody is who listens.
struct Listener {
    store: Sqlite,
    last: i64,
    heard: VecDeque<Poke>,
}

#[async_trait]
impl Pokes for Sqlite {
    async fn pokes(&self) -> Result<BoxStream<'static, Result<Poke>>> {
        let newest = |transaction: &Transaction<'_>| {
            let sql = "SELECT coalesce(max(id), 0) FROM pokes";
            Ok(transaction.query_row(sql, [], |row| row.get(0))?)
        };
        let doing = "listening for what changes in feeds";
        let listener = Listener {
            store: self.clone(),
            last: self.connections.read(doing, newest).await?,
            heard: VecDeque::from([Poke::All]),
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

/// What was told since, and up to where.
fn since(transaction: &Transaction<'_>, last: i64) -> Answer<(i64, Vec<Poke>)> {
    let sql = "SELECT id, about, keys FROM pokes WHERE id > ?1 ORDER BY id";
    let mut statement = transaction.prepare_cached(sql)?;
    let (mut rows, mut heard, mut newest) = (statement.query([last])?, Vec::new(), last);
    while let Some(row) = rows.next()? {
        let (id, about, keys): (i64, String, Vec<u8>) = (row.get(0)?, row.get(1)?, row.get(2)?);
        if newest == last && id > last + 1 {
            // Those between are gone already.
            heard.push(Poke::All);
        }
        newest = id;
        heard.push(Poke::stored(&about, &keys));
    }
    Ok((newest, heard))
}

/// Tells everybody who listens, once the transaction stands.
pub(super) fn poke(transaction: &Transaction<'_>, poke: &Poke) -> Answer<()> {
    let (about, keys) = poke.kept();
    let sql = "INSERT INTO pokes (about, keys) VALUES (?1, ?2)";
    transaction.prepare_cached(sql)?.execute((about, keys))?;
    let oldest = transaction.last_insert_rowid() - KEPT;
    let sql = "DELETE FROM pokes WHERE id <= ?1";
    transaction.prepare_cached(sql)?.execute([oldest])?;
    Ok(())
}
