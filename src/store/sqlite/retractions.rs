//! Retractions: one row for each type and object. `at` only grows, under any race.

use async_trait::async_trait;
use rusqlite::{OptionalExtension, Transaction};

use super::Sqlite;
use super::answer::Answer;
use super::pokes::poke;
use crate::domain::{ChangeNotice, Event, Id, Retraction};
use crate::store::{Result, Retractions};

#[async_trait]
impl Retractions for Sqlite {
    async fn retract(&self, retractions: &[Retraction], about: &ChangeNotice) -> Result<()> {
        if retractions.is_empty() {
            return Ok(());
        }
        let (retractions, about) = (retractions.to_vec(), about.clone());
        let put = move |transaction: &Transaction<'_>| {
            let sql = "INSERT INTO retractions (type, object, at) VALUES (?1, ?2, ?3)
                       ON CONFLICT DO UPDATE SET at = excluded.at WHERE at < excluded.at";
            let mut put = transaction.prepare_cached(sql)?;
            for Retraction { t, o, at } in &retractions {
                put.execute((t.as_str(), o.as_str(), at.to_string()))?;
            }
            poke(transaction, &about)
        };
        self.connections.write("taking events back", put).await
    }

    async fn retractions(&self, events: &[Event]) -> Result<Vec<Option<Id>>> {
        self.read_each("reading what was taken back", events, find)
            .await
    }
}

fn find(transaction: &Transaction<'_>, event: &Event) -> Answer<Option<Id>> {
    let sql = "SELECT at FROM retractions WHERE type = ?1 AND object = ?2";
    let at: Option<String> = transaction
        .prepare_cached(sql)?
        .query_row((event.t.as_str(), event.o.as_str()), |row| row.get(0))
        .optional()?;
    Ok(at.map(|at| {
        at.parse().unwrap_or_else(|_| {
            let (t, o) = (&event.t, &event.o);
            tracing::warn!(%t, %o, "a retraction cannot be read, and reaches everything");
            Id::LAST
        })
    }))
}
